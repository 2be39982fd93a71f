//! The figures that every suite has, computed from the records alone.
//!
//! Accuracy counts the cases that failed as wrong; beside it stands that over the cases with an answer. Times are those of cases that
//! worked. Where there is nothing to measure a figure is absent, never zero.

use decision::statistics::{Graded, Scores, chance_corrected, percentile, wilson};
use decision::{Calibration, Gate};
use indexmap::IndexMap;
use serde_json::{Value, json};

use super::record::Record;
use crate::grade::Judged;

#[derive(Clone, Debug, Default)]
pub struct Summary {
    pub all: Count,
    /// Category → cases, in the order in which they first appear.
    pub categories: IndexMap<String, Count>,
    pub tiers: IndexMap<String, Count>,
    /// `all`, then every type of question that occurs.
    pub answers: IndexMap<String, Answers>,
    /// What a gate on hesitation would do with the single answers.
    pub gates: Vec<Gate>,
    pub latency: Option<Latency>,
    pub denoise_ms: Option<f64>,
    pub retries: u32,
    /// Cases that read further because the first draw was unsure.
    pub extended: Option<usize>,
    /// Answers that can never be right.
    pub impossible: usize,
    /// Cases that are settled, in which something failed after that.
    pub second_errors: usize,
}

/// Cases, and how many are right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub cases: u64,
    pub failed: u64,
    pub right: u64,
}

/// Single answers of one type.
#[derive(Clone, Debug)]
pub struct Answers {
    /// Questions with a known answer.
    pub asked: u64,
    pub right: u64,
    /// Accuracy of guessing: the mean of 1/K over all that were asked.
    pub chance: f64,
    /// Scores that are at most one level off.
    pub within_one: Option<u64>,
    /// Over those with a distribution.
    pub scores: Option<Scores>,
}

/// Times of the cases that worked, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    pub count: usize,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub most: f64,
}

impl Count {
    fn add(&mut self, record: &Record) {
        self.cases += 1;
        self.failed += u64::from(record.error.is_some());
        self.right += u64::from(record.accurate);
    }

    /// Over all cases, those that failed counted as wrong.
    pub fn accuracy(&self) -> Option<f64> {
        (self.cases > 0).then(|| self.right as f64 / self.cases as f64)
    }

    /// Over those that worked.
    pub fn accuracy_of_answered(&self) -> Option<f64> {
        let answered = self.cases - self.failed;
        (answered > 0).then(|| self.right as f64 / answered as f64)
    }

    /// 95 % (Wilson), over all cases.
    pub fn interval(&self) -> Option<(f64, f64)> {
        wilson(self.right, self.cases)
    }

    fn json(&self) -> Value {
        json!({"cases": self.cases, "failed": self.failed, "right": self.right, "accuracy": self.accuracy(),
               "accuracy_of_answered": self.accuracy_of_answered(), "accuracy_interval_95": self.interval()})
    }
}

impl Latency {
    pub fn of(times_ms: &[f64]) -> Option<Self> {
        let at = |share| percentile(times_ms, share);
        Some(Self {
            count: times_ms.len(),
            mean: times_ms.iter().sum::<f64>() / times_ms.len() as f64,
            p50: at(0.5)?,
            p90: at(0.9)?,
            p95: at(0.95)?,
            p99: at(0.99)?,
            most: at(1.0)?,
        })
    }

    fn json(&self) -> Value {
        json!({"count": self.count, "mean_ms": self.mean, "p50_ms": self.p50, "p90_ms": self.p90,
               "p95_ms": self.p95, "p99_ms": self.p99, "max_ms": self.most})
    }
}

