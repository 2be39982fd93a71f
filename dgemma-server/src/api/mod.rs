//! What the server can do, without HTTP: chat requests in, completions out; who it is; whether it is ready.
//!
//! `chat` and `systemone` read the request, `decide` walks a decision, `generation` a conversation; `reply` and `systemone_reply` shape the
//! answer. Called by `http`; calls the queue.

pub mod chat;
pub mod cost;
pub mod decide;
mod draws;
pub mod generation;
pub mod generation_request;
pub mod readiness;
mod reads;
pub mod reply;
pub mod response_format;
pub mod systemone;
pub mod systemone_reply;
mod thought;
mod walk;
mod wanted;
pub mod warm_up;
mod wide;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use decision::Route;
use serde::Serialize;
use utoipa::ToSchema;

use crate::engine::EngineInfo;
use crate::error::Error;
use chat::ChatRequest;
use decide::{Decider, Decision};
use generation::Generation;
use generation_request::GenerationRequest;
use readiness::{Phase, Readiness};
use reply::{AssistantMessage, Completion, Extras, Head, to_json};
use response_format::Format;
use systemone::SystemoneRequest;
use systemone_reply::SystemoneReply;

/// The server without its sockets.
#[derive(Debug)]
pub struct Api {
    pub readiness: Readiness,
    /// Name under which the model is served.
    pub model: String,
    decider: OnceLock<Arc<Decider>>,
    replies: AtomicU64,
}

/// A reply and how it shall be sent.
#[derive(Debug)]
pub enum ChatReply {
    /// It is there. `decide_ms`: of a decision.
    Whole { completion: Box<Completion>, stream: Option<Stream>, decide_ms: Option<f64> },
    /// It is being made.
    Streamed { head: Head, generation: Box<Generation>, stream: Stream },
}

#[derive(Debug, Clone, Copy)]
pub struct Stream {
    pub include_usage: bool,
}

/// The body of the health routes.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Status {
    pub status: &'static str,
    pub phase: &'static str,
    pub bytes_loaded: u64,
    pub bytes_total: u64,
}

/// One entry of `GET /v1/models`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ModelEntry {
    pub id: String,
    pub object: &'static str,
    pub owned_by: &'static str,
    /// What a decision may be; absent until the model is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<ModelLimits>,
}

#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct ModelLimits {
    pub questions: usize,
    /// Longest id of a question.
    pub id_bytes: usize,
    pub alternatives: usize,
    pub reads: u32,
    pub context_tokens: usize,
    pub canvas_tokens: usize,
}

impl Api {
    #[must_use]
    pub fn new(model: String) -> Self {
        Api { readiness: Readiness::default(), model, decider: OnceLock::new(), replies: AtomicU64::new(0) }
    }

    /// From now on requests are answered.
    pub fn open(&self, decider: Arc<Decider>) {
        // Only the loader calls this, once; a second decider would be dropped.
        let _ = self.decider.set(decider);
        self.readiness.advance(Phase::Ready);
    }

    /// The decider, or why there is none now.
    pub fn decider(&self) -> Result<&Arc<Decider>, Error> {
        match (self.readiness.phase(), self.decider.get()) {
            (Phase::Ready, Some(decider)) => Ok(decider),
            (Phase::Draining | Phase::Closing, _) => Err(Error::Draining),
            (Phase::EngineGone, _) => Err(Error::EngineGone),
            (phase, _) => Err(Error::NotReady { phase: phase.as_str() }),
        }
    }

    /// What the engine is; known once it is loaded.
    #[must_use]
    pub fn info(&self) -> Option<&EngineInfo> {
        self.decider.get().map(|decider| &decider.info)
    }

