//! `--permute N`: the same decision with N orders of every choice, averaged by option.
//!
//! Models prefer some places of a list to others. A rotation moves every option through different labels, so that in the mean no
//! option has a better place; how often the answer changes with the order is the flip rate. The orders are asked at the same
//! time, and a server that batches reads them together. Scales keep their order, which has a meaning.

use std::time::Duration;

use decision::{Answer, Answers, Kind, Question, Reading, Schema, should_ask};
use futures_util::future::try_join_all;
use indexmap::IndexMap;
use serde::Serialize;

use crate::asking::{Answered, Asker};
use crate::brackets;
use crate::client::Decided;
use crate::error::Error;
use crate::foreign::visible;
use crate::verdict::{Outcome, Row, Verdict, skip_text};

/// How much the order mattered.
#[derive(Debug, Serialize)]
pub struct Permutation {
    /// Orders asked, the schema's own among them.
    pub orders: usize,
    /// Question id → share of the orders with another answer than the mean has. Choices only.
    pub flip_rates: IndexMap<String, f64>,
}

/// One decision, or several with the options rotated.
pub async fn ask<'a>(
    asker: &Asker,
    schema: &'a Schema,
    orders: Option<usize>,
) -> Result<(Answered<'a>, Option<Permutation>), Error> {
    let widest = schema.asked().iter().filter_map(|question| options(question)).max().unwrap_or(1);
    // More orders than options would repeat some.
    let distinct = orders.unwrap_or(1).min(widest);
    if distinct < 2 {
        let mut answered = brackets::ask(asker, schema).await?;
        if orders.is_some_and(|orders| orders > 1) {
            answered.verdict.notes.push("--permute changes nothing here: there is no choice".to_owned());
        }
        return Ok((answered, None));
    }
    let rotated: Vec<Schema> = (0..distinct).map(|turn| rotate(schema, turn, distinct)).collect();
    // The first finds out what the server speaks; the others need not.
    let (first, rest) = match asker.server().api() {
        None => (vec![brackets::ask(asker, &rotated[0]).await?], &rotated[1..]),
        Some(_) => (Vec::new(), &rotated[..]),
    };
    let rest = try_join_all(rest.iter().map(|schema| brackets::ask(asker, schema))).await?;
    Ok(merge(schema, first.into_iter().chain(rest).collect()))
}

fn options(question: &Question) -> Option<usize> {
    match &question.kind {
        Kind::Choice { options } => Some(options.len()),
        _ => None,
    }
}

/// The schema with every choice turned by its share of a full turn.
pub(crate) fn rotate(schema: &Schema, turn: usize, orders: usize) -> Schema {
    let mut rotated = schema.clone();
    for question in &mut rotated.questions {
        if let Kind::Choice { options } = &mut question.kind {
            let count = options.len();
            let shift = if orders <= count { turn * count / orders } else { turn };
            options.rotate_left(shift % count);
        }
    }
    rotated
}

fn merge<'a>(schema: &'a Schema, parts: Vec<Answered<'_>>) -> (Answered<'a>, Option<Permutation>) {
    let mut permutation = Permutation { orders: parts.len(), flip_rates: IndexMap::new() };
    let mut answers = Answers::new();
    let mut rows = Vec::new();
    for question in schema.asked() {
        let outcomes: Vec<&Outcome> = parts
            .iter()
            // Of a question with fewer options the further orders are those it had already.
            .take(options(question).unwrap_or(parts.len()))
            .filter_map(|part| part.verdict.rows.iter().find(|row| row.id == question.id))
            .map(|row| &row.outcome)
            .collect();
        let outcome = match should_ask(question, &answers) {
            // Decided on the means, whatever single orders did.
            Err(skipped) => Outcome::Skipped(Some(skip_text(&skipped))),
            Ok(()) => mean(question, &outcomes, &mut permutation),
        };
        if let Outcome::Answered(answer) = &outcome {
            answers.insert(question.id.clone(), Some(answer.clone()));
        }
        rows.push(Row { id: &question.id, type_name: question.kind.type_name(), outcome });
    }
    let masses: Vec<(&str, Vec<Option<f64>>)> =
        rows.iter().map(|row| (row.id, label_masses(row.id, &parts))).collect();
    let (mut decided, notes): (Vec<Decided>, Vec<Vec<String>>) =
        parts.into_iter().map(|part| (part.decided, part.verdict.notes)).unzip();
    let mut notes = notes.concat();
    notes.dedup();
    // There are at least two orders. They ran at the same time.
    let mut first = decided.swap_remove(0);
    first.wall = decided.iter().map(|other| other.wall).fold(first.wall, Duration::max);
    decided.iter().for_each(|other| first.tally.add(other.tally));
    for (id, masses) in masses {
        first.reply.set_least_label_mass(id, masses);
    }
    let decided = first;
    (Answered { decided, verdict: Verdict { rows, notes } }, Some(permutation))
}

