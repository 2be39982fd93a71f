//! The reply of `POST /v1/chat/completions` in OpenAI's shape, whole or as the chunks of a stream.
//!
//! The content of a decision is one JSON string; a stream sends it as one chunk, since there is nothing to wait for. A conversation
//! is streamed by `http::stream`, delta by delta. What is not OpenAI's begins with `x_`.

use decision::DecisionReply;
use serde::Serialize;
use utoipa::ToSchema;

use super::cost::Usage;
use super::generation::{Delta, Draft, GenerationReport};
use crate::error::Error;

/// The end mark of a stream.
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// What identifies a reply, the same in all its chunks.
#[derive(Debug, Clone)]
pub struct Head {
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    pub model: String,
}

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
    #[serde(flatten)]
    pub extras: Extras,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Choice {
    pub index: u32,
    pub message: AssistantMessage,
    #[schema(value_type = Option<Object>)]
    pub logprobs: Option<()>,
    pub finish_reason: &'static str,
}

#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct AssistantMessage {
    pub role: &'static str,
    /// `null` when there are only calls.
    #[schema(required)]
    pub content: Option<String>,
    #[schema(value_type = Option<String>)]
    pub refusal: Option<()>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<CallReply>,
}

/// A call of a tool.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CallReply {
    /// Its place among the calls of the reply, in a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    pub id: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub function: FunctionReply,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct FunctionReply {
    pub name: String,
    /// A JSON object as text.
    pub arguments: String,
}

/// What this server adds to OpenAI's reply.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct Extras {
    /// How a reply in text was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x_generation: Option<GenerationReport>,
    /// The decision behind a `response_format`, with its probabilities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x_decision: Option<DecisionReply>,
    /// The text of a block before it is done, in a stream of its own chunks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x_diffusion_draft: Option<Draft>,
}

/// One event of a stream.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<ChunkChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(flatten)]
    extras: Extras,
}

#[derive(Debug, Serialize, ToSchema)]
struct ChunkChoice {
    index: u32,
    delta: DeltaReply,
    #[schema(value_type = Option<Object>)]
    logprobs: Option<()>,
    #[schema(required)]
    finish_reason: Option<&'static str>,
}

/// What a chunk adds to the message.
#[derive(Debug, Default, Serialize, ToSchema)]
struct DeltaReply {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CallReply>,
}

impl AssistantMessage {
    #[must_use]
    pub fn new(content: Option<String>) -> Self {
        AssistantMessage { role: "assistant", content, ..AssistantMessage::default() }
    }

    /// Adds what a delta says.
    pub(super) fn add(&mut self, head: &Head, delta: Delta) {
        match delta {
            Delta::Content(text) => self.content.get_or_insert_default().push_str(&text),
            Delta::Reasoning(text) => self.reasoning_content.get_or_insert_default().push_str(&text),
            Delta::Call { index, name, arguments } => {
                self.tool_calls.push(CallReply::new(head, index, name, arguments));
            }
            Delta::Draft(_) | Delta::Prefilled { .. } => {}
        }
    }
}

impl CallReply {
    fn new(head: &Head, index: usize, name: String, arguments: String) -> Self {
        // Ids of calls must differ between the replies of a conversation, as those of the replies do.
        let id = format!("call_{}_{index}", head.id.trim_start_matches("chatcmpl-"));
        CallReply { index: None, id, kind: "function", function: FunctionReply { name, arguments } }
    }
}

impl Completion {
    #[must_use]
    pub fn new(
        head: Head,
        message: AssistantMessage,
        finish_reason: &'static str,
        usage: Usage,
        extras: Extras,
    ) -> Self {
        let choice = Choice { index: 0, message, logprobs: None, finish_reason };
        let Head { id, created, model } = head;
        Completion { id, object: "chat.completion", created, model, choices: [choice], usage, extras }
    }

    /// The same reply as server-sent events: the content, the usage if asked for, the end mark.
    pub fn to_events(self, include_usage: bool) -> Result<String, Error> {
        let [Choice { message, finish_reason, .. }] = self.choices;
        let head = Head { id: self.id, created: self.created, model: self.model };
        let delta = DeltaReply {
            role: Some(message.role),
            content: message.content,
            reasoning_content: message.reasoning_content,
            tool_calls: message.tool_calls,
        };
        let choice = ChunkChoice { index: 0, delta, logprobs: None, finish_reason: Some(finish_reason) };
        let mut events = head.event(vec![choice], None, self.extras)?;
        if include_usage {
            events.push_str(&head.usage(self.usage)?);
        }
        events.push_str(DONE);
        Ok(events)
    }
}

impl Head {
    /// The chunk that begins the message.
    pub(crate) fn begin(&self) -> Result<String, Error> {
        let delta =
            DeltaReply { role: Some("assistant"), content: Some(String::new()), ..DeltaReply::default() };
        self.delta(delta, None, Extras::default())
    }

    /// The event of a delta; how far the prompt is becomes a comment, which clients skip.
    pub(crate) fn add(&self, delta: Delta) -> Result<String, Error> {
        let delta = match delta {
            Delta::Content(text) => DeltaReply { content: Some(text), ..DeltaReply::default() },
            Delta::Reasoning(text) => DeltaReply { reasoning_content: Some(text), ..DeltaReply::default() },
            Delta::Call { index, name, arguments } => {
                let call = CallReply { index: Some(index), ..CallReply::new(self, index, name, arguments) };
                DeltaReply { tool_calls: vec![call], ..DeltaReply::default() }
            }
            Delta::Draft(draft) => {
                return self.event(
                    Vec::new(),
                    None,
                    Extras { x_diffusion_draft: Some(draft), ..Extras::default() },
                );
            }
            Delta::Prefilled { tokens, of } => return Ok(format!(": {tokens} of {of} prompt tokens\n\n")),
        };
        self.delta(delta, None, Extras::default())
    }

    /// The chunk that says why the message ended.
    pub(crate) fn finish(&self, reason: &'static str, report: GenerationReport) -> Result<String, Error> {
        let extras = Extras { x_generation: Some(report), ..Extras::default() };
        self.delta(DeltaReply::default(), Some(reason), extras)
    }

    /// The chunk after the message, for those who asked for it.
    pub(crate) fn usage(&self, usage: Usage) -> Result<String, Error> {
        self.event(Vec::new(), Some(usage), Extras::default())
    }

    fn delta(
        &self,
        delta: DeltaReply,
        finish_reason: Option<&'static str>,
        extras: Extras,
    ) -> Result<String, Error> {
        self.event(vec![ChunkChoice { index: 0, delta, logprobs: None, finish_reason }], None, extras)
    }

    fn event(
        &self,
        choices: Vec<ChunkChoice>,
        usage: Option<Usage>,
        extras: Extras,
    ) -> Result<String, Error> {
        let Head { id, created, model } = self;
        let object = "chat.completion.chunk";
        let chunk = Chunk { id, object, created: *created, model, choices, usage, extras };
        Ok(format!("data: {}\n\n", to_json(&chunk)?))
    }
}

/// Strings and finite numbers always become JSON; anything else is a fault of this crate.
pub(crate) fn to_json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|_| Error::Internal { what: "writing a reply" })
}
