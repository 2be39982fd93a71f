//! The request on the wire: the schema as system message, the state as user message, and nothing else.
//!
//! Text is written as UTF-8 without `\u` escapes and without HTML escapes: escaped text costs a model much accuracy.

use serde::Serialize;

use crate::template::Request;

#[derive(Serialize)]
struct Body<'a> {
    /// Left out when the user named none, so that the server uses the model it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    messages: [Message<'a>; 2],
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
}

pub(super) fn chat_completion(model: Option<&str>, request: &Request) -> Vec<u8> {
    let system = request.system_text();
    let messages =
        [Message { role: "system", content: &system }, Message { role: "user", content: &request.state }];
    // Strings and a fixed list cannot fail to serialise; an empty body would be refused by any server.
    serde_json::to_vec(&Body { model, messages }).unwrap_or_default()
}
