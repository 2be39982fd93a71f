//! The other end of a job: its result to come, and how long its turn may take to come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::job::{ReadDone, ReplyEvent};
use crate::engine::EngineError;

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

/// The result of one read to come.
#[derive(Debug)]
pub struct Pending {
    pub(super) reply: oneshot::Receiver<Result<ReadDone, EngineError>>,
    pub(super) turn: Turn,
}

/// A reply to come. Dropping it cancels the job.
#[derive(Debug)]
pub struct PendingReply {
    pub(super) events: mpsc::UnboundedReceiver<Result<ReplyEvent, EngineError>>,
    pub(super) turn: Turn,
}

/// Whose turn it is, and until when it has to be.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    pub(super) ticket: Arc<Ticket>,
    pub(super) wait: Option<Wait>,
}

/// How long a job may wait, and until when that is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub(super) limit: Duration,
    pub(super) until: Instant,
}

/// What has become of one submission: exactly one of `begin` and `expire` succeeds.
#[derive(Debug, Default)]
pub(super) struct Ticket(AtomicU8);

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const EXPIRED: u8 = 2;

impl Pending {
    /// Waits for the result. Dropping the future cancels the job.
    pub async fn result(mut self) -> Result<ReadDone, Unanswered> {
        let result = self.turn.within(&mut self.reply).await?;
        match result {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => Err(Unanswered::Engine(error)),
            Err(_) => Err(Unanswered::Gone),
        }
    }
}

impl PendingReply {
    /// The next event; `Gone` where the reply ends before its last block. To be called until a block has a `finish`.
    pub async fn next(&mut self) -> Result<ReplyEvent, Unanswered> {
        let Self { events, turn } = self;
        let event = turn.within(events.recv()).await?;
        turn.wait = None;
        match event {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(Unanswered::Engine(error)),
            None => Err(Unanswered::Gone),
        }
    }
}

impl Turn {
    /// What `result` gives, unless nothing of the submission has begun in time.
    async fn within<T>(&self, result: impl Future<Output = T>) -> Result<T, Unanswered> {
        tokio::pin!(result);
        if let Some(Wait { limit, until }) = self.wait {
            tokio::select! {
                biased;
                result = &mut result => return Ok(result),
                () = tokio::time::sleep_until(until.into()) => if self.ticket.expire() {
                    return Err(Unanswered::Waited { limit });
                },
            }
        }
        Ok(result.await)
    }
}

impl Ticket {
    /// False when the submission was given up before.
    pub(super) fn begin(&self) -> bool {
        let before = self.0.compare_exchange(WAITING, BEGUN, Ordering::AcqRel, Ordering::Acquire);
        before.unwrap_or_else(|found| found) != EXPIRED
    }

    /// False when something of the submission has begun.
    fn expire(&self) -> bool {
        let before = self.0.compare_exchange(WAITING, EXPIRED, Ordering::AcqRel, Ordering::Acquire);
        before.unwrap_or_else(|found| found) != BEGUN
    }
}
