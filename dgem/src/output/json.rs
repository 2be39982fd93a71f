//! The one JSON document of `-f json`. Probabilities are not rounded. The keys down to `diagnostics` are always there, the others
//! when they were asked for.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Report;
use super::stats::Stats;
use crate::cascade::Telemetry;
use crate::gates::Failure;
use crate::permute::Permutation;
use crate::temper::Applied;
use crate::verdict::{Outcome, Row};

/// Raised when a key changes its meaning or goes away.
const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
pub(super) struct Document<'a> {
    schema_version: u32,
    model: Option<&'a str>,
    /// In schema order; `null` for a question that was skipped.
    answers: Map<String, Value>,
    /// Questions asked for that the reply does not have.
    missing: Vec<&'a str>,
    /// Question id → why its answer does not count.
    invalid: Map<String, Value>,
    diagnostics: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    permutation: Option<&'a Permutation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cascade: Option<&'a Telemetry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calibration: Option<&'a Applied>,
    /// Those that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    gates: Option<&'a Vec<Failure>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explain: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<&'a Stats>,
}

pub(super) fn document<'a>(
    rows: &[&Row<'_>],
    report: &Report<'a>,
    stats: Option<&'a Stats>,
    explain: Option<Value>,
) -> Document<'a> {
    let mut answers = Map::new();
    for row in rows {
        match &row.outcome {
            Outcome::Answered(answer) => drop(answers.insert(row.id.to_owned(), json!(answer))),
            Outcome::Skipped(_) => drop(answers.insert(row.id.to_owned(), Value::Null)),
            Outcome::Missing | Outcome::Invalid(_) => {}
        }
    }
    Document {
        schema_version: SCHEMA_VERSION,
        model: report.decided.reply.model.as_deref(),
        answers,
        missing: report.verdict.missing(),
        invalid: report.verdict.invalid().map(|(id, reason)| (id.to_owned(), json!(reason))).collect(),
        diagnostics: &report.decided.reply.diagnostics_json,
        permutation: report.permutation,
        cascade: report.cascade,
        calibration: report.calibration,
        gates: report.gates,
        explain,
        stats,
    }
}
