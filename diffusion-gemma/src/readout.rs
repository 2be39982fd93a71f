//! From final hidden states to what a decision needs: the logits of a slot's labels, and what the whole vocabulary
//! said at that slot. Only slot rows reach the head, so a read makes nothing of size `[canvas, vocabulary]`; a denoise step
//! before the last does, because the whole canvas conditions the next one.

use candle_core::{IndexOp, Tensor};

use crate::error::{Error, Result};
use crate::model::Model;

/// Rows that go through the head at a time: enough to make use of every weight read, few enough that a vocabulary of
/// 262,144 takes 34 MB.
const HEAD_ROWS: usize = 32;

/// What the model says at one slot.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotLogits {
    /// Soft-capped logits of the labels, in their order.
    pub labels: Vec<f32>,
    /// Share of the full distribution that the labels hold together (0…1).
    pub label_mass: f64,
    /// The most probable token of the whole vocabulary.
    pub argmax: u32,
}

impl Model {
    /// Reads slots. `hidden: [slots, H]` as a pass returns it, one label set per row. The outer error means that nothing was
    /// read; the inner ones are of one slot each, and the others are good.
    pub fn read_slots(&self, hidden: &Tensor, labels: &[&[u32]]) -> Result<Vec<Result<SlotLogits>>> {
        let rows = hidden.dim(0)?;
        if rows != labels.len() {
            return Err(Error::Input(format!("{rows} hidden rows for {} label sets", labels.len())));
        }
        let mut read = Vec::with_capacity(rows);
        for (tile, labels) in labels.chunks(HEAD_ROWS).enumerate() {
            let first = tile * HEAD_ROWS;
            let logits = self.logits(&hidden.narrow(0, first, labels.len())?)?.to_vec2::<f32>()?;
            for ((row, logits), labels) in (first..).zip(&logits).zip(labels) {
                read.push(read_row(row, logits, labels));
            }
        }
        Ok(read)
    }
}

/// Temperatures of the first step and of one after the last, and the entropy that the slots accepted in a step may have
/// together, in nats: the published generation config.
const TEMPERATURES: [f64; 2] = [0.8, 0.4];
const ENTROPY_BOUND_NATS: f64 = 0.1;

/// The temperature of step `step` (from 0) of `steps`.
fn step_temperature(step: usize, steps: usize) -> f64 {
    let [first, end] = TEMPERATURES;
    end + (first - end) * (steps - step) as f64 / steps as f64
}

impl Model {
    /// Ends a denoise step of a canvas that is pinned except for its slots, and is not the last one.
    ///
    /// `hidden: [rows, H]`, every row of the canvas; `slots`: row and label ids; `step` (from 0) of `steps`. Gives the signal for
    /// the next step, `[rows, H]`, and per slot the label it is set to, `None` where it shall have fresh noise. The rule is that
    /// of the model's sampler, among the slots alone: those with the least entropy are accepted, as long as the ones before them
    /// have no more than a bound together; the least of all always is. An accepted slot takes its most probable label instead of
    /// a sample.
    pub fn settle(
        &self,
        hidden: &Tensor,
        slots: &[(usize, &[u32])],
        (step, steps): (usize, usize),
    ) -> Result<(Tensor, Vec<Option<u32>>)> {
        let scaled = (self.logits(hidden)? / step_temperature(step, steps))?;
        let mut read = Vec::with_capacity(slots.len());
        for (number, (row, labels)) in slots.iter().enumerate() {
            let logits = scaled.i(*row)?.to_vec1::<f32>()?;
            let labels = read_row(number, &logits, labels)?.labels;
            let best = (0..labels.len()).fold(0, |best, n| if labels[n] > labels[best] { n } else { best });
            read.push((entropy_nats(&logits), best));
        }
        let mut order: Vec<usize> = (0..slots.len()).collect();
        order.sort_by(|a, b| read[*a].0.total_cmp(&read[*b].0));
        let (mut settled, mut before) = (vec![None; slots.len()], 0.0);
        for slot in order {
            if before <= ENTROPY_BOUND_NATS {
                settled[slot] = slots[slot].1.get(read[slot].1).copied();
            }
            before += read[slot].0;
        }
        Ok((self.soft_signal(&scaled)?, settled))
    }
}

/// Entropy of the softmax over a whole row. `logits: [V]`, finite.
fn entropy_nats(logits: &[f32]) -> f64 {
    let best = logits.iter().copied().fold(f32::MIN, f32::max);
    let (mut total, mut weighted) = (0.0, 0.0);
    for logit in logits {
        let below = f64::from(*logit) - f64::from(best);
        total += below.exp();
        weighted += below * below.exp();
    }
    (total.ln() - weighted / total).max(0.0)
}

/// `logits: [V]` of one slot.
fn read_row(row: usize, logits: &[f32], labels: &[u32]) -> Result<SlotLogits> {
    if logits.iter().any(|x| !x.is_finite()) {
        return Err(Error::NonFinite { row });
    }
    let mut argmax = 0;
    for (id, value) in logits.iter().enumerate() {
        if *value > logits[argmax] {
            argmax = id;
        }
    }
    let best = f64::from(logits[argmax]);
    let power = |x: f32| (f64::from(x) - best).exp();
    let total: f64 = logits.iter().map(|x| power(*x)).sum();
    let labels = labels
        .iter()
        .map(|id| {
            logits.get(*id as usize).copied().ok_or_else(|| {
                Error::Input(format!("label id {id} is outside the vocabulary of {}", logits.len()))
            })
        })
        .collect::<Result<Vec<f32>>>()?;
    let label_mass = (labels.iter().map(|x| power(*x)).sum::<f64>() / total).min(1.0);
    Ok(SlotLogits { labels, label_mass, argmax: argmax as u32 })
}
