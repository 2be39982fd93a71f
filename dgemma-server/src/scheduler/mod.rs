//! The engine thread: takes jobs from the queue, runs forward passes, answers.
//!
//! Before every pass it takes in whatever waits (no job waits for a batch to fill), drops the jobs whose receiver is
//! gone, lets [`policy`] share out the rows, and puts everything into ONE forward. A pass that fails or panics costs its
//! jobs nothing but time: each is tried once more by itself, and only the one that is at fault gets the error. A reply that
//! has given out a block is not tried again. Read next: `policy` for who gets rows, `active` for a job in progress.

mod active;
pub mod policy;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Instant;

use crate::engine::{self, Canvas, Engine, EngineError, PassOutput, SlotLogits};
use crate::queue::{Job, Jobs, Work};
use active::Active;
use policy::{Budget, Demand, Share};

/// Starts the thread that owns `engine`. It ends when every sender of the queue is gone and the queue is empty.
pub fn spawn<E: Engine>(engine: E, jobs: Jobs, budget: Budget) -> std::io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name("engine".into()).spawn(move || {
        let mut scheduler = Scheduler { engine, jobs, budget, active: Vec::new() };
        while scheduler.admit() {
            scheduler.step();
        }
    })
}

struct Scheduler<E: Engine> {
    engine: E,
    jobs: Jobs,
    budget: Budget,
    /// Oldest first.
    active: Vec<Active<E::Sequence, E::Reply>>,
}

impl<E: Engine> Scheduler<E> {
    /// Takes in jobs; waits only when there is nothing to do. False when there never will be.
    fn admit(&mut self) -> bool {
        if self.active.is_empty() {
            let Some(job) = self.jobs.wait() else { return false };
            self.begin(job, false);
        }
        self.jobs.sweep();
        while self.active.len() < self.budget.active_jobs.max(1)
            && self.active.iter().map(|active| active.job.prompt.len()).sum::<usize>()
                < self.budget.active_tokens
        {
            let Some(job) = self.jobs.poll() else { break };
            self.begin(job, false);
        }
        true
    }

    fn begin(&mut self, mut job: Job, alone: bool) {
        if !job.begin() {
            return;
        }
        let engine = &mut self.engine;
        let begun = guarded(|| {
            let reply = match &job.work {
                Work::Read { .. } => None,
                Work::Reply { options, .. } => Some(engine.reply(options)?),
            };
            Ok((engine.begin(&job.prompt)?, reply))
        });
        match begun {
            Ok((sequence, reply)) => {
                let committed = self.engine.committed_tokens(&sequence).min(job.prompt.len());
                // A job that is tried again was counted before.
                if !alone {
                    self.jobs.metrics.begun(job.queued_at.elapsed(), committed);
                }
                self.active.push(Active::new(job, sequence, reply, committed, alone));
            }
            Err(error) => job.fail(error),
        }
    }

    /// One pass for whoever got a share of it.
    fn step(&mut self) {
        // Dropping a sequence leaves no trace of it in the engine.
        self.active.retain(|active| !active.job.is_closed());
        let canvas_rows = self.engine.info().canvas_tokens;
        let demands: Vec<Demand> = self.active.iter().map(|active| active.demand(canvas_rows)).collect();
        let shares = policy::plan(&demands, &self.budget);
        if !shares.is_empty() {
            match self.pass(&shares) {
                Ok(outputs) => self.apply(&shares, outputs),
                Err(error) => self.recover(&shares, &error),
            }
        }
        self.complete();
    }

