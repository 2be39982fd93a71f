//! The second model behind an OpenAI-compatible server: JSON by a schema.

use decision::Question;
use serde::Deserialize;
use serde_json::{Value, json};

use super::prompt::reply_schema;
use crate::state::State;

pub(super) const ROUTE: &str = "/chat/completions";

pub(super) fn body(model: Option<&str>, text: &str, questions: &[&Question], state: &State) -> Vec<u8> {
    let format = json!({"name": "decisions", "strict": true, "schema": reply_schema(questions, false)});
    let mut body = json!({
        "messages": [{"role": "user", "content": state.content(text)}],
        "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": format},
    });
    if let Some(model) = model {
        body["model"] = json!(model);
    }
    body.to_string().into_bytes()
}

#[derive(Deserialize)]
struct Completion {
    model: Option<String>,
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Value,
}

/// The text that was written, and by which model.
pub(super) fn written(body: &[u8]) -> Option<(String, Option<String>)> {
    let completion: Completion = serde_json::from_slice(body).ok()?;
    let content = completion.choices.first()?.message.get("content")?.as_str()?.to_owned();
    Some((content, completion.model))
}
