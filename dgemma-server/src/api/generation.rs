//! A reply in the making: prompt to the queue, events of the engine to pieces that a client gets.
//!
//! Plain and streamed replies are the same walk; they differ in who collects the pieces. Dropping a [`Generation`] cancels its work
//! between two steps. Called by `Api::chat`, by `http::stream`, and by `thought` for the thoughts of decisions.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::cost::{CompletionTokensDetails, PromptTokensDetails, Usage};
use super::decide::Decider;
use super::generation_request::GenerationRequest;
use super::wanted::Wanted;
use crate::chat::conversation;
use crate::chat::parser::{Parser, Piece};
use crate::chat::stop::StopStrings;
use crate::engine::{Block, EngineInfo, Finish, ReplyOptions, Step};
use crate::error::Error;
use crate::queue::{PendingReply, ReplyEvent};

/// Most tokens of a reply whose request names no number: enough for an answer, and an end for one that finds none. The
/// number of `generation_config.json` is a single canvas.
const DEFAULT_REPLY_TOKENS: usize = 4096;

/// A reply whose turn has come.
#[derive(Debug)]
pub struct Generation {
    decider: Arc<Decider>,
    /// None once the reply has ended: nothing is worked out for a client that has yet to take its last events.
    pending: Option<PendingReply>,
    parser: Parser,
    stops: StopStrings,
    prompt_tokens: usize,
    completion_tokens: usize,
    reused_tokens: usize,
    one_call: bool,
    drafts: bool,
    started: Instant,
    report: GenerationReport,
    finish: Option<&'static str>,
}

/// Something to tell the client.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    Content(String),
    Reasoning(String),
    Call {
        index: usize,
        name: String,
        /// A JSON object as text.
        arguments: String,
    },
    Draft(Draft),
    /// So many of the prompt's tokens are encoded.
    Prefilled {
        tokens: usize,
        of: usize,
    },
}

/// A block before it is done.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Draft {
    /// Number of the block in the reply, from 0 on.
    pub block: usize,
    /// Steps so far.
    pub step: usize,
    /// The most probable text so far, thoughts and calls included, without control tokens.
    pub text: String,
    /// Share of the tokens that this step took.
    pub accepted: f64,
}

/// How a reply was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub struct GenerationReport {
    pub seed: u64,
    pub blocks: usize,
    /// Denoise steps, those of thrown away blocks included.
    pub steps: usize,
    /// Empty first blocks that were thrown away.
    pub retries: usize,
    /// Blocks that were given out although they had not settled.
    pub unconverged: usize,
    pub queue_ms: f64,
    /// From the request's turn to its first finished block.
    pub first_block_ms: f64,
    pub total_ms: f64,
}

impl Decider {
    /// Sends the conversation to the queue and waits for its turn.
    pub async fn generate(self: &Arc<Self>, request: GenerationRequest) -> Result<Generation, Error> {
        let GenerationRequest { conversation, max_tokens, stops, seed, one_call, drafts } = request;
        let uses_tools = conversation.messages.iter().any(|message| !message.tool_calls.is_empty());
        if (uses_tools || !conversation.tools.is_empty()) && !self.text.renders_tools {
            return Err(Error::NoTools);
        }
        let takes_calls = !conversation.tools.is_empty();
        let started = Instant::now();
        let decider = Arc::clone(self);
        let context_tokens = self.info.context_tokens;
        let render = move |wanted: &Wanted| {
            conversation::render(&decider.text, &conversation, context_tokens, &|| wanted.is_wanted())
        };
        let prompt = self.encode(render).await?;
        let most = room(&self.info, prompt.ids.len())?;
        let mut parser = Parser::new(takes_calls);
        for &id in &prompt.begun {
            parser.push(&self.text, id);
        }
        let (decider, begun) = (Arc::clone(self), prompt.begun);
        let blank = move |ids: &[u32]| {
            let mut parser = Parser::new(takes_calls);
            for &id in begun.iter().chain(ids) {
                parser.push(&decider.text, id);
            }
            parser.is_blank()
        };
        let prompt_tokens = prompt.ids.len();
        let seed = seed.unwrap_or_else(random);
        let max_tokens = max_tokens.unwrap_or(DEFAULT_REPLY_TOKENS).min(most);
        let options = ReplyOptions { max_tokens, seed, blank: Arc::new(blank) };
        let mut pending = self.queue.submit_reply(prompt.ids, options).map_err(Error::from)?;
        let ReplyEvent::Begun { reused_tokens, queue_ms } = pending.next().await? else {
            return Err(Error::Internal { what: "a reply" });
        };
        Ok(Generation {
            decider: Arc::clone(self),
            pending: Some(pending),
            parser,
            stops: StopStrings::new(stops),
            prompt_tokens,
            completion_tokens: 0,
            reused_tokens,
            one_call,
            drafts,
            started,
            report: GenerationReport { seed, queue_ms, ..GenerationReport::default() },
            finish: None,
        })
    }
}

