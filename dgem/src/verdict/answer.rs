//! Whether one answer of a reply is an answer to the question that was asked.
//!
//! The `decision` crate reads it with tolerance for other servers; what it then says must still be one of the allowed answers
//! with a distribution over exactly these. Every refusal names what came and what was allowed.

use decision::{Answer, AnswerValue, Question, entropy_nats, hesitation_over};
use serde::Deserialize;
use serde_json::Value;

use crate::foreign::{clipped, visible};

/// How far the probabilities may be from a sum of 1, and numbers that follow from them from these: servers round.
const ROUNDING: f64 = 1e-2;
/// The same for entropies, which small probabilities that were rounded away make too small. In nats, and as a share of ln K.
const ENTROPY_ROUNDING: f64 = 2e-2;
/// How far below the largest probability the winner's may be: two that are equal may be rounded apart.
const TIE: f64 = 1e-6;
/// Characters of a foreign text that a message repeats.
const SHOWN_CHARS: usize = 60;

pub(super) struct Checked {
    pub(super) answer: Answer,
    /// What is worth a warning.
    pub(super) notes: Vec<String>,
}

/// The answer with its probabilities in the order of the question, or the reason why it does not count.
pub(super) fn check(question: &Question, raw: &Value) -> Result<Checked, String> {
    if !raw.is_object() {
        return Err(format!(
            "{} came, allowed is an object with type and probabilities",
            shown(&raw.to_string())
        ));
    }
    let mut answer = Answer::deserialize(raw).map_err(|cause| shown(&cause.to_string()))?;
    let wanted = question.kind.type_name();
    if answer.type_name() != wanted {
        return Err(format!("type {} came, allowed is {wanted}", answer.type_name()));
    }
    let names = question.answer_names();
    let winner = names
        .iter()
        .position(|name| *name == answer.name())
        .ok_or_else(|| not_allowed("answer", answer.name(), &names))?;
    let labels = question.labels();
    if answer.label != labels[winner] && answer.label != names[winner] {
        let allowed = [labels[winner].as_str()];
        return Err(format!(
            "{} for {}",
            not_allowed("label", &answer.label, &allowed),
            shown(names[winner])
        ));
    }
    let mut notes: Vec<String> = distribution(question, &names, raw, &answer)?.into_iter().collect();
    most_probable(&answer, names[winner])?;
    numbers(question, &answer)?;
    answer.probabilities.sort_by_key(|name, _| names.iter().position(|known| known == name));
    if raw.get("hesitation").is_none() {
        // Of all the answers that were allowed, not only of those in the reply.
        answer.hesitation = hesitation_over(answer.entropy_nats, names.len());
    }
    notes.extend(certainty(question, raw, &mut answer));
    Ok(Checked { answer, notes })
}

/// The probabilities say how sure an answer is. Where the numbers beside them say something else, those of the probabilities
/// count, and a note tells.
fn certainty(question: &Question, raw: &Value, answer: &mut Answer) -> Option<String> {
    let given: Vec<f64> = answer.probabilities.values().copied().collect();
    let own = answer.probabilities.get(answer.name()).copied().unwrap_or(0.0);
    let (least, most) = entropies(&given, question.alternatives());
    let entropy = match answer.entropy_nats {
        said if said < least - ENTROPY_ROUNDING => least,
        said if said > most + ENTROPY_ROUNDING => most,
        said => said,
    };
    let hesitation = hesitation_over(entropy, question.alternatives());
    let mut wrong = Vec::new();
    let mut correct = |what, is: &mut f64, by_probabilities: f64, rounding: f64| {
        if (*is - by_probabilities).abs() > rounding {
            if raw.get(what).is_some() {
                wrong.push(format!("{what} {} and not {}", short(by_probabilities), short(*is)));
            }
            *is = by_probabilities;
        }
    };
    correct("confidence", &mut answer.confidence, own, ROUNDING);
    correct("entropy", &mut answer.entropy_nats, entropy, 0.0);
    correct("hesitation", &mut answer.hesitation, hesitation, ENTROPY_ROUNDING);
    (!wrong.is_empty()).then(|| {
        format!(
            "the answer to `{}` contradicts itself: by its probabilities, which count, it has {}",
            visible(&question.id),
            wrong.join(", ")
        )
    })
}

