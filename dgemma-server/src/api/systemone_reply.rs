//! The reply of `POST /v1/systemone`: the answers of a decision in the shape and with the confidences of the Jev API.
//!
//! What is ours alone has a key that begins with `x_`. Called by `Api::systemone`; the request is in `systemone`.

use decision::{Answer, Diagnostics, Kind, Question, Schema};
use indexmap::IndexMap;
use serde::Serialize;
use utoipa::ToSchema;

use super::decide::Decision;
use super::systemone::type_name;

#[derive(Debug, Serialize, ToSchema)]
pub struct SystemoneReply {
    pub model: String,
    /// In the order of the request; `None` for a question that was skipped.
    #[schema(value_type = IndexMap<String, OptionalAnswer>)]
    pub answers: IndexMap<String, Option<SystemoneAnswer>>,
    pub usage: SystemoneUsage,
    pub x_diagnostics: Diagnostics,
}

/// An answer, or null for a question that was skipped, as `/openapi.json` describes it.
#[derive(Debug, ToSchema)]
#[schema(as = SystemoneOptionalAnswer)]
pub struct OptionalAnswer(pub Option<SystemoneAnswer>);

#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct SystemoneUsage {
    pub input_tokens: u64,
    pub output_tokens: u64,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct SystemoneAnswer {
    #[serde(rename = "type")]
    pub kind: &'static str,
    #[serde(flatten)]
    pub value: TypedValue,
    /// Nats.
    pub x_entropy: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x_label_mass: Option<f64>,
}

/// What a type of question has of its own.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SystemoneValue)]
#[serde(untagged)]
pub enum TypedValue {
    Noul {
        noul: f64,
        x_probabilities: IndexMap<String, f64>,
        x_confidence: f64,
    },
    Choice {
        choice: String,
        probabilities: IndexMap<String, f64>,
        confidence: f64,
    },
    Score {
        /// The expected level, counted from 0.
        score: f64,
        /// Level number → level.
        legend: IndexMap<String, String>,
        probabilities: IndexMap<String, f64>,
        confidence: f64,
    },
}

impl SystemoneReply {
    pub(super) fn new(model: String, schema: &Schema, decision: Decision) -> Self {
        let Decision { reply, usage } = decision;
        let mut answers = reply.answers;
        let answers = schema.asked().into_iter().map(|question| {
            let answer = answers.swap_remove(&question.id).flatten();
            let label_mass = reply.diagnostics.questions.get(&question.id).and_then(|slot| slot.label_mass);
            (question.id.clone(), answer.map(|answer| SystemoneAnswer::new(question, &answer, label_mass)))
        });
        SystemoneReply {
            model,
            answers: answers.collect(),
            usage: SystemoneUsage {
                input_tokens: usage.prompt_tokens,
                output_tokens: usage.completion_tokens,
            },
            x_diagnostics: reply.diagnostics.clone(),
        }
    }
}

impl SystemoneAnswer {
    fn new(question: &Question, answer: &Answer, x_label_mass: Option<f64>) -> Self {
        let probabilities: Vec<f64> = answer.probabilities.values().copied().collect();
        let numbered = || (0..probabilities.len()).map(|level| level.to_string());
        let named = |names: Vec<String>| names.into_iter().zip(probabilities.iter().copied()).collect();
        let value = match &question.kind {
            Kind::Boolean { .. } => TypedValue::Noul {
                noul: probabilities.first().copied().unwrap_or_default(),
                x_probabilities: named(vec!["true".into(), "false".into()]),
                x_confidence: above_chance(&probabilities),
            },
            Kind::Choice { options } => TypedValue::Choice {
                choice: answer.name().to_owned(),
                probabilities: named(options.iter().map(|option| option.name.clone()).collect()),
                confidence: above_chance(&probabilities),
            },
            Kind::Score { levels } => TypedValue::Score {
                score: probabilities.iter().enumerate().map(|(level, p)| level as f64 * p).sum(),
                legend: numbered().zip(levels.iter().cloned()).collect(),
                probabilities: named(numbered().collect()),
                confidence: nearness(&probabilities),
            },
        };
        SystemoneAnswer {
            kind: type_name(&question.kind),
            value,
            x_entropy: answer.entropy_nats,
            x_label_mass,
        }
    }
}

/// How far the largest probability is from chance to certainty: (max p − 1/n) / (1 − 1/n).
fn above_chance(probabilities: &[f64]) -> f64 {
    let chance = 1.0 / probabilities.len().max(2) as f64;
    let largest = probabilities.iter().copied().fold(0.0, f64::max);
    ((largest - chance) / (1.0 - chance)).clamp(0.0, 1.0)
}

/// How near to the most probable level the others lie: 1 − Σ p·|i − mode| / (Σ |i − (n − 1)/2| / n), at least 0.
fn nearness(probabilities: &[f64]) -> f64 {
    let levels = probabilities.len() as f64;
    let mode = (0..probabilities.len())
        .fold(0, |mode, level| if probabilities[level] > probabilities[mode] { level } else { mode });
    let distance = |from: f64, weight: fn(f64) -> f64| -> f64 {
        probabilities.iter().zip(0u32..).map(|(p, level)| weight(*p) * (f64::from(level) - from).abs()).sum()
    };
    let even = distance((levels - 1.0) / 2.0, |_| 1.0) / levels;
    if even > 0.0 { (1.0 - distance(mode as f64, |p| p) / even).clamp(0.0, 1.0) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidences_follow_the_published_formulas() {
        assert_eq!(above_chance(&[0.5, 0.5]), 0.0);
        assert_eq!(above_chance(&[0.0, 1.0, 0.0]), 1.0);
        assert!((above_chance(&[0.7, 0.2, 0.1]) - 0.55).abs() < 1e-12);
        assert_eq!(nearness(&[0.0, 0.0, 1.0]), 1.0);
        // Mode 1; Σ p·|i − 1| = 0.4; Σ |i − 1| / 3 = 2/3.
        assert!((nearness(&[0.3, 0.6, 0.1]) - 0.4).abs() < 1e-12);
        assert_eq!(nearness(&[0.5, 0.0, 0.5]), 0.0);
    }
}
