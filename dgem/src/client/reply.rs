//! Reads a chat completion as a decision, with tolerance for what other servers wrap around it.
//!
//! The content may be fenced, or preceded by a thought. Answers stay as they came: `verdict` measures them against the
//! questions. Diagnostics that cannot be read cost nothing but themselves.

use decision::{Diagnostics, SlotDiagnostics, StrictValue};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::completion::Completion;
use super::fault::excerpt;
use crate::error::Error;

/// Code fences and braces that are tried as the start of the decision.
const FENCES: usize = 4;
const BRACES: usize = 16;

/// A decision as the server sent it.
#[derive(Debug)]
pub struct Reply {
    /// Question id → answer, unchecked.
    pub answers: Map<String, Value>,
    pub diagnostics: Diagnostics,
    /// The diagnostics with every key the server sent, also those this client does not know.
    pub diagnostics_json: Value,
    /// The model that answered, by the server's own name.
    pub model: Option<String>,
    /// Tokens of the prompt; `None` when the server does not say.
    pub prompt_tokens: Option<u64>,
    /// What was wrong with parts that are not needed.
    pub warnings: Vec<String>,
}

/// Strict: of two answers under one key a plain parser would keep the last.
#[derive(Deserialize)]
struct Decision {
    answers: StrictValue,
    #[serde(default)]
    diagnostics: Value,
}

impl Reply {
    pub(super) fn parse(body: &[u8], url: &str) -> Result<Self, Error> {
        let refuse = |reason: String, text: &str| no_decision(url, &reason, text);
        let completion = Completion::parse(body).map_err(|cause| {
            refuse(format!("it is no chat completion ({cause})"), &String::from_utf8_lossy(body))
        })?;
        let content = completion.text.unwrap_or_default();
        let text = find_object(&content)
            .ok_or_else(|| refuse("its content holds no JSON object with `answers`".to_owned(), &content))?;
        let decision = Decision::deserialize(&mut serde_json::Deserializer::from_str(text))
            .map_err(|cause| refuse(cause.to_string(), &content))?;
        let Value::Object(answers) = decision.answers.0 else {
            return Err(refuse("`answers` is no object".to_owned(), &content));
        };
        Ok(Self::new(answers, decision.diagnostics, completion.model, completion.prompt_tokens))
    }

    /// From its parts. `answers`: in the form of the chat route.
    pub(crate) fn new(
        answers: Map<String, Value>,
        diagnostics: Value,
        model: Option<String>,
        prompt_tokens: Option<u64>,
    ) -> Self {
        let raw = diagnostics;
        let mut warnings = Vec::new();
        let diagnostics = read_diagnostics(&raw, &mut warnings);
        let mut diagnostics_json = serde_json::to_value(&diagnostics).unwrap_or_default();
        add_missing(&mut diagnostics_json, raw);
        let counted = Some(diagnostics.timing.prompt_tokens).filter(|tokens| *tokens > 0);
        Self {
            answers,
            prompt_tokens: prompt_tokens.or(counted),
            diagnostics,
            diagnostics_json,
            model,
            warnings,
        }
    }

    /// Probability that the labels of the question had together; `None` when the server does not say.
    pub(crate) fn label_mass(&self, id: &str) -> Option<f64> {
        self.diagnostics.questions.get(id).and_then(|slot| slot.label_mass)
    }

    /// What is known of the place of an answer that another model gave: its label mass. The rest was the first model's.
    pub(crate) fn replace_slot(&mut self, id: &str, label_mass: Option<f64>) {
        let known = SlotDiagnostics { label_mass, ..SlotDiagnostics::default() };
        self.diagnostics.questions.insert(id.to_owned(), known);
        if let Some(slot) = slot(&mut self.diagnostics_json, id) {
            *slot = label_mass.map(|mass| ("label_mass".to_owned(), mass.into())).into_iter().collect();
        }
    }

    /// Replaces that of one read by that of several: the least, and none where one of them has none.
    pub(crate) fn set_least_label_mass(&mut self, id: &str, masses: impl IntoIterator<Item = Option<f64>>) {
        let least = masses.into_iter().reduce(|a, b| Some(a?.min(b?))).flatten();
        if least == self.label_mass(id) {
            return;
        }
        self.diagnostics.questions.entry(id.to_owned()).or_default().label_mass = least;
        if let Some(slot) = slot(&mut self.diagnostics_json, id) {
            match least {
                Some(mass) => drop(slot.insert("label_mass".to_owned(), mass.into())),
                None => drop(slot.shift_remove("label_mass")),
            }
        }
    }
}

