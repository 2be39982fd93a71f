//! The body of `POST /v1/chat/completions`: what of OpenAI's request is read, and what is asked for in it.
//!
//! A decision is a request whose first message has role system or developer and whose text is a JSON object with
//! `questions`; the user message after it is the state. Everything else is a conversation, see `generation_request`. Fields
//! that change nothing here (temperature, …) are accepted.

use decision::{Schema, mistaken_schema};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::Error;

/// Characters of a reason.
const LONGEST_REASON: usize = 400;

#[derive(Debug, Deserialize, ToSchema)]
pub struct ChatRequest {
    pub messages: Vec<ChatMessage>,
    #[serde(default)]
    pub stream: Option<bool>,
    #[serde(default)]
    pub stream_options: Option<StreamOptions>,
    /// Any name is accepted: this server has one model. Its end `:think` or `:think=false` says whether it thinks first.
    #[serde(default)]
    pub model: Option<String>,
    /// Most tokens of the reply, thoughts and calls included. Absent: what fits.
    #[serde(default)]
    pub max_tokens: Option<i64>,
    /// The same under its newer name, which wins.
    #[serde(default)]
    pub max_completion_tokens: Option<i64>,
    /// The answer ends before the first of these texts.
    #[serde(default)]
    pub stop: Option<Stop>,
    /// The same seed gives the same reply. Absent: a random one, which the reply reports.
    #[serde(default)]
    pub seed: Option<i64>,
    /// Replies to one request: 1.
    #[serde(default)]
    pub n: Option<i64>,
    /// Functions the model may call, in OpenAI's form.
    #[serde(default)]
    pub tools: Option<Vec<Value>>,
    /// `"auto"`, `"none"`, `"required"`, or one function.
    #[serde(default)]
    pub tool_choice: Option<Value>,
    /// False: the reply ends with its first call.
    #[serde(default)]
    pub parallel_tool_calls: Option<bool>,
    /// `text`, or `json_schema` with properties that are enums, booleans or bounded integers.
    #[serde(default)]
    pub response_format: Option<Value>,
    #[serde(default)]
    pub enable_thinking: Option<bool>,
    #[serde(default)]
    pub chat_template_kwargs: Option<TemplateOptions>,
    /// In a stream: events that show the text of a block before it is done.
    #[serde(default)]
    pub x_diffusion_drafts: Option<bool>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub enum Stop {
    One(String),
    Several(Vec<String>),
}

#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
pub struct TemplateOptions {
    #[serde(default)]
    pub enable_thinking: Option<bool>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
pub struct StreamOptions {
    #[serde(default)]
    pub include_usage: Option<bool>,
}

#[derive(Debug, Deserialize, ToSchema)]
pub struct ChatMessage {
    pub role: String,
    #[serde(default)]
    pub content: Option<Content>,
    /// Calls that an assistant made.
    #[serde(default)]
    pub tool_calls: Option<Vec<MessageCall>>,
    /// Which call a tool answers.
    #[serde(default)]
    pub tool_call_id: Option<String>,
    /// What an assistant thought; the chat template decides which thoughts are shown to the model again.
    #[serde(default)]
    pub reasoning_content: Option<String>,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct MessageCall {
    pub id: String,
    /// `function`.
    #[serde(rename = "type", default)]
    pub kind: Option<String>,
    pub function: MessageFunction,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct MessageFunction {
    pub name: String,
    /// A JSON object as text.
    pub arguments: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a string or a list of parts")]
pub enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize, ToSchema)]
pub struct Part {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub text: Option<String>,
}

/// Schema and state of a decision.
#[derive(Debug)]
pub struct DecisionRequest {
    pub schema: Schema,
    pub state: String,
}

impl ChatRequest {
    pub fn from_body(body: &[u8]) -> Result<Self, Error> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Err(Error::BodyEmpty);
        }
        let text = std::str::from_utf8(body)
            .map_err(|error| Error::BodyNotUtf8 { position: error.valid_up_to() })?;
        // The derived reader would take a list for an object, its values in the order of the fields.
        if text.trim_start().starts_with('[') {
            return Err(Error::WrongType {
                param: "body".into(),
                reason: "a list, expected an object".into(),
            });
        }
        let mut json = serde_json::Deserializer::from_str(text);
        let request = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let param = error.path().to_string();
            let error = error.into_inner();
            if error.is_data() {
                Error::WrongType {
                    param: if param == "." { "body".into() } else { param },
                    reason: error.to_string(),
                }
            } else {
                Error::BodyNotJson { reason: error.to_string() }
            }
        })?;
        json.end().map_err(|error| Error::BodyNotJson { reason: error.to_string() })?;
        Ok(request)
    }

    /// Whether it is a decision, by its first message.
    pub fn is_decision(&self) -> Result<bool, Error> {
        let Some(first) = self.messages.first() else {
            let hint =
                "send a conversation, or a system message with the schema and a user message with the state";
            return Err(fault("messages", "it is empty", hint));
        };
        // A part of another kind than text is refused later on, where it is read.
        match first.is_system().then(|| first.text("messages[0].content")) {
            Some(Ok(text)) => means_a_schema(&text),
            _ => Ok(false),
        }
    }

    /// The decision in this request, which is one.
    pub fn into_decision(self) -> Result<DecisionRequest, Error> {
        let mut messages = self.messages.into_iter();
        let text =
            messages.next().map(|first| first.text("messages[0].content")).transpose()?.unwrap_or_default();
        let schema = Schema::from_json(&text)?;
        let state = match messages.next() {
            Some(message) if message.role == "user" => message.text("messages[1].content")?,
            Some(message) => {
                let reason = format!("the role is {:?}, where the state is expected", message.role);
                return Err(fault(
                    "messages[1].role",
                    &reason,
                    "send the state as a user message after the schema",
                ));
            }
            None => {
                return Err(fault(
                    "messages",
                    "there is no state",
                    "send the state as a user message after the schema",
                ));
            }
        };
        if messages.next().is_some() {
            return Err(fault(
                "messages[2]",
                "a decision has one state, and a message follows it",
                "put everything to decide about into one user message",
            ));
        }
        Ok(DecisionRequest { schema, state })
    }
}

