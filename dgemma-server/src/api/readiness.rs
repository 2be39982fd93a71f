//! How far the server is: from the open port to the warmed model, and on to the drain.
//!
//! Written by the loader and by shutdown, read by the health routes and by every request. Never blocks.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Where the server is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Phase {
    Loading,
    WarmingUp,
    Ready,
    Draining,
}

/// The phase and how much of the weights is there.
#[derive(Debug, Default)]
pub struct Readiness {
    phase: AtomicU8,
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
            Self::Draining => "draining",
        }
    }
}

impl Readiness {
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Loading,
            1 => Phase::WarmingUp,
            2 => Phase::Ready,
            _ => Phase::Draining,
        }
    }

    /// Moves on. A phase never goes back: a model that gets ready during the drain stays unavailable.
    pub(crate) fn advance(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
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
