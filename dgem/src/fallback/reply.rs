//! The reply of a server that wrote JSON: a flat object, and the logprobs of its tokens.

use decision::{Answer, Answers, Kind, Question, Schema, should_ask};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::scan::{self, Found};
use super::slots::{self, Slot, Token};
use super::{SOURCE, without_effect};
use crate::client::{Reply, no_decision};
use crate::error::Error;

#[derive(Deserialize)]
struct Completion {
    model: Option<String>,
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Usage,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    #[serde(default)]
    logprobs: Option<Logprobs>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
}

#[derive(Deserialize)]
struct Logprobs {
    #[serde(default)]
    content: Option<Vec<Token>>,
}

#[derive(Default, Deserialize)]
struct Usage {
    prompt_tokens: Option<u64>,
}

/// The answers in the form of the chat route, each with the distribution of its own tokens.
///
/// Errors: no completion, no object with any of the ids, no logprobs.
pub(crate) fn reply(schema: &Schema, body: &[u8], url: &str) -> Result<Reply, Error> {
    let completion: Completion = serde_json::from_slice(body)
        .map_err(|cause| no_decision(url, &cause.to_string(), &String::from_utf8_lossy(body)))?;
    let choice = completion.choices.into_iter().next();
    let (content, logprobs) = choice
        .map_or((None, None), |choice| (choice.message.content, choice.logprobs.and_then(|l| l.content)));
    let content = content.unwrap_or_default();
    let asked = schema.asked();
    let known = |found: &Found| asked.iter().any(|question| question.id == found.key);
    if !scan::flat_object(&content).iter().any(known) {
        return Err(no_decision(url, "it holds no JSON object with the ids of the questions", &content));
    }
    let Some(tokens) = logprobs.filter(|tokens| !tokens.is_empty()) else {
        return Err(no_decision(
            url,
            "it has answers, but no logprobs, so that there are no probabilities",
            &content,
        ));
    };
    // The places are those of the tokens' own text: a server may trim the content.
    let written: String = tokens.iter().map(|token| token.token.as_str()).collect();
    let found = scan::flat_object(&written);
    let shown = scan::flat_object(&content);
    let says_otherwise = |place: &Found| {
        shown.iter().find(|found| found.key == place.key).is_some_and(|found| found.value != place.value)
    };
    let mut answers = Map::new();
    let mut slots = Map::new();
    for question in &asked {
        let Some(place) = found.iter().find(|found| found.key == question.id) else { continue };
        if says_otherwise(place) {
            let reason = format!("its content and its tokens say different things about `{}`", question.id);
            return Err(no_decision(url, &reason, &content));
        }
        match slots::read(question, &tokens, place) {
            Ok(slot) => {
                slots.insert(question.id.clone(), json!({"label_mass": slot.mass}));
                answers.insert(question.id.clone(), answer(question, &slot));
            }
            // `verdict` says of a text that it is no answer, and shows it.
            Err(reason) => drop(answers.insert(question.id.clone(), json!(reason))),
        }
    }
    let skipped = skip(&asked, &mut answers);
    let prompt_tokens = completion.usage.prompt_tokens;
    let diagnostics = json!({"engine": "generation", "prompt_tokens": prompt_tokens, "skipped": skipped, "questions": slots});
    let mut reply = Reply::new(answers, diagnostics, completion.model, prompt_tokens);
    reply.warnings.extend(without_effect(schema));
    Ok(reply)
}

fn answer(question: &Question, slot: &Slot) -> Value {
    let names = question.answer_names();
    let winner = slot.winner();
    let probabilities: Map<String, Value> =
        names.iter().zip(&slot.probabilities).map(|(name, p)| ((*name).to_owned(), json!(p))).collect();
    let mut map = json!({"type": question.kind.type_name(), "label": question.labels()[winner],
                         "probabilities": probabilities, "source": SOURCE});
    match question.kind {
        Kind::Boolean { .. } => {}
        Kind::Choice { .. } => map["choice"] = json!(names[winner]),
        Kind::Score { .. } => map["level"] = json!(names[winner]),
    }
    map
}

/// Such a server answers everything: conditions are applied afterwards.
fn skip(asked: &[&Question], answers: &mut Map<String, Value>) -> Map<String, Value> {
    let mut read = Answers::new();
    let mut all = Map::new();
    for question in asked {
        match should_ask(question, &read) {
            Ok(()) => {
                let answer = answers.get(&question.id).and_then(|raw| Answer::deserialize(raw).ok());
                read.insert(question.id.clone(), answer);
            }
            Err(skipped) => {
                answers.insert(question.id.clone(), Value::Null);
                all.insert(question.id.clone(), json!(skipped));
            }
        }
    }
    all
}
