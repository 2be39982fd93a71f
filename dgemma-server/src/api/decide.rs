//! The walk of one decision: schema → stages → reads → queue → readings → answers and diagnostics.
//!
//! A stage is what can be asked at once; its reads go to the queue together. `samples: auto` adds a second round to a
//! stage. Ids and slots are worked out here, off the async threads; the engine sees only ids. Questions that are isolated over
//! one state are branches of one job: what their prompts share, then a suffix for each. Next: `reads`, `queue`.

use std::ops::Range;
use std::sync::Arc;

use decision::{
    Answer, AnswerForm, Answers, DecisionReply, Diagnostics, Kind, Layout, Limits, Policy, Question, Reading,
    Route, Samples, SamplesTaken, Schema, SlotDiagnostics, entropy_nats, hesitation, should_ask, stages,
};
use indexmap::IndexMap;

use super::brackets;
use super::cost::{Cost, Usage};
use super::reads::{Context, PreparedRead};
use tokio::sync::Semaphore;

use crate::engine::{self, Canvas, EngineError, EngineInfo, SlotLogits};
use crate::error::Error;
use crate::queue::{Queue, Read, Refused, Unanswered};
use crate::read::Text;
use crate::read::canvas::Layouts;
use crate::read::labels::{Labels, MOST_ALTERNATIVES};
use crate::read::noise::Noise;
use crate::read::readout::{self, Readout};

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
    /// The schema as it is put to the model: a question that was read in brackets has only the alternatives of its final.
    put: Arc<Schema>,
    /// Questions with more alternatives than there are labels; by index.
    wide: Vec<bool>,
    state: Arc<str>,
    route: Route,
    /// Number of the winning answer of every question answered so far, among those put to the model; by index.
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
        let limits = Limits { max_alternatives: MOST_ALTERNATIVES, ..Limits::default() };
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
        let schema = Arc::new(schema);
        let wide = self.wide(&schema, route).await?;
        let mut walk = Walk {
            decider: Arc::clone(self),
            answered: vec![None; schema.questions.len()],
            diagnostics: Diagnostics {
                engine: self.info.engine.into(),
                steps: schema.steps,
                layout: schema.layout.as_str().into(),
                ..Diagnostics::default()
            },
            put: Arc::clone(&schema),
            schema,
            wide,
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

impl Decider {
    /// Which questions have more alternatives than this tokenizer has labels for.
    async fn wide(self: &Arc<Self>, schema: &Arc<Schema>, route: Route) -> Result<Vec<bool>, Error> {
        if schema.questions.iter().all(|question| question.alternatives() <= brackets::MOST) {
            return Ok(vec![false; schema.questions.len()]);
        }
        let (decider, schema) = (Arc::clone(self), Arc::clone(schema));
        let find = move || {
            let is_wide = |question: &Question| {
                let neutral = Question { id: "q1".into(), ..question.clone() };
                let put = if route == Route::Systemone { &neutral } else { question };
                !decider.labels.suffice(&decider.text.tokenizer, put)
            };
            schema.questions.iter().map(is_wide).collect()
        };
        tokio::task::spawn_blocking(find).await.map_err(|_| Error::Internal { what: "choosing labels" })
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
        let (wide, mut asked): (Vec<_>, Vec<_>) = asked.into_iter().partition(|&index| self.wide[index]);
        let stage_size = asked.len();
        while !asked.is_empty() {
            let put = Arc::clone(&self.put);
            let reads = self.prepare(put, &asked, asked.len() < stage_size).await?;
            asked.retain(|index| !reads.iter().any(|read| read.asked.contains(index)));
            self.read(&reads).await?;
        }
        for index in wide {
            self.read_in_brackets(index).await?;
        }
        Ok(())
    }

    /// Reads one question in two rounds: all its brackets in one batch, then the best of each.
    async fn read_in_brackets(&mut self, index: usize) -> Result<(), Error> {
        let schema = Arc::clone(&self.schema);
        let question = &schema.questions[index];
        let parts = brackets::brackets(question.alternatives());
        let mut reads = Vec::with_capacity(parts.len());
        for part in &parts {
            let alternatives: Vec<usize> = part.clone().collect();
            let put = Arc::new(with_alternatives(&self.put, index, question, &alternatives));
            reads.extend(self.prepare(put, &[index], true).await?);
        }
        let mut first = Vec::with_capacity(reads.len());
        for (read, draws) in reads.iter().zip(self.sample(&reads).await?) {
            self.note(read, draws.len());
            first.push(self.readout(read, 0, &draws)?.reading.probabilities);
        }
        let finalists = brackets::finalists(&parts, &first);
        self.put = Arc::new(with_alternatives(&self.put, index, question, &finalists));
        let last = self.prepare(Arc::clone(&self.put), &[index], true).await?;
        let drawn = self.sample(&last).await?;
        let (Some(read), Some(draws)) = (last.first(), drawn.first()) else {
            return Err(Error::Internal { what: "reading the last of several rounds" });
        };
        self.note(read, draws.len());
        let Readout { reading, diagnostics } = self.readout(read, 0, draws)?;
        let probabilities = brackets::fuse(&parts, &first, &finalists, &reading.probabilities);
        let winner = finalists.get(reading.winner).copied().unwrap_or_default();
        let mut labels: Vec<String> = reads.iter().flat_map(|read| read.labels.concat()).collect();
        for (&alternative, label) in finalists.iter().zip(read.labels.concat()) {
            labels[alternative] = label;
        }
        let scale = probabilities[winner] / reading.confidence;
        let fused = Reading {
            winner,
            confidence: probabilities[winner],
            stderr: reading.stderr.map(|stderr| stderr * scale),
            agreement: reading.agreement,
            entropy_nats: entropy_nats(&probabilities),
            hesitation: hesitation(&probabilities),
            probabilities,
        };
        self.answered[index] = Some(reading.winner);
        self.answers.insert(question.id.clone(), Some(Answer::with_labels(question, &labels, &fused)?));
        self.diagnostics.questions.insert(question.id.clone(), diagnostics);
        Ok(())
    }

    /// Plans and prepares reads for these questions: all of them, or the next chunk of a sequential schema.
    async fn prepare(
        &mut self,
        schema: Arc<Schema>,
        asked: &[usize],
        rest_of_cut: bool,
    ) -> Result<Vec<PreparedRead>, Error> {
        let (decider, state) = (Arc::clone(&self.decider), Arc::clone(&self.state));
        let (asked, answered, wide) = (asked.to_vec(), self.answered.clone(), self.wide.clone());
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
                wide: &wide,
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
        let drawn = self.sample(reads).await?;
        for (read, draws) in reads.iter().zip(&drawn) {
            self.note(read, draws.len());
            self.keep(read, draws)?;
        }
        Ok(())
    }

    fn note(&mut self, read: &PreparedRead, draws: usize) {
        self.diagnostics.chunks.push(self.ids(&read.asked));
        self.sampled.n = self.sampled.n.max(draws as u32);
    }

    /// As many draws of each read as the schema says.
    async fn sample(&mut self, reads: &[PreparedRead]) -> Result<Drawn, Error> {
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
        for (number, &index) in read.asked.iter().enumerate() {
            let question = &self.schema.questions[index];
            let readout = self.readout(read, number, draws)?;
            let labels = read.labels.get(number).map_or(&[][..], Vec::as_slice);
            let answer = Answer::with_labels(question, labels, &readout.reading)?;
            self.answered[index] = Some(readout.reading.winner);
            self.answers.insert(question.id.clone(), Some(answer));
            self.diagnostics.questions.insert(question.id.clone(), readout.diagnostics);
        }
        Ok(())
    }

    /// What these draws say of one of the slots of a read. `draws: [draw][slot]`
    fn readout(
        &self,
        read: &PreparedRead,
        number: usize,
        draws: &[Vec<SlotLogits>],
    ) -> Result<Readout, Error> {
        let slot = read.layout.slots.get(number).ok_or(Error::Internal { what: "reading a slot" })?;
        let logits: Vec<&SlotLogits> = draws.iter().filter_map(|slots| slots.get(number)).collect();
        readout::read(&self.decider.text, slot, &logits)
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

/// The schema with only these alternatives of one question, which has all of them in `whole`.
fn with_alternatives(schema: &Schema, index: usize, whole: &Question, alternatives: &[usize]) -> Schema {
    let mut schema = schema.clone();
    schema.questions[index].kind = match &whole.kind {
        Kind::Choice { options } => {
            Kind::Choice { options: alternatives.iter().filter_map(|&n| options.get(n).cloned()).collect() }
        }
        Kind::Score { levels } => {
            Kind::Score { levels: alternatives.iter().filter_map(|&n| levels.get(n).cloned()).collect() }
        }
        kind @ Kind::Boolean { .. } => kind.clone(),
    };
    schema
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
