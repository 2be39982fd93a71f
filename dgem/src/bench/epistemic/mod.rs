//! `dgem bench-calibration`: how well confidence fits accuracy, over 15 metrics in the styles of public data sets, and what a cascade
//! would make of it.
//!
//! Each metric reads one question of its template (`metric`). The usual figures are always those of the first model, whose answers may
//! come from a receipt (`first`); what the second one (`second`) changes stands in a section (`combined`) and in keys of its own, case
//! by case, so that a receipt answers for every threshold (`sweep`).

mod combined;
mod first;
mod metric;
mod second;
mod sweep;
mod temperature;

use decision::statistics::{Graded, chance_corrected};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::combined::Combined;
pub use self::first::First;
use self::first::as_if;
use self::second::Escalation;
pub use self::second::Second;
use self::sweep::sweep;
use super::dataset::BuiltIn;
use super::decider::Decider;
use super::receipt::Origin;
use super::record::Record;
use super::report::Section;
use super::sheet::{Sheet, Templates};
use super::suite::{Label, Suite, keys};
use super::summary::Summary;
use crate::error::Error;
use crate::exit::Exit;
use crate::grade::Judged;
use crate::verdict::Outcome;

/// A score counts as right within one level where levels are whole numbers, and within this where they are shares.
const NEAR_SHARE: f64 = 0.25;

#[derive(Debug)]
pub struct Epistemic {
    pub second: Option<Second>,
    pub first: Option<First>,
}

#[derive(Debug, Deserialize)]
pub struct Row {
    id: String,
    metric: String,
    #[serde(default)]
    tier: String,
    #[serde(default)]
    category: String,
    fields: Map<String, Value>,
    expected: Value,
}

impl Suite for Epistemic {
    type Row = Row;
    type Plan = Sheet;
    const NAME: &'static str = "bench-calibration";

    fn built_in(&self) -> BuiltIn {
        BuiltIn {
            path: "benchmarks/calibration_suite.jsonl",
            text: include_str!("../../../../benchmarks/calibration_suite.jsonl"),
        }
    }

    fn label(&self, row: &Row) -> Label {
        Label::new(&row.id, &row.category, &row.tier)
    }

    fn plan(&self, row: Row, templates: &mut Templates) -> Result<Sheet, Error> {
        metric::sheet(row, templates)
    }

