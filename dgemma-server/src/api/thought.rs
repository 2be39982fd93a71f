//! The thought before a decision: written once from all its questions, then part of the prompt of every read.
//!
//! Only the model's own words up to where it closes the thought, at most `think` tokens. All draws, chunks and stages share it.
//! Called by `walk`.

use std::sync::Arc;

use decision::{AnswerForm, Question, Schema, question_sheet};
use diffusion_gemma::TextStream;

use super::decide::Decider;
use super::draws::DEFAULT_SEED;
use super::generation::room;
use crate::engine::{ReplyOptions, Step};
use crate::error::Error;
use crate::queue::ReplyEvent;
use crate::read::prompt::{self, Begun, Put};

/// A thought and what it cost.
#[derive(Debug, Clone, Default)]
pub(super) struct Thought {
    /// Without the tokens that open and close it.
    pub(super) ids: Vec<u32>,
    pub(super) text: String,
    pub(super) queue_ms: f64,
}

impl Decider {
    /// Writes the thought of a decision. `neutral_ids`: the questions go by q1, q2, … in it.
    pub(super) async fn think(
        self: &Arc<Self>,
        schema: &Arc<Schema>,
        state: &Arc<str>,
        neutral_ids: bool,
    ) -> Result<Thought, Error> {
        let Some(close) = self.text.markers.channel_close.filter(|_| self.text.thinks) else {
            let hint = "leave \"think\" out: the chat template of this checkpoint cannot ask for a thought";
            return Err(Error::Unsupported { key: "think", value: schema.think.to_string(), hint });
        };
        let (decider, schema_put, state) = (Arc::clone(self), Arc::clone(schema), Arc::clone(state));
        let prompt = self
            .encode(move |wanted| {
                let name = |(question, number): (&Question, usize)| {
                    let id = if neutral_ids { format!("q{number}") } else { question.id.clone() };
                    Question { id, ..question.clone() }
                };
                let questions: Vec<Question> = schema_put.asked().into_iter().zip(1..).map(name).collect();
                let sheet = question_sheet(&schema_put, &questions.iter().collect::<Vec<_>>(), false);
                let form = AnswerForm::of(questions.len());
                let put = Put { layout: schema_put.layout, sheet: &sheet, state: &state, form };
                let context_tokens = decider.info.context_tokens;
                prompt::render(&decider.text, put, Begun::Thinking, context_tokens, &|| wanted.is_wanted())
            })
            .await?;
        let max_tokens = (schema.think as usize).min(room(&self.info, prompt.len())?);
        let decider = Arc::clone(self);
        let blank = move |ids: &[u32]| decider.text_of(until(ids, close)).trim().is_empty();
        let options =
            ReplyOptions { max_tokens, seed: schema.seed.unwrap_or(DEFAULT_SEED), blank: Arc::new(blank) };
        let mut pending = self.queue.submit_reply(prompt, options)?;
        let mut thought = Thought::default();
        loop {
            match pending.next().await? {
                ReplyEvent::Begun { queue_ms, .. } => thought.queue_ms = queue_ms,
                ReplyEvent::Step(Step::Committed { block, .. }) => {
                    let ids = until(&block.ids, close);
                    thought.ids.extend_from_slice(ids);
                    // Dropping what is pending ends the rest of the reply: nobody reads the answer.
                    if ids.len() < block.ids.len() || block.finish.is_some() {
                        break;
                    }
                }
                ReplyEvent::Prefilled { .. } | ReplyEvent::Step(_) => {}
            }
        }
        // Other markers mean nothing inside a thought, and would end it in the prompt of a read.
        thought.ids.retain(|&id| !self.text.tokenizer.is_control(id));
        self.text_of(&thought.ids).trim().clone_into(&mut thought.text);
        Ok(thought)
    }

    fn text_of(&self, ids: &[u32]) -> String {
        let mut stream = TextStream::default();
        let text: String = ids.iter().map(|&id| stream.push(&self.text.tokenizer, id)).collect();
        text + &stream.finish()
    }
}

/// The ids before the first that is `end`.
fn until(ids: &[u32], end: u32) -> &[u32] {
    &ids[..ids.iter().position(|&id| id == end).unwrap_or(ids.len())]
}
