//! `--api systemone`: the same questions in the shape of the Jev contract, for servers that speak only that.
//!
//! There every question is read on its own, and confidence and score are counted in other ways; [`reply`] brings the answers
//! into the form of the chat route. Called by `asking`.

use decision::{Kind, Question, Schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::client::{Reply, no_decision, slot};
use crate::error::Error;
use crate::state::State;

pub(crate) const ROUTE: &str = "/systemone";
/// Sent when no model is named: the contract wants one.
const ANY_MODEL: &str = "jev-latest";

pub(crate) fn body(model: Option<&str>, schema: &Schema, state: &State) -> Vec<u8> {
    let Value::Object(mut keys) = schema.to_value() else { return Vec::new() };
    keys.shift_remove("questions");
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(model.unwrap_or(ANY_MODEL)));
    body.insert("state".to_owned(), json!(state.text));
    body.insert("questions".to_owned(), schema.questions.iter().map(question).collect());
    if !state.images.is_empty() {
        body.insert("images".to_owned(), state.images.iter().map(|image| json!(&*image.url)).collect());
    }
    body.extend(keys);
    Value::Object(body).to_string().into_bytes()
}

fn question(question: &Question) -> (String, Value) {
    let (kind, criteria) = match &question.kind {
        Kind::Boolean { yes: None, no: None } => ("noul", None),
        Kind::Boolean { yes, no } => ("noul", Some(json!({"true": yes, "false": no}))),
        Kind::Choice { options } => {
            let options = options.iter().map(|option| (option.name.clone(), json!(option.description)));
            ("choice", Some(Value::Object(options.collect())))
        }
        Kind::Score { levels } => ("score", Some(json!(levels))),
    };
    let mut map = Map::new();
    map.insert("type".to_owned(), json!(kind));
    let optional = [
        ("instructions", question.instructions.as_ref().map(|text| json!(text))),
        ("criteria", criteria),
        ("depends_on", Some(json!(question.depends_on)).filter(|_| !question.depends_on.is_empty())),
        ("ask_if", Some(json!(question.ask_if)).filter(|_| !question.ask_if.is_empty())),
        ("alone", Some(json!(true)).filter(|_| question.alone)),
    ];
    map.extend(optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    (question.id.clone(), Value::Object(map))
}

#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    answers: Map<String, Value>,
    #[serde(default)]
    usage: Usage,
    #[serde(default)]
    x_diagnostics: Value,
}

#[derive(Default, Deserialize)]
struct Usage {
    input_tokens: Option<u64>,
}

/// The answers under the ids and in the form of the chat route.
pub(crate) fn reply(schema: &Schema, body: &[u8], url: &str) -> Result<Reply, Error> {
    let reply: Body = serde_json::from_slice(body)
        .map_err(|cause| no_decision(url, &cause.to_string(), &String::from_utf8_lossy(body)))?;
    let mut diagnostics = reply.x_diagnostics;
    let mut answers = Map::new();
    for (id, raw) in reply.answers {
        if let (Some(mass), Some(slot)) = (raw.get("x_label_mass"), slot(&mut diagnostics, &id)) {
            slot.insert("label_mass".to_owned(), mass.clone());
        }
        let asked = schema.questions.iter().find(|question| question.id == id);
        let answer = match asked {
            Some(question) => answer(question, raw),
            None => raw,
        };
        answers.insert(id, answer);
    }
    Ok(Reply::new(answers, diagnostics, reply.model, reply.usage.input_tokens))
}

