//! The request on the wire: the schema as system message, the state as user message, and nothing else.
//!
//! Text is written as UTF-8 without `\u` escapes and without HTML escapes: escaped text costs a model much accuracy.

use decision::Schema;
use serde::Serialize;
use serde_json::Value;

use crate::state::State;

#[derive(Serialize)]
struct Body<'a> {
    /// Left out when the user named none, so that the server uses the model it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    messages: [Message; 2],
}

#[derive(Serialize)]
struct Message {
    role: &'static str,
    content: Value,
}

pub(crate) fn chat_completion(model: Option<&str>, schema: &Schema, state: &State) -> Vec<u8> {
    let system = Value::String(schema.to_value().to_string());
    let messages = [
        Message { role: "system", content: system },
        Message { role: "user", content: state.content(&state.text) },
    ];
    // Strings and a fixed list cannot fail to serialise; an empty body would be refused by any server.
    serde_json::to_vec(&Body { model, messages }).unwrap_or_default()
}