/// Those of all orders in which the question was answered: a gate looks at the worst of them.
fn label_masses(id: &str, parts: &[Answered<'_>]) -> Vec<Option<f64>> {
    let answered = |part: &&Answered<'_>| {
        part.verdict.rows.iter().any(|row| row.id == id && matches!(row.outcome, Outcome::Answered(_)))
    };
    parts.iter().filter(answered).map(|part| part.decided.reply.label_mass(id)).collect()
}

/// The mean over the orders in which the question was answered. One unusable answer makes it unusable: nothing tells which of
/// the others to trust.
fn mean(question: &Question, outcomes: &[&Outcome], permutation: &mut Permutation) -> Outcome {
    let mut reads = Vec::new();
    let mut source = None;
    for outcome in outcomes {
        match outcome {
            Outcome::Answered(answer) => {
                source.clone_from(&answer.source);
                reads.push(read(question, answer));
            }
            Outcome::Invalid(reason) => return Outcome::Invalid(reason.clone()),
            Outcome::Missing | Outcome::Skipped(_) => {}
        }
    }
    if reads.is_empty() {
        return Outcome::Missing;
    }
    let reading = match Reading::from_reads(&reads) {
        Ok(reading) => reading,
        Err(cause) => return Outcome::Invalid(visible(&cause.to_string())),
    };
    match Answer::new(question, &reading) {
        Ok(mut answer) => {
            answer.source = source;
            // The orders are no random draws: their spread says nothing about the error of the mean.
            answer.stderr = None;
            if matches!(question.kind, Kind::Choice { .. }) {
                let rate = 1.0 - reading.agreement.unwrap_or(1.0);
                permutation.flip_rates.insert(question.id.clone(), rate);
            }
            Outcome::Answered(answer)
        }
        Err(cause) => Outcome::Invalid(visible(&cause.to_string())),
    }
}

/// The probabilities in the order of the question, with the sum 1: servers round.
pub(crate) fn read(question: &Question, answer: &Answer) -> Vec<f64> {
    let p = |name: &str| answer.probabilities.get(name).copied().unwrap_or(0.0).max(0.0);
    let given: Vec<f64> = question.answer_names().into_iter().map(p).collect();
    let sum: f64 = given.iter().sum();
    given.into_iter().map(|p| p / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(schema: &Schema) -> Vec<String> {
        schema.questions[0].answer_names().into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn rotations_spread_over_the_options_and_leave_scales_alone() {
        let schema = Schema::from_json(
            r#"{"questions": [{"id": "a", "type": "choice", "options": ["1", "2", "3", "4"]},
                {"id": "s", "type": "score", "levels": ["low", "high"]}]}"#,
        )
        .unwrap();
        let firsts: Vec<String> = (0..2).map(|turn| names(&rotate(&schema, turn, 2))[0].clone()).collect();
        assert_eq!(firsts, ["1", "3"]);
        let all: Vec<String> = (0..4).map(|turn| names(&rotate(&schema, turn, 4)).concat()).collect();
        assert_eq!(all, ["1234", "2341", "3412", "4123"]);
        assert_eq!(rotate(&schema, 3, 4).questions[1], schema.questions[1]);
    }
}
