//! The walk of one decision: schema → stages → reads → queue → readings → answers and diagnostics.
//!
//! A stage is what can be asked at once; its reads go to the queue together. `samples: auto` adds a second round to a
//! stage. Ids and slots are worked out here, off the async threads; the engine sees only ids. Questions that are isolated over
//! one state are branches of one job: what their prompts share, then a suffix for each. Next: `reads`, `queue`.

use std::ops::Range;
use std::sync::Arc;

use decision::{
    Answer, AnswerForm, Answers, DecisionReply, Diagnostics, Layout, Limits, Policy, Route, Samples,
    SamplesTaken, Schema, SlotDiagnostics, should_ask, stages,
};
use indexmap::IndexMap;

use super::cost::{Cost, Usage};
use super::reads::{Context, PreparedRead};
use tokio::sync::Semaphore;

use crate::engine::{self, Canvas, EngineError, EngineInfo, SlotLogits};
use crate::error::Error;
use crate::queue::{Queue, Read, Refused, Unanswered};
use crate::read::canvas::Layouts;
use crate::read::labels::Labels;
use crate::read::noise::Noise;
use crate::read::{Text, readout};

/// The seed of a schema that names none: the same request gets the same answer.
const DEFAULT_SEED: u64 = 0;

/// Answers decisions over the queue. Shared by all requests.
#[derive(Debug)]
pub struct Decider {
    pub info: EngineInfo,
    pub limits: Limits,
    text: Text,
    queue: Queue,
    layouts: Layouts,
    labels: Labels,
    /// One place per core: texts are encoded no more at a time, and a client that leaves while waiting costs nothing.
    encoding: Semaphore,
}

/// A decision that was made.
#[derive(Debug)]
pub struct Decision {
    pub reply: DecisionReply,
    pub usage: Usage,
}

/// A decision in progress.
struct Walk {
    decider: Arc<Decider>,
    schema: Arc<Schema>,
    state: Arc<str>,
    route: Route,
    /// Number of the winning answer of every question answered so far; by index.
    answered: Vec<Option<usize>>,
    /// How answers are written where the usual form has no labels for a question.
    form: Option<AnswerForm>,
    answers: Answers,
    diagnostics: Diagnostics,
    sampled: Sampled,
    cost: Cost,
}

/// What the draws came to, over all stages.
#[derive(Debug, Default)]
struct Sampled {
    n: u32,
    extended: bool,
    first_read_max_entropy_nats: f64,
}

/// `[read][draw][slot]`
type Drawn = Vec<Vec<Vec<SlotLogits>>>;

impl Decider {
    #[must_use]
    pub fn new(info: EngineInfo, text: Text, queue: Queue) -> Self {
        let labels = Labels::new(&text.tokenizer);
        let limits = Limits { max_alternatives: labels.most(), ..Limits::default() };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Decider {
            info,
            limits,
            text,
            queue,
            layouts: Layouts::default(),
            labels,
            encoding: Semaphore::new(cores),
        }
    }

    /// Decides by the rules of the chat route. Dropping the future cancels what is still waiting or running.
    pub async fn decide(self: &Arc<Self>, schema: Schema, state: String) -> Result<Decision, Error> {
        self.decide_for(Route::Chat, schema, state).await
    }

    /// Decides by the rules of a route; [`Decider::decide`] in all else.
    pub async fn decide_for(
        self: &Arc<Self>,
        route: Route,
        schema: Schema,
        state: String,
    ) -> Result<Decision, Error> {
        let cost = Cost::new();
        schema.validate(&Limits { route, ..self.limits.clone() })?;
        refuse_unsupported(&schema)?;
        let mut walk = Walk {
            decider: Arc::clone(self),
            answered: vec![None; schema.questions.len()],
            diagnostics: Diagnostics {
                engine: self.info.engine.into(),
                steps: schema.steps,
                layout: schema.layout.as_str().into(),
                ..Diagnostics::default()
            },
            schema: Arc::new(schema),
            state: state.into(),
            route,
            form: None,
            answers: Answers::new(),
            sampled: Sampled::default(),
            cost,
        };
        for stage in stages(&walk.schema)? {
            walk.stage(&stage).await?;
        }
        Ok(walk.finish())
    }
}

