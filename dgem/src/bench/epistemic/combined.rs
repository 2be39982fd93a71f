//! What both models together are worth.

use serde_json::{Value, json};

use super::super::record::Record;
use super::super::report::{Section, digits};
use super::super::summary::mean;
use super::second::Escalation;
use crate::foreign::visible;

/// Both models together.
pub(super) struct Combined {
    cases: usize,
    escalated: usize,
    replaced: usize,
    first: usize,
    combined: usize,
    first_ms: Option<f64>,
    second_ms: Option<f64>,
    combined_ms: Option<f64>,
    models: Vec<String>,
    errors: usize,
}

impl Combined {
    /// `None` where no case has been before a second model.
    pub(super) fn of(records: &[Record]) -> Option<Self> {
        let cases: Vec<(&Record, Escalation)> = records
            .iter()
            .filter_map(|record| Some((record, record.get::<Escalation>("escalation")?)))
            .collect();
        if cases.is_empty() {
            return None;
        }
        let count = |rule: &dyn Fn(&Record, &Escalation) -> bool| {
            cases.iter().filter(|(record, e)| rule(record, e)).count()
        };
        let average = |of: &dyn Fn(&Record, &Escalation) -> Option<f64>| {
            mean(&cases.iter().filter_map(|(record, e)| of(record, e)).collect::<Vec<_>>())
        };
        let mut models: Vec<String> = cases.iter().filter_map(|(_, e)| e.model.clone()).collect();
        models.sort();
        models.dedup();
        Some(Self {
            cases: records.len(),
            escalated: count(&|_, e| e.escalated),
            replaced: count(&|_, e| e.answer.is_some()),
            first: records.iter().filter(|record| record.accurate).count(),
            combined: count(&|record, e| e.accurate.unwrap_or(record.accurate)),
            first_ms: average(&|record, _| record.wall_time_ms),
            second_ms: average(&|_, e| e.pass2_latency_ms),
            combined_ms: average(&|record, e| Some(record.wall_time_ms? + e.pass2_latency_ms.unwrap_or(0.0))),
            models,
            errors: count(&|_, e| e.error.is_some()),
        })
    }

    fn pct(&self, count: usize) -> f64 {
        100.0 * count as f64 / self.cases as f64
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "pass2_models": self.models, "total_cases": self.cases, "escalated_cases": self.escalated, "replaced_cases": self.replaced,
            "failed_escalations": self.errors, "escalation_rate_pct": self.pct(self.escalated), "pass1_correct": self.first,
            "pass1_accuracy_pct": self.pct(self.first), "cascade_correct": self.combined, "cascade_accuracy_pct": self.pct(self.combined),
            "accuracy_gain_pct": self.pct(self.combined) - self.pct(self.first), "pass1_avg_latency_ms": self.first_ms,
            "pass2_avg_latency_ms": self.second_ms, "cascade_avg_latency_ms": self.combined_ms,
        })
    }

    pub(super) fn section(&self) -> Section {
        let of = |count: usize| format!("{:.1}% ({count} of {})", self.pct(count), self.cases);
        let models = if self.models.is_empty() { "none answered".to_owned() } else { self.models.join(", ") };
        let rows = vec![
            vec!["Second model".to_owned(), visible(&models)],
            vec!["Escalated".to_owned(), of(self.escalated)],
            vec!["Answers replaced".to_owned(), self.replaced.to_string()],
            vec!["Escalations that failed; the first answer stands".to_owned(), self.errors.to_string()],
            vec!["Accuracy of the first model".to_owned(), of(self.first)],
            vec!["Accuracy of both together".to_owned(), of(self.combined)],
            vec![
                "Gain, points".to_owned(),
                format!("{:+.1}", self.pct(self.combined) - self.pct(self.first)),
            ],
            vec![
                "Wall time, first, second, both, mean ms".to_owned(),
                format!(
                    "{}, {}, {}",
                    digits(self.first_ms, 1),
                    digits(self.second_ms, 1),
                    digits(self.combined_ms, 1)
                ),
            ],
        ];
        Section::table("Cascade", &["FIGURE", "VALUE"], rows)
    }
}
