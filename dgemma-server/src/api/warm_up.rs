//! The decisions that are made before the first client comes, so that nothing is done for the first time then.
//!
//! They cover the shapes a pass mostly has: one question; a sheet of several kinds; many questions on one line; several
//! draws; several requests in one pass. The state differs each time, or the prefix cache would save the work.

use std::sync::Arc;

use decision::{Alternative, Kind, Question, Samples, Schema};
use tokio::task::JoinSet;

use super::decide::{Decider, Decision};
use crate::error::Error;

/// Requests that are made at once in the last step.
const TOGETHER: usize = 8;

/// Makes them, one shape after the other, then some at once.
pub async fn run(decider: &Arc<Decider>) -> Result<(), Error> {
    for (number, schema) in shapes().into_iter().enumerate() {
        tolerate(decider.decide(schema, format!("warm-up {number}")).await)?;
    }
    let mut together = JoinSet::new();
    for number in 0..TOGETHER {
        let (decider, schema) = (Arc::clone(decider), sheet(3));
        together.spawn(async move { decider.decide(schema, format!("together {number}")).await });
    }
    while let Some(decision) = together.join_next().await {
        tolerate(decision.map_err(|_| Error::Internal { what: "the warm-up" })?)?;
    }
    Ok(())
}

/// A small queue or context refuses some of these shapes, as it would refuse them to a client. Only a fault stops the start.
fn tolerate(decision: Result<Decision, Error>) -> Result<(), Error> {
    match decision {
        Err(error) if error.is_fault() => Err(error),
        Err(error) => {
            tracing::debug!(%error, "a shape of the warm-up was refused");
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}

fn shapes() -> [Schema; 4] {
    [sheet(1), sheet(3), sheet(12), Schema { samples: Samples::Fixed(4), ..sheet(3) }]
}

/// So many questions, of all kinds in turn.
fn sheet(questions: usize) -> Schema {
    let question = |number: usize| {
        let alternative = |name: &str| Alternative { name: name.into(), description: None };
        let kind = match number % 3 {
            0 => Kind::Boolean { yes: None, no: None },
            1 => Kind::Choice { options: vec![alternative("this"), alternative("that")] },
            _ => Kind::Score { levels: vec!["low".into(), "high".into()] },
        };
        Question { id: format!("q{number}"), kind, ..Question::default() }
    };
    Schema { questions: (0..questions).map(question).collect(), ..Schema::default() }
}
