//! From final hidden states to what a decision needs: the logits of a slot's labels, and what the whole vocabulary
//! said at that slot. Nothing of size `[canvas, vocabulary]` is ever made: only slot rows reach the head.

use candle_core::Tensor;

use crate::error::{Error, Result};
use crate::model::Model;

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
    /// Reads slots. `hidden: [slots, H]` as a pass returns it, one label set per row.
    pub fn read_slots(&self, hidden: &Tensor, labels: &[&[u32]]) -> Result<Vec<SlotLogits>> {
        let rows = hidden.dim(0)?;
        if rows != labels.len() {
            return Err(Error::Input(format!("{rows} hidden rows for {} label sets", labels.len())));
        }
        let logits = self.logits(hidden)?.to_vec2::<f32>()?;
        logits
            .iter()
            .zip(labels)
            .enumerate()
            .map(|(row, (logits, labels))| read_row(row, logits, labels))
            .collect()
    }
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
