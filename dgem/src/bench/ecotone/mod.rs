//! `dgem bench-ecotone`: how ambiguous tokens are read aloud, decided by the model and, beside it, written out by the text normaliser
//! ecotone (`sidecar`). `spoken` compares.
//!
//! Where there is no normaliser its columns say "not measured". What a normaliser cannot show in writing (which of two pronunciations)
//! is not counted for it.

mod sidecar;
mod spoken;

use decision::statistics::percentile;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use self::sidecar::Sidecar;
use self::spoken::{Place, plain, says};
use super::dataset::BuiltIn;
use super::decider::Decider;
use super::record::Record;
use super::report::{Section, digits, percent};
use super::sheet::{Sheet, Templates};
use super::suite::{Label, Suite, keys};
use super::summary::{mean, times};
use crate::error::Error;
use crate::foreign::clipped;

const TEMPLATE: &str = "tn_disambiguation";
const QUESTION: &str = "expansion";
/// What is written alike and spoken differently.
const UNWRITTEN: &str = "heteronym_pronunciation";
/// Characters of a normalised text that a receipt keeps.
const TEXT_CHARS: usize = 200;

#[derive(Debug)]
pub struct Ecotone {
    /// Where the normaliser was looked for.
    pub address: String,
    /// The normaliser, or why it is not measured.
    pub sidecar: Result<Sidecar, String>,
}

#[derive(Debug, Deserialize)]
pub struct Row {
    id: String,
    category: String,
    input: String,
    target_token: String,
    options: Vec<String>,
    expected_spoken: String,
}

#[derive(Debug)]
pub struct Plan {
    sheet: Sheet,
    input: String,
    options: Vec<String>,
    expected: String,
    place: Place,
    written: bool,
}

/// What the normaliser did with a case; kept in the record.
#[derive(Debug, Serialize, Deserialize)]
struct Normalised {
    /// `None`: it cannot be told from writing.
    accurate: Option<bool>,
    /// The option that it wrote, or the beginning of its text.
    actual: String,
    phrase: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server_ms: Option<f64>,
    round_trip_ms: f64,
}

impl Suite for Ecotone {
    type Row = Row;
    type Plan = Plan;
    const NAME: &'static str = "bench-ecotone";

    fn built_in(&self) -> BuiltIn {
        BuiltIn {
            path: "benchmarks/ecotone/tn_semiotics.jsonl and tn_challenge_en.jsonl",
            text: concat!(
                include_str!("../../../../benchmarks/ecotone/tn_semiotics.jsonl"),
                include_str!("../../../../benchmarks/ecotone/tn_challenge_en.jsonl")
            ),
        }
    }

    fn label(&self, row: &Row) -> Label {
        Label::new(&row.id, &row.category, "")
    }

    fn plan(&self, row: Row, templates: &mut Templates) -> Result<Plan, Error> {
        let variables = Map::from_iter([
            ("input".to_owned(), json!(row.input)),
            ("target_token".to_owned(), json!(row.target_token)),
            ("options".to_owned(), json!(row.options)),
        ]);
        // Spellings that are spoken alike are one answer.
        let same = |option: &&String| plain(option) == plain(&row.expected_spoken);
        let expected = row.options.iter().find(same).unwrap_or(&row.expected_spoken).clone();
        let right = Map::from_iter([(QUESTION.to_owned(), json!(expected))]);
        let sheet = templates.sheet(&row.id, TEMPLATE, variables, &right)?;
        Ok(Plan {
            sheet,
            input: row.input,
            options: row.options,
            expected,
            place: Place::of(&row.target_token),
            written: row.category != UNWRITTEN,
        })
    }

