//! `dgem bench-permutation`: does the order of the options change the answer?
//!
//! Every case is asked in each rotation of its options and in the reverse order. The first order is graded like any other answer; the
//! rest shows how much of it is the place: flips, the part of the doubt that comes from the order, and what the mean over the
//! orders is worth. Every figure is measured; what has no cases to be measured on says so.

mod orders;

use decision::{Kind, Schema};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::orders::{DISAGREEMENT, Figures, Orders, of_case};
use super::dataset::BuiltIn;
use super::decider::Decider;
use super::record::Record;
use super::report::{Section, digits, percent};
use super::sheet::{Sheet, Templates};
use super::suite::{Label, Suite, keys};
use crate::error::Error;
use crate::permute::{read, rotate};
use crate::state::State;
use crate::template::client_limits;

/// The question of every case.
const ID: &str = "decision";
/// The gate in the settings of a receipt, and where nobody chose one.
pub const GATE: &str = "gate_threshold";
pub const DEFAULT_GATE: f64 = 0.16;

#[derive(Debug)]
pub struct Permutation {
    /// The mirror gate fires from this hesitation on.
    pub gate: f64,
}

#[derive(Debug, Deserialize)]
pub struct Row {
    id: String,
    regime: String,
    #[serde(default)]
    title: String,
    state: Value,
    #[serde(default)]
    instructions: String,
    options: Value,
    expected: Value,
}

/// The case in its own order, with the others.
#[derive(Debug)]
pub struct Plan {
    sheet: Sheet,
    /// Rotations first, then the reverse order where it is none of them.
    others: Vec<Schema>,
    mirror: Option<usize>,
}

impl Suite for Permutation {
    type Row = Row;
    type Plan = Plan;
    const NAME: &'static str = "bench-permutation";

    fn built_in(&self) -> BuiltIn {
        BuiltIn {
            path: "benchmarks/permutation.jsonl",
            text: include_str!("../../../../benchmarks/permutation.jsonl"),
        }
    }

    fn label(&self, row: &Row) -> Label {
        Label::new(&row.id, &row.regime, "")
    }

    fn plan(&self, row: Row, templates: &mut Templates) -> Result<Plan, Error> {
        let fault = |reason: String| Error::DatasetFault { path: row.id.as_str().into(), reason };
        let schema = json!({"questions": [{"id": ID, "type": "choice", "instructions": row.instructions, "options": row.options}]});
        let mut schema = Schema::from_value(&schema).map_err(|cause| fault(cause.to_string()))?;
        schema.validate(&client_limits()).map_err(|cause| fault(cause.to_string()))?;
        templates.read_as_told(&mut schema);
        let text = row.state.as_str().map_or_else(|| row.state.to_string(), str::to_owned);
        let text = if row.title.is_empty() { text } else { format!("{}\n\n{text}", row.title) };
        let expected = Map::from_iter([(ID.to_owned(), row.expected.clone())]);
        let expected = templates.expected(&row.id, "its own question", &schema, &expected)?;
        let count = schema.questions[0].alternatives();
        let mut others: Vec<Schema> = (1..count).map(|turn| rotate(&schema, turn, count)).collect();
        // Of two options the rotation is the mirror.
        let reverse = mirrored(&schema);
        let known = others.iter().position(|other| *other == reverse);
        let mirror = Some(known.unwrap_or(others.len()));
        if known.is_none() {
            others.push(reverse);
        }
        let state = State { text, images: Vec::new() };
        Ok(Plan { sheet: Sheet { template: None, schema, state, expected }, others, mirror })
    }

