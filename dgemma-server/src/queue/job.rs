//! What waits in the queue and what comes of it: reads of canvases over a prompt, or a reply in text after one.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use super::pending::Ticket;
use super::places::Places;
use crate::engine::{Canvas, EngineError, ReplyOptions, SlotLogits, Step};

/// A prompt, what to do over it, and where the result goes. Dropping the receiver cancels the job.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) prompt: Vec<u32>,
    pub(crate) work: Work,
    pub(crate) queued_at: Instant,
    pub(super) ticket: Arc<Ticket>,
    /// `None` once the job has begun.
    pub(super) places: Option<Places>,
}

/// What is done over the prompt.
#[derive(Debug)]
pub(crate) enum Work {
    Read { canvases: Vec<Canvas>, to: oneshot::Sender<Result<ReadDone, EngineError>> },
    Reply { options: ReplyOptions, to: mpsc::UnboundedSender<Result<ReplyEvent, EngineError>> },
}

/// What a finished read gives back.
#[derive(Debug, Clone, Default)]
pub struct ReadDone {
    /// `[canvas][slot]`, in the order of [`Read::canvases`].
    pub canvases: Vec<Vec<SlotLogits>>,
    /// Prompt tokens that were already committed when the job began.
    pub reused_tokens: usize,
    /// Forward passes the job took part in.
    pub passes: usize,
    pub timing: ReadTiming,
}

/// Milliseconds. A pass carries prompt rows and canvas rows together, so its duration is split by this job's own rows.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadTiming {
    pub queue_ms: f64,
    pub prefill_ms: f64,
    pub denoise_ms: f64,
}

/// Prompt and canvases of a read before it has a place in the queue.
#[derive(Debug, Clone)]
pub struct Read {
    pub prompt: Vec<u32>,
    pub canvases: Vec<Canvas>,
}

/// What is told of a reply as it is made. After the block that finishes it nothing follows.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplyEvent {
    /// Its turn has come.
    Begun { reused_tokens: usize, queue_ms: f64 },
    /// The prompt is encoded up to here, of so many tokens.
    Prefilled { tokens: usize },
    /// A pass took its canvas a step on.
    Step(Step),
}

impl Read {
    pub(super) fn places(&self) -> usize {
        self.canvases.len().max(1)
    }
}

impl Job {
    /// Leaves the queue: its places are free from now on. False when nobody waits for the job any more.
    pub(crate) fn begin(&mut self) -> bool {
        self.places = None;
        !self.is_closed() && self.ticket.begin()
    }

    /// Whether nobody waits for the result.
    pub(crate) fn is_closed(&self) -> bool {
        match &self.work {
            Work::Read { to, .. } => to.is_closed(),
            Work::Reply { to, .. } => to.is_closed(),
        }
    }

    /// Ends the job. A receiver that is gone needs no answer.
    pub(crate) fn fail(self, error: EngineError) {
        match self.work {
            Work::Read { to, .. } => drop(to.send(Err(error))),
            Work::Reply { to, .. } => drop(to.send(Err(error))),
        }
    }
}