impl Generation {
    /// What comes next, at least one delta; `None` once the reply has ended. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<Option<Vec<Delta>>, Error> {
        let mut deltas = Vec::new();
        while deltas.is_empty() {
            let Some(pending) = &mut self.pending else { return Ok(None) };
            match pending.next().await? {
                ReplyEvent::Begun { .. } => {}
                ReplyEvent::Prefilled { tokens } => {
                    deltas.push(Delta::Prefilled { tokens, of: self.prompt_tokens });
                }
                ReplyEvent::Step(step) => self.step(step, &mut deltas),
            }
            if self.finish.is_some() {
                self.pending = None;
            }
        }
        Ok(Some(deltas))
    }

    /// Why it ended, in OpenAI's words; before the end: `stop`.
    #[must_use]
    pub fn finish_reason(&self) -> &'static str {
        self.finish.unwrap_or("stop")
    }

    #[must_use]
    pub fn usage(&self) -> Usage {
        let (prompt, completion) = (self.prompt_tokens as u64, self.completion_tokens as u64);
        Usage {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: prompt + completion,
            prompt_tokens_details: PromptTokensDetails { cached_tokens: self.reused_tokens as u64 },
            completion_tokens_details: Some(CompletionTokensDetails {
                reasoning_tokens: self.parser.reasoning_ids() as u64,
            }),
        }
    }

    #[must_use]
    pub fn report(&self) -> GenerationReport {
        GenerationReport { total_ms: self.elapsed_ms(), ..self.report.clone() }
    }

    fn elapsed_ms(&self) -> f64 {
        self.started.elapsed().as_secs_f64() * 1e3
    }

    fn step(&mut self, step: Step, deltas: &mut Vec<Delta>) {
        match step {
            Step::Denoising { draft, accepted } => {
                self.report.steps += 1;
                if self.drafts {
                    deltas.push(Delta::Draft(self.draft(&draft, &accepted)));
                }
            }
            Step::Retrying => {
                self.report.steps += 1;
                self.report.retries += 1;
            }
            Step::Committed { block, .. } => self.block(&block, deltas),
        }
    }

    fn block(&mut self, block: &Block, deltas: &mut Vec<Delta>) {
        if self.report.blocks == 0 {
            self.report.first_block_ms = self.elapsed_ms();
        }
        self.report.blocks += 1;
        self.report.steps += 1;
        self.report.unconverged += usize::from(!block.converged);
        for &id in &block.ids {
            self.completion_tokens += 1;
            let pieces = self.parser.push(&self.decider.text, id);
            self.pieces(pieces, deltas);
            if self.finish.is_some() {
                return;
            }
        }
        let Some(finish) = block.finish else { return };
        let pieces = self.parser.finish();
        self.pieces(pieces, deltas);
        let rest = self.stops.finish();
        push_text(deltas, Delta::Content(rest));
        // An early end set it already.
        self.finish = self.finish.or(Some(match finish {
            Finish::Length => "length",
            Finish::Stop(_) if self.parser.calls() > 0 => "tool_calls",
            Finish::Stop(_) => "stop",
        }));
    }

    fn pieces(&mut self, pieces: Vec<Piece>, deltas: &mut Vec<Delta>) {
        for piece in pieces {
            if self.finish.is_some() {
                return;
            }
            match piece {
                Piece::Content(text) => {
                    push_text(deltas, Delta::Content(self.stops.push(&text)));
                    if self.stops.hit() {
                        self.finish = Some("stop");
                    }
                }
                Piece::Reasoning(text) => push_text(deltas, Delta::Reasoning(text)),
                Piece::Call(call) => {
                    // Text before a call is complete.
                    push_text(deltas, Delta::Content(self.stops.finish()));
                    let arguments = Value::Object(call.arguments).to_string();
                    let index = self.parser.calls() - 1;
                    deltas.push(Delta::Call { index, name: call.name, arguments });
                    if self.one_call {
                        self.finish = Some("tool_calls");
                    }
                }
            }
        }
    }

    fn draft(&self, ids: &[u32], accepted: &[bool]) -> Draft {
        let mut stream = diffusion_gemma::TextStream::default();
        let tokenizer = &self.decider.text.tokenizer;
        let mut text: String = ids.iter().map(|&id| stream.push(tokenizer, id)).collect();
        text.push_str(&stream.finish());
        let taken = accepted.iter().filter(|&&accepted| accepted).count();
        Draft {
            block: self.report.blocks,
            step: self.report.steps,
            text,
            accepted: taken as f64 / accepted.len().max(1) as f64,
        }
    }
}

/// Text joins text of its own kind before it; no text is no delta.
fn push_text(deltas: &mut Vec<Delta>, delta: Delta) {
    match (deltas.last_mut(), delta) {
        (_, Delta::Content(text) | Delta::Reasoning(text)) if text.is_empty() => {}
        (Some(Delta::Content(before)), Delta::Content(text))
        | (Some(Delta::Reasoning(before)), Delta::Reasoning(text)) => before.push_str(&text),
        (_, delta) => deltas.push(delta),
    }
}

/// Most tokens that fit after a prompt: every block is a whole canvas.
pub(super) fn room(info: &EngineInfo, prompt_tokens: usize) -> Result<usize, Error> {
    let EngineInfo { context_tokens, canvas_tokens, .. } = *info;
    match context_tokens.saturating_sub(prompt_tokens) / canvas_tokens.max(1) * canvas_tokens {
        0 => Err(Error::NoRoom { prompt_tokens, canvas_tokens, context_tokens }),
        room => Ok(room),
    }
}

/// A seed for a request that has none, and other things that must not repeat. Small enough for every JSON reader.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish() >> 11
}
