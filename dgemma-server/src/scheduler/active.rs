//! A job in progress: what it still needs of the next passes, and what it has had.

use super::policy::{Demand, Share};
use crate::engine::{self, Canvas, EngineError, PassItem, PassOutput, SlotLogits, Step};
use crate::queue::{Job, ReadDone, ReplyEvent, Work};

/// A job in progress. `S` and `R`: its sequence and its reply in the engine.
pub(super) struct Active<S, R> {
    pub(super) job: Job,
    pub(super) sequence: S,
    /// Set for a job that is a reply.
    pub(super) reply: Option<R>,
    /// Tokens of the job's prompt in `sequence`; a reply's blocks are added to that prompt.
    pub(super) committed: usize,
    pub(super) done: ReadDone,
    /// It was in a pass that failed and must not share the next one.
    pub(super) alone: bool,
    /// Whether something of its reply has been given out.
    pub(super) given: bool,
    finished: bool,
}

impl<S, R> Active<S, R> {
    pub(super) fn new(job: Job, sequence: S, reply: Option<R>, committed: usize, alone: bool) -> Self {
        let queue_ms = job.queued_at.elapsed().as_secs_f64() * 1e3;
        let mut done = ReadDone { reused_tokens: committed, ..ReadDone::default() };
        done.timing.queue_ms = queue_ms;
        if let Work::Reply { to, .. } = &job.work {
            // A receiver that is gone is noticed before the next pass.
            let _ = to.send(Ok(ReplyEvent::Begun { reused_tokens: committed, queue_ms }));
        }
        Self { job, sequence, reply, committed, done, alone, given: false, finished: false }
    }

    /// Canvases of the next pass and after; none for a reply.
    pub(super) fn canvases(&self) -> &[Canvas] {
        match &self.job.work {
            Work::Read { canvases, .. } => &canvases[self.done.canvases.len()..],
            Work::Reply { .. } => &[],
        }
    }

    /// `canvas_rows`: rows of a reply's canvas, the most it can have.
    pub(super) fn demand(&self, canvas_rows: usize) -> Demand {
        let mut rows: Vec<usize> =
            engine::rows_of_each(self.canvases()).map(|(suffix, own)| suffix + own).collect();
        rows.extend(self.reply.as_ref().map(|_| canvas_rows));
        Demand { prefill_rows: self.job.prompt.len() - self.committed, canvas_rows: rows, alone: self.alone }
    }

    /// Its part of the next pass.
    pub(super) fn item(&mut self, share: &Share) -> PassItem<'_, S, R> {
        let read = self.done.canvases.len();
        let (canvases, steps) = match &self.job.work {
            Work::Read { canvases, .. } => (&canvases[read..read + share.canvases], false),
            Work::Reply { .. } => (&[][..], share.canvases > 0),
        };
        PassItem {
            sequence: &mut self.sequence,
            prefill: &self.job.prompt[self.committed..self.committed + share.prefill_rows],
            canvases,
            reply: self.reply.as_mut().filter(|_| steps),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        match self.job.work {
            Work::Read { .. } => self.committed == self.job.prompt.len() && self.canvases().is_empty(),
            Work::Reply { .. } => self.finished,
        }
    }

    /// Splits the duration of a pass by this job's own rows in it.
    pub(super) fn account(&mut self, share: &Share, elapsed_ms: f64) {
        let Work::Read { .. } = self.job.work else { return };
        let canvases = &self.canvases()[..share.canvases];
        let (suffix_rows, canvas_rows) = engine::rows(canvases);
        let prefill_rows = share.prefill_rows + suffix_rows;
        let prefill_ms = elapsed_ms * prefill_rows as f64 / (prefill_rows + canvas_rows).max(1) as f64;
        let steps = canvases.iter().map(Canvas::steps).max().unwrap_or(0);
        self.done.timing.prefill_ms += prefill_ms;
        self.done.timing.denoise_ms += elapsed_ms - prefill_ms;
        self.done.passes += steps;
    }

    /// Takes in the output of a good pass; an error is this job's alone.
    pub(super) fn take(&mut self, share: &Share, output: PassOutput) -> Result<(), EngineError> {
        self.committed += share.prefill_rows;
        let Work::Reply { to, .. } = &self.job.work else {
            if let Some(fault) = non_finite(&output.canvases) {
                return Err(fault.after(self.done.canvases.len()));
            }
            self.done.canvases.extend(output.canvases);
            return Ok(());
        };
        let Some(step) = output.step else {
            let _ = to.send(Ok(ReplyEvent::Prefilled { tokens: self.committed }));
            return Ok(());
        };
        let step = step?;
        if let Step::Committed { block, commit } = &step {
            self.job.prompt.extend_from_slice(commit);
            self.finished = block.finish.is_some();
            self.given = true;
        }
        let _ = to.send(Ok(ReplyEvent::Step(step)));
        Ok(())
    }
}

/// The first number of an output that is not finite.
fn non_finite(canvases: &[Vec<SlotLogits>]) -> Option<EngineError> {
    canvases.iter().enumerate().find_map(|(canvas, slots)| {
        let slot = slots.iter().position(|slot| {
            slot.label_logits.iter().any(|logit| !logit.is_finite())
                || slot.full.is_some_and(|full| !full.label_mass.is_finite())
        })?;
        Some(EngineError::NonFinite { canvas, slot })
    })
}