    /// `shares` are in the order of the jobs. The outputs are in the order of the shares, and of the right shape.
    fn pass(&mut self, shares: &[Share]) -> Result<Vec<PassOutput>, EngineError> {
        let mut wanted = shares.iter().peekable();
        let mut batch = Vec::with_capacity(shares.len());
        for (index, active) in self.active.iter_mut().enumerate() {
            if let Some(share) = wanted.next_if(|share| share.job == index) {
                batch.push(active.item(share));
            }
        }
        let engine = &mut self.engine;
        let started = Instant::now();
        let outputs = guarded(|| engine.pass(&mut batch))?;
        let elapsed = started.elapsed();
        let elapsed_ms = elapsed.as_secs_f64() * 1e3;
        let shapes_match = outputs.len() == batch.len()
            && batch.iter().zip(&outputs).all(|(item, output)| {
                fits(item.canvases, &output.canvases) && item.reply.is_some() == output.step.is_some()
            });
        if !shapes_match {
            return Err(EngineError::Failed("it gave results of another shape than it was asked for".into()));
        }
        let (mut prompt_rows, mut canvas_rows) = (0, 0);
        for item in &batch {
            let (suffix_rows, rows) = engine::rows(item.canvases);
            prompt_rows += item.prefill.len() + suffix_rows;
            canvas_rows += rows + item.reply.as_ref().map_or(0, |_| self.engine.info().canvas_tokens);
        }
        self.jobs.metrics.passed(prompt_rows, canvas_rows, elapsed);
        for share in shares {
            self.active[share.job].account(share, elapsed_ms);
        }
        Ok(outputs)
    }

    /// Keeps the results of a good pass. A job with a non-finite logit gets an error; the others are not touched by it.
    fn apply(&mut self, shares: &[Share], outputs: Vec<PassOutput>) {
        let mut faults = Vec::new();
        for (share, output) in shares.iter().zip(outputs) {
            let masses = output.canvases.iter().flatten().filter_map(|slot| slot.full);
            masses
                .filter(|full| full.label_mass.is_finite())
                .for_each(|full| self.jobs.metrics.label_mass(full.label_mass));
            if let Some(Ok(step)) = &output.step {
                self.jobs.metrics.stepped(step);
            }
            if let Err(fault) = self.active[share.job].take(share, output) {
                faults.push((share.job, fault));
            }
        }
        for (index, fault) in faults.into_iter().rev() {
            self.active.remove(index).job.fail(fault);
        }
    }

    /// After a failed pass the sequences in it are in no defined state: begin again, one by one.
    fn recover(&mut self, shares: &[Share], error: &EngineError) {
        tracing::error!(jobs = shares.len(), %error, "forward pass failed");
        if matches!(error, EngineError::Panicked) {
            self.jobs.metrics.panicked();
        }
        let mut failed = Vec::with_capacity(shares.len());
        let mut waiting = Vec::with_capacity(self.active.len());
        for (index, active) in std::mem::take(&mut self.active).into_iter().enumerate() {
            if shares.iter().any(|share| share.job == index) {
                failed.push((active.job, active.done.canvases.len(), active.given));
            } else {
                waiting.push(active);
            }
        }
        let at_fault = failed.len() == 1;
        for (job, read, given) in failed {
            if at_fault || given { job.fail(error.clone().after(read)) } else { self.begin(job, true) }
        }
        self.active.extend(waiting);
    }

    /// Answers the jobs that have everything, all of them before the first prefix is kept for reuse. A follow-up finds it all the
    /// same: this thread takes it in afterwards. An engine that fails at that costs nobody an answer.
    fn complete(&mut self) {
        let (complete, active) =
            std::mem::take(&mut self.active).into_iter().partition::<Vec<_>, _>(Active::is_complete);
        self.active = active;
        let mut sequences = Vec::with_capacity(complete.len());
        for Active { job, sequence, done, .. } in complete {
            // A reply has said everything with its last block. A receiver that is gone needs no answer.
            if let Work::Read { to, .. } = job.work {
                let _ = to.send(Ok(done));
            }
            sequences.push(sequence);
        }
        if sequences.is_empty() {
            return;
        }
        for sequence in sequences {
            let engine = &mut self.engine;
            let finished = guarded(|| {
                engine.finish(sequence);
                Ok(())
            });
            if let Err(error) = finished {
                tracing::error!(%error, "a finished prefix was not kept");
            }
        }
        self.jobs.metrics.keeps(self.engine.kept_bytes());
    }
}

/// Runs engine code; a panic in it becomes an error and the thread lives on.
fn guarded<T>(run: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(EngineError::Panicked))
}

fn fits(canvases: &[Canvas], outputs: &[Vec<SlotLogits>]) -> bool {
    canvases.len() == outputs.len()
        && canvases.iter().zip(outputs).all(|(canvas, slots)| {
            canvas.slots.len() == slots.len()
                && canvas
                    .slots
                    .iter()
                    .zip(slots)
                    .all(|(slot, logits)| slot.label_ids.len() == logits.label_logits.len())
        })
}
