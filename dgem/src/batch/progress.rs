//! The bar on a terminal: bytes of the input for the way that is left, rows and their rate in words. Nowhere else is anything shown.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Rows, Tally};
use crate::foreign::printable;

/// Knows how far the reading is.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    position: Arc<AtomicU64>,
}

impl Progress {
    /// On stderr, if that is a terminal.
    pub fn new(rows: &Rows) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let target = ProgressDrawTarget::stderr_with_hz(5);
            let bar = ProgressBar::with_draw_target(rows.length(), target);
            let form = if rows.length().is_some() {
                "{wide_bar} {percent}% ETA {eta}  {msg}"
            } else {
                "{spinner} {msg}"
            };
            // The forms above are valid; the plain one is what is left.
            bar.set_style(
                ProgressStyle::with_template(form).unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar
        });
        Self { bar, position: rows.position() }
    }

    pub(super) fn show(&self, tally: &Tally) {
        if let Some(bar) = &self.bar {
            bar.set_position(self.position.load(Ordering::Relaxed));
            bar.set_message(tally.to_string());
        }
    }

    /// A note above the bar.
    pub(super) fn warn(&self, text: &str) {
        // A note that nobody takes changes nothing.
        let tell = || drop(writeln!(io::stderr(), "warning: {}", printable(text)));
        match &self.bar {
            Some(bar) => bar.suspend(tell),
            None => tell(),
        }
    }

    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
