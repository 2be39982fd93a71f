//! Who answers decisions, and what a decision has to be before its walk begins.
//!
//! Called by `Api` and the warm-up. The walk itself: `walk` goes from stage to stage, `reads` works out prompts and canvases, `draws`
//! takes them through the queue, `wide` reads what has more alternatives than there are labels.

use std::sync::Arc;

use decision::{DecisionReply, Limits, Route, Schema, stages};
use tokio::sync::Semaphore;

use super::cost::{Cost, Usage};
use super::walk::Walk;
use crate::engine::EngineInfo;
use crate::error::Error;
use crate::queue::Queue;
use crate::read::Text;
use crate::read::canvas::Layouts;
use crate::read::labels::{Labels, MOST_ALTERNATIVES};

/// Answers decisions over the queue. Shared by all requests.
#[derive(Debug)]
pub struct Decider {
    pub info: EngineInfo,
    pub limits: Limits,
    pub(super) text: Text,
    pub(super) queue: Queue,
    pub(super) layouts: Layouts,
    pub(super) labels: Labels,
    /// One place per core: texts are encoded no more at a time, and a client that leaves while waiting costs nothing.
    pub(super) encoding: Semaphore,
}

/// A decision that was made.
#[derive(Debug)]
pub struct Decision {
    pub reply: DecisionReply,
    pub usage: Usage,
}

impl Decider {
    #[must_use]
    pub fn new(info: EngineInfo, text: Text, queue: Queue) -> Self {
        let labels = Labels::new(&text.tokenizer);
        let limits = Limits { max_alternatives: MOST_ALTERNATIVES, ..Limits::default() };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Decider {
            info,
            limits,
            text,
            queue,
            layouts: Layouts::default(),
            labels,
            encoding: Semaphore::new(cores),
        }
    }

    /// Decides by the rules of the chat route. Dropping the future cancels what is still waiting or running.
    pub async fn decide(self: &Arc<Self>, schema: Schema, state: String) -> Result<Decision, Error> {
        self.decide_for(Route::Chat, schema, state).await
    }

    /// Decides by the rules of a route; [`Decider::decide`] in all else.
    pub async fn decide_for(
        self: &Arc<Self>,
        route: Route,
        schema: Schema,
        state: String,
    ) -> Result<Decision, Error> {
        let cost = Cost::new();
        schema.validate(&Limits { route, ..self.limits.clone() })?;
        let mut walk = Walk::new(self, route, schema, state, cost).await?;
        let stages = stages(&walk.schema)?;
        walk.think().await?;
        for stage in stages {
            walk.stage(&stage).await?;
        }
        Ok(walk.finish())
    }
}
