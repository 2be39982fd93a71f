//! The engine: what can run a forward pass, seen from the scheduler.
//!
//! A sequence is the committed encoder state of one prompt. A canvas is read over a sequence and leaves no trace in it.
//! One [`Engine::pass`] is ONE forward for everything it is given: prompt rows that still have to be committed and canvas
//! rows that read the sequence right after them, each after a suffix of its own where it has one; a reply in the making adds
//! the canvas of its next denoise step. Only a canvas read in several denoise steps takes a forward for each. Nothing here
//! knows questions, schemas or HTTP.
//! Implementations: [`fake`] (scripted, for tests above the engine) and [`diffusion`] (the native model).

use std::sync::Arc;

pub use diffusion_gemma::{Block, Finish};

pub mod diffusion;
pub mod fake;
pub mod prefix_cache;

/// What an engine is and how much it can take.
#[derive(Debug, Clone)]
pub struct EngineInfo {
    /// Short name, as reported in `diagnostics.engine`.
    pub engine: &'static str,
    /// Where it computes, in words (`cpu, 2 threads, f32`).
    pub device: String,
    /// Most tokens a prompt and its canvas may have together.
    pub context_tokens: usize,
    /// Most rows of one canvas.
    pub canvas_tokens: usize,
    /// Number of token ids; ids are below it.
    pub vocab_size: usize,
    /// Tokens of sequences in progress that there is memory for, beside one more sequence; `usize::MAX`: any number.
    pub active_tokens: usize,
}

/// One answer place of a canvas: a row index and the token ids of its labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub position: usize,
    pub label_ids: Vec<u32>,
}

/// One canvas as it enters the model: ids (noise already in the slots) and what to read.
#[derive(Debug, Clone)]
pub struct Canvas {
    /// Prompt tokens between the sequence and this canvas, seen by no other canvas and never committed; mostly empty.
    /// Neighbours with the same suffix share its rows.
    pub suffix: Arc<[u32]>,
    pub ids: Vec<u32>,
    pub slots: Arc<[Slot]>,
    /// Noise for the slots that a denoise step leaves open: `[step][slot]`, an entry for every step but the last. Empty: one
    /// step.
    pub renoise: Vec<Vec<u32>>,
}

impl Canvas {
    /// Forwards it takes.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.renoise.len() + 1
    }
}

/// Rows of these canvases in one forward: those of their suffixes, each counted once where neighbours share it, and their own.
#[must_use]
pub fn rows(canvases: &[Canvas]) -> (usize, usize) {
    rows_of_each(canvases).fold((0, 0), |(suffixes, own), (suffix, rows)| (suffixes + suffix, own + rows))
}

/// The same, canvas by canvas: the rows that each adds to those before it.
pub fn rows_of_each(canvases: &[Canvas]) -> impl Iterator<Item = (usize, usize)> {
    canvases.iter().enumerate().map(|(at, canvas)| {
        let shared = at > 0 && canvas.suffix == canvases[at - 1].suffix;
        (if shared { 0 } else { canvas.suffix.len() }, canvas.ids.len())
    })
}

/// What the model said at one slot.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotLogits {
    /// Soft-capped logits, in the order of [`Slot::label_ids`].
    pub label_logits: Vec<f32>,
    /// `None` when the full vocabulary row was not computed.
    pub full: Option<FullRow>,
}

/// Facts that need the whole vocabulary row of a slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FullRow {
    /// Probability of all labels together before the restriction to labels, 0…1.
    pub label_mass: f32,
    /// The id with the largest logit.
    pub argmax_id: u32,
}

/// Judges ids: whether a reader would see nothing of them.
pub type Blank = dyn Fn(&[u32]) -> bool + Send + Sync;

/// What a reply in text shall be.
#[derive(Clone)]
pub struct ReplyOptions {
    /// Most tokens given out.
    pub max_tokens: usize,
    /// The same seed gives the same reply, whatever else runs.
    pub seed: u64,
    /// Whether a reader would see nothing of these ids: a first block like that is thrown away and tried again.
    pub blank: Arc<Blank>,
}

impl std::fmt::Debug for ReplyOptions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ReplyOptions")
            .field("max_tokens", &self.max_tokens)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// Where a pass has brought a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The block is not done. `draft`: its most probable ids so far; `accepted`: which of them this step took.
    Denoising { draft: Vec<u32>, accepted: Vec<bool> },
    /// The first block came out empty and is tried again.
    Retrying,
    /// A block is done. `commit` has to be encoded after the sequence before the next step.
    Committed { block: Block, commit: Vec<u32> },
}

/// One sequence of a pass: `prefill` is committed to it first, then every canvas reads it, and the reply, if any, takes a step
/// over it.
#[derive(Debug)]
pub struct PassItem<'a, S, R> {
    pub sequence: &'a mut S,
    pub prefill: &'a [u32],
    pub canvases: &'a [Canvas],
    pub reply: Option<&'a mut R>,
}

/// What one item of a pass gave: `canvases[canvas][slot]`, in the order they were given.
#[derive(Debug, Clone, Default)]
pub struct PassOutput {
    pub canvases: Vec<Vec<SlotLogits>>,
    /// Of the reply, where the item had one. An error is the reply's own; the rest of the pass is good.
    pub step: Option<Result<Step, EngineError>>,
}

/// What can go wrong below the scheduler. All of it is the server's fault, never the client's.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// Never answer with such numbers.
    #[error("the model gave a non-finite logit at slot {slot} of canvas {canvas}")]
    NonFinite { canvas: usize, slot: usize },
    #[error("the model gave a non-finite logit in row {row} of a block")]
    NonFiniteRow { row: usize },
    #[error("the forward pass failed: {0}")]
    Failed(String),
    /// The text of a panic may quote what was being worked on, so it is not carried on.
    #[error("the forward pass panicked")]
    Panicked,
}

impl EngineError {
    /// Numbers the canvas from the first one of the job, of which `read` were read before this pass.
    #[must_use]
    pub fn after(self, read: usize) -> Self {
        match self {
            Self::NonFinite { canvas, slot } => Self::NonFinite { canvas: read + canvas, slot },
            other => other,
        }
    }
}

/// A model that commits prompts and reads canvases. Owned by one thread.
pub trait Engine: Send + 'static {
    /// Committed encoder state of one prompt so far.
    type Sequence: Send;
    /// State of one reply in the making, without its sequence.
    type Reply: Send;

    fn info(&self) -> &EngineInfo;

    /// Opens a sequence for `prompt`; the longest prefix the engine still knows is already in it.
    fn begin(&mut self, prompt: &[u32]) -> Result<Self::Sequence, EngineError>;

    /// Prompt tokens in `sequence`. Right after [`Engine::begin`]: the reused ones.
    fn committed_tokens(&self, sequence: &Self::Sequence) -> usize;

    /// A reply before its first step.
    fn reply(&mut self, options: &ReplyOptions) -> Result<Self::Reply, EngineError>;

    /// One forward for all rows of all items, and a further one for every denoise step of a read past the first. After an error
    /// the sequences and replies of the batch are in no defined state: the caller drops them.
    fn pass(
        &mut self,
        batch: &mut [PassItem<'_, Self::Sequence, Self::Reply>],
    ) -> Result<Vec<PassOutput>, EngineError>;

    /// A completed sequence: its prefix may be reused. A sequence that is dropped instead leaves no trace.
    fn finish(&mut self, sequence: Self::Sequence);

    /// Bytes of the prefixes that are kept for reuse.
    fn kept_bytes(&self) -> usize;
}
