//! The answer to one question: a probability for every allowed answer, and what follows from it.
//!
//! Built by the server from a `Reading`; the client reads it back from the reply. The JSON form is in `answer_json`.
//! Names are answer names (`billing`), never labels (`A`): two options may well be called `B` and `A`.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::diagnostics::Diagnostics;
use crate::error::ReadingError;
use crate::probability::{entropy_nats, hesitation};
use crate::question::{Kind, Question};
use crate::reading::Reading;
use crate::statistics::tempered;

/// One answer, in the shape of its question's type.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub value: AnswerValue,
    /// Label of the winner on the canvas: `yes`, `A`, `2`.
    pub label: String,
    /// Probability of the winner.
    pub confidence: f64,
    /// Answer name → probability, in the order of the question. Zeros are there too.
    pub probabilities: IndexMap<String, f64>,
    /// Entropy over `probabilities`, in nats.
    pub entropy_nats: f64,
    /// Entropy as a share of ln K, 0…1.
    pub hesitation: f64,
    /// Standard error of `confidence`; only with several reads.
    pub stderr: Option<f64>,
    /// Share of reads that gave the same winner; only with several reads.
    pub agreement: Option<f64>,
    /// How the distribution was obtained when it was not a slot read, for instance `generation_logprobs`.
    pub source: Option<String>,
}

/// What the type of the question adds.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerValue {
    /// `noul`: probability of yes.
    Boolean { noul: f64 },
    /// Name of the winning option.
    Choice { choice: String },
    /// Name of the winning level, and the expected level Σ i·p counted from 1.
    Score { level: String, score: f64 },
}

/// Question id → answer, in schema order; `None` for a question that was skipped.
pub type Answers = IndexMap<String, Option<Answer>>;

/// The whole content of a decision reply.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DecisionReply {
    #[cfg_attr(feature = "openapi", schema(value_type = IndexMap<String, crate::openapi::OptionalAnswerForm>))]
    pub answers: Answers,
    #[serde(default)]
    pub diagnostics: Diagnostics,
}

impl Answer {
    /// The answer to `question` as read with its plain labels.
    pub fn new(question: &Question, reading: &Reading) -> Result<Self, ReadingError> {
        Self::with_labels(question, &question.labels(), reading)
    }

    /// The answer as read with labels of the engine's own. `labels: [alternatives]`, in the order of the answers.
    ///
    /// Errors: the labels or the reading do not have one entry per allowed answer.
    pub fn with_labels(
        question: &Question,
        labels: &[String],
        reading: &Reading,
    ) -> Result<Self, ReadingError> {
        let names = question.answer_names();
        for (what, found) in
            [("labels of a question", labels.len()), ("probabilities", reading.probabilities.len())]
        {
            if found != names.len() {
                return Err(ReadingError::WrongCount { what, expected: names.len(), found });
            }
        }
        let (Some(&name), Some(label)) = (names.get(reading.winner), labels.get(reading.winner)) else {
            return Err(ReadingError::WrongCount {
                what: "winner",
                expected: names.len(),
                found: reading.winner,
            });
        };
        let value = match &question.kind {
            Kind::Boolean { .. } => AnswerValue::Boolean { noul: reading.probabilities[0] },
            Kind::Choice { .. } => AnswerValue::Choice { choice: name.to_owned() },
            Kind::Score { .. } => AnswerValue::Score {
                level: name.to_owned(),
                score: expected_level(reading.probabilities.iter().copied()),
            },
        };
        Ok(Self {
            value,
            label: label.clone(),
            confidence: reading.confidence,
            probabilities: names
                .into_iter()
                .map(str::to_owned)
                .zip(reading.probabilities.iter().copied())
                .collect(),
            entropy_nats: reading.entropy_nats,
            hesitation: reading.hesitation,
            stderr: reading.stderr,
            agreement: reading.agreement,
            source: None,
        })
    }

