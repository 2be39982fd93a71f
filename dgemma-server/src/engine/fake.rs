//! A scripted engine: everything above the engine can be tested without weights.
//!
//! What it answers is a function of the canvas; what it is asked is written to a [`Log`]. It can be slow, stopped at a
//! [`Gate`], fail, panic or give NaN. Like a real engine it keeps the prompts of finished sequences, and only those, for
//! reuse.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::{
    Blank, Block, Canvas, Engine, EngineError, EngineInfo, Finish, FullRow, PassItem, PassOutput,
    ReplyOptions, SlotLogits, Step,
};

/// What happened to the engine, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Begin {
        prompt: Vec<u32>,
        reused: usize,
    },
    /// One entry per item.
    Pass(Vec<ItemCall>),
    Finish {
        prompt: Vec<u32>,
    },
}

/// One item of a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemCall {
    /// Tokens committed before the pass.
    pub committed: usize,
    pub prefill: Vec<u32>,
    /// Ids of each canvas.
    pub canvases: Vec<Vec<u32>>,
    /// Suffix of each canvas.
    pub suffixes: Vec<Vec<u32>>,
    /// Denoise steps of each canvas.
    pub steps: Vec<usize>,
    /// Whether a reply took a step.
    pub replies: bool,
}

/// How a pass goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Well.
    None,
    Error,
    Panic,
    NonFinite,
}

/// Where the logits come from: the prompt so far, the canvas, and the number of the slot on it.
pub type Answer = dyn Fn(&[u32], &Canvas, usize) -> Vec<f32> + Send + Sync;

/// Blocks of ids that a reply of that seed consists of; after the last the model stops by itself.
pub type Blocks = dyn Fn(u64) -> Vec<Vec<u32>> + Send + Sync;

/// The calls so far, shared with the test.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Mutex<Vec<Call>>>);

/// Holds passes, or the end of sequences, back until it is opened.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Debug, Default)]
struct GateState {
    closed: bool,
    /// Passes that wait at the gate now.
    waiting: usize,
}

/// The scripted engine.
pub struct Fake {
    info: EngineInfo,
    answer: Box<Answer>,
    reply: Box<Blocks>,
    /// How often a reply begins anew where its first block is blank.
    retries: usize,
    faults: Arc<Mutex<VecDeque<Fault>>>,
    delay: Duration,
    gate: Gate,
    finish_gate: Gate,
    log: Log,
    /// Prompts of finished sequences.
    known: Arc<Mutex<Vec<Vec<u32>>>>,
}

/// The prompt committed so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeSequence(Vec<u32>);

/// What is left of a scripted reply. Every block takes two steps, the first of which shows it as a draft.
pub struct FakeReply {
    blocks: VecDeque<Vec<u32>>,
    left: usize,
    steps: usize,
    /// 0 once a block was given out.
    retries: usize,
    blank: Arc<Blank>,
}

impl std::fmt::Debug for FakeReply {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("FakeReply").field("blocks", &self.blocks).finish_non_exhaustive()
    }
}

/// The id that ends a scripted reply.
pub const STOP: u32 = 106;

impl FakeReply {
    fn step(&mut self) -> Step {
        self.steps += 1;
        let block = self.blocks.front().cloned().unwrap_or_default();
        if self.steps < 2 {
            return Step::Denoising { accepted: vec![true; block.len()], draft: block };
        }
        let (steps, taken) = (std::mem::take(&mut self.steps), block.len().min(self.left));
        self.blocks.pop_front();
        if self.retries > 0 && (self.blank)(&block) {
            self.retries -= 1;
            return Step::Retrying;
        }
        self.retries = 0;
        let whole = taken == block.len();
        self.left -= taken;
        let finish = match (whole, self.blocks.is_empty()) {
            (false, _) => Some(Finish::Length),
            (true, true) => Some(Finish::Stop(STOP)),
            (true, false) => (self.left == 0).then_some(Finish::Length),
        };
        let commit = if finish.is_none() { block.clone() } else { Vec::new() };
        let ids = block[..taken].to_vec();
        Step::Committed {
            block: Block { ids, finish, steps, converged: true, mean_entropy_nats: 0.0 },
            commit,
        }
    }
}

/// The test's hands on a fake that has moved to the engine thread.
#[derive(Debug, Clone)]
pub struct Controls {
    pub log: Log,
    pub gate: Gate,
    /// In front of what is kept for reuse.
    pub finish_gate: Gate,
    faults: Arc<Mutex<VecDeque<Fault>>>,
    known: Arc<Mutex<Vec<Vec<u32>>>>,
}

