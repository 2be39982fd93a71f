//! The request on the wire: a chat completion as every OpenAI-compatible server knows it. A key that not every server knows is only
//! there when somebody asked for what it does.

use serde_json::{Value, json};

use crate::state::State;

pub(crate) const ROUTE: &str = "/chat/completions";

/// What is asked.
#[derive(Debug)]
pub(crate) struct Prompt {
    /// The system message.
    pub(crate) system: Option<String>,
    /// The user message.
    pub(crate) state: State,
}

/// How it is to be answered.
#[allow(clippy::struct_excessive_bools, reason = "each is a flag that was typed")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) stream: bool,
    pub(crate) think: bool,
    /// Most tokens of the reply, the thought included.
    pub(crate) max_tokens: Option<u32>,
    pub(crate) seed: Option<u64>,
    pub(crate) usage: bool,
    pub(crate) drafts: bool,
}

impl Prompt {
    pub(crate) fn body(&self, model: Option<&str>, wanted: Wanted) -> Vec<u8> {
        let mut messages = Vec::new();
        if let Some(system) = &self.system {
            messages.push(json!({"role": "system", "content": system}));
        }
        messages.push(json!({"role": "user", "content": self.state.content(&self.state.text)}));
        let mut body = json!({"messages": messages});
        let mut add = |key: &str, value: Value| body[key] = value;
        if let Some(model) = model {
            add("model", json!(model));
        }
        if let Some(most) = wanted.max_tokens {
            add("max_tokens", json!(most));
        }
        if let Some(seed) = wanted.seed {
            add("seed", json!(seed));
        }
        if wanted.think {
            // The name that servers with chat templates have agreed on.
            add("chat_template_kwargs", json!({"enable_thinking": true}));
        }
        if wanted.stream {
            add("stream", json!(true));
            if wanted.usage {
                add("stream_options", json!({"include_usage": true}));
            }
            if wanted.drafts {
                add("x_diffusion_drafts", json!(true));
            }
        }
        body.to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_there_only_when_it_is_wanted() {
        let state = State { text: "é <东>".to_owned(), images: Vec::new() };
        let prompt = Prompt { system: None, state };
        let body = |model, wanted| String::from_utf8(prompt.body(model, wanted)).unwrap();
        assert_eq!(
            body(None, Wanted { usage: true, drafts: true, ..Wanted::default() }),
            r#"{"messages":[{"role":"user","content":"é <东>"}]}"#
        );
        let all = Wanted {
            stream: true,
            think: true,
            max_tokens: Some(9),
            seed: Some(7),
            usage: true,
            drafts: true,
        };
        let prompt = Prompt { system: Some("be brief".to_owned()), ..prompt };
        assert_eq!(
            serde_json::from_slice::<Value>(&prompt.body(Some("m"), all)).unwrap(),
            json!({"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "é <东>"}],
                   "model": "m", "max_tokens": 9, "seed": 7, "chat_template_kwargs": {"enable_thinking": true}, "stream": true,
                   "stream_options": {"include_usage": true}, "x_diffusion_drafts": true})
        );
    }
}
