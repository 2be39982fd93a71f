//! The second model behind an OpenAI-compatible server: JSON by a schema.

use decision::Question;
use serde_json::json;

use super::prompt::reply_schema;
use crate::client::Completion;
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

/// The text that was written, and by which model.
pub(super) fn written(body: &[u8]) -> Option<(String, Option<String>)> {
    let completion = Completion::parse(body).ok()?;
    Some((completion.text?, completion.model))
}
