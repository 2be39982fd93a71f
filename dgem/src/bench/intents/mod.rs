//! `dgem bench-intents`: one of 26 to 151 intents, and whether what belongs to none of them is seen (`oos`, out of scope).
//!
//! Where the first read is unsure, its most probable intents are asked about once more, as a tie-break; that answer counts. The usual
//! figures are those of the first read, so that both can be told apart. Choices that are wider than the server's labels go in
//! brackets, as everywhere.

mod figures;
mod tie_break;

use decision::Answer;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::figures::Figures;
use self::tie_break::Second;
use super::dataset::BuiltIn;
use super::decider::Decider;
use super::public_sets::Download;
use super::record::Record;
use super::report::{Section, digits, percent};
use super::sheet::{Sheet, Templates};
use super::suite::{Label, Suite, keys};
use super::summary::{mean, times};
use crate::cli::IntentSet;
use crate::error::Error;
use crate::overrides::Overrides;
use crate::template::Template;

const INTENT: &str = "intent";
const DOMAIN: &str = "domain";
/// The name of "none of these" in the public sets.
const OUT_OF_SCOPE: &str = "oos";
const TIE_BREAK: &str = "intent_tiebreak";
/// What such a case is, in a record and its figures.
const OUT_TIER: &str = "out-of-scope";
/// A first answer with less than this is unsure, whatever its entropy.
const SURE: f64 = 0.92;

#[derive(Debug)]
pub struct Intents {
    pub set: IntentSet,
    pub tie_break: bool,
    /// The first read is unsure from this entropy on, in nats.
    pub threshold_nats: f64,
    /// Intents that the tie-break chooses among.
    pub finalists: usize,
    /// Where the rows come from, of a whole public set.
    pub download: Option<Download>,
}

#[derive(Debug, Deserialize)]
pub struct Row {
    id: String,
    text: String,
    expected_intent: String,
    #[serde(default)]
    expected_domain: Option<String>,
    #[serde(default)]
    domains: Option<Value>,
    options: Value,
}

#[derive(Debug)]
pub struct Plan {
    sheet: Sheet,
    text: String,
    second: Option<(Template, Overrides)>,
}

impl Suite for Intents {
    type Row = Row;
    type Plan = Plan;
    const NAME: &'static str = "bench-intents";

    fn built_in(&self) -> BuiltIn {
        match self.set {
            IntentSet::Banking77 => BuiltIn {
                path: "benchmarks/intents/banking77_eval.jsonl",
                text: include_str!("../../../../benchmarks/intents/banking77_eval.jsonl"),
            },
            IntentSet::Clinc150 => BuiltIn {
                path: "benchmarks/intents/clinc150_eval.jsonl",
                text: include_str!("../../../../benchmarks/intents/clinc150_eval.jsonl"),
            },
        }
    }

    fn label(&self, row: &Row) -> Label {
        let scope = if row.expected_intent == OUT_OF_SCOPE { OUT_TIER } else { "in-scope" };
        Label::new(&row.id, row.expected_domain.as_deref().unwrap_or_default(), scope)
    }

    fn plan(&self, row: Row, templates: &mut Templates) -> Result<Plan, Error> {
        let mut expected = Map::from_iter([(INTENT.to_owned(), json!(row.expected_intent))]);
        let mut variables =
            Map::from_iter([("text".to_owned(), json!(row.text)), ("options".to_owned(), row.options)]);
        if let Some(domains) = row.domains {
            variables.insert("domains".to_owned(), domains);
            if let Some(domain) = row.expected_domain {
                expected.insert(DOMAIN.to_owned(), json!(domain));
            }
        }
        let name = match self.set {
            IntentSet::Banking77 => "intent_banking77",
            IntentSet::Clinc150 => "intent_clinc150",
        };
        let sheet = templates.sheet(&row.id, name, variables, &expected)?;
        let second = self.tie_break.then(|| templates.with_overrides(TIE_BREAK)).transpose()?;
        Ok(Plan { sheet, text: row.text, second })
    }

