//! Choices with more options than the server has labels for: brackets first, then a final between the best of each.
//!
//! The options are split into groups of equal size (give or take one), every group is a question of its own, and its two best go
//! on, until the rest fits. The final round is the whole decision, so that other questions and conditions see the answer. The
//! distributions of the rounds are then put together by `decision::fuse`. Called by `permute`, calls `asking`.

use std::collections::HashSet;
use std::time::Duration;

use decision::{Alternative, Answer, Bracket, Kind, LastRound, Question, Reading, Schema, fuse};
use futures_util::future::try_join_all;
use serde_json::{Map, json};

use crate::asking::{Answered, Asker};
use crate::cli::Api;
use crate::client::Tally;
use crate::error::Error;
use crate::foreign::visible;
use crate::verdict::{Outcome, Row, Verdict};

/// Labels that every decision server has.
const COMMON_LIMIT: usize = 26;
/// `top_logprobs` of plain servers ends there.
const PLAIN_LIMIT: usize = 20;
/// Bracket questions of one request.
const PER_REQUEST: usize = 8;
/// More options that may mean "none of these" are real ones.
const MOST_CATCH_ALLS: usize = 3;

/// One wide question on its way to the final.
struct Wide<'a> {
    question: &'a Question,
    /// Indices of the options still in the race, in the order of the question.
    left: Vec<usize>,
    /// Those that are in the final whatever happens: conditions ask for them, or they mean "none of these".
    seeded: Vec<usize>,
    rounds: Vec<Vec<Bracket>>,
    /// Of each group that was asked.
    label_masses: Vec<Option<f64>>,
}

/// One decision, with as many rounds as its widest choice needs.
pub async fn ask<'a>(asker: &Asker, schema: &'a Schema) -> Result<Answered<'a>, Error> {
    let count = |question: &&Question| question.alternatives();
    let widest = schema.asked().iter().map(count).max().unwrap_or(0);
    let plain = asker.server().api() == Some(Api::Openai);
    if widest <= if plain { PLAIN_LIMIT } else { COMMON_LIMIT } {
        return asker.ask(schema).await;
    }
    let limit =
        if plain { PLAIN_LIMIT } else { asker.server().most_alternatives().await.unwrap_or(COMMON_LIMIT) };
    let too_many = |question: &&&Question| question.alternatives() > limit;
    let asked = schema.asked();
    let wide: Vec<&Question> = asked.iter().filter(too_many).copied().collect();
    if let Some(question) = wide.iter().find(|question| !matches!(question.kind, Kind::Choice { .. })) {
        let (id, count) = (question.id.clone(), question.alternatives());
        return Err(Error::TooManyLevels { id, count, limit });
    }
    if wide.is_empty() { asker.ask(schema).await } else { rounds(asker, schema, &wide, limit).await }
}

async fn rounds<'a>(
    asker: &Asker,
    schema: &'a Schema,
    wide: &[&'a Question],
    limit: usize,
) -> Result<Answered<'a>, Error> {
    let mut wide: Vec<Wide<'a>> = wide.iter().map(|question| Wide::new(question, schema)).collect();
    if let Some(stuck) = wide.iter().find(|wide| wide.seeded.len() >= limit) {
        let (id, count) = (stuck.question.id.clone(), stuck.seeded.len());
        return Err(Error::TooManySeeded { id, count, limit });
    }
    let (mut wall, mut tally) = (Duration::ZERO, Tally::default());
    let mut requests = 0;
    while wide.iter().any(|wide| wide.left.len() > limit) {
        let schemas = round(schema, &mut wide, limit);
        requests += schemas.len();
        let replies = try_join_all(schemas.iter().map(|schema| asker.ask(schema))).await?;
        let mut rows = replies.iter().flat_map(|reply| {
            reply.verdict.rows.iter().map(|row| (row, reply.decided.reply.label_mass(row.id)))
        });
        for wide in wide.iter_mut().filter(|wide| wide.left.len() > limit) {
            wide.settle(&mut rows)?;
        }
        // Those of one round run at the same time.
        wall += replies.iter().map(|reply| reply.decided.wall).max().unwrap_or_default();
        replies.iter().for_each(|reply| tally.add(reply.decided.tally));
    }
    let last = final_schema(schema, &wide);
    let mut answered = asker.ask(&last).await?;
    answered.decided.wall += wall;
    answered.decided.tally.add(tally);
    for wide in &wide {
        let reply = &mut answered.decided.reply;
        let last = reply.label_mass(&wide.question.id);
        reply.set_least_label_mass(&wide.question.id, wide.label_masses.iter().copied().chain([last]));
    }
    report(&mut answered, &wide, requests);
    Ok(whole(schema, &wide, answered))
}

