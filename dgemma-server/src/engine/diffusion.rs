//! The native engine: DiffusionGemma behind the [`Engine`] trait, with a cache of encoded prefixes.
//!
//! Turns a batch of the scheduler into the segments of ONE `Model::forward`, and its hidden rows into slot logits with
//! one pass through the head. Next: `diffusion_gemma::Model` for the forward, `prefix_cache` for reuse.

use std::path::{Path, PathBuf};

use diffusion_gemma::{CanvasRows, DType, Error, LoadOptions, Model, Prefix, Quant, Segment};

use super::prefix_cache::PrefixCache;
use super::{Canvas, Engine, EngineError, EngineInfo, FullRow, PassItem, PassOutput, SlotLogits};

/// How to open a checkpoint.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Folder of the checkpoint.
    pub dir: PathBuf,
    /// Compute type of weights and activations.
    pub dtype: DType,
    /// Form of the layers' weights; `None` keeps them as stored.
    pub quant: Option<Quant>,
    /// Most tokens of a prompt and its canvas; `None`: what the model allows, at most [`DEFAULT_CONTEXT_TOKENS`].
    pub context_tokens: Option<usize>,
    /// Bytes of encoded prefixes kept for reuse; 0 keeps none.
    pub prefix_cache_bytes: usize,
    /// Threads the tensor library computes with, for the report only.
    pub threads: usize,
}

/// A context that fits a 32 GB machine beside 4-bit weights.
pub const DEFAULT_CONTEXT_TOKENS: usize = 32_768;

/// The engine.
#[derive(Debug)]
pub struct DiffusionEngine {
    model: Model,
    info: EngineInfo,
    cache: PrefixCache,
}

/// The committed part of one prompt.
#[derive(Debug)]
pub struct Sequence {
    tokens: Vec<u32>,
    prefix: Prefix,
}

impl DiffusionEngine {
    /// Loads a checkpoint. `report` hears loaded and total bytes as it goes.
    pub fn open(options: &OpenOptions, report: &mut dyn FnMut(u64, u64)) -> Result<Self, Error> {
        let load = LoadOptions { quant: options.quant, ..LoadOptions::cpu(options.dtype) };
        let model = Model::load_reporting(&options.dir, &load, report)?;
        let config = model.config();
        let limit = config.max_position_embeddings;
        let context_tokens = match options.context_tokens {
            None => DEFAULT_CONTEXT_TOKENS.min(limit),
            Some(wanted) if wanted <= limit => wanted,
            Some(wanted) => {
                return Err(Error::Input(format!(
                    "a context of {wanted} tokens is asked for, the model's positions end at {limit}; hint: --ctx {limit} or less"
                )));
            }
        };
        let info = EngineInfo {
            engine: "diffusion",
            device: format!("cpu, {} threads, {}", options.threads, options.dtype.as_str()),
            context_tokens,
            canvas_tokens: config.canvas_length,
            vocab_size: config.vocab_size,
        };
        Ok(Self { model, info, cache: PrefixCache::new(options.prefix_cache_bytes) })
    }

    /// Name of a checkpoint folder, under which its model is served.
    pub fn model_name(dir: &Path) -> String {
        let path = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
        path.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy().into_owned())
    }
}

impl Engine for DiffusionEngine {
    type Sequence = Sequence;

    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn begin(&mut self, prompt: &[u32]) -> Result<Sequence, EngineError> {
        let prefix = self.cache.longest(prompt, self.model.config()).map_err(failed)?.unwrap_or_default();
        Ok(Sequence { tokens: prompt[..prefix.tokens()].to_vec(), prefix })
    }

    fn committed_tokens(&self, sequence: &Sequence) -> usize {
        sequence.tokens.len()
    }

    fn pass(&mut self, batch: &mut [PassItem<'_, Sequence>]) -> Result<Vec<PassOutput>, EngineError> {
        let reads: Vec<Vec<Vec<usize>>> =
            batch.iter().map(|item| item.canvases.iter().map(read_rows).collect()).collect();
        let segments: Vec<Segment<'_>> = batch
            .iter()
            .zip(&reads)
            .map(|(item, reads)| Segment {
                prefix: &item.sequence.prefix,
                tokens: item.prefill,
                canvases: item
                    .canvases
                    .iter()
                    .zip(reads)
                    .map(|(canvas, read)| CanvasRows { ids: &canvas.ids, read, previous: None })
                    .collect(),
            })
            .collect();
        let outputs = self.model.forward(&segments).map_err(failed)?;
        let mut results = Vec::with_capacity(outputs.len());
        for (item, output) in batch.iter_mut().zip(outputs) {
            item.sequence.tokens.extend_from_slice(item.prefill);
            item.sequence.prefix = output.prefix;
            let canvases =
                item.canvases.iter().zip(&output.hidden).enumerate().map(|(index, (canvas, hidden))| {
                    let labels: Vec<&[u32]> =
                        canvas.slots.iter().map(|slot| slot.label_ids.as_slice()).collect();
                    let slots = self.model.read_slots(hidden, &labels).map_err(|error| match error {
                        Error::NonFinite { row } => EngineError::NonFinite { canvas: index, slot: row },
                        other => failed(other),
                    })?;
                    Ok(slots.into_iter().map(slot_logits).collect())
                });
            results.push(PassOutput { canvases: canvases.collect::<Result<_, EngineError>>()? });
        }
        Ok(results)
    }

    fn finish(&mut self, sequence: Sequence) {
        // Losing an entry costs time later, not correctness.
        if let Err(error) = self.cache.insert(&sequence.tokens, &sequence.prefix, self.model.config()) {
            tracing::warn!(%error, "a finished prefix was not kept");
        }
    }
}

/// Slots lie in ascending order on a canvas, as the answer template does.
fn read_rows(canvas: &Canvas) -> Vec<usize> {
    canvas.slots.iter().map(|slot| slot.position).collect()
}

fn slot_logits(read: diffusion_gemma::SlotLogits) -> SlotLogits {
    SlotLogits {
        label_logits: read.labels,
        full: Some(FullRow { label_mass: read.label_mass as f32, argmax_id: read.argmax }),
    }
}

#[allow(clippy::needless_pass_by_value)] // handed to `map_err`
fn failed(error: Error) -> EngineError {
    EngineError::Failed(error.to_string())
}
