//! The walk of one decision: stage after stage → reads → readings → answers and diagnostics.
//!
//! A stage is what can be asked at once; its reads go to the queue together. Prompts and canvases are worked out off the async
//! threads; the engine sees only ids. Called by `decide`. Next: `reads`, `draws`.

use std::sync::Arc;

use decision::{
    Answer, AnswerForm, Answers, DecisionReply, Diagnostics, Policy, Route, Samples, SamplesTaken, Schema,
    SlotDiagnostics, should_ask,
};
use indexmap::IndexMap;

use super::cost::Cost;
use super::decide::{Decider, Decision};
use super::draws::Sampled;
use super::reads::{Context, PreparedRead};
use super::wanted::Wanted;
use crate::engine::SlotLogits;
use crate::error::Error;
use crate::read::readout::{self, Readout};

/// A decision in progress.
pub(super) struct Walk {
    pub(super) decider: Arc<Decider>,
    pub(super) schema: Arc<Schema>,
    /// The schema as it is put to the model: a question that was read in brackets has only the alternatives of its final.
    pub(super) put: Arc<Schema>,
    /// Questions with more alternatives than there are labels; by index.
    pub(super) wide: Vec<bool>,
    pub(super) state: Arc<str>,
    pub(super) route: Route,
    /// Number of the winning answer of every question answered so far, among those put to the model; by index.
    pub(super) answered: Vec<Option<usize>>,
    /// How answers are written where the usual form has no labels for a question.
    pub(super) form: Option<AnswerForm>,
    /// What the model thought before the first read; in the prompt of each.
    pub(super) thought: Option<Arc<[u32]>>,
    pub(super) answers: Answers,
    pub(super) diagnostics: Diagnostics,
    pub(super) sampled: Sampled,
    pub(super) cost: Cost,
}

impl Walk {
    /// The beginning: nothing is answered yet. `cost` counts from the request on.
    pub(super) async fn new(
        decider: &Arc<Decider>,
        route: Route,
        schema: Schema,
        state: String,
        cost: Cost,
    ) -> Result<Self, Error> {
        let schema = Arc::new(schema);
        let wide = decider.wide(&schema, route).await?;
        Ok(Walk {
            decider: Arc::clone(decider),
            answered: vec![None; schema.questions.len()],
            diagnostics: Diagnostics {
                engine: decider.info.engine.into(),
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
            thought: None,
            answers: Answers::new(),
            sampled: Sampled::default(),
            cost,
        })
    }

    /// Thinks, where the schema says so. Once, before the first stage.
    pub(super) async fn think(&mut self) -> Result<(), Error> {
        if self.schema.think > 0 {
            let neutral_ids = self.route == Route::Systemone;
            let thought = self.decider.think(&self.schema, &self.state, neutral_ids).await?;
            self.cost.add_thought(&thought);
            self.thought = Some(thought.ids.into());
            self.diagnostics.thought = Some(thought.text);
        }
        Ok(())
    }

    /// Asks the questions of a stage whose conditions hold.
    pub(super) async fn stage(&mut self, stage: &[usize]) -> Result<(), Error> {
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

    /// Plans and prepares reads for these questions: all of them, or the next chunk of a sequential schema.
    pub(super) async fn prepare(
        &mut self,
        schema: Arc<Schema>,
        asked: &[usize],
        rest_of_cut: bool,
    ) -> Result<Vec<PreparedRead>, Error> {
        let (decider, state) = (Arc::clone(&self.decider), Arc::clone(&self.state));
        let (asked, answered, wide) = (asked.to_vec(), self.answered.clone(), self.wide.clone());
        let (neutral_ids, form) = (self.route == Route::Systemone, self.form);
        let thought = self.thought.clone();
        // What cannot fit by its length alone is not encoded at all.
        let (context_tokens, fewest) =
            (decider.info.context_tokens, decider.text.tokenizer.fewest_tokens(state.len()));
        if fewest > context_tokens {
            return Err(Error::StateTooLong { bytes: state.len(), fewest_tokens: fewest, context_tokens });
        }
        // A long state takes a while to encode, and must not hold up other connections.
        let for_reads = Arc::clone(&decider);
        let prepare = move |wanted: &Wanted| {
            let decider = for_reads;
            let mut context = Context {
                text: &decider.text,
                layouts: &decider.layouts,
                labels: &decider.labels,
                schema: &schema,
                state: &state,
                context_tokens,
                canvas_tokens: decider.info.canvas_tokens,
                answered: &answered,
                wide: &wide,
                form,
                thought: thought.as_deref(),
                neutral_ids,
                wanted,
            };
            context.reads(&asked, rest_of_cut).map(|reads| (reads, context.form))
        };
        let (reads, form) = decider.encode(prepare).await?;
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

    pub(super) fn note(&mut self, read: &PreparedRead, draws: usize) {
        self.diagnostics.chunks.push(self.ids(&read.asked));
        self.sampled.n = self.sampled.n.max(draws as u32);
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
    pub(super) fn readout(
        &self,
        read: &PreparedRead,
        number: usize,
        draws: &[Vec<SlotLogits>],
    ) -> Result<Readout, Error> {
        let slot = read.layout.slots.get(number).ok_or(Error::Internal { what: "reading a slot" })?;
        let logits: Vec<&SlotLogits> = draws.iter().filter_map(|slots| slots.get(number)).collect();
        readout::read(&self.decider.text, slot, &logits)
    }

    pub(super) fn finish(self) -> Decision {
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
