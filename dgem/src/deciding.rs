//! One decision, as `decide` makes it and every row of `batch`: all orders of the options, groups of wide choices, and then the
//! second model for what is in doubt.
//!
//! The walk: [`Decider::decide`] → `permute` → `brackets` → `asking`, then `cascade`.

use std::sync::Arc;

use decision::Schema;

use crate::asking::{Answered, Asker, Server};
use crate::cascade::{Cascade, Telemetry};
use crate::error::Error;
use crate::foreign::visible;
use crate::permute::{self, Permutation};
use crate::state::State;

/// How decisions are made.
#[derive(Debug)]
pub struct Decider {
    pub server: Arc<Server>,
    /// Orders of the options that are asked (`--permute`).
    pub orders: Option<usize>,
    pub cascade: Option<Cascade>,
}

/// A decision with how it came about.
#[derive(Debug)]
pub struct Whole<'a> {
    pub answered: Answered<'a>,
    /// With several orders.
    pub permutation: Option<Permutation>,
    /// With a second model.
    pub cascade: Option<Telemetry>,
}

impl Decider {
    /// Errors: there is no answer at all, also not from a second model.
    pub async fn decide<'a>(&self, schema: &'a Schema, state: State) -> Result<Whole<'a>, Error> {
        let asker = Asker::new(Arc::clone(&self.server), state);
        let asked = permute::ask(&asker, schema, self.orders).await;
        let Some(cascade) = &self.cascade else {
            return asked.map(|(answered, permutation)| Whole { answered, permutation, cascade: None });
        };
        let (mut answered, permutation) = match asked {
            Ok(asked) => asked,
            Err(error) => (cascade.instead_of(&asker, schema, error)?, None),
        };
        let telemetry = cascade.run(asker.state(), schema, &mut answered).await;
        Ok(Whole { answered, permutation, cascade: Some(telemetry) })
    }
}

/// Some servers have one model and answer with it whatever was asked for; the words to say so.
pub(crate) fn other_model(wanted: Option<&str>, answered: Option<&str>) -> Option<String> {
    // What follows a colon chooses how a model works, not which one.
    let name = |model: &str| model.split(':').next().unwrap_or_default().to_owned();
    let (wanted, answered) = (wanted?, answered?);
    (name(wanted) != name(answered))
        .then(|| format!("`{}` was asked for, and `{}` answered", visible(wanted), visible(answered)))
}
