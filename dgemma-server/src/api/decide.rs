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
    encoding: Arc<Semaphore>,
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
            encoding: Arc::new(Semaphore::new(cores)),
        }
    }

    /// Runs what may take a while off the async threads, no more at a time than there are cores. Such work cannot be cancelled: it
    /// keeps its place to its end, even where the client has left.
    pub(super) async fn encode<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let fault = || Error::Internal { what: "preparing a prompt" };
        let place = Arc::clone(&self.encoding).acquire_owned().await.map_err(|_| fault())?;
        let work = move || {
            let _place = place;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| fault())?
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::queue;

    #[tokio::test(flavor = "multi_thread")]
    async fn work_for_a_client_that_left_keeps_its_place_to_its_end() {
        let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/demo-model"));
        let info = crate::engine::Engine::info(&crate::engine::fake::Fake::new(4096, 64, 4096)).clone();
        let (queue, _jobs) = queue::bounded(1);
        let decider = Arc::new(Decider::new(info, Text::from_dir(dir).unwrap(), queue));
        let cores = decider.encoding.available_permits();
        let (end, ended) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let work = move || {
            begin.send(()).unwrap();
            ended.recv().unwrap();
            Ok(())
        };
        let for_client = Arc::clone(&decider);
        let client = tokio::spawn(async move { for_client.encode(work).await });
        tokio::task::block_in_place(|| begun.recv().unwrap());
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
        assert_eq!(decider.encoding.available_permits(), cores - 1);
        end.send(()).unwrap();
        let patience = std::time::Instant::now() + Duration::from_secs(20);
        while decider.encoding.available_permits() < cores {
            assert!(std::time::Instant::now() < patience, "the place is never given back");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
