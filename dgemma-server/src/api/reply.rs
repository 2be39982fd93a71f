//! The reply of `POST /v1/chat/completions` in OpenAI's shape, whole or as the chunks of a stream.
//!
//! The content of a decision is one JSON string; a stream sends it as one chunk, since there is nothing to wait for.

use serde::Serialize;
use utoipa::ToSchema;

use super::cost::Usage;
use crate::error::Error;

/// A whole reply.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Completion {
    pub id: String,
    pub object: &'static str,
    /// Seconds since 1970.
    pub created: u64,
    pub model: String,
    pub choices: [Choice; 1],
    pub usage: Usage,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Choice {
    pub index: u32,
    pub message: AssistantMessage,
    #[schema(value_type = Option<Object>)]
    pub logprobs: Option<()>,
    pub finish_reason: &'static str,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AssistantMessage {
    pub role: &'static str,
    pub content: String,
    #[schema(value_type = Option<String>)]
    pub refusal: Option<()>,
}

/// One event of a stream.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<ChunkChoice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ChunkChoice<'a> {
    index: u32,
    delta: Delta<'a>,
    #[schema(value_type = Option<Object>)]
    logprobs: Option<()>,
    finish_reason: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
struct Delta<'a> {
    role: &'a str,
    content: &'a str,
}

impl Completion {
    #[must_use]
    pub fn new(id: String, created: u64, model: String, content: String, usage: Usage) -> Self {
        let message = AssistantMessage { role: "assistant", content, refusal: None };
        let choice = Choice { index: 0, message, logprobs: None, finish_reason: "stop" };
        Completion { id, object: "chat.completion", created, model, choices: [choice], usage }
    }

    /// The same reply as server-sent events: the content, the usage if asked for, the end mark.
    pub fn to_events(&self, include_usage: bool) -> Result<String, Error> {
        let [choice] = &self.choices;
        let chunk = |choices, usage| Chunk {
            id: &self.id,
            object: "chat.completion.chunk",
            created: self.created,
            model: &self.model,
            choices,
            usage,
        };
        let delta = Delta { role: choice.message.role, content: &choice.message.content };
        let content = ChunkChoice { index: 0, delta, logprobs: None, finish_reason: choice.finish_reason };
        let mut events = event(&chunk(vec![content], None))?;
        if include_usage {
            events.push_str(&event(&chunk(Vec::new(), Some(self.usage)))?);
        }
        events.push_str("data: [DONE]\n\n");
        Ok(events)
    }
}

fn event(chunk: &Chunk<'_>) -> Result<String, Error> {
    Ok(format!("data: {}\n\n", to_json(chunk)?))
}

/// Strings and finite numbers always become JSON; anything else is a fault of this crate.
pub(crate) fn to_json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|_| Error::Internal { what: "writing a reply" })
}
