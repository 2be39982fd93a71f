//! How far the download is: a bar on a terminal, a line every ten seconds elsewhere. Everything goes to stderr.

use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Progress {
    total: u64,
    done: AtomicU64,
    fetched: AtomicU64,
    started: Instant,
    /// `None`: stderr is no terminal.
    bar: Option<ProgressBar>,
    last_line: Mutex<Instant>,
}

impl Progress {
    pub(super) fn new(total_bytes: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(
                "{wide_msg} {bytes}/{total_bytes} {bar:20} {binary_bytes_per_sec} {eta} left",
            );
            ProgressBar::new(total_bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        let now = Instant::now();
        let (done, fetched) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { total: total_bytes, done, fetched, started: now, bar, last_line: Mutex::new(now) }
    }

    /// What is being done now.
    pub(super) fn say(&self, message: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(message.to_owned());
        } else {
            tracing::info!("{message}");
        }
    }

    /// Bytes that were there already.
    pub(super) fn add(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.show(done);
    }

    /// Bytes that came just now.
    pub(super) fn add_fetched(&self, bytes: u64) {
        self.fetched.fetch_add(bytes, Ordering::Relaxed);
        self.add(bytes);
    }

    /// Bytes that were counted and have to come again.
    pub(super) fn take_back(&self, bytes: u64) {
        let done = self.done.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        self.show(done);
    }

    pub(super) fn fetched(&self) -> u64 {
        self.fetched.load(Ordering::Relaxed)
    }

    fn show(&self, done: u64) {
        let Some(bar) = &self.bar else {
            let mut last = self.last_line.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if last.elapsed() >= LINE_EVERY {
                *last = Instant::now();
                let seconds = self.started.elapsed().as_secs_f64();
                let rate = self.fetched() as f64 / seconds / f64::from(1 << 20);
                tracing::info!("{done} of {} bytes, {rate:.1} MiB/s", self.total);
            }
            return;
        };
        bar.set_position(done);
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
