//! `dgem bench-permutation`: does the order of the options change the answer?
//!
//! Every case is asked in each rotation of its options and in the reverse order. The first order is graded like any other answer; the
//! rest shows how much of it is the place: flips, the part of the doubt that comes from the order, and what the mean over the
//! orders is worth. Every figure is measured; what has no cases to be measured on says so.

use decision::statistics::{Graded, jensen_shannon_nats, total_variation};
use decision::{Kind, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::dataset::BuiltIn;
use super::decider::Decider;
use super::record::Record;
use super::report::{Section, digits, percent};
use super::sheet::{Sheet, Templates};
use super::suite::{Label, Suite, keys};
use super::summary::mean;
use crate::error::Error;
use crate::permute::{read, rotate};
use crate::state::State;
use crate::template::client_limits;

/// The question of every case.
const ID: &str = "decision";
/// A gate also fires from this part of the most possible disagreement of two orders.
const DISAGREEMENT: f64 = 0.06;

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

/// What the orders said.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Orders {
    orders: usize,
    /// Answer in each order, the case's own first.
    answers: Vec<String>,
    /// Where the answer stood in each order, from 0.
    places: Vec<usize>,
    alternatives: usize,
    /// Share of the other orders with another answer than the first.
    flip_rate: f64,
    /// Doubt that comes from the order, in nats.
    jsd_nats: f64,
    /// Largest difference of the mirror's distribution to the first.
    tvd_mirror: Option<f64>,
    /// The mean over all orders.
    ensemble_accurate: bool,
    ensemble_brier: f64,
    brier: f64,
    /// First order and mirror disagree, hesitate, or are far apart.
    disagree: bool,
    hesitation: f64,
    jsd_mirror_share: f64,
}

impl Suite for Permutation {
    type Row = Row;
    type Plan = Plan;
    const NAME: &'static str = "bench-permutation";

