//! What became of each question: the reply of a server measured against the schema that was asked.
//!
//! Called by `commands::decide` between `client` and `output`. A server is not believed: an answer counts only when it is
//! one the question allows (`answer`). One row per question, in schema order, whatever order the reply has.

mod answer;

use decision::{Answer, Question, Schema};
use serde_json::Value;

use crate::client::Reply;

/// What became of one question.
#[derive(Debug)]
pub enum Outcome {
    Answered(Answer),
    /// Its condition did not hold; the text says why when the server does.
    Skipped(Option<String>),
    /// Asked for, but not in the reply.
    Missing,
    /// Answered with something the question does not allow; the text says what came and what was allowed.
    Invalid(String),
}

#[derive(Debug)]
pub struct Row<'a> {
    pub id: &'a str,
    pub type_name: &'static str,
    pub outcome: Outcome,
}

impl Row<'_> {
    /// The answer, if there is one that counts.
    pub fn answer(&self) -> Option<&Answer> {
        match &self.outcome {
            Outcome::Answered(answer) => Some(answer),
            _ => None,
        }
    }
}

/// All rows, and what is worth a warning without being a fault.
#[derive(Debug)]
pub struct Verdict<'a> {
    pub rows: Vec<Row<'a>>,
    pub notes: Vec<String>,
}

impl<'a> Verdict<'a> {
    pub fn new(schema: &'a Schema, reply: &Reply) -> Self {
        let mut notes = Vec::new();
        let rows = schema
            .asked()
            .into_iter()
            .map(|question| Row {
                id: &question.id,
                type_name: question.kind.type_name(),
                outcome: outcome(question, reply, &mut notes),
            })
            .collect();
        Self { rows, notes }
    }

    /// Whether any question has an answer that counts.
    pub fn any_answered(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.outcome, Outcome::Answered(_)))
    }

    /// Ids of the questions the reply passes over.
    pub fn missing(&self) -> Vec<&'a str> {
        self.rows.iter().filter(|row| matches!(row.outcome, Outcome::Missing)).map(|row| row.id).collect()
    }

    /// Ids of the questions with an answer that does not count, and why.
    pub fn invalid(&self) -> impl Iterator<Item = (&'a str, &str)> {
        self.rows.iter().filter_map(|row| match &row.outcome {
            Outcome::Invalid(reason) => Some((row.id, reason.as_str())),
            _ => None,
        })
    }
}

fn outcome(question: &Question, reply: &Reply, notes: &mut Vec<String>) -> Outcome {
    let skipped = reply.diagnostics.skipped.get(&question.id);
    match reply.answers.get(&question.id) {
        Some(Value::Null) if !question.ask_if.is_empty() => skip(skipped),
        // Some servers leave a skipped question out instead.
        None if skipped.is_some() && !question.ask_if.is_empty() => skip(skipped),
        // A question without a condition cannot be skipped.
        Some(Value::Null) | None => Outcome::Missing,
        Some(raw) => match answer::check(question, raw) {
            Ok(checked) => {
                notes.extend(checked.notes);
                Outcome::Answered(checked.answer)
            }
            Err(reason) => Outcome::Invalid(reason),
        },
    }
}

fn skip(reason: Option<&decision::Skipped>) -> Outcome {
    Outcome::Skipped(reason.map(skip_text))
}

/// Why a question was not asked.
pub(crate) fn skip_text(reason: &decision::Skipped) -> String {
    let was = reason.was.as_deref().unwrap_or("not answered");
    format!("{} was {was}, not {}", reason.because, reason.wanted.join(" or "))
}
