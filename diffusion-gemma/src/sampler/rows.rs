//! The work of a denoise step over the whole vocabulary, between a pass and the sampler's decisions.
//!
//! Rows go through the head a tile at a time, whichever reply they belong to; a tile's logits are turned into probabilities in
//! place and mixed into the self-conditioning signal, so that nothing of size `[rows, vocabulary]` exists twice.

use candle_core::Tensor;

use super::generation::{Generation, Progress};
use crate::cpu::{RowDemand, RowReading, read_vocabulary};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::ops;

/// Logits of a tile: 134 MB, 128 rows of a vocabulary of 262,144.
const TILE_VALUES: usize = 1 << 25;

impl Model {
    /// Ends a denoise step of any number of replies: each with the hidden states of the canvas it gave, `[rows, H]`.
    ///
    /// The outer error means that nothing was done. The inner ones belong to one reply each, which then cannot go on; the
    /// others do.
    pub fn advance(&self, steps: &mut [(&mut Generation, &Tensor)]) -> Result<Vec<Result<Progress>>> {
        let mut demands = Vec::new();
        let mut needed = Vec::new();
        for (generation, hidden) in steps.iter() {
            if generation.finish().is_some() {
                return Err(Error::Input(
                    "a step for a reply that has ended; hint: `canvas` gives nothing to pass then".into(),
                ));
            }
            let own = generation.demands();
            if hidden.dim(0)? != own.len() {
                return Err(Error::Input(format!(
                    "{} hidden rows for a canvas of {}; hint: read every row of the canvas",
                    hidden.dim(0)?,
                    own.len()
                )));
            }
            needed.resize(needed.len() + own.len(), generation.needs_signal());
            demands.extend(own);
        }
        if demands.is_empty() {
            return Ok(Vec::new());
        }
        let hidden: Vec<&Tensor> = steps.iter().map(|(_, hidden)| *hidden).collect();
        let hidden = Tensor::cat(&hidden, 0)?;
        let (readings, signals) = self.read_rows(&hidden, &demands, &needed, &mut |_, _| Ok(()))?;
        let mut at = 0;
        let mut progress = Vec::with_capacity(steps.len());
        for (generation, hidden) in steps {
            let rows = hidden.dim(0)?;
            let read = &readings[at..at + rows];
            let signal = if generation.needs_signal() { Some(signals.narrow(0, at, rows)?) } else { None };
            at += rows;
            let sound: Option<Vec<RowReading>> = read.iter().copied().collect();
            progress.push(sound.map_or_else(
                || Err(Error::NonFinite { row: read.iter().position(Option::is_none).unwrap_or_default() }),
                |read| generation.step(&read, signal),
            ));
        }
        Ok(progress)
    }

    /// Readings of rows, one demand each, and their self-conditioning signals, `[rows, H]`: zeros where no row of a tile needs one.
    ///
    /// `look` gets the logits of every tile, before the soft cap, and the number of its first row.
    pub(crate) fn read_rows(
        &self,
        hidden: &Tensor,
        demands: &[RowDemand],
        needed: &[bool],
        look: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<(Vec<Option<RowReading>>, Tensor)> {
        let (mut readings, mut signals) = (Vec::with_capacity(demands.len()), Vec::new());
        let tile = (TILE_VALUES / self.config.vocab_size).max(1);
        for first in (0..demands.len()).step_by(tile) {
            let rows = tile.min(demands.len() - first);
            let (read, signal) = self.read_tile(
                &hidden.narrow(0, first, rows)?,
                &demands[first..first + rows],
                needed[first..first + rows].contains(&true),
                &mut |raw| look(first, raw),
            )?;
            readings.extend(read);
            signals.push(signal);
        }
        Ok((readings, Tensor::cat(&signals, 0)?))
    }

    /// The same for few rows.
    fn read_tile(
        &self,
        hidden: &Tensor,
        demands: &[RowDemand],
        needed: bool,
        look: &mut dyn FnMut(&[f32]) -> Result<()>,
    ) -> Result<(Vec<Option<RowReading>>, Tensor)> {
        let (rows, vocab) = (demands.len(), self.config.vocab_size);
        let mut weights = self.embed.product(hidden)?;
        look(&weights)?;
        let cap = self.config.final_logit_softcapping as f32;
        let readings = read_vocabulary(&mut weights, vocab, cap, demands);
        if !needed {
            return Ok((readings, hidden.zeros_like()?));
        }
        // Weights over their total are probabilities; dividing the sums of H values is less work.
        let scales: Vec<f32> =
            readings.iter().map(|r| r.map_or(0.0, |r| (self.embed_scale / r.total) as f32)).collect();
        let scales = Tensor::from_vec(scales, (rows, 1), hidden.device())?.to_dtype(hidden.dtype())?;
        let soft = self.embed.mixed_rows(weights, rows, hidden.dtype())?.broadcast_mul(&scales)?;
        Ok((readings, self.condition(&soft)?))
    }

    /// The self-conditioning signal of scaled expected embeddings, `[rows, H]` → `[rows, H]`: all that the next step needs of a
    /// step's logits, and small enough to keep for every draw.
    fn condition(&self, soft: &Tensor) -> Result<Tensor> {
        let sc = &self.self_conditioning;
        let normed = ops::norm(soft, Some(&sc.pre_norm), self.config.rms_norm_eps)?;
        ops::gated(&normed, &sc.gate_up, &sc.down)
    }
}