    fn warm_up<'p>(&self, plan: &'p Plan) -> Option<&'p Sheet> {
        Some(&plan.sheet)
    }

    async fn measure<D: Decider>(&self, plan: &Plan, decider: &D, record: &mut Record) -> Result<(), Error> {
        let sheet = &plan.sheet;
        let question = &sheet.schema.questions[0];
        let answered = sheet.ask(decider, record).await?;
        record.accurate = record.all_correct(sheet);
        record.settled = true;
        // The clock of the case is that of its own order; the others are asked for the comparison.
        let (own, judged) = (record.clone(), record.answers.get(ID).cloned());
        let usable = |answered: &crate::asking::Answered<'_>| {
            answered.verdict.rows.iter().find_map(|row| row.answer().cloned())
        };
        let lost = || Error::Row { reason: "an order has no usable answer".to_owned() };
        let first = usable(&answered).ok_or_else(lost)?;
        let mut all = vec![(read(question, &first), first.name().to_owned(), 0)];
        let place = |schema: &Schema, name: &str| {
            schema.questions[0].answer_names().iter().position(|other| *other == name).unwrap_or(0)
        };
        all[0].2 = place(&sheet.schema, first.name());
        for other in &plan.others {
            let answered = decider.decide(other, &sheet.state).await?;
            record.retries += answered.decided.tally.retries;
            let answer = usable(&answered).ok_or_else(lost)?;
            all.push((read(question, &answer), answer.name().to_owned(), place(other, answer.name())));
        }
        *record = Record { retries: record.retries, ..own };
        let gold = judged.and_then(|judged| judged.graded()).map_or(0, |graded| graded.gold());
        record.set("permutation", of_case(&all, plan.mirror.map(|index| index + 1), gold));
        Ok(())
    }

    fn figure_settings(&self) -> Map<String, Value> {
        keys(json!({GATE: self.gate}))
    }

    fn figures(&self, records: &[Record]) -> Map<String, Value> {
        let Some(figures) = Figures::of(records, self.gate) else { return Map::new() };
        keys(json!({
            "orders_asked": figures.orders, "flip_rate": figures.flip_rate, "cases_flipped": figures.flipped,
            "mean_jsd_nats": figures.jsd_nats, "mean_tvd_mirror": figures.tvd_mirror, "single_accuracy": figures.single,
            "ensemble_accuracy": figures.ensemble, "single_brier": figures.brier, "ensemble_brier": figures.ensemble_brier,
            "gate_fired": figures.fired, "gate_recall_on_errors": figures.recall, "gate_false_alarms": figures.false_alarms,
        }))
    }

    fn sections(&self, records: &[Record]) -> Vec<Section> {
        let mut groups: Vec<(String, Vec<Record>)> = vec![("all".to_owned(), records.to_vec())];
        for record in records {
            match groups.iter_mut().skip(1).find(|(name, _)| *name == record.category) {
                Some((_, group)) => group.push(record.clone()),
                None => groups.push((record.category.clone(), vec![record.clone()])),
            }
        }
        let rows = groups.iter().filter_map(|(name, group)| {
            let figures = Figures::of(group, self.gate)?;
            Some(vec![
                name.clone(),
                figures.cases.to_string(),
                percent(Some(figures.flip_rate)),
                format!("{} of {}", figures.flipped, figures.cases),
                digits(Some(figures.jsd_nats), 4),
                digits(figures.tvd_mirror, 4),
                percent(Some(figures.single)),
                percent(Some(figures.ensemble)),
                digits(Some(figures.brier), 4),
                digits(Some(figures.ensemble_brier), 4),
                format!("{} of {}", figures.fired, figures.cases),
                percent(figures.recall),
                percent(figures.false_alarms),
            ])
        });
        let header = [
            "REGIME",
            "CASES",
            "FLIP RATE",
            "CASES FLIPPED",
            "JSD (NATS)",
            "TVD MIRROR",
            "ACCURACY",
            "OF THE MEAN",
            "BRIER",
            "BRIER MEAN",
            "GATE FIRES",
            "ERRORS CAUGHT",
            "RIGHT STOPPED",
        ];
        let note = format!(
            "Flip rate: share of the other orders with another answer than the first. The gate fires when first order and mirror disagree, the first hesitates from {} on, or both are further apart than {DISAGREEMENT} of the most possible.",
            percent(Some(self.gate))
        );
        vec![Section::table("Order of options", &header, rows.collect()).with_note(note), places(records)]
    }
}

fn mirrored(schema: &Schema) -> Schema {
    let mut mirrored = schema.clone();
    for question in &mut mirrored.questions {
        if let Kind::Choice { options } = &mut question.kind {
            options.reverse();
        }
    }
    mirrored
}

/// How often each place of the list won, over all orders: without a habit, each as often as any other.
fn places(records: &[Record]) -> Section {
    let mut counts: std::collections::BTreeMap<usize, Vec<usize>> = std::collections::BTreeMap::new();
    for orders in records.iter().filter_map(|record| record.get::<Orders>("permutation")) {
        let counts = counts.entry(orders.alternatives).or_insert_with(|| vec![0; orders.alternatives]);
        for place in orders.places {
            if let Some(count) = counts.get_mut(place) {
                *count += 1;
            }
        }
    }
    let row = |(alternatives, counts): (&usize, &Vec<usize>)| {
        let all: usize = counts.iter().sum();
        let shares: Vec<String> =
            counts.iter().map(|count| format!("{:.1}%", 100.0 * *count as f64 / all.max(1) as f64)).collect();
        vec![
            alternatives.to_string(),
            all.to_string(),
            shares.join(", "),
            format!("{:.1}%", 100.0 / *alternatives as f64),
        ]
    };
    let rows = counts.iter().map(row).collect();
    Section::table(
        "Answers by their place in the list",
        &["OPTIONS", "ANSWERS", "FIRST, SECOND, …", "WITHOUT A HABIT"],
        rows,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_cases_there_is_no_figure() {
        assert!(Figures::of(&[], 0.16).is_none());
        assert!(Permutation { gate: 0.16 }.figures(&[]).is_empty());
    }
}
