//! Percentiles of times in constant memory: counts in buckets that each are 5 % wider than the one before.

use std::time::Duration;

const BUCKETS: usize = 512;
/// Buckets for a factor of e.
const PER_FACTOR: f64 = 20.0;

#[derive(Clone, Debug)]
pub(super) struct Latency {
    counts: Box<[u32; BUCKETS]>,
    all: u32,
}

impl Latency {
    pub(super) fn new() -> Self {
        Self { counts: Box::new([0; BUCKETS]), all: 0 }
    }

    pub(super) fn add(&mut self, time: Duration) {
        let bucket = (time.as_micros() as f64).ln_1p() * PER_FACTOR;
        self.counts[(bucket as usize).min(BUCKETS - 1)] += 1;
        self.all += 1;
    }

    /// The time below which this share of all lies, in milliseconds and within 5 %; `None` when nothing was measured.
    pub(super) fn percentile_ms(&self, share: f64) -> Option<f64> {
        let wanted = (share * f64::from(self.all)).ceil().max(1.0) as u32;
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        // The middle of the bucket.
        Some(((bucket as f64 + 0.5) / PER_FACTOR).exp_m1() / 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_bucket() {
        let mut latency = Latency::new();
        assert_eq!(latency.percentile_ms(0.5), None);
        for ms in 1..=1_000 {
            latency.add(Duration::from_millis(ms));
        }
        for (share, ms) in [(0.5, 500.0), (0.95, 950.0), (1.0, 1_000.0)] {
            let found = latency.percentile_ms(share).unwrap();
            assert!((found / ms - 1.0).abs() < 0.05, "{share}: {found}");
        }
        latency.add(Duration::MAX);
    }
}