impl Walk {
    /// Asks the questions of a stage whose conditions hold.
    async fn stage(&mut self, stage: &[usize]) -> Result<(), Error> {
        let schema = Arc::clone(&self.schema);
        let mut asked = Vec::new();
        for &index in stage {
            let question = &schema.questions[index];
            match should_ask(question, &self.answers) {
                Ok(()) => asked.push(index),
                Err(skipped) => {
                    self.answers.insert(question.id.clone(), None);
                    self.diagnostics.skipped.insert(question.id.clone(), skipped);
                }
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        self.diagnostics.stages.push(self.ids(&asked));
        let stage_size = asked.len();
        while !asked.is_empty() {
            let reads = self.prepare(&asked, asked.len() < stage_size).await?;
            asked.retain(|index| !reads.iter().any(|read| read.asked.contains(index)));
            self.read(&reads).await?;
        }
        Ok(())
    }

    /// Plans and prepares reads for these questions: all of them, or the next chunk of a sequential schema.
    async fn prepare(&mut self, asked: &[usize], rest_of_cut: bool) -> Result<Vec<PreparedRead>, Error> {
        let (decider, schema, state) =
            (Arc::clone(&self.decider), Arc::clone(&self.schema), Arc::clone(&self.state));
        let (asked, answered) = (asked.to_vec(), self.answered.clone());
        let (neutral_ids, form) = (self.route == Route::Systemone, self.form);
        // What cannot fit by its length alone is not encoded at all.
        let (context_tokens, fewest) =
            (decider.info.context_tokens, decider.text.tokenizer.fewest_tokens(state.len()));
        if fewest > context_tokens {
            return Err(Error::StateTooLong { bytes: state.len(), fewest_tokens: fewest, context_tokens });
        }
        let _place = self
            .decider
            .encoding
            .acquire()
            .await
            .map_err(|_| Error::Internal { what: "preparing a prompt" })?;
        // A long state takes a while to encode, and must not hold up other connections.
        let prepared = tokio::task::spawn_blocking(move || {
            let mut context = Context {
                text: &decider.text,
                layouts: &decider.layouts,
                labels: &decider.labels,
                schema: &schema,
                state: &state,
                canvas_tokens: decider.info.canvas_tokens,
                answered: &answered,
                form,
                neutral_ids,
            };
            context.reads(&asked, rest_of_cut).map(|reads| (reads, context.form))
        });
        let (reads, form) = prepared.await.map_err(|_| Error::Internal { what: "preparing a prompt" })??;
        self.form = form;
        for read in &reads {
            let (prompt_tokens, canvas_tokens) = (read.prompt.len(), read.layout.ids.len());
            if prompt_tokens + canvas_tokens > context_tokens {
                return Err(Error::ContextExceeded { prompt_tokens, canvas_tokens, context_tokens });
            }
        }
        Ok(reads)
    }

    /// Draws the reads as the schema says, and keeps the answers.
    async fn read(&mut self, reads: &[PreparedRead]) -> Result<(), Error> {
        let mut drawn = match self.schema.effective_samples() {
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
        };
        for (read, draws) in reads.iter().zip(&mut drawn) {
            self.diagnostics.chunks.push(self.ids(&read.asked));
            self.sampled.n = self.sampled.n.max(draws.len() as u32);
            self.keep(read, draws)?;
        }
        Ok(())
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
            let (prompt, suffix) = read.prompt.split_at(shared.min(read.prompt.len()));
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
        let pending = decider.queue.submit(jobs).map_err(|refused| match refused {
            Refused::Busy { capacity } => Error::Busy { capacity },
            Refused::TooMany { places, capacity } => Error::TooManyReads { reads: places, capacity },
            Refused::Closed => Error::EngineGone,
        })?;
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

    /// Answers of one read. `draws: [draw][slot]`
    fn keep(&mut self, read: &PreparedRead, draws: &[Vec<SlotLogits>]) -> Result<(), Error> {
        for (number, (&index, slot)) in read.asked.iter().zip(read.layout.slots.iter()).enumerate() {
            let question = &self.schema.questions[index];
            let logits: Vec<&SlotLogits> = draws.iter().filter_map(|slots| slots.get(number)).collect();
            let readout = readout::read(&self.decider.text, slot, &logits)?;
            let labels = read.labels.get(number).map_or(&[][..], Vec::as_slice);
            let answer = Answer::with_labels(question, labels, &readout.reading)?;
            self.answered[index] = Some(readout.reading.winner);
            self.answers.insert(question.id.clone(), Some(answer));
            self.diagnostics.questions.insert(question.id.clone(), readout.diagnostics);
        }
        Ok(())
    }

    fn finish(self) -> Decision {
        let Walk { schema, mut answers, mut diagnostics, sampled, cost, .. } = self;
        // Stages answer in their own order; the reply has that of the schema.
        let order: IndexMap<&str, usize> = schema
            .questions
            .iter()
            .enumerate()
            .map(|(index, question)| (question.id.as_str(), index))
            .collect();
        answers.sort_by_cached_key(|id, _| order.get(id.as_str()).copied());
        diagnostics.questions.sort_by_cached_key(|id, _: &SlotDiagnostics| order.get(id.as_str()).copied());
        diagnostics.samples = SamplesTaken {
            n: sampled.n,
            policy: match schema.effective_samples() {
                Samples::Fixed(n) => Policy::Fixed { n },
                Samples::Auto => Policy::Auto {
                    threshold: schema.auto_threshold_nats,
                    max: schema.auto_max,
                    extended: sampled.extended,
                    first_read_max_entropy: Some(sampled.first_read_max_entropy_nats),
                },
            },
        };
        diagnostics.timing = cost.timing();
        diagnostics.prompt_tokens = diagnostics.timing.prompt_tokens;
        Decision { usage: cost.usage(), reply: DecisionReply { answers, diagnostics } }
    }

    fn ids(&self, indices: &[usize]) -> Vec<String> {
        indices.iter().map(|&index| self.schema.questions[index].id.clone()).collect()
    }
}

/// How many tokens all prompts begin with.
fn shared_tokens(reads: &[PreparedRead]) -> usize {
    let Some((first, others)) = reads.split_first() else { return 0 };
    let common =
        |read: &PreparedRead| first.prompt.iter().zip(&read.prompt).take_while(|(a, b)| a == b).count();
    others.iter().map(common).min().unwrap_or(first.prompt.len())
}

/// Keys of the contract that the engine cannot do yet must not be ignored: they would change the decision.
fn refuse_unsupported(schema: &Schema) -> Result<(), Error> {
    if schema.think > 0 {
        let hint = "leave \"think\" out: the read is taken without a thought";
        return Err(Error::Unsupported { key: "think", value: schema.think.to_string(), hint });
    }
    Ok(())
}