impl Answers {
    pub fn of<'a>(judged: impl IntoIterator<Item = &'a Judged>) -> Self {
        let judged: Vec<&Judged> = judged.into_iter().collect();
        let count =
            |rule: &dyn Fn(&Judged) -> bool| judged.iter().filter(|judged| rule(judged)).count() as u64;
        let graded: Vec<Graded> = judged.iter().filter_map(|judged| judged.graded()).collect();
        let scale = judged.iter().any(|judged| judged.within_one.is_some());
        Self {
            asked: judged.len() as u64,
            right: count(&|judged| judged.correct),
            chance: mean(
                &judged.iter().map(|judged| 1.0 / judged.alternatives.max(1) as f64).collect::<Vec<_>>(),
            )
            .unwrap_or(0.0),
            within_one: scale.then(|| count(&|judged| judged.within_one == Some(true))),
            scores: Scores::of(&graded),
        }
    }

    /// Over all that were asked, those without an answer counted as wrong.
    pub fn accuracy(&self) -> Option<f64> {
        (self.asked > 0).then(|| self.right as f64 / self.asked as f64)
    }

    /// The same above chance, as a share of what was to be had.
    pub fn chance_corrected(&self) -> Option<f64> {
        chance_corrected(self.accuracy()?, self.chance)
    }

    fn json(&self) -> Value {
        let mut json = json!({"asked": self.asked, "right": self.right, "accuracy": self.accuracy(), "chance": self.chance,
                              "chance_corrected": self.chance_corrected()});
        if let Some(within_one) = self.within_one {
            json["within_one"] = json!(within_one);
        }
        if let Some(scores) = &self.scores {
            json["scores"] = scores_json(scores);
        }
        json
    }
}

/// The figures over single answers.
pub(super) fn scores_json(scores: &Scores) -> Value {
    let bins: Vec<Value> = scores
        .bins
        .iter()
        .enumerate()
        .map(|(index, bin)| {
            let bins = scores.bins.len() as f64;
            let filled = |value: f64| (bin.count > 0).then_some(value);
            json!({"bin_index": index, "lower": index as f64 / bins, "upper": (index + 1) as f64 / bins, "count": bin.count,
                   "avg_confidence": filled(bin.confidence()), "empirical_accuracy": filled(bin.accuracy()),
                   "abs_gap": filled((bin.accuracy() - bin.confidence()).abs())})
        })
        .collect();
    json!({"count": scores.count, "accuracy": scores.accuracy, "accuracy_interval_95": scores.accuracy_interval,
           "chance": scores.chance, "chance_corrected": scores.chance_corrected, "confidence": scores.confidence,
           "entropy_nats": scores.entropy_nats, "hesitation": scores.hesitation, "brier": scores.brier, "nll_nats": scores.nll,
           "ece": scores.ece, "ece_equal_mass": scores.ece_equal_mass, "auroc_hesitation_error": scores.auroc,
           "reliability_bins": bins})
}

impl Summary {
    pub fn of(records: &[Record]) -> Self {
        let mut summary = Self::default();
        let mut by_type: IndexMap<&str, Vec<&Judged>> = IndexMap::new();
        let mut calibration = Calibration::default();
        for record in records {
            summary.all.add(record);
            if !record.category.is_empty() {
                summary.categories.entry(record.category.clone()).or_default().add(record);
            }
            if !record.tier.is_empty() {
                summary.tiers.entry(record.tier.clone()).or_default().add(record);
            }
            for judged in record.answers.values() {
                by_type.entry("all").or_default().push(judged);
                by_type.entry(&judged.kind).or_default().push(judged);
                summary.impossible += usize::from(!judged.possible);
                if let Some(graded) = judged.graded() {
                    calibration.add(graded.probabilities(), graded.gold());
                }
            }
            summary.second_errors += usize::from(record.second_error.is_some());
            summary.retries += record.retries;
            if let Some(extended) = record.extended {
                *summary.extended.get_or_insert(0) += usize::from(extended);
            }
        }
        summary.answers =
            by_type.into_iter().map(|(name, judged)| (name.to_owned(), Answers::of(judged))).collect();
        if calibration.count() > 0 {
            summary.gates = calibration.gates().to_vec();
        }
        summary.latency = Latency::of(&times(records, |record| record.wall_time_ms));
        let denoise = times(records, |record| record.denoise_ms);
        summary.denoise_ms = mean(&denoise);
        summary
    }

    /// The single answers of all types.
    pub fn answers_of_all(&self) -> Option<&Answers> {
        self.answers.get("all")
    }

