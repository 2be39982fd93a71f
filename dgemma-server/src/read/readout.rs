//! From the logits of one slot, draw by draw, to its reading and what the diagnostics say about it.

use decision::{Reading, SlotDiagnostics, entropy_nats, softmax};

use super::Text;
use crate::engine::{Slot, SlotLogits};
use crate::error::Error;

/// One slot, read.
#[derive(Debug, Clone, PartialEq)]
pub struct Readout {
    pub reading: Reading,
    pub diagnostics: SlotDiagnostics,
}

/// Largest entropy of any slot of one canvas, in nats. `slots: [slot]`.
pub fn largest_entropy_nats(slots: &[SlotLogits]) -> Result<f64, Error> {
    slots
        .iter()
        .try_fold(0.0_f64, |largest, slot| Ok(largest.max(entropy_nats(&softmax(&slot.label_logits)?))))
}

/// The text of a token as labels are written: most vocabularies put the space before a word into its token.
fn without_space(token: String) -> String {
    match token.strip_prefix(' ') {
        Some(word) if !word.is_empty() => word.to_owned(),
        _ => token,
    }
}

/// Reads one slot. `draws: [draw]`, at least one. Facts of the full row are the mean (`label_mass`) and those of the
/// first draw (`argmax_*`); they stay absent when the engine did not compute it.
pub fn read(text: &Text, slot: &Slot, draws: &[&SlotLogits]) -> Result<Readout, Error> {
    let reads = draws.iter().map(|draw| softmax(&draw.label_logits)).collect::<Result<Vec<_>, _>>()?;
    let full: Option<Vec<_>> = draws.iter().map(|draw| draw.full).collect();
    let full = full.filter(|rows| !rows.is_empty());
    let mass = |rows: &Vec<crate::engine::FullRow>| {
        rows.iter().map(|row| f64::from(row.label_mass)).sum::<f64>() / rows.len() as f64
    };
    let argmax = full.as_ref().and_then(|rows| rows.first()).map(|row| row.argmax_id);
    Ok(Readout {
        reading: Reading::from_reads(&reads)?,
        diagnostics: SlotDiagnostics {
            pos: slot.position,
            entropy: reads.iter().map(|read| entropy_nats(read)).collect(),
            label_mass: full.as_ref().map(mass),
            argmax_is_label: argmax.map(|id| slot.label_ids.contains(&id)),
            argmax_token: argmax.map(|id| without_space(text.tokenizer.token_text(id))),
        },
    })
}
