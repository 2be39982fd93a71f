//! Hosts `DiffusionGemma` behind an OpenAI-compatible HTTP API with typed decisions.
//!
//! The arrows: `http` → `api` → `queue` → `scheduler` → `engine`; nothing below `api` knows HTTP. [`serve`] puts them
//! together around a listener; `main` adds the command line, the signals and the model. To read along one decision, start at
//! `http::chat`, then `api::decide`.

pub mod api;
pub mod bench;
pub mod build;
pub mod chat;
pub mod cli;
pub mod commands;
pub mod device;
pub mod download;
pub mod engine;
pub mod error;
pub mod http;
pub mod log;
pub mod log_writer;
pub mod metrics;
pub mod model_dir;
pub mod queue;
pub mod read;
pub mod scheduler;
pub mod threads;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::HeaderValue;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use api::Api;
use api::decide::Decider;
use api::readiness::{Phase, Readiness};
use api::warm_up;
use engine::Engine;
pub use error::Error;
use http::connections::Connections;
use http::keys::Keys;
use metrics::Metrics;
use queue::Queue;
use read::Text;
use scheduler::policy::Budget;

/// How to serve.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name under which the model is served.
    pub model: String,
    /// Places in the queue; a canvas takes one.
    pub queue_places: usize,
    /// How long a request may wait in the queue.
    pub queue_wait: Duration,
    pub body_limit_bytes: usize,
    /// How long a client may take to send the head of a request, and as long again for the body.
    pub receive_limit: Duration,
    pub budget: Budget,
    /// How long running requests may take after the signal to stop.
    pub drain: Duration,
    /// Who is served.
    pub keys: Keys,
    /// Origins of web pages that may use the server. Empty: none.
    pub cors_origins: Vec<HeaderValue>,
    /// Names beside those of this machine under which a server without keys may be asked on loopback.
    pub hosts: Vec<String>,
    /// Whether requests and replies are written to the log.
    pub log_content: bool,
}

/// How long the refusals of what still runs after the drain may take to go out.
const FAREWELL: Duration = Duration::from_secs(1);

/// What a loader gives: the engine and the text side of its checkpoint.
#[derive(Debug)]
pub struct Parts<E> {
    pub engine: E,
    pub text: Text,
}

/// Serves until `shutdown` completes, then drains.
///
/// The port answers at once. `load` runs on a thread of its own and may report its progress; requests are refused as not
/// ready until it is done and the engine is warm. Errors: the model does not load, or the engine thread ends by itself.
pub async fn serve<E: Engine>(
    listener: TcpListener,
    options: Options,
    load: impl FnOnce(&Readiness) -> Result<Parts<E>, Error> + Send + 'static,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Error> {
    let api = Arc::new(Api::new(options.model.clone()));
    let metrics = Arc::new(Metrics::default());
    let on_loopback = listener.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback());
    let connections = Connections {
        router: http::router(Arc::clone(&api), Arc::clone(&metrics), &options, on_loopback),
        api: Arc::clone(&api),
        metrics: Arc::clone(&metrics),
        receive_limit: options.receive_limit,
    };
    let mut server = tokio::spawn(connections.serve(listener));
    let mut shutdown = std::pin::pin!(shutdown);
    let mut start = std::pin::pin!(start(Arc::clone(&api), metrics, &options, load));
    let mut started = None;
    let outcome = loop {
        let engine_gone = async {
            match &started {
                Some(queue) => Queue::closed(queue).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = &mut shutdown => break Ok(()),
            result = &mut start, if started.is_none() => match result {
                Ok(queue) => started = Some(queue),
                Err(error) => break Err(error),
            },
            () = engine_gone => break Err(Error::EngineGone),
            _ = &mut server => break Err(Error::Internal { what: "the HTTP server" }),
        }
    };
    match &outcome {
        // Nothing that waits for the engine will be answered otherwise.
        Err(Error::EngineGone) => {
            tracing::error!("the engine thread has ended; no request can be answered any more, stopping");
            api.readiness.advance(Phase::EngineGone);
        }
        _ => api.readiness.advance(Phase::Draining),
    }
    if !server.is_finished() && tokio::time::timeout(options.drain, &mut server).await.is_err() {
        tracing::warn!(
            seconds = options.drain.as_secs_f64(),
            "requests still run after the drain time; refusing them"
        );
        api.readiness.advance(Phase::Closing);
        if tokio::time::timeout(FAREWELL, &mut server).await.is_err() {
            server.abort();
        }
    }
    outcome
}

/// Loads, starts the engine thread, and makes a few decisions before the doors open. Gives the queue of that thread.
async fn start<E: Engine>(
    api: Arc<Api>,
    metrics: Arc<Metrics>,
    options: &Options,
    load: impl FnOnce(&Readiness) -> Result<Parts<E>, Error> + Send + 'static,
) -> Result<Queue, Error> {
    let started = Instant::now();
    let (send, loaded) = oneshot::channel();
    let for_loader = Arc::clone(&api);
    std::thread::Builder::new()
        .name("loader".into())
        .spawn(move || {
            let _ = send.send(load(&for_loader.readiness));
        })
        .map_err(|source| Error::Io {
            what: "cannot start a thread".into(),
            source,
            hint: "raise the limit on threads",
        })?;
    let Parts { engine, text } =
        loaded.await.map_err(|_| Error::Internal { what: "loading the model" })??;
    // Headers and unused tensors are never loaded; nothing is left to load all the same.
    let (_, bytes_total) = api.readiness.bytes();
    api.readiness.report_bytes(bytes_total, bytes_total);
    api.readiness.advance(Phase::WarmingUp);
    metrics.loaded(started.elapsed());
    let info = engine.info().clone();
    tracing::info!(
        engine = info.engine,
        device = info.device,
        context_tokens = info.context_tokens,
        canvas_tokens = info.canvas_tokens,
        "model loaded"
    );
    let (queue, jobs) = queue::bounded_with(options.queue_places, Some(options.queue_wait), metrics);
    let active_tokens = options.budget.active_tokens.min(info.active_tokens);
    scheduler::spawn(engine, jobs, Budget { active_tokens, ..options.budget }).map_err(|source| {
        Error::Io { what: "cannot start a thread".into(), source, hint: "raise the limit on threads" }
    })?;
    let decider = Arc::new(Decider::new(info, text, queue.clone(), options.budget.pass_rows));
    warm_up::run(&decider).await?;
    api.open(decider);
    tracing::info!(model = options.model, "ready");
    Ok(queue)
}
