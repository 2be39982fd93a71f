//! The bounded queue between the API and the engine thread.
//!
//! A place in the queue is one [`ReadJob`]: a prompt with all its canvases. A request that needs several jobs takes all
//! their places at once or none. A full queue is a value, [`Refused::Busy`], never a wait. Read next: `scheduler`.

use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use crate::engine::{Canvas, EngineError, SlotLogits};

/// Canvases to read over one prompt, and where the result goes. Dropping the receiver cancels the job.
#[derive(Debug)]
pub struct ReadJob {
    pub prompt: Vec<u32>,
    pub canvases: Vec<Canvas>,
    pub queued_at: Instant,
    pub reply: oneshot::Sender<Result<ReadDone, EngineError>>,
}

/// What a finished job gives back.
#[derive(Debug, Clone, Default)]
pub struct ReadDone {
    /// `[canvas][slot]`, in the order of [`ReadJob::canvases`].
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

/// Prompt and canvases of a job before it has a place in the queue.
#[derive(Debug, Clone)]
pub struct Read {
    pub prompt: Vec<u32>,
    pub canvases: Vec<Canvas>,
}

/// Why the queue took nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// No room now; later there may be.
    Busy { capacity: usize },
    /// More places than the queue has: waiting would not help.
    TooMany { places: usize, capacity: usize },
    /// The engine thread is gone.
    Closed,
}

/// A receiver for the result of one job.
pub type Pending = oneshot::Receiver<Result<ReadDone, EngineError>>;

/// The sending side; cheap to clone. When the last clone is dropped, the scheduler drains and stops.
#[derive(Debug, Clone)]
pub struct Queue {
    jobs: mpsc::Sender<ReadJob>,
}

/// The receiving side, for the scheduler.
#[derive(Debug)]
pub struct Jobs {
    jobs: mpsc::Receiver<ReadJob>,
}

/// A queue with `capacity` places (at least one).
#[must_use]
pub fn bounded(capacity: usize) -> (Queue, Jobs) {
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    (Queue { jobs: sender }, Jobs { jobs: receiver })
}

impl Queue {
    /// Takes one place per read, all or none. The results come in the order of `reads`.
    pub fn submit(&self, reads: Vec<Read>) -> Result<Vec<Pending>, Refused> {
        let capacity = self.jobs.max_capacity();
        if reads.len() > capacity {
            return Err(Refused::TooMany { places: reads.len(), capacity });
        }
        let places = self.jobs.try_reserve_many(reads.len()).map_err(|error| match error {
            mpsc::error::TrySendError::Full(()) => Refused::Busy { capacity },
            mpsc::error::TrySendError::Closed(()) => Refused::Closed,
        })?;
        let queued_at = Instant::now();
        Ok(places
            .zip(reads)
            .map(|(place, Read { prompt, canvases })| {
                let (reply, pending) = oneshot::channel();
                place.send(ReadJob { prompt, canvases, queued_at, reply });
                pending
            })
            .collect())
    }
}

impl Jobs {
    /// Waits for a job; `None` once every [`Queue`] is dropped and the queue is empty.
    pub(crate) fn wait(&mut self) -> Option<ReadJob> {
        self.jobs.blocking_recv()
    }

    /// A job if one waits.
    pub(crate) fn poll(&mut self) -> Option<ReadJob> {
        self.jobs.try_recv().ok()
    }
}
