//! The native engine: DiffusionGemma behind the [`Engine`] trait, with a cache of encoded prefixes.
//!
//! Turns a batch of the scheduler into the segments of ONE `Model::forward`, and its hidden rows into slot logits with
//! one pass through the head. Canvases of several denoise steps go on in further forwards.
//! Next: `diffusion_gemma::Model` for the forward, `prefix_cache` for reuse.

use std::path::PathBuf;
use std::sync::Arc;

use diffusion_gemma::{
    CanvasRows, Config, DType, Error, Generation, GenerationConfig, LoadOptions, Model, Noise, Prefix,
    Progress, Quant, Segment, Settled, Tensor,
};

use super::prefix_cache::PrefixCache;
use super::{
    Canvas, Engine, EngineError, EngineInfo, FullRow, PassItem, PassOutput, ReplyOptions, SlotLogits, Step,
};
use crate::device;
use crate::error::Error as ServerError;

/// How to open a checkpoint.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Folder of the checkpoint.
    pub dir: PathBuf,
    /// Compute type of weights and activations.
    pub dtype: DType,
    /// Form of the layers' weights; `None` keeps them as stored.
    pub quant: Option<Quant>,
    /// Where to compute.
    pub device: device::Choice,
    /// Which layers go where; empty: all to `device`.
    pub device_map: device::Map,
    /// Most tokens of a prompt and its canvas; `None`: what the model allows, at most [`DEFAULT_CONTEXT_TOKENS`].
    pub context_tokens: Option<usize>,
    /// What the memory plan left for sequences in progress; see [`EngineInfo::active_tokens`].
    pub active_tokens: usize,
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
    generation: GenerationConfig,
}

/// The committed part of one prompt.
#[derive(Debug)]
pub struct Sequence {
    tokens: Vec<u32>,
    prefix: Prefix,
    /// Where this prompt leaves one that was seen before; kept apart as soon as it is encoded.
    fork: usize,
    /// The encoded tokens up to there.
    beginning: Option<Prefix>,
}

impl Sequence {
    /// Takes in the result of a pass.
    fn grow(&mut self, added: &[u32], grown: Prefix, config: &Config) -> Result<(), Error> {
        if (self.tokens.len() + 1..=grown.tokens()).contains(&self.fork)
            && let Some(beginning) = grown.truncated(self.fork, config)?
        {
            self.beginning = Some(beginning.trimmed(config)?.detached()?);
        }
        self.tokens.extend_from_slice(added);
        self.prefix = grown.trimmed(config)?;
        Ok(())
    }
}

impl OpenOptions {
    /// Which device has which of the model's layers. Opens nothing.
    pub fn placement(&self, layers: usize) -> Result<device::Placement, ServerError> {
        device::Placement::new(self.device, &self.device_map, layers)
    }
}

/// Most tokens of a prompt and its canvas together, as asked for or as the model allows.
pub fn context_tokens(options: &OpenOptions, config: &Config) -> Result<usize, Error> {
    let limit = config.max_position_embeddings;
    match options.context_tokens {
        None => Ok(DEFAULT_CONTEXT_TOKENS.min(limit)),
        Some(wanted) if wanted < 2 * config.canvas_length => Err(Error::Input(format!(
            "a context of {wanted} tokens is asked for, too few for a prompt beside a canvas of {}; hint: --ctx {} or more",
            config.canvas_length,
            2 * config.canvas_length
        ))),
        Some(wanted) if wanted <= limit => Ok(wanted),
        Some(wanted) => Err(Error::Input(format!(
            "a context of {wanted} tokens is asked for, the model's positions end at {limit}; hint: --ctx {limit} or less"
        ))),
    }
}

impl DiffusionEngine {
    /// Loads a model and logs what became of its weights. `report` hears loaded and total bytes as it goes.
    pub fn load(options: &OpenOptions, report: &mut dyn FnMut(u64, u64)) -> Result<Model, ServerError> {
        let placement = options.placement(Config::from_dir(&options.dir)?.layers.len())?;
        for device in &placement.devices {
            tracing::info!("device: {}; {}", device.describe(), diffusion_gemma::cpu_kernels());
        }
        let load = LoadOptions {
            devices: placement.open()?,
            places: placement.layers,
            dtype: options.dtype,
            quant: options.quant,
        };
        let model = Model::load_reporting(&options.dir, &load, report)?;
        for line in model.weights().to_string().lines() {
            tracing::info!("weights: {line}");
        }
        Ok(model)
    }

