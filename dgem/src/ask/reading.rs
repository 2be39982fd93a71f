//! What the server says, event by event or all at once: parts to show, and what is known when it has ended.
//!
//! Whatever a server adds beside OpenAI's keys may be missing, or have another form: only the text and the end of the reply are needed.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// One piece of the reply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// Of the thought before the answer.
    Thought(String),
    Answer(String),
    /// A block that is not done, in place of the draft before.
    Draft(Draft),
}

/// A block before it is done, as dgemma-server shows it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(crate) struct Draft {
    /// Number of the block in the reply, from 0 on.
    pub(crate) block: usize,
    /// Denoise steps so far.
    pub(crate) step: usize,
    pub(crate) text: String,
    /// Share of the tokens that the last step took.
    pub(crate) accepted: f64,
}

/// What is known at the end.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(crate) model: Option<String>,
    /// Why it ended, in OpenAI's words; `None` when the server did not say.
    pub(crate) finish_reason: Option<String>,
    pub(crate) usage: Option<Usage>,
    pub(crate) generation: Option<Generation>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) completion_tokens: Option<u64>,
    #[serde(deserialize_with = "if_readable")]
    pub(crate) prompt_tokens_details: Option<PromptDetails>,
    #[serde(deserialize_with = "if_readable")]
    pub(crate) completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PromptDetails {
    pub(crate) cached_tokens: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CompletionDetails {
    pub(crate) reasoning_tokens: Option<u64>,
}

/// How dgemma-server made the reply.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Generation {
    pub(crate) blocks: u64,
    /// Denoise steps, those of blocks that were thrown away included.
    pub(crate) steps: u64,
    /// Empty first blocks that were thrown away.
    pub(crate) retries: u64,
    /// Blocks that were given out although they had not settled.
    pub(crate) unconverged: u64,
}

/// Why an event cannot be used.
#[derive(Debug, PartialEq)]
pub(crate) enum Fault {
    /// It is no part of a chat completion.
    NotUnderstood(String),
    /// The server reports an error. `refused`: trying again changes nothing.
    Error { message: String, refused: bool },
}

/// A whole completion, or one chunk of it.
#[derive(Deserialize)]
struct Completion {
    model: Option<String>,
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default, deserialize_with = "if_readable")]
    usage: Option<Usage>,
    #[serde(default, deserialize_with = "if_readable")]
    x_generation: Option<Generation>,
    #[serde(default, deserialize_with = "if_readable")]
    x_diffusion_draft: Option<Draft>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u64,
    /// In a chunk.
    delta: Option<Message>,
    /// In a whole completion.
    message: Option<Message>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
    reasoning_content: Option<String>,
    /// The newer name of the same.
    reasoning: Option<String>,
}

/// Collects what is known of one reply.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) ended: Ended,
}

impl Reading {
    /// The parts in one event, or in a whole reply.
    pub(crate) fn take(&mut self, text: &str) -> Result<Vec<Part>, Fault> {
        let completion: Completion =
            serde_json::from_str(text).map_err(|cause| Fault::NotUnderstood(cause.to_string()))?;
        if let Some(error) = completion.error {
            return Err(fault(&error));
        }
        let ended = &mut self.ended;
        ended.model = completion.model.or(ended.model.take());
        ended.usage = completion.usage.or(ended.usage);
        ended.generation = completion.x_generation.or(ended.generation);
        let mut parts: Vec<Part> = completion.x_diffusion_draft.into_iter().map(Part::Draft).collect();
        // Only one reply was asked for.
        for choice in completion.choices.into_iter().filter(|choice| choice.index == 0) {
            if let Some(message) = choice.delta.or(choice.message) {
                let thought = message.reasoning_content.or(message.reasoning);
                parts.extend(thought.filter(|text| !text.is_empty()).map(Part::Thought));
                parts.extend(message.content.filter(|text| !text.is_empty()).map(Part::Answer));
            }
            ended.finish_reason = choice.finish_reason.or(ended.finish_reason.take());
        }
        Ok(parts)
    }
}