    fn warm_up<'p>(&self, plan: &'p Plan) -> Option<&'p Sheet> {
        Some(&plan.sheet)
    }

    async fn measure<D: Decider>(&self, plan: &Plan, decider: &D, record: &mut Record) -> Result<(), Error> {
        if let Ok(sidecar) = &self.sidecar {
            match sidecar.normalize(&plan.input).await {
                Ok(spoken) => {
                    let wrote = |option: &&String| says(&spoken.text, option, plan.place);
                    let actual = plan.options.iter().find(wrote).cloned();
                    record.set(
                        "ecotone",
                        Normalised {
                            accurate: plan.written.then(|| says(&spoken.text, &plan.expected, plan.place)),
                            actual: actual.unwrap_or_else(|| clipped(&spoken.text, 28)),
                            phrase: clipped(&spoken.text, TEXT_CHARS),
                            server_ms: spoken.server_ms,
                            round_trip_ms: spoken.round_trip_ms,
                        },
                    );
                }
                // The model's answer counts all the same.
                Err(reason) => record.set("ecotone_error", reason),
            }
        }
        plan.sheet.ask(decider, record).await?;
        record.accurate = record.all_correct(&plan.sheet);
        Ok(())
    }

    fn settings(&self) -> Map<String, Value> {
        let measured = self.sidecar.as_ref().err().map_or("measured", String::as_str);
        keys(json!({"ecotone_target": self.address, "ecotone": measured}))
    }

    fn figures(&self, records: &[Record]) -> Map<String, Value> {
        let figures = Figures::of(records);
        keys(json!({
            "ecotone_live": figures.measured > 0,
            "dgem_accuracy_pct": pct(figures.model, records.len()), "dgem_correct": figures.model,
            "compared_cases": figures.ecotone(figures.compared),
            "dgem_compared_accuracy_pct": pct(figures.model_compared, figures.compared),
            "dgem_compared_correct": figures.ecotone(figures.model_compared),
            "ecotone_accuracy_pct": pct(figures.normaliser, figures.compared),
            "ecotone_correct": figures.ecotone(figures.normaliser),
            "cascaded_accuracy_pct": pct(figures.either, figures.compared), "cascaded_correct": figures.ecotone(figures.either),
            "avg_gpu_denoise_ms": mean(&times(records, |record| record.denoise_ms)),
            "avg_wall_time_ms": mean(&times(records, |record| record.wall_time_ms)),
            "ecotone_avg_server_ms": mean(&figures.server_ms), "ecotone_p50_server_ms": percentile(&figures.server_ms, 0.5),
            "ecotone_avg_round_trip_ms": mean(&figures.round_trip_ms), "ecotone_p50_round_trip_ms": percentile(&figures.round_trip_ms, 0.5),
        }))
    }

    fn case_keys(&self, record: &Record) -> Map<String, Value> {
        let Some(judged) = record.answers.get(QUESTION) else { return Map::new() };
        keys(
            json!({"expected": judged.expected, "dgem_actual": judged.said(), "dgem_accurate": judged.correct}),
        )
    }

    fn sections(&self, records: &[Record]) -> Vec<Section> {
        let figures = Figures::of(records);
        let of = |right: usize, all: usize| match pct(right, all) {
            Some(pct) if figures.measured > 0 => format!("{pct:.1}% ({right} of {all})"),
            _ => "not measured".to_owned(),
        };
        let share = |right: usize| (!records.is_empty()).then(|| right as f64 / records.len() as f64);
        let rows = vec![
            vec![
                "dgem, all cases".to_owned(),
                format!("{} ({} of {})", percent(share(figures.model)), figures.model, records.len()),
            ],
            vec!["dgem, compared cases".to_owned(), of(figures.model_compared, figures.compared)],
            vec!["ecotone, compared cases".to_owned(), of(figures.normaliser, figures.compared)],
            vec![
                "at least one of them, compared cases (nobody knows which)".to_owned(),
                of(figures.either, figures.compared),
            ],
            vec!["ecotone, its own time, p50, ms".to_owned(), digits(percentile(&figures.server_ms, 0.5), 3)],
            vec![
                "ecotone, round trip, p50, ms".to_owned(),
                digits(percentile(&figures.round_trip_ms, 0.5), 3),
            ],
        ];
        let reason = match &self.sidecar {
            Err(reason) if figures.measured == 0 => {
                format!(" Ecotone is not measured: {}.", crate::foreign::visible(reason))
            }
            _ => String::new(),
        };
        let note = format!(
            "Compared are the cases in which both can be right: pronunciations ({UNWRITTEN}) are not counted for a normaliser, which writes them alike; failed calls: {}.{reason}",
            figures.failed
        );
        vec![Section::table("Beside the normaliser", &["WHO", "RIGHT"], rows).with_note(note)]
    }
}

#[derive(Default)]
struct Figures {
    /// Cases that the model has right.
    model: usize,
    /// Cases with a text of the normaliser.
    measured: usize,
    /// Calls of the normaliser that failed.
    failed: usize,
    /// Cases in which both can be right, and who is.
    compared: usize,
    model_compared: usize,
    normaliser: usize,
    either: usize,
    server_ms: Vec<f64>,
    round_trip_ms: Vec<f64>,
}

impl Figures {
    fn of(records: &[Record]) -> Self {
        let mut figures = Self::default();
        for record in records {
            figures.model += usize::from(record.accurate);
            figures.failed += usize::from(record.more.contains_key("ecotone_error"));
            let Some(normalised) = record.get::<Normalised>("ecotone") else { continue };
            figures.measured += 1;
            figures.round_trip_ms.push(normalised.round_trip_ms);
            figures.server_ms.extend(normalised.server_ms);
            if let Some(accurate) = normalised.accurate {
                figures.compared += 1;
                figures.model_compared += usize::from(record.accurate);
                figures.normaliser += usize::from(accurate);
                figures.either += usize::from(accurate || record.accurate);
            }
        }
        figures
    }

    /// Only where there is a normaliser.
    fn ecotone(&self, count: usize) -> Option<usize> {
        (self.measured > 0).then_some(count)
    }
}

fn pct(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}