    /// Loads a checkpoint. `report` hears loaded and total bytes as it goes.
    pub fn open(options: &OpenOptions, report: &mut dyn FnMut(u64, u64)) -> Result<Self, ServerError> {
        let model = Self::load(options, report)?;
        let unused = model.unused_tensors();
        if let Some(first) = unused.first() {
            tracing::info!(count = unused.len(), first, "tensors of the checkpoint are deliberately unused");
        }
        let config = model.config();
        let threads = options.threads;
        let device = options.placement(config.layers.len())?.devices[0];
        let info = EngineInfo {
            engine: "diffusion",
            device: format!("{device}, {threads} threads, {}", options.dtype.as_str()),
            context_tokens: context_tokens(options, config)?,
            canvas_tokens: config.canvas_length,
            vocab_size: config.vocab_size,
            active_tokens: options.active_tokens,
        };
        let generation = GenerationConfig::from_dir(&options.dir)?;
        Ok(Self { model, info, cache: PrefixCache::new(options.prefix_cache_bytes), generation })
    }
}

impl Engine for DiffusionEngine {
    type Sequence = Sequence;
    type Reply = Generation;

    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn begin(&mut self, prompt: &[u32]) -> Result<Sequence, EngineError> {
        let prefix = self.cache.longest(prompt, self.model.config()).map_err(failed)?.unwrap_or_default();
        let tokens = prompt[..prefix.tokens()].to_vec();
        Ok(Sequence { tokens, prefix, fork: self.cache.seen(prompt), beginning: None })
    }

    fn committed_tokens(&self, sequence: &Sequence) -> usize {
        sequence.tokens.len()
    }

    fn reply(&mut self, options: &ReplyOptions) -> Result<Generation, EngineError> {
        let config = GenerationConfig { max_new_tokens: options.max_tokens, ..self.generation.clone() };
        let blank = Arc::clone(&options.blank);
        let generation = Generation::new(self.model.config(), config, Noise::seeded(options.seed));
        Ok(generation.map_err(failed)?.with_blank(move |ids| blank(ids)))
    }

    fn pass(
        &mut self,
        batch: &mut [PassItem<'_, Sequence, Generation>],
    ) -> Result<Vec<PassOutput>, EngineError> {
        let mut taken: Vec<Option<Result<Step, EngineError>>> = batch.iter().map(|_| None).collect();
        let mut states: Vec<Vec<State>> =
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
                    // A reply takes one step, in the first forward.
                    let reply = item.reply.as_deref().filter(|_| step == 0).and_then(Generation::canvas);
                    Segment {
                        prefix: &item.sequence.prefix,
                        tokens: if step == 0 { item.prefill } else { &[] },
                        canvases: canvases.chain(reply).collect(),
                    }
                })
                .collect();
            let outputs = self.model.forward(&segments).map_err(failed)?;
            // Last steps of all canvases go through the head together.
            let (mut last, mut blocks) = (Vec::new(), Vec::new());
            for (at, ((item, states), mut output)) in
                batch.iter_mut().zip(&mut states).zip(outputs).enumerate()
            {
                if step == 0 {
                    let grown = item.sequence.grow(item.prefill, output.prefix, self.model.config());
                    grown.map_err(failed)?;
                }
                let taking_part = (0..states.len()).filter(|&canvas| reads[at][canvas].is_some());
                if output.hidden.len() > taking_part.clone().count() {
                    blocks.extend(output.hidden.pop().map(|hidden| (at, hidden)));
                }
                for (index, hidden) in taking_part.zip(output.hidden) {
                    let canvas = &item.canvases[index];
                    if let Some(noise) = canvas.renoise.get(step) {
                        self.settle(&mut states[index], canvas, step, noise, &hidden)?;
                    } else {
                        last.push((at, index, hidden));
                    }
                }
            }
            self.read(batch, &last, &mut states)?;
            self.advance(batch, &blocks, &mut taken)?;
        }
        let outputs = states.into_iter().zip(taken).map(|(states, step)| PassOutput {
            canvases: states.into_iter().map(|state| state.slots).collect(),
            step,
        });
        Ok(outputs.collect())
    }

    fn finish(&mut self, sequence: Sequence) {
        // Losing an entry costs time later, not correctness.
        if let Err(error) = self.keep(&sequence) {
            tracing::warn!(%error, "a finished prefix was not kept");
        }
    }

    fn kept_bytes(&self) -> usize {
        self.cache.held_bytes()
    }
}