    pub fn json(&self) -> Value {
        let counts = |map: &IndexMap<String, Count>| {
            Value::Object(map.iter().map(|(name, count)| (name.clone(), count.json())).collect())
        };
        let answers = self
            .answers
            .iter()
            .map(|(name, answers)| (name.clone(), answers.json()))
            .collect::<serde_json::Map<_, _>>();
        let gates: Vec<Value> = self
            .gates
            .iter()
            .map(|gate| {
                json!({"hesitation": gate.hesitation, "escalated": gate.escalated,
                       "accuracy_of_kept": gate.accuracy_of_kept, "errors_caught": gate.errors_caught})
            })
            .collect();
        json!({"all": self.all.json(), "categories": counts(&self.categories), "tiers": counts(&self.tiers), "answers": answers,
               "gates": gates, "latency": self.latency.as_ref().map(Latency::json), "avg_denoise_ms": self.denoise_ms})
    }
}

/// Of the cases that worked.
pub(super) fn times(records: &[Record], of: impl Fn(&Record) -> Option<f64>) -> Vec<f64> {
    records.iter().filter(|record| record.error.is_none()).filter_map(of).collect()
}

/// `None` without values.
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Outcome;

    fn record(id: &str, tier: &str, accurate: bool, wall_time_ms: Option<f64>) -> Record {
        let error = wall_time_ms.is_none().then(|| "down".to_owned());
        Record { id: id.into(), tier: tier.into(), accurate, wall_time_ms, error, ..Record::default() }
    }

    #[test]
    fn case_47_no_record_gives_no_figure_and_no_nan() {
        let summary = Summary::of(&[]);
        assert_eq!((summary.all.accuracy(), summary.all.interval(), summary.latency), (None, None, None));
        assert!(!summary.json().to_string().contains("NaN"));
        assert_eq!(summary.json()["latency"], Value::Null);
    }

    #[test]
    fn accuracy_and_what_is_above_chance_are_over_the_same_answers() {
        let question =
            decision::Schema::from_json(r#"{"questions": [{"id": "q", "type": "boolean"}]}"#).unwrap();
        let question = &question.questions[0];
        let yes: decision::Answer = serde_json::from_str(r#"{"type": "boolean", "noul": 0.9}"#).unwrap();
        let yes = Judged::new(question, "yes", &Outcome::Answered(yes));
        let missing = Judged::new(question, "yes", &Outcome::Missing);
        // Three of four right, where chance has two: half of what is above it. Of the three with an answer all are right.
        let answers = Answers::of([&yes, &yes, &yes, &missing]);
        assert_eq!(
            (answers.accuracy(), answers.chance, answers.chance_corrected()),
            (Some(0.75), 0.5, Some(0.5))
        );
        assert_eq!(answers.scores.unwrap().chance_corrected, Some(1.0));
        let none = Answers::of([]);
        assert_eq!((none.accuracy(), none.chance_corrected()), (None, None));
    }

    #[test]
    fn case_48_a_failed_case_is_wrong_and_has_no_time() {
        let records = [
            record("a", "easy", true, Some(10.0)),
            record("b", "easy", false, None),
            record("c", "hard", true, Some(30.0)),
            record("d", "hard", false, Some(20.0)),
        ];
        let summary = Summary::of(&records);
        assert_eq!(summary.all, Count { cases: 4, failed: 1, right: 2 });
        assert_eq!(summary.all.accuracy(), Some(0.5));
        assert_eq!(summary.all.accuracy_of_answered(), Some(2.0 / 3.0));
        let latency = summary.latency.unwrap();
        assert_eq!((latency.count, latency.mean, latency.p50, latency.most), (3, 20.0, 20.0, 30.0));
        assert_eq!(summary.tiers["easy"], Count { cases: 2, failed: 1, right: 1 });
        let all_failed = Summary::of(&records[1..2]);
        assert_eq!((all_failed.all.accuracy(), all_failed.all.accuracy_of_answered()), (Some(0.0), None));
    }
}
