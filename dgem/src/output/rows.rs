//! One row per question that was asked, in schema order, whatever order the reply has.

use decision::{Answer, Schema};

use crate::client::Reply;

/// What became of one question.
#[derive(Debug)]
pub enum Outcome<'a> {
    Answered(&'a Answer),
    /// Its condition did not hold; the text says why when the server does.
    Skipped(Option<String>),
    /// Asked for, but not in the reply.
    Missing,
}

#[derive(Debug)]
pub struct Row<'a> {
    pub id: &'a str,
    pub type_name: &'static str,
    pub outcome: Outcome<'a>,
}

pub fn rows<'a>(schema: &'a Schema, reply: &'a Reply) -> Vec<Row<'a>> {
    schema
        .asked()
        .into_iter()
        .map(|question| Row {
            id: &question.id,
            type_name: question.kind.type_name(),
            outcome: outcome(&question.id, reply),
        })
        .collect()
}

fn outcome<'a>(id: &str, reply: &'a Reply) -> Outcome<'a> {
    let skipped = reply.diagnostics.skipped.get(id);
    match reply.answers.get(id) {
        Some(Some(answer)) => Outcome::Answered(answer),
        None if skipped.is_none() => Outcome::Missing,
        _ => Outcome::Skipped(skipped.map(|reason| {
            let was = reason.was.as_deref().unwrap_or("not answered");
            format!("{} was {was}, not {}", reason.because, reason.wanted.join(" or "))
        })),
    }
}