impl DiffusionEngine {
    /// Reads the slots of canvases in their last step; of each its item, its number there, and the hidden states of its slots.
    fn read(
        &self,
        batch: &[PassItem<'_, Sequence, Generation>],
        last: &[(usize, usize, Tensor)],
        states: &mut [Vec<State>],
    ) -> Result<(), EngineError> {
        if last.is_empty() {
            return Ok(());
        }
        let slots = |(at, index, _): &(usize, usize, Tensor)| batch[*at].canvases[*index].slots.iter();
        let labels: Vec<&[u32]> = last.iter().flat_map(slots).map(|slot| slot.label_ids.as_slice()).collect();
        let hidden: Vec<&Tensor> = last.iter().map(|(_, _, hidden)| hidden).collect();
        let hidden = Tensor::cat(&hidden, 0).map_err(|error| failed(error.into()))?;
        let read = self.model.read_slots(&hidden, &labels).map_err(failed)?;
        let mut read = labels.iter().zip(read).map(|(labels, read)| match read {
            Ok(read) => Ok(slot_logits(read)),
            // Numbers that the scheduler refuses: one bad slot is the fault of its own job and of no other in the pass.
            Err(Error::NonFinite { .. }) => {
                Ok(SlotLogits { label_logits: vec![f32::NAN; labels.len()], full: None })
            }
            Err(other) => Err(failed(other)),
        });
        for place in last {
            let slots: Result<_, EngineError> = read.by_ref().take(slots(place).count()).collect();
            states[place.0][place.1].slots = slots?;
        }
        Ok(())
    }

    /// Ends a step of a canvas that is not its last. `noise`: for the slots it leaves open; `hidden: [rows, H]`.
    fn settle(
        &self,
        state: &mut State,
        canvas: &Canvas,
        step: usize,
        noise: &[u32],
        hidden: &Tensor,
    ) -> Result<(), EngineError> {
        let slots: Vec<(usize, &[u32])> =
            canvas.slots.iter().map(|slot| (slot.position, slot.label_ids.as_slice())).collect();
        match self.model.settle(&self.generation, hidden, &slots, (step, canvas.steps())) {
            Ok(Settled { signal, labels }) => {
                state.signal = Some(signal);
                for ((slot, label), noise) in canvas.slots.iter().zip(labels).zip(noise) {
                    state.ids[slot.position] = label.unwrap_or(*noise);
                }
                Ok(())
            }
            // Its further steps stay as far from being numbers, and the scheduler refuses what they say: the fault is this
            // canvas's job's, and the others in the pass have their answers.
            Err(Error::NonFinite { .. }) => {
                state.signal = Some(hidden.affine(0.0, f64::NAN).map_err(|error| failed(error.into()))?);
                Ok(())
            }
            Err(other) => Err(failed(other)),
        }
    }

    /// Ends the step of every reply; of each its item and the hidden states of its canvas.
    fn advance(
        &self,
        batch: &mut [PassItem<'_, Sequence, Generation>],
        blocks: &[(usize, Tensor)],
        steps: &mut [Option<Result<Step, EngineError>>],
    ) -> Result<(), EngineError> {
        let mut hidden = blocks.iter();
        let mut next = hidden.next();
        let mut replies: Vec<(&mut Generation, &Tensor)> = Vec::with_capacity(blocks.len());
        for (at, item) in batch.iter_mut().enumerate() {
            if let (Some((whose, states)), Some(reply)) = (next, item.reply.as_deref_mut())
                && *whose == at
            {
                replies.push((reply, states));
                next = hidden.next();
            }
        }
        let progress = self.model.advance(&mut replies).map_err(failed)?;
        for (((at, _), progress), (reply, _)) in blocks.iter().zip(progress).zip(&replies) {
            steps[*at] = Some(match progress {
                Ok(Progress::Denoising) => {
                    let (draft, accepted) = reply.draft();
                    Ok(Step::Denoising { draft: draft.to_vec(), accepted: accepted.to_vec() })
                }
                Ok(Progress::Retrying) => Ok(Step::Retrying),
                Ok(Progress::Committed(block)) => {
                    Ok(Step::Committed { block, commit: reply.commit().to_vec() })
                }
                Err(Error::NonFinite { row }) => Err(EngineError::NonFiniteRow { row }),
                Err(other) => Err(failed(other)),
            });
        }
        Ok(())
    }

    fn keep(&mut self, sequence: &Sequence) -> Result<(), Error> {
        let config = self.model.config();
        self.cache.insert(&sequence.tokens, &sequence.prefix, config)?;
        match &sequence.beginning {
            Some(beginning) => self.cache.insert(&sequence.tokens[..sequence.fork], beginning, config),
            None => Ok(()),
        }
    }
}

/// A canvas between its steps.
struct State {
    ids: Vec<u32>,
    /// The signal of the step before.
    signal: Option<Tensor>,
    /// What its last step said.
    slots: Vec<SlotLogits>,
}

impl State {
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
