//! `dgemma-server bench --quality FILE`: what a form of the weights costs in answers.
//!
//! The same decisions run on the checkpoint in f32 and on it in the chosen form. Printed are the mean Kullback–Leibler
//! divergence of the label distributions, KL(f32 ‖ form) in nats, the largest of them, and how often the most probable
//! answer is the same. A file has one decision a line: `{"schema": {…}, "state": "…"}`; other keys are passed over.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use decision::{Answer, Answers, Schema};
use serde::Deserialize;

use crate::api::decide::{Decider, Decision};
use crate::engine::Engine;
use crate::error::Error;
use crate::scheduler::policy::Budget;
use crate::{Parts, queue, scheduler};

/// Differences between two forms of one model, by question type and over all.
#[derive(Debug, Clone, Default)]
pub struct Quality {
    decisions: usize,
    /// Questions that only one of the two models was asked, by the conditions of the schema; in no row.
    one_sided: usize,
    rows: BTreeMap<&'static str, Row>,
}

#[derive(Debug, Clone, Default)]
struct Row {
    questions: usize,
    same_winner: usize,
    divergence_nats: f64,
    largest_nats: f64,
}

/// A line of the file.
#[derive(Debug, Clone, Deserialize)]
struct Line {
    schema: serde_json::Value,
    state: String,
}

/// One decision of the file.
#[derive(Debug, Clone)]
pub struct Item {
    schema: Schema,
    state: String,
}

/// Reads the decisions of a file.
pub fn items(path: &Path) -> Result<Vec<Item>, Error> {
    let named = |line: usize, reason: String| Error::BenchFile { path: path.to_owned(), line, reason };
    let text = std::fs::read_to_string(path).map_err(|error| named(0, error.to_string()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let items: Vec<Item> = lines
        .map(|(number, line)| {
            let Line { schema, state } =
                serde_json::from_str(line).map_err(|error| named(number + 1, error.to_string()))?;
            let schema = Schema::from_value(&schema).map_err(|error| named(number + 1, error.to_string()))?;
            Ok(Item { schema, state })
        })
        .collect::<Result<_, Error>>()?;
    if items.is_empty() {
        return Err(named(0, "it has no decisions".into()));
    }
    Ok(items)
}

/// Answers of an engine to all of them.
pub async fn answers<E: Engine>(parts: Parts<E>, items: &[Item]) -> Result<Vec<Answers>, Error> {
    let info = parts.engine.info().clone();
    let (queue, jobs) = queue::bounded(64);
    let budget = Budget::default();
    scheduler::spawn(parts.engine, jobs, budget).map_err(Error::thread)?;
    let decider = Arc::new(Decider::new(info, parts.text, queue, budget.pass_rows));
    let mut answers = Vec::with_capacity(items.len());
    for item in items {
        let Decision { reply, .. } = decider.decide(item.schema.clone(), item.state.clone()).await?;
        answers.push(reply.answers);
    }
    Ok(answers)
}

impl Quality {
    /// Compares the answers to the same decisions. `plain`: of the model as published.
    #[must_use]
    pub fn of(plain: &[Answers], other: &[Answers]) -> Self {
        let mut quality = Self { decisions: plain.len(), ..Self::default() };
        for (plain, other) in plain.iter().zip(other) {
            for (id, plain) in plain {
                match (plain, other.get(id).and_then(Option::as_ref)) {
                    (Some(plain), Some(other)) => {
                        for name in [plain.type_name(), ALL] {
                            quality.rows.entry(name).or_default().add(plain, other);
                        }
                    }
                    (None, None) => {}
                    _ => quality.one_sided += 1,
                }
            }
        }
        quality
    }
}

/// The row over all types; sorts last.
const ALL: &str = "together";

impl Row {
    fn add(&mut self, plain: &Answer, other: &Answer) {
        let pairs = plain.probabilities.iter().map(|(name, p)| (*p, other.probabilities.get(name)));
        let divergence: f64 = pairs
            .filter(|(p, _)| *p > 0.0)
            .map(|(p, q)| p * (p / q.copied().unwrap_or(0.0).max(f64::MIN_POSITIVE)).ln())
            .sum();
        self.questions += 1;
        self.same_winner += usize::from(plain.name() == other.name());
        self.divergence_nats += divergence.max(0.0);
        self.largest_nats = self.largest_nats.max(divergence);
    }
}

impl fmt::Display for Quality {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{} decisions; KL(f32 ‖ this form) in nats", self.decisions)?;
        writeln!(
            out,
            "{:<10} {:>9} {:>11} {:>11} {:>10}",
            "", "questions", "mean KL", "largest", "same top 1"
        )?;
        for (name, row) in &self.rows {
            let count = row.questions as f64;
            writeln!(
                out,
                "{name:<10} {:>9} {:>11.2e} {:>11.2e} {:>10.4}",
                row.questions,
                row.divergence_nats / count,
                row.largest_nats,
                row.same_winner as f64 / count
            )?;
        }
        writeln!(out, "answered by only one of the two, in no row: {}", self.one_sided)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(reply: &str) -> Answers {
        serde_json::from_str(reply).unwrap_or_default()
    }

    fn choice(a: f64) -> Answers {
        let winner = if a >= 0.5 { "a" } else { "b" };
        answers(&format!(
            r#"{{"q": {{"type": "choice", "choice": "{winner}", "label": "A", "confidence": {}, "probabilities": {{"a": {a}, "b": {}}},
                "entropy_nats": 0.5, "hesitation": 0.5}}, "skipped": null}}"#,
            a.max(1.0 - a),
            1.0 - a
        ))
    }

    #[test]
    fn divergence_and_agreement_are_those_of_the_formula() {
        let same = Quality::of(&[choice(0.7)], &[choice(0.7)]);
        assert_eq!((same.rows[ALL].divergence_nats, same.rows[ALL].same_winner), (0.0, 1));
        let apart = Quality::of(&[choice(0.5), choice(1.0)], &[choice(0.25), choice(0.4)]);
        let row = &apart.rows["choice"];
        let wanted = 0.5 * (0.5_f64 / 0.25).ln() + 0.5 * (0.5_f64 / 0.75).ln() + (1.0_f64 / 0.4).ln();
        assert!((row.divergence_nats - wanted).abs() < 1e-12, "{row:?}");
        assert!((row.largest_nats - (1.0_f64 / 0.4).ln()).abs() < 1e-12);
        assert_eq!((row.questions, row.same_winner), (2, 0));
        assert_eq!(apart.one_sided, 0);
    }

    #[test]
    fn questions_of_only_one_model_are_counted_apart() {
        let skipped = answers(r#"{"q": null, "skipped": null}"#);
        let quality =
            Quality::of(&[choice(0.7), skipped.clone(), choice(0.7)], &[skipped, choice(0.7), choice(0.7)]);
        assert_eq!((quality.one_sided, quality.rows[ALL].questions), (2, 1));
        assert!(
            quality.to_string().ends_with("answered by only one of the two, in no row: 2\n"),
            "{quality}"
        );
    }
}