impl ChatMessage {
    pub(super) fn is_system(&self) -> bool {
        matches!(self.role.as_str(), "system" | "developer")
    }

    /// The text of the message, byte for byte; the texts of parts follow each other with nothing between them.
    pub(super) fn text(&self, param: &str) -> Result<String, Error> {
        match &self.content {
            None => Err(fault(param, "it is missing or null", "send a string or a list of text parts")),
            Some(Content::Text(text)) => Ok(text.clone()),
            Some(Content::Parts(parts)) => {
                let mut text = String::new();
                for (number, part) in parts.iter().enumerate() {
                    match (part.kind.as_str(), &part.text) {
                        ("text" | "input_text", Some(piece)) => text.push_str(piece),
                        ("text" | "input_text", None) => {
                            return Err(fault(
                                &format!("{param}[{number}].text"),
                                "it is missing",
                                "a text part has a \"text\"",
                            ));
                        }
                        (kind, _) => {
                            let reason = format!("this server cannot read a part of type {kind:?}");
                            return Err(fault(
                                &format!("{param}[{number}].type"),
                                &reason,
                                "send text parts only",
                            ));
                        }
                    }
                }
                Ok(text)
            }
        }
    }
}

/// A JSON object with `questions`; also one that would be, but for a slip: its error helps more than "no schema". An error where the
/// slip is in that very key, since the answer would be a chat.
fn means_a_schema(text: &str) -> Result<bool, Error> {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => mistaken_schema(&value)
            .map_or_else(|| Ok(value.get("questions").is_some()), |error| Err(error.into())),
        Err(_) => Ok(text.trim_start().starts_with('{') && text.contains("\"questions\"")),
    }
}

pub(super) fn fault(param: &str, reason: &str, hint: &'static str) -> Error {
    Error::Messages { param: param.to_owned(), reason: brief(reason), hint }
}

/// A refusal quotes what is wrong, but does not send all of it back.
pub(super) fn brief(reason: &str) -> String {
    match reason.char_indices().nth(LONGEST_REASON) {
        Some((end, _)) => format!("{}…", &reason[..end]),
        None => reason.to_owned(),
    }
}