/// The error in OpenAI's form, or in any other.
pub(crate) fn fault(error: &Value) -> Fault {
    let of = |key: &str| error.get(key).and_then(Value::as_str);
    let status = error.get("code").and_then(Value::as_u64);
    let refused = of("type") == Some("invalid_request_error")
        || status.is_some_and(|status| (400..500).contains(&status) && ![408, 425, 429].contains(&status));
    let message = error.as_str().or(of("message")).map_or_else(|| error.to_string(), str::to_owned);
    Fault::Error { message, refused }
}

/// The value, or nothing where it has another form.
fn if_readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn take(reading: &mut Reading, event: &Value) -> Vec<Part> {
        reading.take(&event.to_string()).unwrap()
    }

    #[test]
    fn deltas_drafts_and_the_end_are_read_and_what_is_missing_is_no_fault() {
        let mut reading = Reading::default();
        let chunk = |delta: Value| json!({"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": null}], "usage": null});
        assert_eq!(take(&mut reading, &chunk(json!({"role": "assistant", "content": ""}))), []);
        assert_eq!(
            take(&mut reading, &chunk(json!({"reasoning_content": "hm"}))),
            [Part::Thought("hm".into())]
        );
        assert_eq!(take(&mut reading, &chunk(json!({"reasoning": "m"}))), [Part::Thought("m".into())]);
        assert_eq!(take(&mut reading, &chunk(json!({"content": "é"}))), [Part::Answer("é".into())]);
        assert_eq!(
            take(&mut reading, &json!({"choices": [{"index": 1, "delta": {"content": "other"}}]})),
            []
        );
        let draft = json!({"choices": [], "x_diffusion_draft": {"block": 0, "step": 3, "text": "a ? c", "accepted": 0.25}});
        assert!(matches!(&take(&mut reading, &draft)[..], [Part::Draft(draft)] if draft.text == "a ? c"));
        assert_eq!(take(&mut reading, &json!({"choices": [], "x_diffusion_draft": "of another form"})), []);
        let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "x_generation": {"blocks": 2, "steps": 20, "new": 1}});
        assert_eq!(take(&mut reading, &last), []);
        take(
            &mut reading,
            &json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 40, "prompt_tokens_details": {"cached_tokens": 5}}}),
        );
        let ended = reading.ended;
        assert_eq!((ended.model.as_deref(), ended.finish_reason.as_deref()), (Some("m"), Some("length")));
        assert_eq!(ended.generation.map(|generation| (generation.blocks, generation.steps)), Some((2, 20)));
        let usage = ended.usage.unwrap();
        assert_eq!(usage.prompt_tokens_details.unwrap().cached_tokens, Some(5));
        assert!(usage.completion_tokens == Some(40) && usage.completion_tokens_details.is_none());
    }

    #[test]
    fn an_error_is_told_in_every_form_and_says_whether_to_try_again() {
        for (event, message, refused) in [
            (
                json!({"error": {"message": "too long", "type": "invalid_request_error", "code": "x"}}),
                "too long",
                true,
            ),
            (json!({"error": {"message": "no", "code": 400}}), "no", true),
            (json!({"error": {"message": "busy", "code": 429}}), "busy", false),
            (json!({"error": {"message": "closing", "type": "unavailable"}}), "closing", false),
            (json!({"error": "flat"}), "flat", false),
        ] {
            let fault = Reading::default().take(&event.to_string()).unwrap_err();
            assert_eq!(fault, Fault::Error { message: message.to_owned(), refused });
        }
        for text in ["", "[1]", "{\"choices\": 3}", "{\"choices\": [{\"delta\": {\"content\": 3}}]}"] {
            assert!(matches!(Reading::default().take(text), Err(Fault::NotUnderstood(_))), "{text}");
        }
    }
}
