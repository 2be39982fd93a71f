//! Whether anybody still waits for what is being worked out on a thread that cannot be stopped from outside.
//!
//! `Decider::encode` gives one to its work, which looks at it between two pieces. The other end is held by the request: dropped before
//! the work is done, its client has left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;
use crate::metrics::Metrics;

/// Looked at by the work.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    gone: Arc<AtomicBool>,
}

/// Held by the request while it waits for the work.
#[derive(Debug)]
pub(super) struct Waiting {
    wanted: Wanted,
    metrics: Arc<Metrics>,
    done: bool,
}

impl Wanted {
    pub(super) fn is_wanted(&self) -> bool {
        !self.gone.load(Ordering::Relaxed)
    }

    /// An error once nobody waits any more; nobody gets it.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.is_wanted() { Ok(()) } else { Err(Error::Unwanted) }
    }
}

impl Waiting {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Waiting { wanted: Wanted::default(), metrics, done: false }
    }

    pub(super) fn wanted(&self) -> Wanted {
        self.wanted.clone()
    }

    /// The work is done.
    pub(super) fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.done {
            self.wanted.gone.store(true, Ordering::Relaxed);
            self.metrics.encoding_abandoned();
        }
    }
}
