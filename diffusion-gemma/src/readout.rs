//! From final hidden states to what a decision needs: the logits of a slot's labels, and what the whole vocabulary
//! said at that slot. Only slot rows reach the head, so a read makes nothing of size `[canvas, vocabulary]`; in a denoise step
//! before the last the whole canvas conditions the next one, and goes through the head in tiles as a reply's does.

use candle_core::Tensor;

use crate::cpu::{RowDemand, read_vocabulary};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::sampler::GenerationConfig;

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
        let (vocab, cap) = (self.config.vocab_size, self.config.final_logit_softcapping as f32);
        let mut read = Vec::with_capacity(rows);
        for (tile, labels) in labels.chunks(HEAD_ROWS).enumerate() {
            let first = tile * HEAD_ROWS;
            let mut rows = self.embed.product(&hidden.narrow(0, first, labels.len())?)?;
            let of_labels: Vec<Result<Vec<f32>>> = rows
                .chunks_exact(vocab)
                .zip(labels)
                .map(|(row, labels)| label_logits(row, labels, cap))
                .collect();
            // Neither the temperature nor the sample matters here.
            let demand = RowDemand { temperature: 1.0, uniform: 0.0 };
            let readings = read_vocabulary(&mut rows, vocab, cap, &vec![demand; labels.len()]);
            for (n, (reading, of_labels)) in readings.into_iter().zip(of_labels).enumerate() {
                let Some(reading) = reading else {
                    read.push(Err(Error::NonFinite { row: first + n }));
                    continue;
                };
                let weight = |id: &u32| f64::from(rows[n * vocab + *id as usize]);
                read.push(of_labels.map(|of_labels| SlotLogits {
                    labels: of_labels,
                    label_mass: (labels[n].iter().map(weight).sum::<f64>() / reading.total).min(1.0),
                    argmax: reading.argmax,
                }));
            }
        }
        Ok(read)
    }
}

/// Soft-capped logits of some ids. `raw: [V]`.
fn label_logits(raw: &[f32], ids: &[u32], cap: f32) -> Result<Vec<f32>> {
    ids.iter()
        .map(|id| {
            raw.get(*id as usize).map(|x| cap * (x / cap).tanh()).ok_or_else(|| {
                Error::Input(format!("label id {id} is outside the vocabulary of {}", raw.len()))
            })
        })
        .collect()
}

/// What a denoise step of a canvas comes to that is pinned except for its slots.
#[derive(Debug)]
pub struct Settled {
    /// What the next step is conditioned on, `[rows, H]`.
    pub signal: Tensor,
    /// Per slot the label it is set to, `None` where it shall have fresh noise.
    pub labels: Vec<Option<u32>>,
}

impl Model {
    /// Ends such a step, which is not the last one of its canvas.
    ///
    /// `config`: temperatures, and the entropy that the slots accepted in a step may have together; `hidden: [rows, H]`, every row
    /// of the canvas; `slots`: row and label ids; `step` (from 0) of `steps`. The rule is that of the model's sampler, among the
    /// slots alone: those with the least entropy are accepted, as long as the ones before them have no more than the bound
    /// together; the least of all always is. An accepted slot takes its most probable label instead of a sample.
    ///
    /// [`Error::NonFinite`] names a slot whose row has a value that is not finite, or the number of slots where it is a row
    /// without one.
    pub fn settle(
        &self,
        config: &GenerationConfig,
        hidden: &Tensor,
        slots: &[(usize, &[u32])],
        (step, steps): (usize, usize),
    ) -> Result<Settled> {
        let count = hidden.dim(0)?;
        if let Some((row, _)) = slots.iter().find(|(row, _)| *row >= count) {
            return Err(Error::Input(format!("a slot in row {row} of a canvas of {count}")));
        }
        let config = GenerationConfig { max_denoising_steps: steps, ..config.clone() };
        // Nothing is sampled.
        let demand = RowDemand { temperature: config.temperature(steps - step), uniform: 0.0 };
        let (vocab, cap) = (self.config.vocab_size, self.config.final_logit_softcapping as f32);
        // The most probable label of every slot; rows go through the head once, for the labels and for all else.
        let mut best = vec![None; slots.len()];
        let mut look = |first: usize, raw: &[f32]| {
            let rows = first..first + raw.len() / vocab;
            for ((row, labels), best) in
                slots.iter().zip(&mut best).filter(|((row, _), _)| rows.contains(row))
            {
                let logits = label_logits(&raw[(row - first) * vocab..][..vocab], labels, cap)?;
                let most =
                    (0..logits.len()).fold(0, |most, n| if logits[n] > logits[most] { n } else { most });
                *best = labels.get(most).copied();
            }
            Ok(())
        };
        let (readings, signal) =
            self.read_rows(hidden, &vec![demand; count], &vec![true; count], &mut look)?;
        let broken = slots.iter().position(|(row, _)| readings[*row].is_none());
        let readings = readings.into_iter().collect::<Option<Vec<_>>>();
        let Some(readings) = readings else {
            return Err(Error::NonFinite { row: broken.unwrap_or(slots.len()) });
        };
        let entropy = |slot: usize| f64::from(readings[slots[slot].0].entropy_nats);
        let mut order: Vec<usize> = (0..slots.len()).collect();
        order.sort_by(|a, b| entropy(*a).total_cmp(&entropy(*b)));
        let (mut labels, mut before) = (vec![None; slots.len()], 0.0);
        for slot in order {
            if before <= config.entropy_bound_nats {
                labels[slot] = best[slot];
            }
            before += entropy(slot);
        }
        Ok(Settled { signal, labels })
    }
}