impl Fake {
    /// An engine of that size where the first label of every slot wins: label `i` has the logit `-i`.
    #[must_use]
    pub fn new(context_tokens: usize, canvas_tokens: usize, vocab_size: usize) -> Self {
        let device = "none".into();
        Fake {
            info: EngineInfo {
                engine: "fake",
                device,
                context_tokens,
                canvas_tokens,
                vocab_size,
                active_tokens: usize::MAX,
            },
            answer: Box::new(|_, canvas, slot| {
                (0..canvas.slots[slot].label_ids.len()).map(|label| -(label as f32)).collect()
            }),
            reply: Box::new(|_| vec![Vec::new()]),
            retries: 0,
            faults: Arc::default(),
            delay: Duration::ZERO,
            gate: Gate::default(),
            finish_gate: Gate::default(),
            log: Log::default(),
            known: Arc::default(),
        }
    }

    /// Logits of the slots in order, the same on every canvas; a slot beyond the list, or with another number of labels as in
    /// the warm-up, has equal logits.
    #[must_use]
    pub fn with_slots(self, slots: Vec<Vec<f32>>) -> Self {
        self.with_answer(move |_, canvas, slot| {
            let labels = canvas.slots[slot].label_ids.len();
            slots
                .get(slot)
                .filter(|logits| logits.len() == labels)
                .cloned()
                .unwrap_or_else(|| vec![0.0; labels])
        })
    }

    /// Logits from a function of the committed prompt, the canvas and the slot number.
    #[must_use]
    pub fn with_answer(
        mut self,
        answer: impl Fn(&[u32], &Canvas, usize) -> Vec<f32> + Send + Sync + 'static,
    ) -> Self {
        self.answer = Box::new(answer);
        self
    }

    /// Replies of these blocks of ids, whatever the seed.
    #[must_use]
    pub fn with_reply(self, blocks: Vec<Vec<u32>>) -> Self {
        self.with_replies(move |_| blocks.clone())
    }

    /// Replies from a function of the seed.
    #[must_use]
    pub fn with_replies(mut self, blocks: impl Fn(u64) -> Vec<Vec<u32>> + Send + Sync + 'static) -> Self {
        self.reply = Box::new(blocks);
        self
    }

    /// A blank first block is thrown away, and the next scripted one is the first, at most so often.
    #[must_use]
    pub fn with_retries(mut self, retries: usize) -> Self {
        self.retries = retries;
        self
    }

    /// Every pass takes at least this long.
    #[must_use]
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    #[must_use]
    pub fn controls(&self) -> Controls {
        Controls {
            log: self.log.clone(),
            gate: self.gate.clone(),
            finish_gate: self.finish_gate.clone(),
            faults: Arc::clone(&self.faults),
            known: Arc::clone(&self.known),
        }
    }
}

impl Engine for Fake {
    type Sequence = FakeSequence;
    type Reply = FakeReply;

    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn begin(&mut self, prompt: &[u32]) -> Result<FakeSequence, EngineError> {
        let reused = lock(&self.known).iter().map(|known| common_prefix(known, prompt)).max().unwrap_or(0);
        self.log.push(Call::Begin { prompt: prompt.to_vec(), reused });
        Ok(FakeSequence(prompt[..reused].to_vec()))
    }

    fn committed_tokens(&self, sequence: &FakeSequence) -> usize {
        sequence.0.len()
    }

    fn reply(&mut self, options: &ReplyOptions) -> Result<FakeReply, EngineError> {
        let blocks = (self.reply)(options.seed);
        let (left, blank) = (options.max_tokens, Arc::clone(&options.blank));
        Ok(FakeReply { blocks: blocks.into(), left, steps: 0, retries: self.retries, blank })
    }

