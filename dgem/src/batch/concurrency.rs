//! How many requests may be in flight: up to the number the user gave, fewer while the server says it is busy.
//!
//! One more for every round of successes, half as many after a refusal: the rule by which TCP shares a line.

use std::time::{Duration, Instant};

/// Refusals within this time are one: they were all sent before the first came back.
const ONE_WAVE: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Concurrency {
    most: f64,
    now: f64,
    cut: Option<Instant>,
}

impl Concurrency {
    pub(super) fn new(most: u16) -> Self {
        Self { most: f64::from(most), now: f64::from(most), cut: None }
    }

    /// Requests that may be in flight, at least one.
    pub(super) fn limit(&self) -> usize {
        self.now as usize
    }

    /// A request ended; `busy` when the server refused it at least once.
    pub(super) fn ended(&mut self, busy: bool, at: Instant) {
        if !busy {
            self.now = (self.now + 1.0 / self.now).min(self.most);
        } else if self.cut.is_none_or(|cut| at.duration_since(cut) >= ONE_WAVE) {
            self.now = (self.now / 2.0).max(1.0);
            self.cut = Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wave_of_refusals_halves_once_and_successes_grow_back_to_the_most() {
        let start = Instant::now();
        let mut concurrency = Concurrency::new(64);
        for _ in 0..50 {
            concurrency.ended(true, start);
        }
        assert_eq!(concurrency.limit(), 32);
        concurrency.ended(true, start + ONE_WAVE);
        assert_eq!(concurrency.limit(), 16);
        for wave in 2..20 {
            concurrency.ended(true, start + ONE_WAVE * wave);
        }
        assert_eq!(concurrency.limit(), 1);
        for _ in 0..10_000 {
            concurrency.ended(false, start);
        }
        assert_eq!(concurrency.limit(), 64);
    }
}
