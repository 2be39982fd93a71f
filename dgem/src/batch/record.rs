//! One line of the output: what became of one row.
//!
//! ```text
//! {"id":"a","status":"ok","answers":{"urgent":{…}},"expected":{"urgent":true},"graded":{"urgent":{"expected":"yes",…}}}
//! {"id":"b","status":"error","error":"http://…/chat/completions answered HTTP 400: …"}
//! ```
//!
//! A later run reads it back to see what is done (`sink`) and what the report must know.

use decision::{Answer, Schema};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::deciding::Whole;
use crate::foreign::visible;
use crate::grade::{Judged, Mark, expected_text};
use crate::temper::Applied;
use crate::verdict::{Outcome, Verdict};

/// How a row ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    /// Every question has an answer that counts, or was skipped.
    Ok,
    /// At least one has not; `error` says why.
    Error,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) id: String,
    pub(super) status: Status,
    /// Question id → answer; `null` for a question that was skipped.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub(super) answers: IndexMap<String, Option<Answer>>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(super) expected: Map<String, Value>,
    /// Question id → whether the answer is the expected one; for those that were answered.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub(super) graded: IndexMap<String, Mark>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// With several orders of the options, with a second model, and with temperatures: as in the JSON of `decide`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) permutation: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cascade: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) calibration: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
}

impl Record {
    /// A row without any answer.
    pub(super) fn failed(id: String, expected: Map<String, Value>, error: String) -> Self {
        Self {
            id,
            status: Status::Error,
            answers: IndexMap::new(),
            expected,
            graded: IndexMap::new(),
            error: Some(error),
            permutation: None,
            cascade: None,
            calibration: None,
            warnings: Vec::new(),
        }
    }

    /// A row that the server answered.
    pub(super) fn answered(
        id: String,
        expected: Map<String, Value>,
        schema: &Schema,
        whole: Whole<'_>,
        applied: Option<&Applied>,
    ) -> Self {
        let Whole { answered, permutation, cascade } = whole;
        let mut warnings = answered.decided.reply.warnings;
        let verdict = answered.verdict;
        let graded = graded(&expected, schema, &verdict);
        warnings.extend(verdict.notes);
        if let Some(error) = cascade.as_ref().and_then(|telemetry| telemetry.error.as_deref()) {
            warnings.push(format!("the second model did not help: {error}"));
        }
        let mut faults = Vec::new();
        let mut answers = IndexMap::new();
        for row in verdict.rows {
            match row.outcome {
                Outcome::Answered(answer) => drop(answers.insert(row.id.to_owned(), Some(answer))),
                Outcome::Skipped(_) => drop(answers.insert(row.id.to_owned(), None)),
                Outcome::Missing => faults.push(format!("the reply has no answer for `{}`", visible(row.id))),
                Outcome::Invalid(reason) => {
                    faults.push(format!("the answer to `{}` is invalid: {reason}", visible(row.id)));
                }
            }
        }
        let status = if faults.is_empty() { Status::Ok } else { Status::Error };
        let error = (!faults.is_empty()).then(|| faults.join("; "));
        Self {
            id,
            status,
            answers,
            expected,
            graded,
            error,
            permutation: permutation.map(|permutation| json!(permutation)),
            cascade: cascade.map(|telemetry| json!(telemetry)),
            calibration: applied.map(|applied| json!(applied)),
            warnings,
        }
    }

    /// As one line with its end.
    pub(super) fn line(&self) -> Vec<u8> {
        // Text keys and finite numbers cannot fail to serialise.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

fn graded(expected: &Map<String, Value>, schema: &Schema, verdict: &Verdict<'_>) -> IndexMap<String, Mark> {
    let mark = |(id, expected): (&String, &Value)| {
        let question = schema.questions.iter().find(|question| question.id == *id)?;
        let row = verdict.rows.iter().find(|row| row.id == id && row.answer().is_some())?;
        Some((id.clone(), Judged::new(question, &expected_text(expected), &row.outcome).mark()))
    };
    expected.iter().filter_map(mark).collect()
}