/// What cannot be read stays as it is: `verdict` says what is wrong with it.
fn answer(question: &Question, raw: Value) -> Value {
    let Value::Object(mut map) = raw else { return raw };
    // The contract's confidence is that above chance, ours the probability of the winner.
    map.shift_remove("confidence");
    if let Some(entropy) = map.shift_remove("x_entropy") {
        map.insert("entropy".to_owned(), entropy);
    }
    if let Kind::Score { levels } = &question.kind {
        // Levels have numbers there, and the expected level is counted from 0.
        if let Some(Value::Object(numbered)) = map.get_mut("probabilities") {
            *numbered = std::mem::take(numbered)
                .into_iter()
                .map(|(number, p)| {
                    let level = number.parse().ok().and_then(|index: usize| levels.get(index)).cloned();
                    (level.unwrap_or(number), p)
                })
                .collect();
        }
        if let Some(score) = map.get("score").and_then(Value::as_f64) {
            map.insert("score".to_owned(), json!(score + 1.0));
        }
    }
    if let Some(winner) = winner(question, &map) {
        map.insert("label".to_owned(), json!(question.labels()[winner]));
    }
    Value::Object(map)
}

/// Index of the named choice, else of the most probable answer.
fn winner(question: &Question, map: &Map<String, Value>) -> Option<usize> {
    let names = question.answer_names();
    if let Some(choice) = map.get("choice").and_then(Value::as_str) {
        return names.iter().position(|name| *name == choice);
    }
    if matches!(question.kind, Kind::Boolean { .. }) {
        return None;
    }
    let probabilities = map.get("probabilities")?;
    let p = |name: &str| probabilities.get(name).and_then(Value::as_f64).unwrap_or(f64::MIN);
    (0..names.len()).rev().max_by(|a, b| p(names[*a]).total_cmp(&p(names[*b])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    #[test]
    fn answers_come_into_the_form_of_the_chat_route() {
        let schema = Schema::from_json(
            r#"{"questions": [{"id": "a", "type": "boolean"}, {"id": "b", "type": "choice", "options": ["x", "y"]},
                {"id": "c", "type": "score", "levels": ["low", "high"]}]}"#,
        )
        .unwrap();
        let body = json!({"model": "m", "usage": {"input_tokens": 9, "output_tokens": 3}, "answers": {
            "a": {"type": "noul", "noul": 0.25, "probabilities": {"true": 0.25, "false": 0.75}, "confidence": 0.5},
            "b": {"type": "choice", "choice": "y", "probabilities": {"y": 0.9, "x": 0.1}, "confidence": 0.8},
            "c": {"type": "score", "score": 0.8, "legend": {"0": "low", "1": "high"},
                  "probabilities": {"0": 0.2, "1": 0.8}, "confidence": 0.6, "x_label_mass": 0.7}},
            "x_diagnostics": {}});
        let reply = reply(&schema, body.to_string().as_bytes(), "u").unwrap();
        let verdict = Verdict::new(&schema, &reply);
        let found: Vec<_> = verdict
            .rows
            .iter()
            .map(|row| {
                let answer = row.answer().unwrap_or_else(|| panic!("{:?}", row.outcome));
                (answer.name().to_owned(), answer.label.clone(), answer.confidence)
            })
            .collect();
        assert_eq!(
            found,
            [
                ("no".into(), "no".into(), 0.75),
                ("y".into(), "B".into(), 0.9),
                ("high".into(), "2".into(), 0.8)
            ]
        );
        assert_eq!(json!(verdict.rows[2].answer())["score"], json!(1.8));
        assert_eq!((reply.prompt_tokens, reply.diagnostics.questions["c"].label_mass), (Some(9), Some(0.7)));
    }

    #[test]
    fn diagnostics_of_another_shape_cost_only_themselves() {
        let schema = Schema::from_json(r#"{"questions": [{"id": "a", "type": "boolean"}]}"#).unwrap();
        let answer = json!({"type": "noul", "noul": 0.75, "probabilities": {"true": 0.75, "false": 0.25}, "x_label_mass": 0.7});
        for questions in [json!(3), json!([1]), json!("a"), json!({"a": "b"}), json!({"a": [1]}), json!(null)]
        {
            let body = json!({"answers": {"a": answer}, "x_diagnostics": {"questions": questions}});
            let reply = reply(&schema, body.to_string().as_bytes(), "u").unwrap();
            assert!(Verdict::new(&schema, &reply).rows[0].answer().is_some(), "{questions}");
        }
    }
}