/// The diagnostics of one question in the JSON, made where they are missing; `None` where something else stands there.
pub(crate) fn slot<'a>(diagnostics: &'a mut Value, id: &str) -> Option<&'a mut Map<String, Value>> {
    let empty = || Value::Object(Map::new());
    let slots = diagnostics.as_object_mut()?.entry("questions").or_insert_with(empty).as_object_mut()?;
    slots.entry(id).or_insert_with(empty).as_object_mut()
}

/// A reply that cannot be used, with what it says instead.
pub(crate) fn no_decision(url: &str, reason: &str, text: &str) -> Error {
    Error::NoDecision { url: url.to_owned(), reason: reason.to_owned(), excerpt: excerpt(text) }
}

fn read_diagnostics(raw: &Value, warnings: &mut Vec<String>) -> Diagnostics {
    if raw.is_null() {
        return Diagnostics::default();
    }
    Diagnostics::deserialize(raw).unwrap_or_else(|cause| {
        warnings.push(format!("the diagnostics of the reply cannot be read: {cause}"));
        Diagnostics::default()
    })
}

/// The text from the start of the JSON object with `answers` in the content. That covers code fences, thoughts and other
/// words around it, even when those words hold braces of their own. Each place tried may cost a parse of the whole content,
/// so only a fixed number of them is.
fn find_object(content: &str) -> Option<&str> {
    candidates(content).map(|start| &content[start..]).find(|text| {
        Value::deserialize(&mut serde_json::Deserializer::from_str(text))
            .is_ok_and(|value| value.get("answers").is_some_and(Value::is_object))
    })
}

/// Where the object may start, the likeliest places first: the content itself, behind a code fence, at one of the first
/// braces, at the last one that `answers` follows.
fn candidates(content: &str) -> impl Iterator<Item = usize> {
    let whole = content.find('{').filter(|start| content[..*start].trim().is_empty());
    let fenced = content
        .match_indices("```")
        .take(FENCES)
        .filter_map(|(fence, _)| content[fence..].find('{').map(|brace| fence + brace));
    let braces = content.match_indices('{').map(|(start, _)| start);
    let last = content.rfind("{\"answers\"");
    whole.into_iter().chain(fenced).chain(braces.take(BRACES)).chain(last)
}

/// Puts keys of `extra` into `target` that it does not have, at every depth.
fn add_missing(target: &mut Value, extra: Value) {
    if let (Value::Object(target), Value::Object(extra)) = (target, extra) {
        for (key, value) in extra {
            match target.get_mut(&key) {
                Some(known) => add_missing(known, value),
                None => drop(target.insert(key, value)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(content: &str) -> Result<Reply, Error> {
        let body = json!({"choices": [{"message": {"role": "assistant", "content": content}}]}).to_string();
        Reply::parse(body.as_bytes(), "http://x/v1/chat/completions")
    }

    const PLAIN: &str = r#"{"answers":{"a":{"type":"boolean","label":"yes","confidence":0.9,"probabilities":{"yes":0.9,"no":0.1}}}}"#;

    #[test]
    fn case_21_fenced_and_preceded_content_is_read() {
        for content in [
            PLAIN.to_owned(),
            format!("thought\n{PLAIN}"),
            format!("```json\n{PLAIN}\n```"),
            format!("```\n{PLAIN}\n```\nDone."),
            format!("a set {{x}} and {{\"b\": 1}} then {PLAIN}"),
        ] {
            let reply = parse(&content).unwrap();
            assert_eq!(reply.answers["a"]["label"], "yes", "{content}");
        }
    }

    #[test]
    fn what_is_no_decision_is_told_with_an_excerpt() {
        for content in ["", "I think it is urgent.", "{\"answers\": 3}", "{\"urgent\": \"yes\"}"] {
            let message = parse(content).unwrap_err().to_string();
            assert!(message.contains("no decision") && message.contains(content), "{message}");
        }
        assert!(Reply::parse(b"<html>", "u").unwrap_err().to_string().contains("<html>"));
        assert!(Reply::parse(b"{\"choices\":[]}", "u").is_err());
    }

    #[test]
    fn unknown_diagnostics_are_kept_and_unreadable_ones_only_cost_a_warning() {
        let with = |diagnostics: &str| {
            parse(&PLAIN.replacen("{\"answers\"", &format!("{{\"diagnostics\":{diagnostics},\"answers\""), 1))
                .unwrap()
        };
        let reply = with(r#"{"isolated":true,"samples":{"n":[4],"extra":1},"timing":{"total_ms":3}}"#);
        assert_eq!(reply.diagnostics.samples.n, 4);
        assert_eq!(
            (
                &reply.diagnostics_json["isolated"],
                &reply.diagnostics_json["samples"]["n"],
                &reply.diagnostics_json["samples"]["extra"]
            ),
            (&json!(true), &json!(4), &json!(1))
        );
        let reply = with(r#"{"timing":"fast"}"#);
        assert_eq!((reply.answers.len(), reply.warnings.len()), (1, 1));
    }
}
