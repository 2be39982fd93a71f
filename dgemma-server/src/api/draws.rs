//! Draws: canvases with their noise, through the queue and back.
//!
//! A round is one submission. Reads with the same prompt are one job, and so are those that ask one state in isolation: branches
//! over what their prompts share. `samples: auto` adds a second round. Called by `walk` and `wide`; calls the queue.

use std::ops::Range;
use std::sync::Arc;

use decision::{Layout, Samples};

use super::reads::PreparedRead;
use super::walk::Walk;
use crate::engine::{self, Canvas, EngineError, SlotLogits};
use crate::error::Error;
use crate::queue::{Read, Unanswered};
use crate::read::noise::Noise;
use crate::read::readout;

/// The seed of a schema that names none: the same request gets the same answer.
pub(super) const DEFAULT_SEED: u64 = 0;

/// Most tokens by which a prompt may branch off what it shares with others, if a pass takes so many with their canvas. They are
/// never cut; a prompt of its own can be cut into passes, so that what is longer does not hold up everybody else.
const LONGEST_BRANCH: usize = 1024;

/// What the draws came to, over all stages.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    pub(super) n: u32,
    pub(super) extended: bool,
    pub(super) first_read_max_entropy_nats: f64,
}

/// `[read][draw][slot]`
pub(super) type Drawn = Vec<Vec<Vec<SlotLogits>>>;

impl Walk {
    /// As many draws of each read as the schema says.
    pub(super) async fn sample(&mut self, reads: &[PreparedRead]) -> Result<Drawn, Error> {
        Ok(match self.schema.effective_samples() {
            Samples::Fixed(n) => self.draw(reads, 0..n).await?,
            Samples::Auto => {
                let mut drawn = self.draw(reads, 0..1).await?;
                let mut largest = 0.0_f64;
                for slots in drawn.iter().flatten() {
                    largest = largest.max(readout::largest_entropy_nats(slots)?);
                }
                self.sampled.first_read_max_entropy_nats =
                    self.sampled.first_read_max_entropy_nats.max(largest);
                if largest > self.schema.auto_threshold_nats && self.schema.auto_max > 1 {
                    self.sampled.extended = true;
                    let further = self.draw(reads, 1..self.schema.auto_max).await?;
                    drawn.iter_mut().zip(further).for_each(|(draws, further)| draws.extend(further));
                }
                drawn
            }
        })
    }

    /// One round: these draws of all reads, in one submission. Reads with the same prompt are one job, and so are those that
    /// ask one state in isolation.
    async fn draw(&mut self, reads: &[PreparedRead], draws: Range<u32>) -> Result<Drawn, Error> {
        let decider = Arc::clone(&self.decider);
        let noise = Noise {
            hole: self.schema.hole,
            seed: self.schema.seed.unwrap_or(DEFAULT_SEED),
            steps: self.schema.steps,
            vocab_size: decider.info.vocab_size,
        };
        // Only where the state comes first is what the prompts share worth more than keeping each of them for reuse.
        let branching = self.schema.isolate && self.schema.layout == Layout::DocumentFirst;
        let shared = if branching { shared_tokens(reads) } else { usize::MAX };
        let mut jobs: Vec<Read> = Vec::new();
        // Job of every read. Its canvases follow each other in the order of the reads.
        let mut job_of = Vec::with_capacity(reads.len());
        for read in reads {
            let whole = read.prompt.len();
            let branch = whole.saturating_sub(shared);
            let branches = branch <= LONGEST_BRANCH && branch + read.layout.ids.len() <= decider.pass_rows;
            let (prompt, suffix) = read.prompt.split_at(if branches { shared.min(whole) } else { whole });
            let job = jobs.iter().position(|job| job.prompt == prompt).unwrap_or_else(|| {
                jobs.push(Read { prompt: prompt.to_vec(), canvases: Vec::new() });
                jobs.len() - 1
            });
            let suffix: Arc<[u32]> = suffix.into();
            let fill = |draw| Canvas { suffix: Arc::clone(&suffix), ..noise.fill(&read.layout, draw) };
            jobs[job].canvases.extend(draws.clone().map(fill));
            job_of.push(job);
        }
        let prompt_tokens: Vec<usize> =
            jobs.iter().map(|job| job.prompt.len() + engine::rows(&job.canvases).0).collect();
        let pending = decider.queue.submit(jobs)?;
        let mut done = Vec::with_capacity(pending.len());
        for (job, pending) in pending.into_iter().enumerate() {
            let of_job =
                || reads.iter().zip(&job_of).filter(|(_, other)| **other == job).map(|(read, _)| read);
            done.push(pending.result().await.map_err(|fault| self.named(fault, of_job(), &draws))?);
        }
        self.cost.add_round(&done);
        if draws.start == 0 {
            prompt_tokens.iter().zip(&done).for_each(|(&tokens, done)| self.cost.add_prompt(tokens, done));
        }
        let mut canvases: Vec<_> = done.into_iter().map(|done| done.canvases.into_iter()).collect();
        Ok(job_of.into_iter().map(|job| canvases[job].by_ref().take(draws.len()).collect()).collect())
    }

    /// The question behind the place that the engine names. `reads`: those of the job, in order.
    fn named<'r>(
        &self,
        fault: Unanswered,
        mut reads: impl Iterator<Item = &'r PreparedRead>,
        draws: &Range<u32>,
    ) -> Error {
        let Unanswered::Engine(EngineError::NonFinite { canvas, slot }) = fault else { return fault.into() };
        let question = reads.nth(canvas / draws.len().max(1)).and_then(|read| read.asked.get(slot));
        match question {
            Some(&index) => Error::NonFinite {
                question: self.schema.questions[index].id.clone(),
                draw: draws.start as usize + canvas % draws.len().max(1) + 1,
            },
            None => fault.into(),
        }
    }
}

/// How many tokens all prompts begin with.
fn shared_tokens(reads: &[PreparedRead]) -> usize {
    let Some((first, others)) = reads.split_first() else { return 0 };
    let common =
        |read: &PreparedRead| first.prompt.iter().zip(&read.prompt).take_while(|(a, b)| a == b).count();
    others.iter().map(common).min().unwrap_or(first.prompt.len())
}
