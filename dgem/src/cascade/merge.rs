//! Puts answers of the second model where those of the first were.

use decision::{Answer, Answers, Question, Reading, Schema, should_ask};

use super::second::Said;
use crate::asking::Answered;
use crate::verdict::{Outcome, Verdict, skip_text};

/// `source` of such an answer: its confidence is what the model says, not what it computes.
pub(crate) const SOURCE: &str = "stage2_stated";

/// `source` of an answer that a second model with probabilities of its own gave.
const READ: &str = "stage2";

/// Whether an answer with this `source` is the second model's.
pub(crate) fn is_second(source: Option<&str>) -> bool {
    matches!(source, Some(SOURCE | READ))
}

/// Takes the answer of a second model that makes decisions, and the label mass with which it was read.
pub(super) fn take(answered: &mut Answered<'_>, answer: &Answer, id: &str, label_mass: Option<f64>) {
    answered.decided.reply.replace_slot(id, label_mass);
    if let Some(row) = answered.verdict.rows.iter_mut().find(|row| row.id == id) {
        row.outcome = Outcome::Answered(Answer { source: Some(READ.to_owned()), ..answer.clone() });
    }
}

/// The stated confidence becomes a distribution: the rest is spread over the other answers.
pub(super) fn replace(verdict: &mut Verdict<'_>, question: &Question, said: &Said) {
    let names = question.answer_names();
    let count = names.len() as f64;
    let Some(winner) = names.iter().position(|name| *name == said.decision) else { return };
    // A model that says less than chance of its own choice knows nothing.
    let confidence = said.confidence.max(1.0 / count);
    let rest = (1.0 - confidence) / (count - 1.0);
    let p = (0..names.len()).map(|index| if index == winner { confidence } else { rest }).collect();
    let answer = Reading::from_reads(&[p])
        .and_then(|reading| Answer::new(question, &Reading { winner, confidence, ..reading }));
    let row = verdict.rows.iter_mut().find(|row| row.id == question.id);
    if let (Some(row), Ok(answer)) = (row, answer) {
        row.outcome = Outcome::Answered(Answer { source: Some(SOURCE.to_owned()), ..answer });
    }
}

/// A changed answer may decide whether another question counts. One that was not asked cannot be answered now, which a note says.
pub(super) fn apply_conditions(schema: &Schema, verdict: &mut Verdict<'_>) {
    let mut answers = Answers::new();
    for question in schema.asked() {
        let Some(row) = verdict.rows.iter_mut().find(|row| row.id == question.id) else { continue };
        match (should_ask(question, &answers), &row.outcome) {
            (Err(skipped), Outcome::Answered(_) | Outcome::Missing | Outcome::Invalid(_)) => {
                row.outcome = Outcome::Skipped(Some(skip_text(&skipped)));
            }
            (Ok(()), Outcome::Skipped(_)) if !question.ask_if.is_empty() => {
                verdict.notes.push(format!(
                    "`{}` was not asked, because of an answer that the second model changed",
                    question.id
                ));
            }
            _ => {}
        }
        answers.insert(question.id.clone(), row.answer().cloned());
    }
}