    /// The same answer with its distribution at another temperature (`statistics::tempered`): as sure as that makes it, and never
    /// another one. `alternatives`: answers that the question allows, also those that the reply left out.
    #[must_use]
    pub fn at_temperature(&self, temperature: f64, alternatives: usize) -> Self {
        let mut all: Vec<f64> = self.probabilities.values().copied().collect();
        let listed = all.len();
        if let Some(absent) = alternatives.checked_sub(listed).filter(|absent| *absent > 0) {
            let left = (1.0 - all.iter().sum::<f64>()).max(0.0);
            all.extend(std::iter::repeat_n(left / absent as f64, absent));
        }
        let all = tempered(&all, temperature);
        let probabilities: IndexMap<String, f64> =
            self.probabilities.keys().cloned().zip(all.iter().copied()).collect();
        let value = match &self.value {
            AnswerValue::Boolean { noul } => {
                AnswerValue::Boolean { noul: probabilities.get("yes").copied().unwrap_or(*noul) }
            }
            AnswerValue::Choice { choice } => AnswerValue::Choice { choice: choice.clone() },
            AnswerValue::Score { level, .. } => AnswerValue::Score {
                level: level.clone(),
                score: expected_level(all.iter().take(listed).copied()),
            },
        };
        Self {
            value,
            label: self.label.clone(),
            confidence: probabilities.get(self.name()).copied().unwrap_or(self.confidence),
            probabilities,
            entropy_nats: entropy_nats(&all),
            hesitation: hesitation(&all),
            // Of the reads as they were: there is no such figure at another temperature.
            stderr: None,
            agreement: self.agreement,
            source: self.source.clone(),
        }
    }

    /// Name of the winning answer: `yes` or `no`, an option, or a level. This is what `ask_if` compares with.
    pub fn name(&self) -> &str {
        match &self.value {
            AnswerValue::Boolean { .. } => &self.label,
            AnswerValue::Choice { choice } => choice,
            AnswerValue::Score { level, .. } => level,
        }
    }

    /// The canonical spelling of the question's type.
    pub fn type_name(&self) -> &'static str {
        match self.value {
            AnswerValue::Boolean { .. } => "boolean",
            AnswerValue::Choice { .. } => "choice",
            AnswerValue::Score { .. } => "score",
        }
    }
}

/// Σ i·p with the lowest level at 1.
pub(crate) fn expected_level(probabilities: impl Iterator<Item = f64>) -> f64 {
    probabilities.enumerate().map(|(index, p)| (index + 1) as f64 * p).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_30_another_temperature_changes_every_figure_and_not_the_answer() {
        let answer: Answer = serde_json::from_str(
            r#"{"type": "score", "label": "2", "level": "b", "probabilities": {"a": 0.2, "b": 0.7, "c": 0.1}, "stderr": 0.1}"#,
        )
        .unwrap();
        let hot = answer.at_temperature(2.0, 3);
        let sum = 0.2_f64.sqrt() + 0.7_f64.sqrt() + 0.1_f64.sqrt();
        assert_eq!((hot.name(), hot.label.as_str(), hot.stderr), ("b", "2", None));
        assert!((hot.confidence - 0.7_f64.sqrt() / sum).abs() < 1e-12 && hot.confidence < answer.confidence);
        assert!((hot.probabilities.values().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(hot.entropy_nats > answer.entropy_nats && hot.hesitation > answer.hesitation);
        let AnswerValue::Score { score, .. } = hot.value else { panic!("no score") };
        let by_hand = (0.2_f64.sqrt() + 2.0 * 0.7_f64.sqrt() + 3.0 * 0.1_f64.sqrt()) / sum;
        assert!((score - by_hand).abs() < 1e-12);
        let yes: Answer = serde_json::from_str(r#"{"type": "boolean", "noul": 0.9}"#).unwrap();
        let AnswerValue::Boolean { noul } = yes.at_temperature(2.0, 2).value else { panic!("no boolean") };
        assert!((noul - 0.75).abs() < 1e-12);
        // What a reply left out keeps its share of what is left.
        let part: Answer =
            serde_json::from_str(r#"{"type": "choice", "probabilities": {"x": 0.6, "y": 0.2}}"#).unwrap();
        let hot = part.at_temperature(2.0, 4);
        let sum = 0.6_f64.sqrt() + 0.2_f64.sqrt() + 2.0 * 0.1_f64.sqrt();
        assert!((hot.confidence - 0.6_f64.sqrt() / sum).abs() < 1e-12);
        assert_eq!(hot.probabilities.len(), 2);
    }
}
