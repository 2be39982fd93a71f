//! A server on a free port with the fake engine behind it, and a client for it.
//!
//! The text side is that of the demo checkpoint, so prompts and canvases are real; only the logits are scripted.

use std::path::PathBuf;
use std::time::Duration;

use dgemma_server::engine::fake::{Call, Controls, Fake, Gate};
use dgemma_server::http::keys::Keys;
use dgemma_server::read::Text;
use dgemma_server::scheduler::policy::Budget;
use dgemma_server::{Error, Options, Parts, serve};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) mod talk;

pub(crate) const CONTEXT: usize = 4096;
pub(crate) const CANVAS: usize = 64;
pub(crate) const VOCABULARY: usize = 4096;

pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) client: Client,
    pub(crate) engine: Controls,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<(), Error>>,
}

pub(crate) fn demo_model() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/demo-model"))
}

pub(crate) fn text() -> Text {
    Text::from_dir(&demo_model()).unwrap()
}

pub(crate) fn fake() -> Fake {
    Fake::new(CONTEXT, CANVAS, VOCABULARY)
}

pub(crate) fn options() -> Options {
    Options {
        model: "demo".into(),
        queue_places: 256,
        body_limit_bytes: 8 << 20,
        budget: Budget::default(),
        receive_limit: Duration::from_secs(60),
        drain: Duration::from_secs(30),
        queue_wait: Duration::from_secs(30),
        keys: Keys::default(),
        cors_origins: Vec::new(),
        hosts: Vec::new(),
        log_content: false,
    }
}

pub(crate) fn client() -> Client {
    // An error says only that another test was first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let json = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Client::builder().no_proxy().default_headers(HeaderMap::from_iter([json])).build().unwrap()
}

impl Server {
    pub(crate) async fn start(fake: Fake) -> Server {
        Server::start_with(fake, options()).await
    }

    /// A server that is ready, with no trace of the warm-up in the engine.
    pub(crate) async fn start_with(fake: Fake, options: Options) -> Server {
        let engine = fake.controls();
        let server =
            Server::start_loading(options, engine, move || Ok(Parts { engine: fake, text: text() })).await;
        server.wait_until_ready().await;
        // A prefix is kept after its reply.
        let kept = |calls: &[Call]| {
            let begun = calls.iter().filter(|call| matches!(call, Call::Begin { .. })).count();
            begun == calls.iter().filter(|call| matches!(call, Call::Finish { .. })).count()
        };
        let begun = std::time::Instant::now();
        while !kept(&server.engine.log.calls()) {
            assert!(begun.elapsed() < Duration::from_secs(60), "a prefix of the warm-up was never kept");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        server.engine.reset();
        server
    }

    /// A server that may still be loading.
    pub(crate) async fn start_loading(
        options: Options,
        engine: Controls,
        load: impl FnOnce() -> Result<Parts<Fake>, Error> + Send + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(serve(
            listener,
            options,
            |readiness| {
                readiness.report_bytes(3, 7);
                load()
            },
            async {
                let _ = stopped.await;
            },
        ));
        Server { url, client: client(), engine, stop: Some(stop), running }
    }

    pub(crate) async fn wait_until_ready(&self) {
        while self.get("/readyz").await.status() != 200 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub(crate) fn addr(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.client.get(format!("{}{path}", self.url)).send().await.unwrap()
    }

    pub(crate) async fn post(&self, body: impl Into<reqwest::Body>) -> Response {
        self.client.post(format!("{}/v1/chat/completions", self.url)).body(body).send().await.unwrap()
    }

    pub(crate) async fn chat(&self, schema: &Value, state: &str) -> Response {
        self.post(request(schema, state).to_string()).await
    }

    /// The decision that must come of this: `answers` and `diagnostics`.
    pub(crate) async fn decide(&self, schema: &Value, state: &str) -> Value {
        let response = self.chat(schema, state).await;
        let status = response.status();
        let text = response.text().await.unwrap();
        assert_eq!(status, 200, "{text}");
        let reply: Value = serde_json::from_str(&text).unwrap();
        serde_json::from_str(reply["choices"][0]["message"]["content"].as_str().unwrap()).unwrap()
    }

    /// The error that must come of this body, in OpenAI's shape.
    pub(crate) async fn refused(&self, body: impl Into<reqwest::Body>, status: u16) -> Value {
        openai_error(self.post(body).await, status).await
    }

    /// Asks the server to stop.
    pub(crate) fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// What `serve` returned.
    pub(crate) async fn ended(self) -> Result<(), Error> {
        self.running.await.unwrap()
    }
}

pub(crate) fn request(schema: &Value, state: &str) -> Value {
    json!({
        "model": "demo",
        "messages": [{"role": "system", "content": schema.to_string()}, {"role": "user", "content": state}],
    })
}

/// The `error` object of a reply, after checking that it has exactly OpenAI's keys, a hint, and the request's id beside it.
pub(crate) async fn openai_error(response: Response, status: u16) -> Value {
    let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    let found = response.status().as_u16();
    assert_eq!(response.headers()["content-type"], "application/json");
    let body: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!(found, status, "{body}");
    assert_eq!(body["request_id"], *id);
    let error = body["error"].as_object().unwrap();
    assert_eq!(error.keys().collect::<Vec<_>>(), ["message", "type", "param", "code"], "{body}");
    assert!(error["message"].as_str().unwrap().contains("hint:"), "{body}");
    assert!(error["type"].is_string() && error["code"].is_string(), "{body}");
    body["error"].clone()
}

/// The three questions of the contract's example.
pub(crate) fn triage() -> Value {
    json!({
        "instructions": "Tickets of a software company.",
        "questions": [
            {"id": "urgent", "type": "boolean", "instructions": "Immediate escalation required?",
             "criteria": {"true": "outage or data loss", "false": "anything that can wait"}},
            {"id": "team", "type": "choice", "instructions": "Owning team",
             "options": [{"name": "billing", "description": "money"}, {"name": "support"}, "engineering"]},
            {"id": "sentiment", "type": "score", "instructions": "Customer distress",
             "levels": ["calm", "frustrated", "furious"]},
        ],
    })
}

/// Returns once a pass waits at the closed gate, without holding up the server's tasks.
pub(crate) async fn pass_at(gate: &Gate) {
    let gate = gate.clone();
    tokio::task::spawn_blocking(move || gate.wait_for_pass()).await.unwrap();
}
