//! Gates: when an answer is not good enough to act on. Each failure is a line on stderr, and the exit code is 1.
//!
//! `commands::decide` builds them before anything is sent, so that a misspelt id costs no request, and asks them afterwards.
//! A gate that cannot be checked fails: what a script lets through must have been looked at.

mod condition;

use std::collections::HashMap;

use decision::{Answer, Diagnostics, Schema, entropy_nats, hesitation_over};
use serde::Serialize;

use self::condition::Condition;
use crate::cascade;
use crate::cli::GateFlags;
use crate::error::Error;
use crate::foreign::visible;
use crate::share;
use crate::verdict::{Outcome, Row, Verdict};

/// All gates of one run.
#[derive(Debug)]
pub struct Gates {
    conditions: Vec<Condition>,
    max_hesitation: Option<f64>,
    min_confidence: Option<f64>,
    min_label_mass: Option<f64>,
    /// Question id → how many answers it allows.
    alternatives: HashMap<String, usize>,
}

/// One gate that one answer did not pass.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    /// The flag.
    pub gate: &'static str,
    pub question: String,
    /// What was found and what was wanted.
    pub reason: String,
}

impl Gates {
    /// Errors: a share that is none, a condition on a question or an answer that does not exist.
    pub fn new(flags: &GateFlags, schema: &Schema) -> Result<Self, Error> {
        let share =
            |flag, text: &Option<String>| text.as_deref().map(|text| share::parse(flag, text)).transpose();
        Ok(Self {
            conditions: flags
                .fail_if
                .iter()
                .map(|text| Condition::parse(text, schema))
                .collect::<Result<_, _>>()?,
            max_hesitation: share("--max-hesitation", &flags.max_hesitation)?,
            min_confidence: share("--min-confidence", &flags.min_confidence)?,
            min_label_mass: share("--min-label-mass", &flags.min_label_mass)?,
            alternatives: schema
                .asked()
                .iter()
                .map(|question| (question.id.clone(), question.alternatives()))
                .collect(),
        })
    }

    /// What did not pass, in the order of the questions.
    pub fn failures(&self, verdict: &Verdict<'_>, diagnostics: &Diagnostics) -> Vec<Failure> {
        let mut failures = Vec::new();
        for row in &verdict.rows {
            let mut fail = |gate, reason: String| {
                failures.push(Failure { gate, question: row.id.to_owned(), reason });
            };
            let about = self.conditions.iter().find(|condition| condition.question == row.id);
            match &row.outcome {
                // What was not to be asked has nothing to be gated on.
                Outcome::Skipped(_) => {}
                Outcome::Missing | Outcome::Invalid(_) => {
                    if let Some(gate) = self.first_about(about) {
                        fail(gate, "it has no answer that could be checked".to_owned());
                    }
                }
                Outcome::Answered(answer) => self.check(row, answer, diagnostics, &mut fail),
            }
        }
        failures
    }

    /// The gate to name when there is nothing to check.
    fn first_about(&self, condition: Option<&Condition>) -> Option<&'static str> {
        let numeric = [
            (self.max_hesitation, "--max-hesitation"),
            (self.min_confidence, "--min-confidence"),
            (self.min_label_mass, "--min-label-mass"),
        ];
        let first = numeric.into_iter().find_map(|(limit, gate)| limit.map(|_| gate));
        condition.map(|_| "--fail-if").or(first)
    }

    /// Confidence and hesitation: those of the answer or those of its probabilities, whichever are worse. `verdict` lets them
    /// differ by what rounding may do.
    fn certainty(&self, id: &str, answer: &Answer) -> (f64, f64) {
        let own = answer.probabilities.get(answer.name()).copied().unwrap_or(0.0);
        let given: Vec<f64> = answer.probabilities.values().copied().collect();
        let alternatives = self.alternatives.get(id).copied().unwrap_or(given.len());
        let hesitation = hesitation_over(entropy_nats(&given), alternatives);
        (own.min(answer.confidence), hesitation.max(answer.hesitation))
    }

    fn check(
        &self,
        row: &Row<'_>,
        answer: &Answer,
        diagnostics: &Diagnostics,
        fail: &mut impl FnMut(&'static str, String),
    ) {
        let conditions = self.conditions.iter().filter(|condition| condition.question == row.id);
        for condition in conditions.filter(|condition| condition.holds(answer.name())) {
            fail(
                "--fail-if",
                format!("the answer is {}, as in `{}`", visible(answer.name()), visible(&condition.text)),
            );
        }
        let (confidence, hesitation) = self.certainty(row.id, answer);
        if let Some(most) = self.max_hesitation.filter(|most| hesitation > *most) {
            fail("--max-hesitation", compared("a hesitation", hesitation, "above", most));
        }
        if let Some(least) = self.min_confidence.filter(|least| confidence < *least) {
            fail("--min-confidence", compared("a confidence", confidence, "below", least));
        }
        // A second model states its answer; there are no labels.
        if let Some(least) = self.min_label_mass.filter(|_| answer.source.as_deref() != Some(cascade::SOURCE))
        {
            match diagnostics.questions.get(row.id).and_then(|slot| slot.label_mass) {
                Some(mass) if !(0.0..=MOST_MASS).contains(&mass) => {
                    fail(
                        "--min-label-mass",
                        format!("the server reports a label mass of {mass}, which no probability is"),
                    );
                }
                Some(mass) if mass >= least => {}
                Some(mass) => {
                    fail("--min-label-mass", compared("a label mass", mass, "below", least));
                }
                None => fail("--min-label-mass", "the server does not report the label mass".to_owned()),
            }
        }
    }
}

/// A sum of probabilities, with what rounding may add.
const MOST_MASS: f64 = 1.0 + 1e-3;

/// With as many digits as it takes to see the difference.
fn compared(what: &str, value: f64, side: &str, limit: f64) -> String {
    let shown = |share: f64, digits: usize| format!("{:.digits$}%", share * 100.0);
    let digits = (1..=12).find(|digits| shown(value, *digits) != shown(limit, *digits)).unwrap_or(12);
    format!("{what} of {} is {side} {}", shown(value, digits), shown(limit, digits))
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "gate {}: `{}`: {}", self.gate, visible(&self.question), self.reason)
    }
}
