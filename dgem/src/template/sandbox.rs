//! Runs what a template's author wrote on a thread with limits: time, memory, stack, and no panic of tera's gets out.
//!
//! `template` parses and renders in here, so that a hostile or broken template ends in an error within seconds. A thread that
//! ran into a limit cannot be ended from outside: it stays behind, holding no more than its budget, until the program ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::guard;
use crate::metered;

/// Longest time of one render. The largest shipped policy takes well under a millisecond.
const MOST_TIME: Duration = Duration::from_secs(5);
/// Memory of one render, beside what the variables need.
pub(super) const BASE_BYTES: u64 = 256 << 20;
/// How often the waiting side looks whether the memory ran out.
const LOOK: Duration = Duration::from_millis(20);
/// As much as the main thread of a program usually has; `nesting` keeps templates far below it.
const STACK_BYTES: usize = 8 << 20;

/// Why there is no result.
#[derive(Debug)]
pub(super) enum Stopped {
    Time(Duration),
    /// Bytes that were allowed.
    Memory(u64),
    Panic(String),
    /// The system gave no thread.
    NoThread(io::Error),
}

impl Stopped {
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Time(limit) => format!("it takes longer than {} s", limit.as_secs()),
            Self::Memory(limit) => format!("it needs more than {} MiB of memory", limit >> 20),
            Self::Panic(cause) => format!("a number is out of range, or tera has a fault ({cause})"),
            Self::NoThread(cause) => format!("the system gives no thread to render it on: {cause}"),
        }
    }
}

/// The result of `job`, which may use `most_bytes` of memory.
pub(super) fn run<T: Send + 'static>(
    most_bytes: u64,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Stopped> {
    let exceeded = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = sync_channel(1);
    let seen = Arc::clone(&exceeded);
    thread::Builder::new()
        .name("template".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            metered::start(most_bytes, seen);
            let result = guard::without_panic(job);
            metered::stop();
            // Nobody waits any more when the time was up.
            let _ = sender.send(result);
        })
        .map_err(Stopped::NoThread)?;
    let start = Instant::now();
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(result) => return result.map_err(Stopped::Panic),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Stopped::Panic("the thread ended without a result".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) if exceeded.load(Ordering::Acquire) => {
                return Err(Stopped::Memory(most_bytes));
            }
            Err(RecvTimeoutError::Timeout) if start.elapsed() > MOST_TIME => {
                return Err(Stopped::Time(MOST_TIME));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_comes_back_and_memory_that_is_freed_counts_no_more() {
        let kept = run(1 << 20, || (0..100).map(|_| vec![1_u8; 500_000].len()).sum::<usize>());
        assert_eq!(kept.unwrap(), 50_000_000);
    }

    #[test]
    fn memory_beyond_the_budget_ends_the_job_at_once() {
        let start = Instant::now();
        let held = run(1 << 20, || vec![vec![0_u8; 600_000], vec![0_u8; 600_000]].len());
        assert!(matches!(held, Err(Stopped::Memory(_))), "{held:?}");
        let grown = run(1 << 20, || {
            let mut text = "x".to_owned();
            while !text.is_empty() {
                text.push_str(&text.clone());
            }
        });
        assert!(matches!(grown, Err(Stopped::Memory(_))), "{grown:?}");
        assert!(start.elapsed() < MOST_TIME);
        // This thread and later jobs are not concerned.
        assert_eq!(run(4 << 20, || vec![0_u8; 2 << 20].len()).unwrap(), 2 << 20);
    }

    #[test]
    fn a_job_without_an_end_is_left_behind() {
        let (sender, receiver) = sync_channel::<()>(0);
        // Waits for a message that never comes.
        let waiting = run(1 << 20, move || receiver.recv().is_ok());
        assert!(matches!(waiting, Err(Stopped::Time(_))), "{waiting:?}");
        drop(sender);
    }

    #[test]
    fn a_panic_is_an_error() {
        let zero = "".len();
        let stopped = run(1 << 20, move || 1 % zero).unwrap_err();
        assert!(stopped.reason().contains("divisor of zero"));
    }
}
