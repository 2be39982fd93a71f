//! The answer to one question: a probability for every allowed answer, and what follows from it.
//!
//! Built by the server from a `Reading`; the client reads it back from the reply. The JSON form is in `answer_json`.
//! Names are answer names (`billing`), never labels (`A`): two options may well be called `B` and `A`.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::diagnostics::Diagnostics;
use crate::error::ReadingError;
use crate::question::{Kind, Question};
use crate::reading::Reading;

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
