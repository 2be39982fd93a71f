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
    /// Most jobs in progress together.
    pub active_jobs: usize,
    /// No job is begun while those in progress have this many tokens or more, the blocks of replies among them: each token
    /// holds keys and values.
    pub active_tokens: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { pass_rows: 2048, chunk_rows: 512, active_jobs: 64, active_tokens: 16_384 }
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

    /// The rows of a chunk; where it reaches the end of the prompt, the first canvas goes with it.
    fn step_rows(&self, chunk_rows: usize) -> usize {
        let end_rows = self.prefill_rows + self.canvas_rows.first().copied().unwrap_or(0);
        if self.prefill_rows <= chunk_rows { end_rows.max(chunk_rows) } else { chunk_rows }.max(1)
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

    let guaranteed = if others.is_empty() {
        pass_rows
    } else {
        demands[oldest].step_rows(budget.chunk_rows).min(pass_rows)
    };
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
        // Its next canvas is wider than any pass: it must still be read, so it goes alone.
        return vec![Share { job: oldest, prefill_rows: 0, canvases: 1 }];
    }
    shares.sort_by_key(|share| share.job);
    shares
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    use super::*;

    const BUDGET: Budget =
        Budget { pass_rows: 100, chunk_rows: 25, active_jobs: 64, active_tokens: usize::MAX };

    fn job(prefill_rows: usize, canvas_rows: &[usize]) -> Demand {
        Demand { prefill_rows, canvas_rows: canvas_rows.to_vec(), alone: false }
    }

    /// Jobs that arrive at a given time and a clock that moves by the rows of each pass.
    struct Simulation {
        clock: usize,
        /// Arrival, demand left, completion.
        jobs: Vec<(usize, Demand, Option<usize>)>,
    }

    impl Simulation {
        fn new(jobs: &[(usize, Demand)]) -> Self {
            Simulation { clock: 0, jobs: jobs.iter().map(|(at, job)| (*at, job.clone(), None)).collect() }
        }

        /// One pass over the jobs that are there; false when all are done.
        fn step(&mut self, budget: &Budget) -> bool {
            if self.jobs.iter().all(|job| job.2.is_some()) {
                return false;
            }
            let here: Vec<usize> = (0..self.jobs.len())
                .filter(|&n| self.jobs[n].0 <= self.clock && self.jobs[n].2.is_none())
                .take(budget.active_jobs)
                .collect();
            let demands: Vec<Demand> = here.iter().map(|&n| self.jobs[n].1.clone()).collect();
            let shares = plan(&demands, budget);
            assert_eq!(shares.is_empty(), demands.is_empty(), "whoever is there gets on");
            let mut rows = 0;
            for share in &shares {
                let (_, left, done) = &mut self.jobs[here[share.job]];
                assert!(share.prefill_rows + share.canvases > 0, "an empty share");
                left.prefill_rows -= share.prefill_rows;
                assert!(
                    share.canvases == 0 || left.prefill_rows == 0,
                    "a canvas before the end of its prompt"
                );
                rows += share.prefill_rows + left.canvas_rows.drain(..share.canvases).sum::<usize>();
                if left.rows() == 0 {
                    *done = Some(self.clock + budget.pass_rows.max(rows));
                }
            }
            let single_canvas = shares.len() == 1 && shares[0].canvases == 1 && shares[0].prefill_rows == 0;
            assert!(rows <= budget.pass_rows || single_canvas, "{rows} rows");
            assert!(shares.is_sorted_by(|a, b| a.job < b.job));
            self.clock += budget.pass_rows.max(rows);
            true
        }

        fn run(mut self, budget: &Budget) -> Vec<usize> {
            while self.step(budget) {}
            self.jobs.into_iter().map(|(at, _, done)| done.unwrap() - at).collect()
        }
    }

    #[test]
    fn all_that_fits_runs_in_one_pass() {
        let shares = plan(&[job(20, &[16]), job(5, &[16]), job(0, &[16, 16])], &BUDGET);
        assert_eq!(
            shares,
            [
                Share { job: 0, prefill_rows: 20, canvases: 1 },
                Share { job: 1, prefill_rows: 5, canvases: 1 },
                Share { job: 2, prefill_rows: 0, canvases: 2 },
            ]
        );
    }

    #[test]
    fn a_single_job_takes_the_whole_pass() {
        assert_eq!(plan(&[job(1000, &[16])], &BUDGET), [Share { job: 0, prefill_rows: 100, canvases: 0 }]);
        assert!(plan(&[], &BUDGET).is_empty());
        assert!(plan(&[job(0, &[])], &BUDGET).is_empty());
    }

    #[test]
    fn a_short_decision_is_not_held_up_by_a_long_prefill() {
        let long = (0, job(10_000, &[16]));
        let took = Simulation::new(&[long, (300, job(30, &[16]))]).run(&BUDGET);
        assert_eq!(took[1], 100, "it runs in the first pass after it arrives");
    }

    #[test]
    fn a_long_prefill_is_not_starved_by_a_stream_of_short_ones() {
        let mut jobs = vec![(0, job(1000, &[16]))];
        // More short work than a pass can do, in every pass.
        jobs.extend((0..400).map(|n| (n * 50, job(30, &[30]))));
        let took = Simulation::new(&jobs).run(&BUDGET);
        assert!(took[0] <= (1000_usize + 16).div_ceil(25) * 100, "{}", took[0]);
    }

    #[test]
    fn a_canvas_wider_than_the_pass_gets_one_of_its_own() {
        let shares = plan(&[job(0, &[256]), job(0, &[16])], &BUDGET);
        assert_eq!(shares, [Share { job: 0, prefill_rows: 0, canvases: 1 }]);
        assert_eq!(plan(&[job(0, &[256])], &BUDGET), [Share { job: 0, prefill_rows: 0, canvases: 1 }]);
    }

    #[test]
    fn a_job_that_must_be_alone_shares_no_pass() {
        let alone = Demand { alone: true, ..job(10, &[16]) };
        assert_eq!(plan(&[alone.clone(), job(1, &[16])], &BUDGET).len(), 1);
        let shares = plan(&[job(1, &[16]), alone, job(2, &[16])], &BUDGET);
        assert_eq!(shares.iter().map(|share| share.job).collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn random_loads_end_within_the_bound_of_the_oldest() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut below = move |limit: usize| (random.next_u64() % limit as u64) as usize;
        for _ in 0..200 {
            let budget = Budget {
                pass_rows: 1 + below(200),
                chunk_rows: 1 + below(60),
                active_jobs: 1 + below(20),
                ..BUDGET
            };
            let mut arrival = 0;
            let jobs: Vec<(usize, Demand)> = (0..=below(40))
                .map(|_| {
                    arrival += below(300);
                    let canvases: Vec<usize> = (0..=below(5)).map(|_| 16 * (1 + below(16))).collect();
                    (
                        arrival,
                        Demand { prefill_rows: below(600), canvas_rows: canvases, alone: below(10) == 0 },
                    )
                })
                .collect();
            assert_eq!(Simulation::new(&jobs).run(&budget).len(), jobs.len());
        }
    }
}
