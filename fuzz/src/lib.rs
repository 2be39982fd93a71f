//! A server without sockets for the fuzz targets: the real routes, text side, queue and scheduler over the scripted engine.
//!
//! `post` sends one body and checks what must hold for any body: it is answered or refused, never with a fault, and a
//! refusal says what to do. The targets are in `targets/`; `scripts/fuzz.sh` runs them.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use decision::DecisionReply;
use dgemma_server::api::Api;
use dgemma_server::api::decide::Decider;
use dgemma_server::engine::Engine;
use dgemma_server::engine::fake::{Controls, Fake};
use dgemma_server::http::keys::Keys;
use dgemma_server::metrics::Metrics;
use dgemma_server::read::Text;
use dgemma_server::scheduler::policy::Budget;
use dgemma_server::{Options, http, queue, scheduler};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

const DEMO_MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/demo-model");
const PLACES: usize = 2048;

struct Server {
    router: Router,
    runtime: Runtime,
    engine: Controls,
}

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let text = Text::from_dir(Path::new(DEMO_MODEL)).expect("the demo checkpoint is part of the repository");
    let fake = Fake::new(4096, 64, 4096);
    let (engine, info) = (fake.controls(), fake.info().clone());
    let metrics = Arc::new(Metrics::default());
    let (queue, jobs) = queue::bounded_with(PLACES, Some(Duration::from_secs(30)), Arc::clone(&metrics));
    scheduler::spawn(fake, jobs, Budget::default()).expect("a thread can be started");
    let api = Arc::new(Api::new("demo".into()));
    api.open(Arc::new(Decider::new(info, text, queue, Budget::default().pass_rows)));
    let options = Options {
        model: "demo".into(),
        queue_places: PLACES,
        body_limit_bytes: 1 << 20,
        receive_limit: Duration::from_secs(60),
        budget: Budget::default(),
        drain: Duration::ZERO,
        queue_wait: Duration::from_secs(30),
        keys: Keys::default(),
        cors_origins: Vec::new(),
        hosts: Vec::new(),
        log_content: false,
    };
    let router = http::router(api, metrics, &options, true);
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime can be built");
    Server { router, runtime, engine }
});

/// The reply to a body that was accepted; `None` for one that was refused as it should be.
pub fn post(path: &str, content_type: &str, body: &[u8]) -> Option<Vec<u8>> {
    let request = Request::post(path).header(header::CONTENT_TYPE, content_type);
    let request = request.body(Body::from(body.to_vec())).expect("path and type are sound");
    let (status, reply) = SERVER.runtime.block_on(async {
        let Ok(response) = SERVER.router.clone().oneshot(request).await;
        let status = response.status();
        (status, response.into_body().collect().await.expect("a reply is whole").to_bytes())
    });
    // What the scripted engine remembers would grow without end.
    SERVER.engine.reset();
    if status == StatusCode::OK {
        return Some(reply.to_vec());
    }
    let shown = String::from_utf8_lossy(&reply);
    assert!(status.is_client_error(), "{status}: {shown}");
    let reply: Value = serde_json::from_slice(&reply).expect("an error is JSON");
    let message = reply["error"]["message"].as_str().expect("an error has a message");
    assert!(message.contains("hint:"), "{message}");
    // A refusal may quote what is wrong, but does not send it all back.
    assert!(message.len() < 4096, "{} bytes: {message}", message.len());
    None
}

/// Checks the decision in a completion, or behind a format: every answer is a distribution. A reply in text has a message.
pub fn check_completion(reply: &[u8]) {
    if reply.starts_with(b"data: ") || reply.starts_with(b": ") {
        return;
    }
    let reply: Value = serde_json::from_slice(reply).expect("a completion is JSON");
    if reply.get("x_generation").is_some() {
        assert!(reply["choices"][0]["message"].is_object(), "{reply}");
        return;
    }
    let behind_format = reply.get("x_decision").map(ToString::to_string);
    let content = behind_format
        .as_deref()
        .or_else(|| reply["choices"][0]["message"]["content"].as_str())
        .expect("it has a text");
    let decision: DecisionReply = serde_json::from_str(content).expect("it is a decision");
    for (id, answer) in decision.answers {
        if let Some(answer) = answer {
            check_distribution(&id, answer.probabilities.values().copied());
        }
    }
}

/// Probabilities are at least 0 and have the sum 1.
pub fn check_distribution(id: &str, probabilities: impl Iterator<Item = f64>) {
    let mut sum = 0.0;
    for p in probabilities {
        assert!((0.0..=1.0).contains(&p), "{id}: {p}");
        sum += p;
    }
    assert!((sum - 1.0).abs() < 1e-6, "{id}: {sum}");
}
