//! A chat completion that came as a whole: its text, and what it says about itself. Everything beside `choices` may be missing.
//!
//! A decision (`reply`), a reply in words (`bench::decider`) and a second model's answer (`cascade::openai`) begin here. Replies that come piece
//! by piece are read in `ask::reading`, those with logprobs in `fallback::reply`.

use serde::Deserialize;

#[derive(Debug)]
pub(crate) struct Completion {
    /// Of the first choice.
    pub(crate) text: Option<String>,
    /// The model that answered, by the server's own name.
    pub(crate) model: Option<String>,
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) completion_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Raw {
    model: Option<String>,
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
}

#[derive(Default, Deserialize)]
struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
}

impl Completion {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, serde_json::Error> {
        let Raw { model, choices, usage } = serde_json::from_slice(body)?;
        let Usage { prompt_tokens, completion_tokens } = usage.unwrap_or_default();
        let text = choices.into_iter().next().and_then(|choice| choice.message.content);
        Ok(Self { text, model, prompt_tokens, completion_tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_choices_are_needed() {
        let plain = Completion::parse(br#"{"choices": [{"message": {"content": null}}]}"#).unwrap();
        assert_eq!((plain.text, plain.model, plain.prompt_tokens), (None, None, None));
        let usual = r#"{"model": "m", "choices": [{"message": {"content": "a"}}, {"message": {"content": "b"}}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 4, "more": {}}}"#;
        let usual = Completion::parse(usual.as_bytes()).unwrap();
        assert_eq!((usual.text.as_deref(), usual.model.as_deref()), (Some("a"), Some("m")));
        assert_eq!((usual.prompt_tokens, usual.completion_tokens), (Some(3), Some(4)));
        for broken in [&b"<html>"[..], b"{}", br#"{"choices": [{}]}"#] {
            assert!(Completion::parse(broken).is_err());
        }
    }
}