    fn built_in(&self) -> BuiltIn {
        BuiltIn {
            path: "benchmarks/permutation.jsonl",
            text: include_str!("../../../benchmarks/permutation.jsonl"),
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
        record.set("permutation", orders(&all, plan.mirror.map(|index| index + 1), gold));
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

/// `all`: for each order the distribution in the case's own order, the answer and its place; the first is the case's own.
fn orders(all: &[(Vec<f64>, String, usize)], mirror: Option<usize>, gold: usize) -> Orders {
    let distributions: Vec<Vec<f64>> = all.iter().map(|(p, ..)| p.clone()).collect();
    let (first, alternatives) = (&all[0], distributions[0].len());
    let n = distributions.len() as f64;
    let average: Vec<f64> =
        (0..alternatives).map(|index| distributions.iter().map(|p| p[index]).sum::<f64>() / n).collect();
    let flips = all[1..].iter().filter(|(_, name, _)| *name != first.1).count();
    let pair = mirror.and_then(|mirror| all.get(mirror));
    let brier = |p: &[f64]| Graded::new(p.to_vec(), gold).map_or(0.0, |graded| graded.brier());
    Orders {
        orders: all.len(),
        answers: all.iter().map(|(_, name, _)| name.clone()).collect(),
        places: all.iter().map(|(.., place)| *place).collect(),
        alternatives,
        flip_rate: flips as f64 / (all.len() - 1).max(1) as f64,
        jsd_nats: jensen_shannon_nats(&distributions).unwrap_or(0.0),
        tvd_mirror: pair.and_then(|pair| total_variation(&first.0, &pair.0)),
        ensemble_accurate: Graded::new(average.clone(), gold).is_some_and(|graded| graded.correct()),
        ensemble_brier: brier(&average),
        brier: brier(&first.0),
        disagree: pair.is_some_and(|pair| pair.1 != first.1),
        hesitation: decision::hesitation(&first.0),
        jsd_mirror_share: pair
            .and_then(|pair| jensen_shannon_nats(&[first.0.clone(), pair.0.clone()]))
            .unwrap_or(0.0)
            / std::f64::consts::LN_2,
    }
}

struct Figures {
    cases: usize,
    orders: usize,
    flip_rate: f64,
    flipped: usize,
    jsd_nats: f64,
    tvd_mirror: Option<f64>,
    single: f64,
    ensemble: f64,
    brier: f64,
    ensemble_brier: f64,
    fired: usize,
    /// Share of the wrong first answers at which the gate fires.
    recall: Option<f64>,
    /// Share of the right ones.
    false_alarms: Option<f64>,
}

impl Figures {
    /// Over the cases with all their orders; `None` without any.
    fn of(records: &[Record], gate: f64) -> Option<Self> {
        let measured: Vec<(bool, Orders)> = records
            .iter()
            .filter(|record| record.error.is_none())
            .filter_map(|record| Some((record.accurate, record.get("permutation")?)))
            .collect();
        let average = |of: &dyn Fn(&Orders) -> f64| {
            mean(&measured.iter().map(|(_, orders)| of(orders)).collect::<Vec<_>>())
        };
        let share = |right: bool| {
            let of: Vec<bool> = measured
                .iter()
                .filter(|(accurate, _)| *accurate == right)
                .map(|(_, orders)| fires(orders, gate))
                .collect();
            mean(&of.iter().map(|fires| f64::from(u8::from(*fires))).collect::<Vec<_>>())
        };
        let one = |yes: bool| f64::from(u8::from(yes));
        Some(Self {
            cases: measured.len(),
            orders: measured.iter().map(|(_, orders)| orders.orders).sum(),
            flip_rate: average(&|orders| orders.flip_rate)?,
            flipped: measured.iter().filter(|(_, orders)| orders.flip_rate > 0.0).count(),
            jsd_nats: average(&|orders| orders.jsd_nats)?,
            tvd_mirror: mean(
                &measured.iter().filter_map(|(_, orders)| orders.tvd_mirror).collect::<Vec<_>>(),
            ),
            single: mean(&measured.iter().map(|(accurate, _)| one(*accurate)).collect::<Vec<_>>())?,
            ensemble: average(&|orders| one(orders.ensemble_accurate))?,
            brier: average(&|orders| orders.brier)?,
            ensemble_brier: average(&|orders| orders.ensemble_brier)?,
            fired: measured.iter().filter(|(_, orders)| fires(orders, gate)).count(),
            recall: share(false),
            false_alarms: share(true),
        })
    }
}

fn fires(orders: &Orders, gate: f64) -> bool {
    orders.disagree || orders.hesitation >= gate || orders.jsd_mirror_share >= DISAGREEMENT
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
    fn orders_by_hand() {
        // Own order says a, the rotation b, the mirror a.
        let all = [
            (vec![0.8, 0.2, 0.0], "a".to_owned(), 0),
            (vec![0.2, 0.8, 0.0], "b".to_owned(), 0),
            (vec![0.8, 0.2, 0.0], "a".to_owned(), 2),
        ];
        let found = orders(&all, Some(2), 0);
        assert_eq!((found.flip_rate, found.tvd_mirror, found.disagree), (0.5, Some(0.0), false));
        assert_eq!((found.ensemble_accurate, found.jsd_mirror_share), (true, 0.0));
        // The mean is .6, .4: its entropy less that of .8, .2.
        let h = |p: f64| -(p * p.ln() + (1.0 - p) * (1.0 - p).ln());
        assert!((found.jsd_nats - (h(0.6) - h(0.8))).abs() < 1e-12);
        assert!((found.ensemble_brier - 0.32).abs() < 1e-12 && (found.brier - 0.08).abs() < 1e-12);
        let apart = orders(&all[..2], Some(1), 0);
        assert!(apart.disagree && fires(&apart, 1.0));
        assert!((apart.tvd_mirror.unwrap() - 0.6).abs() < 1e-12);
        assert!(!fires(&found, 1.0) && fires(&found, 0.16));
    }

    #[test]
    fn without_cases_there_is_no_figure() {
        assert!(Figures::of(&[], 0.16).is_none());
        assert!(Permutation { gate: 0.16 }.figures(&[]).is_empty());
    }
}