    fn pass(
        &mut self,
        batch: &mut [PassItem<'_, FakeSequence, FakeReply>],
    ) -> Result<Vec<PassOutput>, EngineError> {
        let items = batch.iter().map(|item| ItemCall {
            committed: item.sequence.0.len(),
            prefill: item.prefill.to_vec(),
            canvases: item.canvases.iter().map(|canvas| canvas.ids.clone()).collect(),
            suffixes: item.canvases.iter().map(|canvas| canvas.suffix.to_vec()).collect(),
            steps: item.canvases.iter().map(Canvas::steps).collect(),
            replies: item.reply.is_some(),
        });
        self.log.push(Call::Pass(items.collect()));
        self.gate.pass();
        thread::sleep(self.delay);
        let fault = lock(&self.faults).pop_front();
        match fault {
            Some(Fault::Error) => return Err(EngineError::Failed("scripted".into())),
            Some(Fault::Panic) => std::panic::panic_any("scripted panic"),
            Some(Fault::NonFinite | Fault::None) | None => {}
        }
        let mut outputs = Vec::with_capacity(batch.len());
        for item in batch {
            item.sequence.0.extend_from_slice(item.prefill);
            let read =
                |canvas: &Canvas| self.read(&[&item.sequence.0, canvas.suffix.as_ref()].concat(), canvas);
            let mut canvases: Vec<Vec<SlotLogits>> = item.canvases.iter().map(read).collect();
            if fault == Some(Fault::NonFinite) {
                canvases.iter_mut().flatten().for_each(|slot| slot.label_logits.fill(f32::NAN));
            }
            let step = item.reply.as_deref_mut().map(|reply| match fault {
                Some(Fault::NonFinite) => Err(EngineError::NonFiniteRow { row: 0 }),
                _ => Ok(reply.step()),
            });
            outputs.push(PassOutput { canvases, step });
        }
        Ok(outputs)
    }

    fn finish(&mut self, sequence: FakeSequence) {
        self.finish_gate.pass();
        self.log.push(Call::Finish { prompt: sequence.0.clone() });
        lock(&self.known).push(sequence.0);
    }

    fn kept_bytes(&self) -> usize {
        lock(&self.known).iter().map(|prompt| size_of_val(prompt.as_slice())).sum()
    }
}

impl Fake {
    fn read(&self, prompt: &[u32], canvas: &Canvas) -> Vec<SlotLogits> {
        let slots = canvas.slots.iter().enumerate();
        slots
            .map(|(number, slot)| {
                let label_logits = (self.answer)(prompt, canvas, number);
                let best = (0..label_logits.len()).reduce(|best, label| {
                    if label_logits[label] > label_logits[best] { label } else { best }
                });
                let full = best
                    .and_then(|best| slot.label_ids.get(best))
                    .map(|&argmax_id| FullRow { label_mass: 0.5, argmax_id });
                SlotLogits { label_logits, full }
            })
            .collect()
    }
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Fake").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Controls {
    /// The next passes to end go in this way, one each.
    pub fn fail_next(&self, faults: &[Fault]) {
        lock(&self.faults).extend(faults);
    }

    /// As new: no calls in the log, no prefix to reuse.
    pub fn reset(&self) {
        self.log.clear();
        lock(&self.known).clear();
    }
}

impl Log {
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        lock(&self.0).clone()
    }

    /// The prompts that were begun, in order. They are complete once a reply is there; a [`Call::Finish`] may come later.
    #[must_use]
    pub fn prompts(&self) -> Vec<Vec<u32>> {
        let prompt = |call| if let Call::Begin { prompt, .. } = call { Some(prompt) } else { None };
        self.calls().into_iter().filter_map(prompt).collect()
    }

    /// The items of every pass so far.
    #[must_use]
    pub fn passes(&self) -> Vec<Vec<ItemCall>> {
        let pass = |call: Call| if let Call::Pass(items) = call { Some(items) } else { None };
        self.calls().into_iter().filter_map(pass).collect()
    }

    /// Forgets the calls so far.
    pub fn clear(&self) {
        lock(&self.0).clear();
    }

    fn push(&self, call: Call) {
        lock(&self.0).push(call);
    }
}

impl Gate {
    /// From now on every pass waits here.
    pub fn close(&self) {
        lock(&self.0.0).closed = true;
    }

    pub fn open(&self) {
        lock(&self.0.0).closed = false;
        self.0.1.notify_all();
    }

    /// Returns once a pass waits at the closed gate.
    pub fn wait_for_pass(&self) {
        let state = lock(&self.0.0);
        drop(self.0.1.wait_while(state, |state| state.waiting == 0));
    }

    fn pass(&self) {
        let mut state = lock(&self.0.0);
        state.waiting += 1;
        self.0.1.notify_all();
        let mut state =
            self.0.1.wait_while(state, |state| state.closed).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
    }
}

fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// A panic is something the fake does on purpose; it leaves nothing half-written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