    /// Answers the body of a chat completion.
    pub async fn chat(&self, body: &[u8]) -> Result<ChatReply, Error> {
        let decider = self.decider()?;
        let request = ChatRequest::from_body(body)?;
        let stream = request.stream.unwrap_or(false).then(|| Stream {
            include_usage: request.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
        });
        if request.is_decision()? {
            let decision = request.into_decision()?;
            let decision = decider.decide(decision.schema, decision.state).await?;
            let content = to_json(&decision.reply)?;
            return Ok(self.decided(&decision, content, Extras::default(), stream));
        }
        if let Some(format) = Format::new(request.response_format.as_ref(), &request.messages, request.seed)?
        {
            let decision = decider.decide(format.schema.clone(), format.state.clone()).await?;
            let content = to_json(&format.object(&decision.reply.answers)?)?;
            let extras = Extras { x_decision: Some(decision.reply.clone()), ..Extras::default() };
            return Ok(self.decided(&decision, content, extras, stream));
        }
        let generation = decider.generate(GenerationRequest::new(request)?).await?;
        let head = self.head();
        match stream {
            Some(stream) => Ok(ChatReply::Streamed { head, generation: Box::new(generation), stream }),
            None => collect(head, generation).await,
        }
    }

    fn decided(
        &self,
        decision: &Decision,
        content: String,
        extras: Extras,
        stream: Option<Stream>,
    ) -> ChatReply {
        let message = AssistantMessage::new(Some(content));
        let completion = Completion::new(self.head(), message, "stop", decision.usage, extras);
        let decide_ms = Some(decision.reply.diagnostics.timing.total_ms);
        ChatReply::Whole { completion: Box::new(completion), stream, decide_ms }
    }

    fn head(&self) -> Head {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let number = self.replies.fetch_add(1, Ordering::Relaxed);
        Head { id: format!("chatcmpl-{created:x}-{number:x}"), created, model: self.model.clone() }
    }

    /// Answers the body of a `/v1/systemone` request. `files`: images that came beside it.
    pub async fn systemone(&self, body: &[u8], files: usize) -> Result<SystemoneReply, Error> {
        let decider = self.decider()?;
        let SystemoneRequest { schema, state } = SystemoneRequest::from_body(body, files)?;
        let decision = decider.decide_for(Route::Systemone, schema.clone(), state).await?;
        Ok(SystemoneReply::new(self.model.clone(), &schema, decision))
    }

    #[must_use]
    pub fn status(&self) -> Status {
        let phase = self.readiness.phase();
        let (bytes_loaded, bytes_total) = self.readiness.bytes();
        let status = if phase == Phase::Ready { "ok" } else { "unavailable" };
        Status { status, phase: phase.as_str(), bytes_loaded, bytes_total }
    }

    /// The model under its plain name and under the two names that choose whether it thinks.
    #[must_use]
    pub fn models(&self) -> Vec<ModelEntry> {
        let limits = self.decider.get().map(|decider| ModelLimits {
            questions: decider.limits.max_questions,
            id_bytes: decider.limits.max_id_bytes,
            alternatives: decider.limits.max_alternatives,
            reads: decider.limits.max_reads,
            context_tokens: decider.info.context_tokens,
            canvas_tokens: decider.info.canvas_tokens,
        });
        ["", ":think", ":think=false"]
            .into_iter()
            .map(|suffix| ModelEntry {
                id: format!("{}{suffix}", self.model),
                object: "model",
                owned_by: "local",
                limits,
            })
            .collect()
    }
}

/// The whole of a reply.
async fn collect(head: Head, mut generation: Generation) -> Result<ChatReply, Error> {
    let mut message = AssistantMessage::new(None);
    while let Some(deltas) = generation.next().await? {
        deltas.into_iter().for_each(|delta| message.add(&head, delta));
    }
    if message.content.is_none() && message.tool_calls.is_empty() {
        message.content = Some(String::new());
    }
    let extras = Extras { x_generation: Some(generation.report()), ..Extras::default() };
    let completion = Completion::new(head, message, generation.finish_reason(), generation.usage(), extras);
    Ok(ChatReply::Whole { completion: Box::new(completion), stream: None, decide_ms: None })
}
