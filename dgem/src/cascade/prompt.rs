//! What the second model is told: the questions, what the first one thought, and the state.

use std::fmt::Write as _;

use decision::{Answer, Kind, Question, Schema};
use serde_json::{Map, Value, json};

use crate::cli::CascadePrior;
use crate::share::percent;
use crate::verdict::Verdict;

pub(crate) type Prior = CascadePrior;

const OPENING: &str = "Decide each question below about the state at the end. For each one choose exactly one of its allowed \
    answers, state the probability from 0 to 1 that it is right, and explain it in one sentence.";

pub(super) fn text(
    schema: &Schema,
    questions: &[&Question],
    verdict: &Verdict<'_>,
    prior: Prior,
    state: &str,
) -> String {
    let mut text = String::from(OPENING);
    if let Some(instructions) = schema.instructions.as_deref().map(str::trim).filter(|text| !text.is_empty())
    {
        let _ = write!(text, "\n\n{instructions}");
    }
    for question in questions {
        let _ = write!(
            text,
            "\n\nQuestion {}: {}",
            question.id,
            question.instructions.as_deref().unwrap_or_default().trim()
        );
        for (name, description) in question.answer_names().iter().zip(descriptions(question)) {
            let separator = if description.is_some() { ": " } else { "" };
            let _ = write!(text, "\n- {name}{separator}{}", description.unwrap_or_default());
        }
        let answer = verdict.rows.iter().find(|row| row.id == question.id).and_then(|row| row.answer());
        if let Some(answer) = answer {
            text.push_str(&told(prior, answer));
        }
    }
    let _ = write!(text, "\n\nState:\n{state}");
    text
}

fn descriptions(question: &Question) -> Vec<Option<&str>> {
    match &question.kind {
        Kind::Boolean { yes, no } => vec![yes.as_deref(), no.as_deref()],
        Kind::Choice { options } => options.iter().map(|option| option.description.as_deref()).collect(),
        Kind::Score { levels } => vec![None; levels.len()],
    }
}

/// The first model's answer, as much of it as the prior allows.
pub(crate) fn told(prior: Prior, answer: &Answer) -> String {
    match prior {
        Prior::None => String::new(),
        Prior::Soft => {
            format!(
                "\nA faster model leaned toward {}. It was unsure and may be wrong: judge for yourself.",
                answer.name()
            )
        }
        Prior::Full => {
            let mut all: Vec<(&String, &f64)> = answer.probabilities.iter().collect();
            all.sort_by(|a, b| b.1.total_cmp(a.1).then_with(|| a.0.cmp(b.0)));
            let all: Vec<String> =
                all.into_iter().map(|(name, p)| format!("{name} {}", percent(*p))).collect();
            format!(
                "\nA faster model gave {} (entropy {:.3} nats, {} of the most possible). Check step by step which of the rivals is right.",
                all.join(", "),
                answer.entropy_nats,
                percent(answer.hesitation)
            )
        }
    }
}

pub(crate) fn name(prior: Prior) -> &'static str {
    match prior {
        Prior::Soft => "soft",
        Prior::Full => "full",
        Prior::None => "none",
    }
}

/// The JSON schema of the reply, in the spelling of JSON Schema (`object`) or of Gemini (`OBJECT`): one object per question.
pub(super) fn reply_schema(questions: &[&Question], gemini: bool) -> Value {
    let kind = |name: &str| if gemini { name.to_uppercase() } else { name.to_owned() };
    let closed = |mut schema: Value| {
        if !gemini {
            schema["additionalProperties"] = json!(false);
        }
        schema
    };
    let question = |question: &&Question| {
        let schema = json!({"type": kind("object"), "required": ["decision", "confidence", "explanation"], "properties": {
            "decision": {"type": kind("string"), "enum": question.answer_names()},
            "confidence": {"type": kind("number")},
            "explanation": {"type": kind("string")},
        }});
        (question.id.clone(), closed(schema))
    };
    let properties: Map<String, Value> = questions.iter().map(question).collect();
    let ids: Vec<&str> = questions.iter().map(|question| question.id.as_str()).collect();
    closed(json!({"type": kind("object"), "properties": properties, "required": ids}))
}
