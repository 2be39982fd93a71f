//! The native engine: DiffusionGemma behind the [`Engine`] trait, with a cache of encoded prefixes.
//!
//! Turns a batch of the scheduler into the segments of ONE `Model::forward`, and its hidden rows into slot logits with
//! one pass through the head. Canvases of several denoise steps go on in further forwards.
//! Next: `diffusion_gemma::Model` for the forward, `prefix_cache` for reuse.

use std::path::PathBuf;

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
        let unused = model.unused_tensors();
        if let Some(first) = unused.first() {
            tracing::info!(count = unused.len(), first, "tensors of the checkpoint are deliberately unused");
        }
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
        let mut states: Vec<Vec<State<_>>> =
            batch.iter().map(|item| item.canvases.iter().map(State::new).collect()).collect();
        let steps = batch.iter().flat_map(|item| item.canvases).map(Canvas::steps).max().unwrap_or(1);
        for step in 0..steps {
            // Rows to read of every canvas that takes part.
            let reads: Vec<Vec<Option<Vec<usize>>>> = batch
                .iter()
                .map(|item| item.canvases.iter().map(|canvas| read_rows(canvas, step)).collect())
                .collect();
            let segments: Vec<Segment<'_>> = batch
                .iter()
                .zip(&states)
                .zip(&reads)
                .map(|((item, states), reads)| {
                    let taking_part = item.canvases.iter().zip(states).zip(reads);
                    let canvases = taking_part.filter_map(|((canvas, state), read)| {
                        let read = read.as_deref()?;
                        let (suffix, previous) = (canvas.suffix.as_ref(), state.signal.as_ref());
                        Some(CanvasRows { suffix, ids: &state.ids, read, previous })
                    });
                    Segment {
                        prefix: &item.sequence.prefix,
                        tokens: if step == 0 { item.prefill } else { &[] },
                        canvases: canvases.collect(),
                    }
                })
                .collect();
            let outputs = self.model.forward(&segments).map_err(failed)?;
            for (((item, states), reads), output) in
                batch.iter_mut().zip(&mut states).zip(&reads).zip(outputs)
            {
                if step == 0 {
                    item.sequence.tokens.extend_from_slice(item.prefill);
                    item.sequence.prefix = output.prefix;
                }
                let taking_part = (0..reads.len()).filter(|&canvas| reads[canvas].is_some());
                for (index, hidden) in taking_part.zip(&output.hidden) {
                    let canvas = &item.canvases[index];
                    let fault = |error| match error {
                        Error::NonFinite { row } => EngineError::NonFinite { canvas: index, slot: row },
                        other => failed(other),
                    };
                    if let Some(noise) = canvas.renoise.get(step) {
                        let slots: Vec<(usize, &[u32])> = canvas
                            .slots
                            .iter()
                            .map(|slot| (slot.position, slot.label_ids.as_slice()))
                            .collect();
                        let (signal, settled) =
                            self.model.settle(hidden, &slots, (step, canvas.steps())).map_err(fault)?;
                        states[index].signal = Some(signal);
                        for ((slot, settled), noise) in canvas.slots.iter().zip(settled).zip(noise) {
                            states[index].ids[slot.position] = settled.unwrap_or(*noise);
                        }
                    } else {
                        let labels: Vec<&[u32]> =
                            canvas.slots.iter().map(|slot| slot.label_ids.as_slice()).collect();
                        let slots = self.model.read_slots(hidden, &labels).map_err(fault)?;
                        states[index].slots = slots.into_iter().map(slot_logits).collect();
                    }
                }
            }
        }
        let outputs = states
            .into_iter()
            .map(|states| PassOutput { canvases: states.into_iter().map(|state| state.slots).collect() });
        Ok(outputs.collect())
    }

    fn finish(&mut self, sequence: Sequence) {
        // Losing an entry costs time later, not correctness.
        if let Err(error) = self.cache.insert(&sequence.tokens, &sequence.prefix, self.model.config()) {
            tracing::warn!(%error, "a finished prefix was not kept");
        }
    }
}

/// A canvas between its steps. `S`: the signal of the step before.
struct State<S> {
    ids: Vec<u32>,
    signal: Option<S>,
    /// What its last step said.
    slots: Vec<SlotLogits>,
}

impl<S> State<S> {
    fn new(canvas: &Canvas) -> Self {
        State { ids: canvas.ids.clone(), signal: None, slots: Vec::new() }
    }
}

/// The rows of a step that are wanted: all of them to condition the next one, the slots at the end; `None` after it. Slots lie
/// in ascending order on a canvas, as the answer template does.
fn read_rows(canvas: &Canvas, step: usize) -> Option<Vec<usize>> {
    match canvas.steps().checked_sub(step + 1)? {
        0 => Some(canvas.slots.iter().map(|slot| slot.position).collect()),
        _ => Some((0..canvas.ids.len()).collect()),
    }
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
