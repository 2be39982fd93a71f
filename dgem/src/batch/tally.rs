//! What a run has done so far, and how fast.

use std::fmt;
use std::time::{Duration, Instant};

use super::latency::Latency;
use crate::output::counted;

#[derive(Clone, Debug)]
pub struct Tally {
    pub ok: u64,
    pub errors: u64,
    start: Instant,
    latency: Latency,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self { ok: 0, errors: 0, start: Instant::now(), latency: Latency::new() }
    }

    /// One row ended; `wall` is the time of its request, if there was one.
    pub(super) fn add(&mut self, ok: bool, wall: Option<Duration>) {
        self.ok += u64::from(ok);
        self.errors += u64::from(!ok);
        if let Some(wall) = wall {
            self.latency.add(wall);
        }
    }

    pub fn rows(&self) -> u64 {
        self.ok + self.errors
    }
}

/// `1000 rows: 998 ok, 2 errors in 4.1 s (243.9 rows/s), p50 24 ms, p95 31 ms`
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.start.elapsed().as_secs_f64();
        let (rows, errors) = (counted(self.rows(), "row"), counted(self.errors, "error"));
        write!(f, "{rows}: {} ok, {errors} in {seconds:.1} s", self.ok)?;
        if self.rows() > 0 && seconds > 0.0 {
            write!(f, " ({:.1} rows/s)", self.rows() as f64 / seconds)?;
        }
        if let (Some(p50), Some(p95)) = (self.latency.percentile_ms(0.5), self.latency.percentile_ms(0.95)) {
            write!(f, ", p50 {p50:.0} ms, p95 {p95:.0} ms")?;
        }
        Ok(())
    }
}