    fn warm_up<'p>(&self, plan: &'p Sheet) -> Option<&'p Sheet> {
        self.first.is_none().then_some(plan)
    }

    async fn measure<D: Decider>(&self, plan: &Sheet, decider: &D, record: &mut Record) -> Result<(), Error> {
        let known = self.first.as_ref().and_then(|first| first.known(plan, &record.id));
        let (mut answered, failure) = match known {
            Some((first, answered)) => {
                *record = first;
                (answered, None)
            }
            None => match plan.ask(decider, record).await {
                Ok(answered) => (answered, None),
                // A first model that gives nothing is unsure of everything.
                Err(error) if self.second.is_some() && is_passed_on(&error) => {
                    (as_if(plan, Outcome::Missing), Some(error))
                }
                Err(error) => return Err(error),
            },
        };
        record.accurate = record.answers.values().all(right) && !record.answers.is_empty();
        record.settled = failure.is_none();
        if let Some(second) = &self.second {
            // So it stands if the time of the case runs out: only the second model takes time here.
            record.set("escalation", Escalation::unfinished());
            let escalation = second.look(plan, decider, &mut answered).await;
            record.set("escalation", escalation);
        }
        failure.map_or(Ok(()), Err)
    }

    fn settings(&self) -> Map<String, Value> {
        let cascade = self.second.as_ref().map_or(json!("off"), Second::settings);
        let first = self.first.as_ref().map_or(json!("live"), First::settings);
        keys(json!({"cascade": cascade, "pass1": first}))
    }

    fn fits(&self, now: &Origin) -> Result<(), Error> {
        self.first.as_ref().map_or(Ok(()), |first| first.fits(now))
    }

    fn figures(&self, records: &[Record]) -> Map<String, Value> {
        let summary = Summary::of(records);
        let scores = summary.answers_of_all().and_then(|answers| answers.scores.as_ref());
        let exact = records.iter().filter(|record| is_exact(record));
        let exact = (!records.is_empty()).then(|| exact.count() as f64 / records.len() as f64);
        let chance = summary.answers_of_all().map(|answers| answers.chance);
        keys(json!({
            "total_correct": summary.all.right,
            "overall_accuracy_pct": summary.all.accuracy().map(|share| 100.0 * share),
            "exact_accuracy_pct": exact.map(|share| 100.0 * share),
            "chance_baseline_pct": chance.map(|share| 100.0 * share),
            "chance_corrected_acc_pct": exact.zip(chance).and_then(|(exact, chance)| chance_corrected(exact, chance)).map(|share| 100.0 * share),
            "scored_answers": scores.map(|s| s.count),
            "avg_confidence": scores.map(|s| s.confidence),
            "avg_entropy_nats": scores.map(|s| s.entropy_nats),
            "avg_normalized_entropy": scores.map(|s| s.hesitation),
            "avg_brier_score": scores.map(|s| s.brier),
            "ece_10bin": scores.map(|s| s.ece),
            "ece_equal_mass": scores.map(|s| s.ece_equal_mass),
            "auroc_hesitation_error": scores.and_then(|s| s.auroc),
            "p50_latency_ms": summary.latency.map(|l| l.p50),
            "p95_latency_ms": summary.latency.map(|l| l.p95),
            "avg_wall_time_ms": summary.latency.map(|l| l.mean),
            "temperature_fit": temperature::figures(records),
            "cascade": Combined::of(records).map(|combined| combined.json()),
        }))
    }

    fn case_keys(&self, record: &Record) -> Map<String, Value> {
        let Some(judged) = record.answers.values().next() else { return Map::new() };
        let graded = judged.graded();
        let answer = judged.answer.as_ref();
        keys(json!({
            "expected": judged.expected, "actual": judged.said(), "exact": judged.correct,
            "confidence": answer.map(|answer| answer.confidence), "entropy_nats": graded.as_ref().map(|g| decision::entropy_nats(g.probabilities())),
            "normalized_entropy": graded.as_ref().map(Graded::hesitation), "vocab_cardinality": judged.alternatives,
            "chance_baseline": 1.0 / judged.alternatives as f64, "brier_score": graded.as_ref().map(Graded::brier),
        }))
    }

    fn sections(&self, records: &[Record]) -> Vec<Section> {
        let mut sections = vec![metric::by_template(records)];
        sections.extend(temperature::section(records));
        sections.extend(Combined::of(records).map(|combined| combined.section()));
        sections.push(sweep(records));
        sections
    }
}

fn is_exact(record: &Record) -> bool {
    let mut answers = record.answers.values();
    record.error.is_none() && !record.answers.is_empty() && answers.all(|judged| judged.correct)
}

/// Right by the rule of the suite: scores may be a little off.
fn right(judged: &Judged) -> bool {
    if judged.correct || judged.kind != "score" || !judged.possible {
        return judged.correct;
    }
    let said: Option<f64> = judged.answer.as_ref().and_then(|answer| answer.name().parse().ok());
    match (said, judged.expected.parse::<f64>().ok()) {
        (Some(said), Some(expected)) => {
            let whole = said.fract() == 0.0 && expected.fract() == 0.0 && !judged.expected.contains('.');
            (said - expected).abs() <= if whole { 1.0 } else { NEAR_SHARE } + 1e-9
        }
        _ => false,
    }
}

/// Errors at which a second model may still know the answer.
fn is_passed_on(error: &Error) -> bool {
    matches!(error.exit(), Exit::Unavailable | Exit::Rejected)
}
