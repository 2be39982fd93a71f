//! The one JSON document of `-f json`. Floats are not rounded; every key is always present but `stats`.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::stats::Stats;
use crate::client::Reply;
use crate::verdict::{Outcome, Verdict};

/// Raised when a key changes its meaning or goes away.
const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
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
    stats: Option<&'a Stats>,
}

pub(super) fn document(reply: &Reply, verdict: &Verdict<'_>, stats: Option<&Stats>) -> String {
    let mut answers = Map::new();
    for row in &verdict.rows {
        match &row.outcome {
            Outcome::Answered(answer) => drop(answers.insert(row.id.to_owned(), json!(answer))),
            Outcome::Skipped(_) => drop(answers.insert(row.id.to_owned(), Value::Null)),
            Outcome::Missing | Outcome::Invalid(_) => {}
        }
    }
    let document = Document {
        schema_version: SCHEMA_VERSION,
        model: reply.model.as_deref(),
        answers,
        missing: verdict.missing(),
        invalid: verdict.invalid().map(|(id, reason)| (id.to_owned(), json!(reason))).collect(),
        diagnostics: &reply.diagnostics_json,
        stats,
    };
    // Maps with text keys and finite numbers cannot fail to serialise.
    serde_json::to_string_pretty(&document).unwrap_or_default()
}