/// The least and the most entropy of a distribution of which these are known: what is missing is one other answer's, or that of all
/// others alike.
fn entropies(given: &[f64], alternatives: usize) -> (f64, f64) {
    let missing = alternatives.saturating_sub(given.len());
    let sum: f64 = given.iter().sum();
    if missing == 0 || sum >= 1.0 {
        let scaled: Vec<f64> = given.iter().map(|p| p / sum).collect();
        let entropy = entropy_nats(&scaled);
        return (entropy, entropy);
    }
    let with = |rest: Vec<f64>| entropy_nats(&[given.to_vec(), rest].concat());
    (with(vec![1.0 - sum]), with(vec![(1.0 - sum) / missing as f64; missing]))
}

fn short(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// The probabilities are those of exactly the allowed answers and add up to 1. A server that says that it left some out
/// (`"truncated": true`) may; the note says so.
fn distribution(
    question: &Question,
    names: &[&str],
    raw: &Value,
    answer: &Answer,
) -> Result<Option<String>, String> {
    let given = &answer.probabilities;
    if let Some(name) = given.keys().find(|name| !names.contains(&name.as_str())) {
        return Err(not_allowed("a probability of", name, names));
    }
    let written =
        raw.get("probabilities").and_then(Value::as_object).map_or(given.len(), serde_json::Map::len);
    if written != given.len() {
        return Err(format!(
            "two probabilities of one answer came, allowed is one for each of {}",
            list(names)
        ));
    }
    let truncated = raw.get("truncated") == Some(&Value::Bool(true));
    if let Some(name) = names.iter().find(|name| !given.contains_key(**name) && !truncated) {
        return Err(format!(
            "no probability of {} came, allowed is one for each of {}",
            shown(name),
            list(names)
        ));
    }
    let sum: f64 = given.values().sum();
    if sum > 1.0 + ROUNDING || (given.len() == names.len() && sum < 1.0 - ROUNDING) {
        return Err(format!("probabilities with the sum {sum:.4} came, allowed is 1 within {ROUNDING}"));
    }
    Ok((given.len() < names.len()).then(|| {
        format!(
            "the answer to `{}` has {} of {} probabilities: the server truncated it",
            visible(&question.id),
            given.len(),
            names.len()
        )
    }))
}

fn most_probable(answer: &Answer, winner: &str) -> Result<(), String> {
    let own = answer.probabilities.get(winner).copied().unwrap_or(0.0);
    match answer.probabilities.iter().find(|(_, p)| **p > own + TIE) {
        Some((other, p)) => Err(format!(
            "answer {} with the probability {own} came, allowed is the most probable: {} with {p}",
            shown(winner),
            shown(other)
        )),
        None => Ok(()),
    }
}

/// The numbers beside the distribution are in their ranges, and that of a boolean is its probability of yes.
fn numbers(question: &Question, answer: &Answer) -> Result<(), String> {
    let count = question.alternatives() as f64;
    let ranges = [
        ("confidence", Some(answer.confidence), 1.0),
        ("entropy", Some(answer.entropy_nats), count.ln() + ROUNDING),
        ("hesitation", Some(answer.hesitation), 1.0),
        ("agreement", answer.agreement, 1.0),
        ("stderr", answer.stderr, 1.0),
    ];
    for (what, value, most) in ranges {
        if let Some(value) = value.filter(|value| !(0.0..=most + TIE).contains(value)) {
            return Err(format!("{what} {value} came, allowed is 0 to {most:.2}"));
        }
    }
    match answer.value {
        AnswerValue::Boolean { noul } => {
            let yes = answer.probabilities.get("yes").copied();
            match yes.filter(|yes| (noul - yes).abs() > ROUNDING) {
                Some(yes) => Err(format!("noul {noul} came, allowed is the probability of yes: {yes}")),
                None => Ok(()),
            }
        }
        // Counted from 1 by the contract, from 0 by some servers.
        AnswerValue::Score { score, .. } if !(0.0..=count).contains(&score) => {
            Err(format!("score {score} came, allowed is 0 to {count}"))
        }
        AnswerValue::Score { .. } | AnswerValue::Choice { .. } => Ok(()),
    }
}

fn not_allowed(what: &str, came: &str, allowed: &[&str]) -> String {
    format!("{what} {} came, allowed: {}", shown(came), list(allowed))
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ")
}

fn shown(text: &str) -> String {
    visible(&clipped(text, SHOWN_CHARS))
}
