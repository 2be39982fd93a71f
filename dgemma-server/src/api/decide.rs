//! Who answers decisions, and what a decision has to be before its walk begins.
//!
//! Called by `Api` and the warm-up. The walk itself: `walk` goes from stage to stage, `reads` works out prompts and canvases, `draws`
//! takes them through the queue, `wide` reads what has more alternatives than there are labels.

use std::sync::Arc;

use decision::{DecisionReply, Limits, Route, Schema, stages};
use tokio::sync::Semaphore;

use super::cost::{Cost, Usage};
use super::walk::Walk;
use super::wanted::{Waiting, Wanted};
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
    /// Most rows of a pass.
    pub(super) pass_rows: usize,
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
    /// `pass_rows`: those of the scheduler's budget.
    #[must_use]
    pub fn new(info: EngineInfo, text: Text, queue: Queue, pass_rows: usize) -> Self {
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
            pass_rows,
            encoding: Arc::new(Semaphore::new(cores)),
        }
    }

    /// Runs what may take a while off the async threads, no more at a time than there are cores. Where the client leaves, such work
    /// goes on to the next piece that looks at [`Wanted`], and keeps its place until then.
    pub(super) async fn encode<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Wanted) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let fault = || Error::Internal { what: "preparing a prompt" };
        let place = Arc::clone(&self.encoding).acquire_owned().await.map_err(|_| fault())?;
        let waiting = Waiting::new(Arc::clone(self.queue.metrics()));
        let wanted = waiting.wanted();
        let work = move || {
            let _place = place;
            wanted.check()?;
            work(&wanted)
        };
        let result = tokio::task::spawn_blocking(work).await.map_err(|_| fault());
        waiting.done();
        result?
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
    async fn work_for_a_client_that_left_ends_at_the_next_piece_and_keeps_its_place_until_then() {
        let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/demo-model"));
        let info = crate::engine::Engine::info(&crate::engine::fake::Fake::new(4096, 64, 4096)).clone();
        let metrics = Arc::new(crate::metrics::Metrics::default());
        let (queue, _jobs) = queue::bounded_with(1, None, Arc::clone(&metrics));
        let decider = Arc::new(Decider::new(info, Text::from_dir(dir).unwrap(), queue, 2048));
        let cores = decider.encoding.available_permits();
        let (end, ended) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        let (piece, pieces) = mpsc::channel();
        let work = move |wanted: &Wanted| {
            wanted.check().unwrap();
            begin.send(()).unwrap();
            ended.recv().unwrap();
            // Where it is not told, it never ends.
            while wanted.check().is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
            piece.send(()).unwrap();
            wanted.check()
        };
        let for_client = Arc::clone(&decider);
        let client = tokio::spawn(async move { for_client.encode(work).await });
        tokio::task::block_in_place(|| begun.recv().unwrap());
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
        assert_eq!(decider.encoding.available_permits(), cores - 1);
        end.send(()).unwrap();
        tokio::task::block_in_place(|| pieces.recv_timeout(Duration::from_secs(20)).unwrap());
        assert!(metrics.render().unwrap().contains("dgemma_encodings_abandoned_total 1\n"));
        assert_eq!(decider.encode(Wanted::check).await.ok(), Some(()), "others are not told");
        assert!(metrics.render().unwrap().contains("dgemma_encodings_abandoned_total 1\n"));
        let patience = std::time::Instant::now() + Duration::from_secs(20);
        while decider.encoding.available_permits() < cores {
            assert!(std::time::Instant::now() < patience, "the place is never given back");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
