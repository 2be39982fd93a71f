//! In which order questions are asked, and whether a conditional one is asked at all.

use crate::answer::Answers;
use crate::diagnostics::Skipped;
use crate::error::SchemaError;
use crate::question::Question;
use crate::schema::Schema;

/// The stages of a decision: indices into `schema.questions`, every stage after those it waits for.
pub fn stages(schema: &Schema) -> Result<Vec<Vec<usize>>, SchemaError> {
    todo!("{schema:?}")
}

/// Whether the conditions of a question hold, given the answers of earlier stages.
pub fn should_ask(question: &Question, answers: &Answers) -> Result<(), Skipped> {
    for (because, wanted) in &question.ask_if {
        let was = answers.get(because).and_then(Option::as_ref).map(|answer| answer.name().to_owned());
        if !was.as_ref().is_some_and(|was| wanted.contains(was)) {
            return Err(Skipped { because: because.clone(), was, wanted: wanted.clone() });
        }
    }
    Ok(())
}