/// The next round of all questions that are still too wide, as schemas of at most `PER_REQUEST` questions.
fn round(schema: &Schema, wide: &mut [Wide<'_>], limit: usize) -> Vec<Schema> {
    let mut ids: HashSet<String> = HashSet::new();
    let mut questions = Vec::new();
    for wide in wide.iter_mut().filter(|wide| wide.left.len() > limit) {
        wide.rounds.push(wide.brackets(limit));
        for bracket in wide.rounds.last().into_iter().flatten().filter(|bracket| bracket.members.len() > 1) {
            let mut id = format!("{}_{}", wide.question.id, questions.len() + 1);
            while !ids.insert(id.clone()) {
                id.push('_');
            }
            let mut question = wide.with_options(&bracket.members);
            // Answers to other questions are not there yet.
            (question.id, question.depends_on) = (id, Vec::new());
            question.ask_if.clear();
            questions.push(question);
        }
    }
    let chunks = questions.chunks(PER_REQUEST);
    chunks.map(|questions| Schema { questions: questions.to_vec(), ask: None, ..schema.clone() }).collect()
}

/// The schema that was asked for, with the finalists as options.
fn final_schema(schema: &Schema, wide: &[Wide<'_>]) -> Schema {
    let mut last = schema.clone();
    for question in &mut last.questions {
        if let Some(wide) = wide.iter().find(|wide| wide.question.id == question.id) {
            *question = wide.with_options(&wide.left);
        }
    }
    last
}

impl<'a> Wide<'a> {
    fn new(question: &'a Question, schema: &Schema) -> Self {
        let names = question.answer_names();
        let wanted = |name: &str| {
            let conditions = schema.questions.iter().filter_map(|other| other.ask_if.get(&question.id));
            conditions.flatten().any(|wanted| wanted == name)
        };
        let mut seeded: Vec<usize> = (0..names.len()).filter(|index| wanted(names[*index])).collect();
        let catch_alls: Vec<usize> = (0..names.len()).filter(|index| is_catch_all(names[*index])).collect();
        if catch_alls.len() <= MOST_CATCH_ALLS {
            seeded.extend(catch_alls);
        }
        seeded.sort_unstable();
        seeded.dedup();
        Self {
            question,
            left: (0..names.len()).collect(),
            seeded,
            rounds: Vec::new(),
            label_masses: Vec::new(),
        }
    }

    /// Groups of at most `limit` members that differ in size by one at most. Seeded options stay out.
    fn brackets(&self, limit: usize) -> Vec<Bracket> {
        let racing: Vec<usize> =
            self.left.iter().copied().filter(|index| !self.seeded.contains(index)).collect();
        Bracket::split(&racing, limit)
    }

    /// Takes the rows of its brackets with their label masses, in the order in which they were asked, and leaves the best in the race.
    fn settle<'r>(
        &mut self,
        rows: &mut impl Iterator<Item = (&'r Row<'r>, Option<f64>)>,
    ) -> Result<(), Error> {
        let names = self.question.answer_names();
        let mut left = self.seeded.clone();
        for bracket in self.rounds.last_mut().into_iter().flatten() {
            if bracket.members.len() < 2 {
                bracket.probabilities = vec![1.0];
            } else {
                let (row, mass) = rows.next().unzip();
                self.label_masses.push(mass.flatten());
                let Some(answer) = row.and_then(Row::answer) else {
                    return Err(Error::BracketLost {
                        id: self.question.id.clone(),
                        reason: match row.map(|row| &row.outcome) {
                            Some(Outcome::Invalid(reason)) => reason.clone(),
                            _ => "no answer came".to_owned(),
                        },
                    });
                };
                let p = |index: &usize| answer.probabilities.get(names[*index]).copied().unwrap_or(0.0);
                bracket.probabilities = bracket.members.iter().map(p).collect();
            }
            left.extend(bracket.kept());
        }
        left.sort_unstable();
        self.left = left;
        Ok(())
    }

    /// The question with some of its options, in their order.
    fn with_options(&self, members: &[usize]) -> Question {
        let mut question = self.question.clone();
        if let Kind::Choice { options } = &mut question.kind {
            let all: Vec<Alternative> = std::mem::take(options);
            *options = members.iter().map(|index| all[*index].clone()).collect();
        }
        question
    }

    /// The distribution over all options, from that of the final and those of the brackets.
    fn fused(&self, last: &Answer) -> Vec<f64> {
        let names = self.question.answer_names();
        let mut fused: Vec<f64> =
            names.iter().map(|name| last.probabilities.get(*name).copied().unwrap_or(0.0)).collect();
        // Of equals the server's winner comes first.
        if let Some(winner) = names.iter().position(|name| *name == last.name()) {
            fused[winner] = fused[winner].max(last.confidence) + f64::EPSILON;
        }
        fuse(&self.rounds, &fused)
    }
}

/// Whether an option means that none of the others fits.
fn is_catch_all(name: &str) -> bool {
    let plain: String =
        name.to_lowercase().chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect();
    let words: Vec<&str> = plain.split_whitespace().collect();
    matches!(
        words.join(" ").as_str(),
        "none"
            | "none of the above"
            | "none of these"
            | "other"
            | "others"
            | "oos"
            | "out of scope"
            | "unknown"
    )
}

/// What happened, for the JSON.
fn report(answered: &mut Answered<'_>, wide: &[Wide<'_>], requests: usize) {
    let mut map = Map::new();
    for wide in wide {
        let names = wide.question.answer_names();
        let finalists: Vec<&str> = wide.left.iter().map(|index| names[*index]).collect();
        let groups: Vec<usize> = wide.rounds.iter().map(Vec::len).collect();
        map.insert(wide.question.id.clone(), json!({"groups": groups, "finalists": finalists}));
    }
    let report = json!({"requests": requests + 1, "questions": map});
    if let Some(diagnostics) = answered.decided.reply.diagnostics_json.as_object_mut() {
        diagnostics.insert("brackets".to_owned(), report);
    }
}

