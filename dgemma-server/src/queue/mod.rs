//! The bounded queue between the API and the engine thread.
//!
//! A read is a prompt with all its canvases and takes one place per canvas; a reply in text takes one. So one rule holds for a
//! request of one read and for a request of many. A submission takes all its places at once or none. A full queue is a value,
//! [`Refused::Busy`], never a wait; a wait beyond the limit is one too, [`Unanswered::Waited`]. Read next: `scheduler`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::engine::ReplyOptions;
use crate::metrics::Metrics;

mod job;
mod pending;
mod places;

pub(crate) use job::{Job, Work};
pub use job::{Read, ReadDone, ReadTiming, ReplyEvent};
pub use pending::{Pending, PendingReply, Unanswered};
use pending::{Ticket, Turn, Wait};
use places::Places;

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

/// The sending side; cheap to clone. When the last clone is dropped, the scheduler drains and stops.
#[derive(Debug, Clone)]
pub struct Queue {
    jobs: mpsc::UnboundedSender<Job>,
    free: Arc<Semaphore>,
    capacity: usize,
    wait_limit: Option<Duration>,
    metrics: Arc<Metrics>,
}

/// The receiving side, for the scheduler.
#[derive(Debug)]
pub struct Jobs {
    jobs: mpsc::UnboundedReceiver<Job>,
    waiting: VecDeque<Job>,
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
        let mut permit = self.take(reads.iter().map(Read::places).sum())?;
        let turn = self.turn();
        let mut all = Vec::with_capacity(reads.len());
        for Read { prompt, canvases } in reads {
            let (to, reply) = oneshot::channel();
            let places = canvases.len().max(1);
            self.send(prompt, Work::Read { canvases, to }, permit.split(places), &turn)?;
            all.push(Pending { reply, turn: turn.clone() });
        }
        Ok(all)
    }

    /// Takes a place for a reply after `prompt`.
    pub fn submit_reply(&self, prompt: Vec<u32>, options: ReplyOptions) -> Result<PendingReply, Refused> {
        let permit = self.take(1)?;
        let turn = self.turn();
        let (to, events) = mpsc::unbounded_channel();
        self.send(prompt, Work::Reply { options, to }, Some(permit), &turn)?;
        Ok(PendingReply { events, turn })
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Completes when the engine thread is gone.
    pub async fn closed(&self) {
        self.jobs.closed().await;
    }

    fn take(&self, places: usize) -> Result<OwnedSemaphorePermit, Refused> {
        let capacity = self.capacity;
        if places > capacity {
            return Err(Refused::TooMany { places, capacity });
        }
        let permit = Arc::clone(&self.free).try_acquire_many_owned(places as u32);
        permit.map_err(|_| Refused::Busy { capacity })
    }

    fn turn(&self) -> Turn {
        let until = Instant::now();
        Turn {
            ticket: Arc::new(Ticket::default()),
            wait: self.wait_limit.map(|limit| Wait { limit, until: until + limit }),
        }
    }

    fn send(
        &self,
        prompt: Vec<u32>,
        work: Work,
        permit: Option<OwnedSemaphorePermit>,
        turn: &Turn,
    ) -> Result<(), Refused> {
        let places = permit.map(|permit| Places::new(permit, &self.metrics));
        let job = Job { prompt, work, queued_at: Instant::now(), ticket: Arc::clone(&turn.ticket), places };
        self.jobs.send(job).map_err(|_| Refused::Closed)
    }
}

impl Jobs {
    /// Waits for a job; `None` once every [`Queue`] is dropped and the queue is empty.
    pub(crate) fn wait(&mut self) -> Option<Job> {
        self.poll().or_else(|| self.jobs.blocking_recv())
    }

    /// A job if one waits.
    pub(crate) fn poll(&mut self) -> Option<Job> {
        self.sweep();
        self.waiting.pop_front()
    }

    /// Frees the places of jobs nobody waits for any more, also of those whose turn has not come.
    pub(crate) fn sweep(&mut self) {
        while let Ok(job) = self.jobs.try_recv() {
            self.waiting.push_back(job);
        }
        self.waiting.retain(|job| !job.is_closed());
    }
}