    fn warm_up<'p>(&self, plan: &'p Plan) -> Option<&'p Sheet> {
        Some(&plan.sheet)
    }

    async fn measure<D: Decider>(&self, plan: &Plan, decider: &D, record: &mut Record) -> Result<(), Error> {
        plan.sheet.ask(decider, record).await?;
        let Some(judged) = record.answers.get(INTENT).cloned() else { return Ok(()) };
        record.accurate = judged.correct;
        record.settled = true;
        let unsure = |answer: &Answer| answer.entropy_nats >= self.threshold_nats || answer.confidence < SURE;
        let first = judged.answer.as_ref().filter(|answer| unsure(answer));
        if let (Some(first), Some(second)) = (first, &plan.second) {
            let found = self.look_again(plan, second, &judged, first, decider, record).await?;
            if let Some(found) = found {
                record.accurate = found.accurate;
                record.set("tie_break", found);
            }
        }
        Ok(())
    }

    fn settings(&self) -> Map<String, Value> {
        keys(json!({"dataset": self.set.name(), "tie_break_enabled": self.tie_break,
            "entropy_threshold": self.threshold_nats, "tie_break_finalists": self.finalists, "download": self.download}))
    }

    fn figures(&self, records: &[Record]) -> Map<String, Value> {
        let figures = Figures::of(records);
        keys(json!({
            "tie_breaks_triggered": figures.tie_breaks, "candidate_intents": figures.candidates,
            "pass1_accuracy_pct": figures.pct(figures.first), "pass1_correct": figures.first,
            "intent_accuracy_pct": figures.pct(figures.last), "intent_correct": figures.last,
            "domain_accuracy_pct": figures.domain_share().map(|share| 100.0 * share), "domain_correct": figures.domains.map(|(right, _)| right),
            "in_domain_correct": figures.in_domain.0, "in_domain_total": figures.in_domain.1,
            "oos_correct": figures.oos.hits, "oos_total": figures.oos.hits + figures.oos.misses,
            "oos_recall": figures.oos.recall(), "oos_precision": figures.oos.precision(), "oos_f1": figures.oos.f1(),
            "mean_confidence": figures.confidence[2], "mean_entropy_nats": figures.entropy[2],
            "correct_mean_confidence": figures.confidence[1], "correct_mean_entropy_nats": figures.entropy[1],
            "incorrect_mean_confidence": figures.confidence[0], "incorrect_mean_entropy_nats": figures.entropy[0],
            "avg_wall_time_ms": mean(&times(records, |record| record.wall_time_ms)),
        }))
    }

    fn case_keys(&self, record: &Record) -> Map<String, Value> {
        let Some(judged) = record.answers.get(INTENT) else { return Map::new() };
        keys(
            json!({"expected_intent": judged.expected, "actual_intent": said(record), "pass1_intent": judged.said(),
            "pass1_accurate": judged.correct, "tie_break_triggered": record.more.contains_key("tie_break")}),
        )
    }

    fn sections(&self, records: &[Record]) -> Vec<Section> {
        let figures = Figures::of(records);
        let of = |part: usize, whole: usize| {
            let share = (whole > 0).then(|| part as f64 / whole as f64);
            format!("{} ({part} of {whole})", percent(share))
        };
        let mut rows = vec![
            vec!["Intents to choose from".to_owned(), figures.candidates.to_string()],
            vec!["First read right".to_owned(), of(figures.first, figures.cases)],
            vec!["Right after the tie-break".to_owned(), of(figures.last, figures.cases)],
            vec![
                "Tie-breaks: mended, spoilt".to_owned(),
                format!("{}: {}, {}", figures.tie_breaks, figures.mended, figures.spoilt),
            ],
            vec!["In scope right".to_owned(), of(figures.in_domain.0, figures.in_domain.1)],
            vec!["Out of scope: recall".to_owned(), percent(figures.oos.recall())],
            vec!["Out of scope: precision".to_owned(), percent(figures.oos.precision())],
            vec!["Out of scope: F1".to_owned(), percent(figures.oos.f1())],
        ];
        if let Some((right, all)) = figures.domains {
            rows.insert(4, vec!["Domain right".to_owned(), of(right, all)]);
        }
        for (index, name) in [(1, "right"), (0, "wrong")] {
            rows.push(vec![
                format!("First reads that are {name}: confidence, entropy"),
                format!(
                    "{}, {} nats",
                    digits(figures.confidence[index], 3),
                    digits(figures.entropy[index], 4)
                ),
            ]);
        }
        let note = "Accuracy above counts the answer after the tie-break; single answers, calibration and gates are those of the first read.";
        vec![Section::table("Intents", &["FIGURE", "VALUE"], rows).with_note(note)]
    }
}

/// The intent that counts.
fn said(record: &Record) -> Option<String> {
    let second = record.get::<Second>("tie_break").map(|second| second.answer);
    second.or_else(|| Some(record.answers.get(INTENT)?.answer.as_ref()?.name().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_cases_nothing_is_claimed() {
        let suite = Intents {
            set: IntentSet::Clinc150,
            tie_break: true,
            threshold_nats: 0.08,
            finalists: 6,
            download: None,
        };
        let figures = suite.figures(&[]);
        assert!(figures.get("oos_recall").is_none() && figures.get("intent_accuracy_pct").is_none());
    }

    #[test]
    fn cases_that_failed_are_missed_ones() {
        let suite = Intents {
            set: IntentSet::Clinc150,
            tie_break: true,
            threshold_nats: 0.08,
            finalists: 6,
            download: None,
        };
        let failed = |tier: &str| Record {
            tier: tier.to_owned(),
            error: Some("no answer".to_owned()),
            ..Record::default()
        };
        let figures = suite.figures(&[failed(OUT_TIER), failed("in-scope"), failed("in-scope")]);
        assert_eq!((&figures["oos_total"], &figures["oos_recall"]), (&json!(1), &json!(0.0)));
        assert_eq!((&figures["in_domain_correct"], &figures["in_domain_total"]), (&json!(0), &json!(2)));
    }
}