/// The answers of the final as answers to the questions that were asked.
fn whole<'a>(schema: &'a Schema, wide: &[Wide<'_>], answered: Answered<'_>) -> Answered<'a> {
    let Answered { decided, verdict } = answered;
    let mut outcomes: Vec<(String, Outcome)> =
        verdict.rows.into_iter().map(|row| (row.id.to_owned(), row.outcome)).collect();
    let mut rows = Vec::new();
    for question in schema.asked() {
        let found = outcomes.iter().position(|(id, _)| *id == question.id);
        let outcome = found.map_or(Outcome::Missing, |index| outcomes.swap_remove(index).1);
        let outcome = match (wide.iter().find(|wide| wide.question.id == question.id), outcome) {
            (Some(wide), Outcome::Answered(last)) => with_all_options(question, wide.fused(&last), &last),
            (_, outcome) => outcome,
        };
        rows.push(Row { id: &question.id, type_name: question.kind.type_name(), outcome });
    }
    Answered { decided, verdict: Verdict { rows, notes: verdict.notes } }
}

fn with_all_options(question: &Question, probabilities: Vec<f64>, last: &Answer) -> Outcome {
    let Answer { confidence, stderr, agreement, .. } = *last;
    let reading = Reading::of_rounds(probabilities, &LastRound { confidence, stderr, agreement });
    match Answer::new(question, &reading) {
        Ok(answer) => Outcome::Answered(Answer { source: last.source.clone(), ..answer }),
        Err(cause) => Outcome::Invalid(visible(&cause.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(count: usize) -> Question {
        let options = (0..count).map(|n| Alternative { name: format!("o{n}"), description: None }).collect();
        Question { id: "wide".into(), kind: Kind::Choice { options }, ..Question::default() }
    }

    /// Answers every bracket as if the option `best` were right and the others less and less likely.
    fn race(count: usize, limit: usize, best: usize) -> (Question, usize) {
        let question = choice(count);
        let schema = Schema { questions: vec![question.clone()], ..Schema::default() };
        let mut wide = [Wide::new(&question, &schema)];
        let mut rounds = 0;
        while wide[0].left.len() > limit {
            rounds += 1;
            assert!(rounds < 20, "{count} options never fit into {limit}");
            let questions: Vec<Question> =
                round(&schema, &mut wide, limit).into_iter().flat_map(|schema| schema.questions).collect();
            let rows: Vec<Row<'_>> = questions.iter().map(|question| answered(question, best)).collect();
            assert!(questions.iter().all(|question| (2..=limit).contains(&question.alternatives())));
            wide[0].settle(&mut rows.iter().map(|row| (row, None))).unwrap();
        }
        let last = wide[0].with_options(&wide[0].left);
        let row = answered(&last, best);
        let fused = wide[0].fused(row.answer().unwrap());
        assert!((fused.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(fused.iter().all(|p| *p > 0.0 && *p <= fused[best]));
        (last, rounds)
    }

    fn answered(question: &Question, best: usize) -> Row<'_> {
        let weight = |name: &str| {
            1.0 / (1.0 + name[1..].parse::<f64>().unwrap())
                + f64::from(u8::from(name == format!("o{best}"))) * 9.0
        };
        let weights: Vec<f64> = question.answer_names().into_iter().map(weight).collect();
        let sum: f64 = weights.iter().sum();
        let reading =
            Reading::from_reads(&[weights.into_iter().map(|weight| weight / sum).collect()]).unwrap();
        let outcome = Outcome::Answered(Answer::new(question, &reading).unwrap());
        Row { id: &question.id, type_name: "choice", outcome }
    }

    #[test]
    fn case_15_no_group_has_one_option_and_the_final_fits() {
        for (count, limit) in
            [(27, 26), (41, 20), (61, 20), (77, 26), (151, 26), (255, 26), (700, 26), (9, 4), (7, 3), (5, 2)]
        {
            for best in [0, count / 2, count - 1] {
                let (last, _) = race(count, limit, best);
                assert!(last.alternatives() <= limit && last.alternatives() >= 2, "{count} into {limit}");
                assert!(last.answer_names().contains(&format!("o{best}").as_str()));
            }
        }
        assert_eq!(race(255, 26, 7).1, 1);
    }

    #[test]
    fn what_conditions_ask_for_and_none_of_these_are_in_the_final() {
        let mut question = choice(40);
        if let Kind::Choice { options } = &mut question.kind {
            options[39].name = "None of the above".to_owned();
        }
        let dependent = Question {
            id: "more".into(),
            ask_if: [("wide".to_owned(), vec!["o17".to_owned()])].into_iter().collect(),
            ..Question::default()
        };
        let schema = Schema { questions: vec![question.clone(), dependent], ..Schema::default() };
        assert_eq!(Wide::new(&question, &schema).seeded, [17, 39]);
    }
}
