//! The bounded queue between the API and the engine thread.
//!
//! A [`ReadJob`] is a prompt with all its canvases; it takes one place per canvas, so that one rule holds for a request of
//! one read and for a request of many. A submission takes all its places at once or none. A full queue is a value,
//! [`Refused::Busy`], never a wait; a wait beyond the limit is one too, [`Unanswered::Waited`]. Read next: `scheduler`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::engine::{Canvas, EngineError, SlotLogits};
use crate::metrics::Metrics;

/// Canvases to read over one prompt, and where the result goes. Dropping the receiver cancels the job.
#[derive(Debug)]
pub struct ReadJob {
    pub prompt: Vec<u32>,
    pub canvases: Vec<Canvas>,
    pub queued_at: Instant,
    pub reply: oneshot::Sender<Result<ReadDone, EngineError>>,
    ticket: Arc<Ticket>,
    /// `None` once the job has begun.
    places: Option<Places>,
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

/// Why a job that was taken gave no result.
#[derive(Debug, Clone)]
pub enum Unanswered {
    /// Nothing of its submission had begun when the limit was over.
    Waited {
        limit: Duration,
    },
    Engine(EngineError),
    /// The engine thread is gone.
    Gone,
}

/// The result of one job to come.
#[derive(Debug)]
pub struct Pending {
    reply: oneshot::Receiver<Result<ReadDone, EngineError>>,
    ticket: Arc<Ticket>,
    wait: Option<Wait>,
}

/// How long a job may wait, and until when that is.
#[derive(Debug, Clone, Copy)]
struct Wait {
    limit: Duration,
    until: Instant,
}

/// What has become of one submission: exactly one of `begin` and `expire` succeeds.
#[derive(Debug, Default)]
struct Ticket(AtomicU8);

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const EXPIRED: u8 = 2;

/// Places in the queue, given back when dropped.
#[derive(Debug)]
struct Places {
    permit: OwnedSemaphorePermit,
    metrics: Arc<Metrics>,
}

/// The sending side; cheap to clone. When the last clone is dropped, the scheduler drains and stops.
#[derive(Debug, Clone)]
pub struct Queue {
    jobs: mpsc::UnboundedSender<ReadJob>,
    free: Arc<Semaphore>,
    capacity: usize,
    wait_limit: Option<Duration>,
    metrics: Arc<Metrics>,
}

/// The receiving side, for the scheduler.
#[derive(Debug)]
pub struct Jobs {
    jobs: mpsc::UnboundedReceiver<ReadJob>,
    waiting: VecDeque<ReadJob>,
    pub(crate) metrics: Arc<Metrics>,
}

/// A queue with `capacity` places (at least one) in which a job may wait for ever.
#[must_use]
pub fn bounded(capacity: usize) -> (Queue, Jobs) {
    bounded_with(capacity, None, Arc::default())
}

/// A queue with `capacity` places (at least one) that reports to `metrics`.
#[must_use]
pub fn bounded_with(capacity: usize, wait_limit: Option<Duration>, metrics: Arc<Metrics>) -> (Queue, Jobs) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let capacity = capacity.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
    let free = Arc::new(Semaphore::new(capacity));
    let queue = Queue { jobs: sender, free, capacity, wait_limit, metrics: Arc::clone(&metrics) };
    (queue, Jobs { jobs: receiver, waiting: VecDeque::new(), metrics })
}

impl Queue {
    /// Takes one place per canvas of all reads, all or none. The results come in the order of `reads`.
    pub fn submit(&self, reads: Vec<Read>) -> Result<Vec<Pending>, Refused> {
        let capacity = self.capacity;
        let places: usize = reads.iter().map(Read::places).sum();
        if places > capacity {
            return Err(Refused::TooMany { places, capacity });
        }
        let mut permit = Arc::clone(&self.free)
            .try_acquire_many_owned(places as u32)
            .map_err(|_| Refused::Busy { capacity })?;
        let ticket = Arc::new(Ticket::default());
        let queued_at = Instant::now();
        let wait = self.wait_limit.map(|limit| Wait { limit, until: queued_at + limit });
        let mut all = Vec::with_capacity(reads.len());
        for read in reads {
            // The permit is for the sum of what is split off, so there is always enough of it.
            let places = permit.split(read.places()).map(|permit| {
                self.metrics.places_taken(permit.num_permits());
                Places { permit, metrics: Arc::clone(&self.metrics) }
            });
            let (reply, pending) = oneshot::channel();
            let Read { prompt, canvases } = read;
            let job = ReadJob { prompt, canvases, queued_at, reply, ticket: Arc::clone(&ticket), places };
            self.jobs.send(job).map_err(|_| Refused::Closed)?;
            all.push(Pending { reply: pending, ticket: Arc::clone(&ticket), wait });
        }
        Ok(all)
    }
}

impl Queue {
    /// Completes when the engine thread is gone.
    pub async fn closed(&self) {
        self.jobs.closed().await;
    }
}

impl Read {
    fn places(&self) -> usize {
        self.canvases.len().max(1)
    }
}

impl Pending {
    /// Waits for the result. Dropping the future cancels the job.
    pub async fn result(self) -> Result<ReadDone, Unanswered> {
        let Pending { mut reply, ticket, wait } = self;
        if let Some(Wait { limit, until }) = wait {
            tokio::select! {
                biased;
                result = &mut reply => return settle(result),
                () = tokio::time::sleep_until(until.into()) => if ticket.expire() {
                    return Err(Unanswered::Waited { limit });
                },
            }
        }
        settle(reply.await)
    }
}

fn settle(
    result: Result<Result<ReadDone, EngineError>, oneshot::error::RecvError>,
) -> Result<ReadDone, Unanswered> {
    match result {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(Unanswered::Engine(error)),
        Err(_) => Err(Unanswered::Gone),
    }
}

impl Ticket {
    /// False when the submission was given up before.
    fn begin(&self) -> bool {
        let before = self.0.compare_exchange(WAITING, BEGUN, Ordering::AcqRel, Ordering::Acquire);
        before.unwrap_or_else(|found| found) != EXPIRED
    }

    /// False when something of the submission has begun.
    fn expire(&self) -> bool {
        let before = self.0.compare_exchange(WAITING, EXPIRED, Ordering::AcqRel, Ordering::Acquire);
        before.unwrap_or_else(|found| found) != BEGUN
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.metrics.places_freed(self.permit.num_permits());
    }
}

impl ReadJob {
    /// Leaves the queue: its places are free from now on. False when nobody waits for the job any more.
    pub(crate) fn begin(&mut self) -> bool {
        self.places = None;
        !self.reply.is_closed() && self.ticket.begin()
    }
}

impl Jobs {
    /// Waits for a job; `None` once every [`Queue`] is dropped and the queue is empty.
    pub(crate) fn wait(&mut self) -> Option<ReadJob> {
        self.poll().or_else(|| self.jobs.blocking_recv())
    }

    /// A job if one waits.
    pub(crate) fn poll(&mut self) -> Option<ReadJob> {
        self.sweep();
        self.waiting.pop_front()
    }

    /// Frees the places of jobs nobody waits for any more, also of those whose turn has not come.
    pub(crate) fn sweep(&mut self) {
        while let Ok(job) = self.jobs.try_recv() {
            self.waiting.push_back(job);
        }
        self.waiting.retain(|job| !job.reply.is_closed());
    }
}
