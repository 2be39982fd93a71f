//! A second model that makes decisions itself: it is asked for one, about the uncertain questions only, and its answers have
//! probabilities of its own instead of a stated confidence.

use std::collections::HashMap;
use std::sync::Arc;

use decision::{Question, Schema};

use super::prompt;
use super::second::{Doubt, Given, SecondReply};
use crate::asking::{Asker, Server};
use crate::brackets;
use crate::error::Error;
use crate::verdict::Outcome;

pub(super) async fn ask(server: &Arc<Server>, doubt: &Doubt<'_>) -> Result<SecondReply, Error> {
    let schema = restricted(doubt);
    let asker = Asker::new(Arc::clone(server), doubt.state.clone());
    let answered = brackets::ask(&asker, &schema).await?;
    let mut answers = HashMap::new();
    for row in answered.verdict.rows {
        let given = match row.outcome {
            Outcome::Answered(answer) => {
                Ok(Given::Read(Box::new(answer), answered.decided.reply.label_mass(row.id)))
            }
            Outcome::Invalid(reason) => Err(reason),
            Outcome::Missing | Outcome::Skipped(_) => Err("no answer came".to_owned()),
        };
        answers.insert(row.id.to_owned(), given);
    }
    Ok(SecondReply { model: answered.decided.reply.model, answers })
}

/// The uncertain questions alone. Their conditions have been decided; what the first model thought stands in the instructions.
fn restricted(doubt: &Doubt<'_>) -> Schema {
    let Doubt { schema, questions, verdict, prior, .. } = *doubt;
    let question = |question: &&Question| {
        let mut alone = (*question).clone();
        alone.depends_on.clear();
        alone.ask_if.clear();
        let first = verdict.rows.iter().find(|row| row.id == question.id).and_then(|row| row.answer());
        if let Some(answer) = first {
            let told = prompt::told(prior, answer);
            let instructions = alone.instructions.unwrap_or_default() + &told;
            alone.instructions = Some(instructions.trim().to_owned()).filter(|text| !text.is_empty());
        }
        alone
    };
    Schema { questions: questions.iter().map(question).collect(), ask: None, ..schema.clone() }
}
