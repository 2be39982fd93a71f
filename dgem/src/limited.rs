//! Runs what somebody else wrote on a thread with limits: time, memory, stack, and no panic gets out.
//!
//! `template` parses and renders in here, `image::svg` draws, so that a hostile or broken input ends in an error within seconds. A
//! thread that ran into a limit cannot be ended from outside: it stops at its next allocation and stays behind, holding no more
//! than its budget, until the program ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::guard;
use crate::metered::{self, Watched};

/// How often the waiting side looks whether the memory ran out.
const LOOK: Duration = Duration::from_millis(20);
/// As much as the main thread of a program usually has; `template::nesting` keeps templates far below it.
const STACK_BYTES: usize = 8 << 20;

/// What a job may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) time: Duration,
    pub(crate) bytes: u64,
}

/// Why there is no result.
#[derive(Debug)]
pub(crate) enum Stopped {
    Time(Duration),
    /// Bytes that were allowed.
    Memory(u64),
    Panic(String),
    /// The system gave no thread.
    NoThread(io::Error),
}

impl Stopped {
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Time(limit) => format!("it takes longer than {} s", limit.as_secs_f64()),
            Self::Memory(limit) => format!("it needs more than {} MiB of memory", limit >> 20),
            Self::Panic(cause) => {
                format!("a number is out of range, or what reads it has a fault ({cause})")
            }
            Self::NoThread(cause) => format!("the system gives no thread for it: {cause}"),
        }
    }
}

/// The result of `job`, unless it runs into one of the limits.
pub(crate) fn run<T: Send + 'static>(
    limits: Limits,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Stopped> {
    let watched = Arc::new(Watched::default());
    let (sender, receiver) = sync_channel(1);
    let seen = Arc::clone(&watched);
    thread::Builder::new()
        .name("limited".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            metered::start(limits.bytes, seen);
            let result = guard::without_panic(job);
            metered::stop();
            // Nobody waits any more when the time was up.
            let _ = sender.send(result);
        })
        .map_err(Stopped::NoThread)?;
    let start = Instant::now();
    loop {
        let left = limits.time.saturating_sub(start.elapsed());
        match receiver.recv_timeout(LOOK.min(left)) {
            Ok(result) => return result.map_err(Stopped::Panic),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Stopped::Panic("the thread ended without a result".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) if watched.exceeded.load(Ordering::Acquire) => {
                return Err(Stopped::Memory(limits.bytes));
            }
            Err(RecvTimeoutError::Timeout) if start.elapsed() >= limits.time => {
                watched.abandoned.store(true, Ordering::Relaxed);
                return Err(Stopped::Time(limits.time));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(5);

    fn run<T: Send + 'static>(bytes: u64, job: impl FnOnce() -> T + Send + 'static) -> Result<T, Stopped> {
        super::run(Limits { time: TIME, bytes }, job)
    }

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
        assert!(start.elapsed() < TIME);
        // This thread and later jobs are not concerned.
        assert_eq!(run(4 << 20, || vec![0_u8; 2 << 20].len()).unwrap(), 2 << 20);
    }

    #[test]
    fn a_job_without_an_end_is_left_behind() {
        let (sender, receiver) = sync_channel::<()>(0);
        let limits = Limits { time: Duration::from_millis(300), bytes: 1 << 20 };
        // Waits for a message that never comes.
        let waiting = super::run(limits, move || receiver.recv().is_ok());
        assert!(matches!(waiting, Err(Stopped::Time(_))), "{waiting:?}");
        drop(sender);
    }

    #[test]
    fn a_job_that_nobody_waits_for_stops_at_its_next_allocation() {
        use std::sync::atomic::AtomicU64;
        let count = Arc::new(AtomicU64::new(0));
        let (inside, limits) =
            (Arc::clone(&count), Limits { time: Duration::from_millis(100), bytes: 1 << 20 });
        let busy = super::run(limits, move || {
            loop {
                inside.fetch_add(vec![1_u64; 64].len() as u64, Ordering::Relaxed);
            }
        });
        let stopped: Result<(), Stopped> = busy;
        assert!(matches!(stopped, Err(Stopped::Time(_))), "{stopped:?}");
        // It may be in the middle of one; then it counts no further.
        thread::sleep(Duration::from_millis(50));
        let seen = count.load(Ordering::Relaxed);
        thread::sleep(Duration::from_millis(50));
        assert!(seen > 0 && seen == count.load(Ordering::Relaxed));
    }

    #[test]
    fn a_panic_is_an_error() {
        let zero = "".len();
        let stopped = run(1 << 20, move || 1 % zero).unwrap_err();
        assert!(stopped.reason().contains("divisor of zero"));
    }
}
