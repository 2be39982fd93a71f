//! How far the server is: from the open port to the warmed model, and on to the drain.
//!
//! Written by the loader and by shutdown, read by the health routes and by every request. Never blocks.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// Where the server is in its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    #[default]
    Loading,
    WarmingUp,
    Ready,
    /// The server was asked to stop.
    Draining,
    /// The engine thread has ended by itself, and the server has to end too.
    EngineGone,
    /// The time to drain is over.
    Closing,
}

/// The phase and how much of the weights is there.
#[derive(Debug, Default)]
pub struct Readiness {
    phase: watch::Sender<Phase>,
    bytes_loaded: AtomicU64,
    bytes_total: AtomicU64,
}

impl Phase {
    /// The spelling in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::WarmingUp => "warming_up",
            Self::Ready => "ready",
            Self::Draining | Self::Closing => "draining",
            Self::EngineGone => "engine_gone",
        }
    }
}

impl Readiness {
    #[must_use]
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Completes once that phase, or a later one, has begun.
    pub async fn reached(&self, phase: Phase) {
        // The sender is this readiness itself, so it is there as long as somebody waits.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// Moves on. A phase never goes back: a model that gets ready during the drain stays unavailable.
    pub(crate) fn advance(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let later = phase > *now;
            *now = phase.max(*now);
            later
        });
    }

    /// Bytes of the weights, loaded so far and in all.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.bytes_loaded.load(Ordering::Relaxed), self.bytes_total.load(Ordering::Relaxed))
    }

    /// Called by the loader as it goes.
    pub fn report_bytes(&self, loaded: u64, total: u64) {
        self.bytes_loaded.store(loaded, Ordering::Relaxed);
        self.bytes_total.store(total, Ordering::Relaxed);
    }
}
