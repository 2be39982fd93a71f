//! The engine thread: takes jobs from the queue, runs forward passes, answers.
//!
//! Before every pass it takes in whatever waits (no job waits for a batch to fill), drops the jobs whose receiver is
//! gone, lets [`policy`] share out the rows, and puts everything into ONE forward. A pass that fails or panics costs its
//! jobs nothing but time: each is tried once more by itself, and only the one that is at fault gets the error.

pub mod policy;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Instant;

use crate::engine::{self, Canvas, Engine, EngineError, PassItem, PassOutput, SlotLogits};
use crate::queue::{Jobs, ReadDone, ReadJob};
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
    active: Vec<Active<E::Sequence>>,
}

/// A job in progress.
struct Active<S> {
    job: ReadJob,
    sequence: S,
    /// Prompt tokens in `sequence`.
    committed: usize,
    done: ReadDone,
    /// It was in a pass that failed and must not share the next one.
    alone: bool,
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

    fn begin(&mut self, mut job: ReadJob, alone: bool) {
        if !job.begin() {
            return;
        }
        let engine = &mut self.engine;
        let sequence = guarded(|| engine.begin(&job.prompt));
        match sequence {
            Ok(sequence) => {
                let committed = self.engine.committed_tokens(&sequence).min(job.prompt.len());
                let mut done = ReadDone { reused_tokens: committed, ..ReadDone::default() };
                let waited = job.queued_at.elapsed();
                done.timing.queue_ms = waited.as_secs_f64() * 1e3;
                self.jobs.metrics.begun(waited, committed);
                self.active.push(Active { job, sequence, committed, done, alone });
            }
            Err(error) => answer(job, Err(error)),
        }
    }

    /// One pass for whoever got a share of it.
    fn step(&mut self) {
        // Dropping a sequence leaves no trace of it in the engine.
        self.active.retain(|active| !active.job.reply.is_closed());
        let demands: Vec<Demand> = self.active.iter().map(Active::demand).collect();
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
                let read = active.done.canvases.len();
                batch.push(PassItem {
                    sequence: &mut active.sequence,
                    prefill: &active.job.prompt[active.committed..active.committed + share.prefill_rows],
                    canvases: &active.job.canvases[read..read + share.canvases],
                });
            }
        }
        let engine = &mut self.engine;
        let started = Instant::now();
        let outputs = guarded(|| engine.pass(&mut batch))?;
        let elapsed = started.elapsed();
        let elapsed_ms = elapsed.as_secs_f64() * 1e3;
        let shapes_match = outputs.len() == batch.len()
            && batch.iter().zip(&outputs).all(|(item, output)| fits(item.canvases, &output.canvases));
        if !shapes_match {
            return Err(EngineError::Failed("it gave results of another shape than it was asked for".into()));
        }
        let (mut prompt_rows, mut canvas_rows) = (0, 0);
        for item in &batch {
            let (suffix_rows, rows) = engine::rows(item.canvases);
            prompt_rows += item.prefill.len() + suffix_rows;
            canvas_rows += rows;
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
            let active = &mut self.active[share.job];
            active.committed += share.prefill_rows;
            if let Some(fault) = non_finite(&output) {
                faults.push((share.job, fault.after(active.done.canvases.len())));
            } else {
                let slots = output.canvases.iter().flatten();
                slots
                    .filter_map(|slot| slot.full)
                    .for_each(|full| self.jobs.metrics.label_mass(full.label_mass));
                active.done.canvases.extend(output.canvases);
            }
        }
        for (index, fault) in faults.into_iter().rev() {
            answer(self.active.remove(index).job, Err(fault));
        }
    }

    /// After a failed pass the sequences in it are in no defined state: begin again, one by one.
    fn recover(&mut self, shares: &[Share], error: &EngineError) {
        tracing::error!(jobs = shares.len(), %error, "forward pass failed");
        let mut failed = Vec::with_capacity(shares.len());
        let mut waiting = Vec::with_capacity(self.active.len());
        for (index, active) in std::mem::take(&mut self.active).into_iter().enumerate() {
            if shares.iter().any(|share| share.job == index) {
                failed.push((active.job, active.done.canvases.len()));
            } else {
                waiting.push(active);
            }
        }
        let at_fault = failed.len() == 1;
        for (job, read) in failed {
            if at_fault { answer(job, Err(error.clone().after(read))) } else { self.begin(job, true) }
        }
        self.active.extend(waiting);
    }

    /// Answers the jobs that have everything. The prefix is offered for reuse before the answer goes out, so that a
    /// follow-up of the same client finds it; an engine that fails at that costs nobody an answer.
    fn complete(&mut self) {
        let (complete, active) =
            std::mem::take(&mut self.active).into_iter().partition::<Vec<_>, _>(Active::is_complete);
        self.active = active;
        for Active { job, sequence, done, .. } in complete {
            let engine = &mut self.engine;
            let finished = guarded(|| {
                engine.finish(sequence);
                Ok(())
            });
            if let Err(error) = finished {
                tracing::error!(%error, "a finished prefix was not kept");
            }
            answer(job, Ok(done));
        }
    }
}

impl<S> Active<S> {
    fn demand(&self) -> Demand {
        Demand {
            prefill_rows: self.job.prompt.len() - self.committed,
            // A suffix that neighbours share is counted for each of them: the most they can need.
            canvas_rows: self.job.canvases[self.done.canvases.len()..]
                .iter()
                .map(|canvas| canvas.suffix.len() + canvas.ids.len())
                .collect(),
            alone: self.alone,
        }
    }

    fn is_complete(&self) -> bool {
        self.committed == self.job.prompt.len() && self.done.canvases.len() == self.job.canvases.len()
    }

    /// Splits the duration of a pass by this job's own rows in it.
    fn account(&mut self, share: &Share, elapsed_ms: f64) {
        let read = self.done.canvases.len();
        let canvases = &self.job.canvases[read..read + share.canvases];
        let (suffix_rows, canvas_rows) = engine::rows(canvases);
        let prefill_rows = share.prefill_rows + suffix_rows;
        let prefill_ms = elapsed_ms * prefill_rows as f64 / (prefill_rows + canvas_rows).max(1) as f64;
        self.done.timing.prefill_ms += prefill_ms;
        self.done.timing.denoise_ms += elapsed_ms - prefill_ms;
        self.done.passes += canvases.iter().map(Canvas::steps).max().unwrap_or(0);
    }
}

/// A receiver that is gone needs no answer.
fn answer(job: ReadJob, result: Result<ReadDone, EngineError>) {
    let _ = job.reply.send(result);
}

/// Runs engine code; a panic in it becomes an error and the thread lives on.
fn guarded<T>(run: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".into());
        Err(EngineError::Panicked(message))
    })
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

/// The first number of an output that is not finite.
fn non_finite(output: &PassOutput) -> Option<EngineError> {
    output.canvases.iter().enumerate().find_map(|(canvas, slots)| {
        let slot = slots.iter().position(|slot| {
            slot.label_logits.iter().any(|logit| !logit.is_finite())
                || slot.full.is_some_and(|full| !full.label_mass.is_finite())
        })?;
        Some(EngineError::NonFinite { canvas, slot })
    })
}
