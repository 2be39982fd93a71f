//! What became of one case: a line of the receipt, from which every figure is computed.

use indexmap::IndexMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::sheet::Sheet;
use super::suite::Label;
use crate::client::Decided;
use crate::error::Error;
use crate::foreign::{clipped, visible};
use crate::grade::Judged;
use crate::verdict::{Outcome, Verdict};

/// Characters of an error that a receipt keeps.
const ERROR_CHARS: usize = 500;
/// A month: longer than any case is waited for.
const LONGEST_MS: f64 = 31.0 * 86_400e3;
/// What rounding may add to a sum of probabilities, as a server may write them.
const ROUNDING: f64 = 0.05;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub id: String,
    #[serde(default)]
    pub category: String,
    #[serde(default)]
    pub tier: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Right by the rule of the suite. A case that failed is not.
    pub accurate: bool,
    /// Question id → what was expected and what was answered.
    #[serde(default)]
    pub answers: IndexMap<String, Judged>,
    /// Of all requests of the case; absent where one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_time_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denoise_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill_ms: Option<f64>,
    /// Noise draws of the last request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u32>,
    /// Whether the first draw was unsure enough for more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extended: Option<bool>,
    #[serde(default)]
    pub retries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
    /// What failed after the case was settled: a reply in words, a tie-break, a second look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_error: Option<String>,
    /// What counts is known. Whatever fails from here on changes nothing of it.
    #[serde(skip)]
    pub settled: bool,
    /// That answered, by the server's own name.
    #[serde(skip)]
    pub model: Option<String>,
    /// What the suite adds.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Record {
    pub fn new(label: &Label) -> Self {
        let Label { id, category, tier } = label.clone();
        Self { id, category, tier, ..Self::default() }
    }

    /// What no run can have written.
    pub fn impossible(&self) -> Option<String> {
        let times = [self.wall_time_ms, self.denoise_ms, self.prefill_ms];
        if let Some(time) = times.into_iter().flatten().find(|ms| !(0.0..=LONGEST_MS).contains(ms)) {
            return Some(format!("a time of {time:e} ms"));
        }
        let answers = self.answers.iter().filter_map(|(id, judged)| Some((id, judged.answer.as_ref()?)));
        answers.map(|(id, answer)| (id, answer.probabilities.values().copied())).find_map(|(id, mut p)| {
            let sum: f64 = p.clone().sum();
            let sound = p.all(|p| (0.0..=1.0 + ROUNDING).contains(&p)) && sum > 0.0 && sum <= 1.0 + ROUNDING;
            (!sound).then(|| format!("the probabilities of `{}` add up to {sum:e}", visible(id)))
        })
    }

    /// Counts the time of a request in, with what the server says about it.
    pub fn took(&mut self, decided: &Decided) {
        let add = |sum: &mut Option<f64>, ms: f64| *sum = Some(sum.unwrap_or(0.0) + ms);
        let diagnostics = &decided.reply.diagnostics;
        add(&mut self.wall_time_ms, milliseconds(decided.wall));
        // A server that says nothing about its time says zero.
        for (sum, ms) in [
            (&mut self.denoise_ms, diagnostics.timing.denoise_ms),
            (&mut self.prefill_ms, diagnostics.timing.prefill_ms),
        ] {
            if ms > 0.0 {
                add(sum, ms);
            }
        }
        self.samples = Some(diagnostics.samples.n).filter(|n| *n > 0);
        self.extended = match diagnostics.samples.policy {
            decision::Policy::Auto { extended, .. } => Some(extended),
            decision::Policy::Fixed { .. } => Some(false),
            decision::Policy::Other(_) => None,
        };
        self.retries += decided.tally.retries;
        self.model.clone_from(&decided.reply.model);
    }

    /// Compares what was answered with what was expected. Questions that the dataset says nothing about are left out.
    pub fn judge(&mut self, sheet: &Sheet, verdict: &Verdict<'_>) {
        for (id, expected) in &sheet.expected {
            let question = sheet.schema.questions.iter().find(|question| question.id == *id);
            let row = verdict.rows.iter().find(|row| row.id == id);
            if let (Some(question), Some(row)) = (question, row) {
                self.answers.insert(id.clone(), Judged::new(question, expected, &row.outcome));
            }
        }
    }

    /// What was asked of a case that gives no answer.
    pub fn expect(&mut self, sheet: &Sheet) {
        for (id, expected) in &sheet.expected {
            if let Some(question) = sheet.schema.questions.iter().find(|question| question.id == *id) {
                self.answers.insert(id.clone(), Judged::new(question, expected, &Outcome::Missing));
            }
        }
    }

    /// Every expected answer was given.
    pub fn all_correct(&self, sheet: &Sheet) -> bool {
        sheet.expected.keys().all(|id| self.answers.get(id).is_some_and(|judged| judged.correct))
    }

    /// The case could not be measured, or only what comes after its answer.
    pub fn failed(&mut self, error: &Error) {
        let text = clipped(&error.to_string().replace("\nhint: ", "; hint: "), ERROR_CHARS);
        if self.settled {
            self.second_error = Some(text);
            return;
        }
        self.accurate = false;
        self.wall_time_ms = None;
        self.http_status = error.status();
        self.error = Some(text);
    }

    /// Something of the suite's own.
    pub fn set(&mut self, key: &str, value: impl Serialize) {
        // Values of this program: text keys and finite numbers.
        self.more.insert(key.to_owned(), serde_json::to_value(value).unwrap_or_default());
    }

    /// The same back; `None` where it is not there or something else.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        T::deserialize(self.more.get(key)?).ok()
    }
}

pub(crate) fn milliseconds(time: std::time::Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
