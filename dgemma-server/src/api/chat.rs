//! The body of `POST /v1/chat/completions`: what of OpenAI's request is read, and how a decision is recognised in it.
//!
//! A decision is a request whose first message has role system or developer and whose text is a JSON object with
//! `questions`; the user message after it is the state. Fields that change nothing here (temperature, …) are accepted.

use decision::Schema;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::Error;

#[derive(Debug, Deserialize, ToSchema)]
pub struct ChatRequest {
    pub messages: Vec<ChatMessage>,
    #[serde(default)]
    pub stream: Option<bool>,
    #[serde(default)]
    pub stream_options: Option<StreamOptions>,
    /// Any name is accepted: this server has one model.
    #[serde(default, rename = "model")]
    _model: Option<String>,
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

    /// The decision in this request, or why there is none.
    pub fn into_decision(self) -> Result<DecisionRequest, Error> {
        let mut messages = self.messages.into_iter();
        let Some(first) = messages.next() else {
            return Err(fault(
                "messages",
                "it is empty",
                "send a system message with the schema and a user message with the state",
            ));
        };
        if !matches!(first.role.as_str(), "system" | "developer") {
            return Err(Error::NotADecision);
        }
        let text = first.text("messages[0].content")?;
        if !means_a_schema(&text) {
            return Err(Error::NotADecision);
        }
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
    /// The text of the message, byte for byte; the texts of parts follow each other with nothing between them.
    fn text(self, param: &str) -> Result<String, Error> {
        match self.content {
            None => Err(fault(param, "it is missing or null", "send a string or a list of text parts")),
            Some(Content::Text(text)) => Ok(text),
            Some(Content::Parts(parts)) => {
                let mut text = String::new();
                for (number, part) in parts.into_iter().enumerate() {
                    match (part.kind.as_str(), part.text) {
                        ("text" | "input_text", Some(piece)) => text.push_str(&piece),
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

/// A JSON object with `questions`; also one that would be, but for a slip: its error helps more than "no schema".
fn means_a_schema(text: &str) -> bool {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => value.get("questions").is_some(),
        Err(_) => text.trim_start().starts_with('{') && text.contains("\"questions\""),
    }
}

fn fault(param: &str, reason: &str, hint: &'static str) -> Error {
    Error::Messages { param: param.to_owned(), reason: reason.to_owned(), hint }
}
