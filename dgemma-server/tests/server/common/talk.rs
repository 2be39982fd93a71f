//! Conversations with the server: scripted replies as text with markers, and streams read back into events.

use dgemma_server::engine::fake::Fake;
use reqwest::Response;
use serde_json::{Value, json};

use super::{Server, fake, text};

const MARKERS: [&str; 6] =
    ["<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|\"|>", "<|tool_response>"];

/// Ids of a generated text, in which markers are control tokens.
pub(crate) fn generated(script: &str) -> Vec<u32> {
    let tokenizer = text().tokenizer;
    let (mut ids, mut rest) = (Vec::new(), script);
    loop {
        let next = MARKERS.iter().filter_map(|marker| rest.find(marker).map(|at| (at, *marker))).min();
        let (plain, marker) = next.map_or((rest, None), |(at, marker)| (&rest[..at], Some(marker)));
        if !plain.is_empty() {
            ids.extend(tokenizer.encode_plain(plain).unwrap());
        }
        let Some(marker) = marker else { return ids };
        ids.push(tokenizer.token_id(marker).unwrap());
        rest = &rest[plain.len() + marker.len()..];
    }
}

/// An engine whose every reply is this text, in blocks of so many ids.
pub(crate) fn says(script: &str, block: usize) -> Fake {
    let ids = generated(script);
    fake().with_reply(ids.chunks(block).map(<[u32]>::to_vec).collect())
}

pub(crate) fn user(content: &str) -> Value {
    json!({"messages": [{"role": "user", "content": content}]})
}

/// `request` with these fields too.
pub(crate) fn with(mut request: Value, fields: &Value) -> Value {
    request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    request
}

impl Server {
    /// The completion that must come of this.
    pub(crate) async fn completion(&self, request: &Value) -> Value {
        let response = self.post(request.to_string()).await;
        let status = response.status();
        let text = response.text().await.unwrap();
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// The events of the stream that must come of this, without the end mark, which must be there.
    pub(crate) async fn events(&self, request: &Value) -> Vec<Value> {
        let response = self.post(with(request.clone(), &json!({"stream": true})).to_string()).await;
        assert_eq!(response.status(), 200);
        let mut events = events(response).await;
        assert_eq!(events.pop(), Some(json!("[DONE]")));
        events
    }

    /// The message and the reason of its end, as a client puts it together from a stream.
    pub(crate) async fn streamed(&self, request: &Value) -> Value {
        joined(&self.events(request).await)
    }
}

/// All events of a stream; the end mark as a string.
pub(crate) async fn events(response: Response) -> Vec<Value> {
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = response.text().await.unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap_or_else(|_| json!(data))).collect()
}

/// One choice out of the chunks of a stream.
pub(crate) fn joined(events: &[Value]) -> Value {
    let mut message = json!({"role": null, "content": null, "refusal": null});
    let mut finish = Value::Null;
    for choice in events.iter().filter_map(|event| event["choices"].get(0)) {
        assert_eq!(finish, Value::Null, "something follows the end: {events:?}");
        let delta = &choice["delta"];
        if let Some(role) = delta.get("role") {
            message["role"] = role.clone();
        }
        for key in ["content", "reasoning_content"] {
            if let Some(more) = delta[key].as_str().filter(|more| !more.is_empty()) {
                message[key] = json!(message[key].as_str().unwrap_or_default().to_owned() + more);
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let calls = message.as_object_mut().unwrap().entry("tool_calls").or_insert(json!([]));
            assert_eq!(call["index"], calls.as_array().unwrap().len());
            calls.as_array_mut().unwrap().push(call.clone());
        }
        finish = choice["finish_reason"].clone();
    }
    json!({"message": message, "finish_reason": finish})
}

/// A choice without what differs from reply to reply.
pub(crate) fn comparable(choice: &Value) -> Value {
    let mut choice = json!({"message": choice["message"], "finish_reason": choice["finish_reason"]});
    for call in choice["message"]["tool_calls"].as_array_mut().into_iter().flatten() {
        call["id"] = Value::Null;
        call.as_object_mut().unwrap().shift_remove("index");
    }
    choice
}
