//! Who gets rows in the next pass. Pure: no clock, no threads, no engine; the scheduler calls it once per pass.
//!
//! A pass has a budget of rows. Two rules share it out:
//! 1. The oldest job always advances, by at least `chunk_rows` rows, so nothing waits for ever.
//! 2. The rest of the budget goes to the jobs with the least left to do, so that a short decision is not held up by a
//!    long prefill; what they leave over goes back to the oldest.
//!
//! A prefill may be cut anywhere, since chunks do not change results. A canvas is never cut, and is read only after the
//! last prompt row is in the same or an earlier pass.

/// Sizes of a pass, in rows. A row is one prompt token or one canvas position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Most rows of one pass. A single canvas wider than that still gets a pass of its own.
    pub pass_rows: usize,
    /// What the oldest job may take before the others are looked at.
    pub chunk_rows: usize,
    /// Most jobs in progress together: each holds the committed state of a prompt.
    pub active_jobs: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { pass_rows: 2048, chunk_rows: 512, active_jobs: 64 }
    }
}

/// What one job still needs, oldest job first in the slices given to [`plan`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// Prompt rows not committed yet.
    pub prefill_rows: usize,
    /// Rows of each canvas not read yet, in order.
    pub canvas_rows: Vec<usize>,
    /// Set after a failed pass: this job must not share a pass.
    pub alone: bool,
}

/// What one job does in the next pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Index into the demands.
    pub job: usize,
    pub prefill_rows: usize,
    /// How many of the waiting canvases are read.
    pub canvases: usize,
}

impl Demand {
    fn rows(&self) -> usize {
        self.prefill_rows + self.canvas_rows.iter().sum::<usize>()
    }

    /// The most of this job that fits into `rows`, and the rows that takes.
    fn take(&self, job: usize, rows: usize) -> (Share, usize) {
        let prefill_rows = self.prefill_rows.min(rows);
        let mut used = prefill_rows;
        let mut canvases = 0;
        if prefill_rows == self.prefill_rows {
            for width in &self.canvas_rows {
                if used + width > rows {
                    break;
                }
                used += width;
                canvases += 1;
            }
        }
        (Share { job, prefill_rows, canvases }, used)
    }
}

/// The shares of the next pass, in the order of the demands. Empty only when nobody needs anything.
#[must_use]
pub fn plan(demands: &[Demand], budget: &Budget) -> Vec<Share> {
    let Some(oldest) = demands.iter().position(|demand| demand.rows() > 0) else {
        return Vec::new();
    };
    let pass_rows = budget.pass_rows.max(1);
    let mut others: Vec<usize> = (oldest + 1..demands.len())
        .filter(|&job| !demands[oldest].alone && !demands[job].alone && demands[job].rows() > 0)
        .collect();
    others.sort_by_key(|&job| (demands[job].rows(), job));

    let guaranteed = if others.is_empty() { pass_rows } else { budget.chunk_rows.clamp(1, pass_rows) };
    let (_, reserved) = demands[oldest].take(oldest, guaranteed);
    let mut left = pass_rows - reserved;
    let mut shares = Vec::new();
    for job in others {
        let (share, used) = demands[job].take(job, left);
        if used > 0 {
            shares.push(share);
            left -= used;
        }
    }
    let (share, used) = demands[oldest].take(oldest, reserved + left);
    if used > 0 {
        shares.push(share);
    } else if demands[oldest].prefill_rows == 0 {
        // Its next canvas is wider than what was kept for it: it must still advance, so it goes alone.
        return vec![Share { job: oldest, prefill_rows: 0, canvases: 1 }];
    }
    shares.sort_by_key(|share| share.job);
    shares
}
