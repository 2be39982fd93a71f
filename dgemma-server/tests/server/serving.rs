//! The server around the decisions: readiness, many clients, a full queue, cancelled work, shutdown.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use crate::common::{Server, fake, openai_error, options, pass_at, request, text, triage};
use dgemma_server::engine::fake::{Call, Fake};
use dgemma_server::scheduler::policy::Budget;
use dgemma_server::{Error, Options, Parts};
use serde_json::{Value, json};

async fn json_of(response: reqwest::Response) -> Value {
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

#[tokio::test]
async fn the_port_answers_while_the_model_loads() {
    let fake = fake();
    let (go, wait) = mpsc::channel::<()>();
    let server = Server::start_loading(options(), fake.controls(), move || {
        wait.recv().unwrap();
        Ok(Parts { engine: fake, text: text() })
    })
    .await;
    assert_eq!(server.get("/livez").await.status(), 200);
    while json_of(server.get("/readyz").await).await["bytes_loaded"] != 3 {
        tokio::task::yield_now().await;
    }
    for path in ["/readyz", "/health"] {
        let response = server.get(path).await;
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "2");
        let body = json_of(response).await;
        assert_eq!((&body["status"], &body["phase"]), (&json!("unavailable"), &json!("loading")));
    }
    let error = server.refused(request(&triage(), "s").to_string(), 503).await;
    assert_eq!(error["code"], "not_ready");
    assert!(error["message"].as_str().unwrap().contains("loading"), "{error}");
    assert_eq!(json_of(server.get("/v1/models").await).await["data"][0]["id"], "demo");

    go.send(()).unwrap();
    server.wait_until_ready().await;
    let body = json_of(server.get("/readyz").await).await;
    assert_eq!(body, json!({"status": "ok", "phase": "ready", "bytes_loaded": 7, "bytes_total": 7}));
    let health = json_of(server.get("/health").await).await;
    let keys: Vec<&String> = health.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "status",
            "phase",
            "bytes_loaded",
            "bytes_total",
            "version",
            "git_revision",
            "model",
            "engine",
            "device"
        ]
    );
    assert_eq!((&health["engine"], &health["model"]), (&json!("fake"), &json!("demo")));
    assert!(server.engine.log.calls().len() >= 2, "it was warmed before it was ready");
}

#[tokio::test]
async fn a_model_that_does_not_load_ends_the_server_with_its_error() {
    let server = Server::start_loading(options(), fake().controls(), || {
        Err(Error::NoModel { reason: "scripted".into() })
    })
    .await;
    assert!(server.ended().await.unwrap_err().to_string().contains("scripted"));
    let panics = Server::start_loading(options(), fake().controls(), || panic!("scripted")).await;
    assert!(matches!(panics.ended().await, Err(Error::Internal { what: "loading the model" })));
}

#[tokio::test]
async fn models_are_listed_with_their_limits() {
    let server = Server::start(fake()).await;
    let body = json_of(server.get("/v1/models").await).await;
    assert_eq!(body["object"], "list");
    let ids: Vec<&str> =
        body["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["demo", "demo:think", "demo:think=false"]);
    assert_eq!(body["data"][0]["limits"]["alternatives"], 255);
    assert_eq!(
        (&body["data"][0]["object"], &body["data"][0]["owned_by"]),
        (&json!("model"), &json!("local"))
    );
}

/// A fake whose answer to a boolean tells whether the state held the word "yes" after the sheet.
fn echo() -> Fake {
    let text = text();
    let word = text.tokenizer.encode_plain("a: zebra").unwrap();
    fake().with_answer(move |prompt, _, _| {
        if prompt.windows(word.len()).any(|window| window == word) { vec![1.0, 0.0] } else { vec![0.0, 1.0] }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_clients_each_get_their_own_answer() {
    let server = Arc::new(Server::start(echo()).await);
    let schema = json!({"questions": [{"id": "animal", "type": "boolean"}]});
    let clients: Vec<_> = (0..64)
        .map(|number| {
            let (server, schema) = (Arc::clone(&server), schema.clone());
            tokio::spawn(async move {
                let striped = number % 3 == 0;
                let state = format!("a: {} {number}", if striped { "zebra" } else { "horse" });
                let decision = server.decide(&schema, &state).await;
                assert_eq!(
                    decision["answers"]["animal"]["label"],
                    if striped { "yes" } else { "no" },
                    "{state}"
                );
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    let largest = server.engine.log.passes().iter().map(Vec::len).max().unwrap();
    assert!(largest > 1, "requests that wait together run together");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_at_once_with_a_time_to_come_back() {
    let server = Server::start_with(fake(), Options { queue_places: 1, ..options() }).await;
    server.engine.gate.close();
    let body = request(&triage(), "s").to_string();
    let running = tokio::spawn(
        server.client.post(format!("{}/v1/chat/completions", server.url)).body(body.clone()).send(),
    );
    pass_at(&server.engine.gate).await;
    // The engine is busy: of two more, one gets the only place and the other is refused.
    let (one, two) = (server.post(body.clone()), server.post(body.clone()));
    let (mut one, mut two) = (Box::pin(one), Box::pin(two));
    let (refused, waiting) = tokio::select! {
        refused = &mut one => (refused, two),
        refused = &mut two => (refused, one),
    };
    assert_eq!(refused.headers()["retry-after"], "1");
    let error = openai_error(refused, 429).await;
    assert_eq!((&error["code"], &error["type"]), (&json!("queue_full"), &json!("rate_limit_error")));
    server.engine.gate.open();
    assert_eq!(waiting.await.status(), 200);
    assert_eq!(running.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn a_decision_that_never_fits_the_queue_says_so() {
    let server = Server::start_with(fake(), Options { queue_places: 2, ..options() }).await;
    let mut schema = triage();
    schema["isolate"] = json!(true);
    let error = server.refused(request(&schema, "s").to_string(), 413).await;
    assert_eq!(error["code"], "too_many_reads");
    assert!(error["message"].as_str().unwrap().contains("--queue"), "{error}");
}

/// The prompt needs hundreds of passes; the client leaves during the first.
#[tokio::test(flavor = "multi_thread")]
async fn work_for_a_client_that_left_stops_between_passes() {
    let budget = Budget { pass_rows: 16, chunk_rows: 16, ..Budget::default() };
    let fake = fake().with_delay(Duration::from_millis(10));
    let server = Server::start_with(fake, Options { budget, ..options() }).await;
    server.engine.gate.close();
    let state = "word ".repeat(3000);
    let body = request(&triage(), &state).to_string();
    let client = crate::common::client();
    let url = format!("{}/v1/chat/completions", server.url);
    let asked = tokio::spawn(async move { client.post(url).body(body).send().await });
    pass_at(&server.engine.gate).await;
    asked.abort();
    assert!(asked.await.unwrap_err().is_cancelled());
    server.engine.gate.open();
    server.decide(&triage(), "next").await;
    let calls = server.engine.log.calls();
    let is_kept = |call: &Call| matches!(call, Call::Finish { prompt } if prompt.len() > 1600);
    assert!(!calls.iter().any(is_kept), "only the prefix of the request whose client stayed");
    // All of it would have taken two hundred passes.
    assert!(server.engine.log.passes().iter().flatten().filter(|item| item.committed > 1600).count() == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_drains_health_is_told_running_requests_finish_and_no_more_are_taken() {
    let mut server = Server::start(fake()).await;
    server.engine.gate.close();
    let body = request(&triage(), "s").to_string();
    let running =
        tokio::spawn(server.client.post(format!("{}/v1/chat/completions", server.url)).body(body).send());
    pass_at(&server.engine.gate).await;
    server.stop();
    // As a probe asks, each time on a connection of its own.
    let probe = |path: &'static str| {
        let url = format!("{}{path}", server.url);
        async move { crate::common::client().get(url).send().await.unwrap() }
    };
    while probe("/readyz").await.status() == 200 {
        tokio::task::yield_now().await;
    }
    for _ in 0..3 {
        let response = probe("/readyz").await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (503, &"2".parse().unwrap())
        );
        assert_eq!(json_of(response).await["phase"], "draining");
        assert_eq!(probe("/livez").await.status(), 200);
    }
    let refused = crate::common::client().post(format!("{}/v1/chat/completions", server.url));
    let refused = refused.body(request(&triage(), "s").to_string()).send().await.unwrap();
    assert_eq!(openai_error(refused, 503).await["code"], "draining");
    // One that asks nothing does not hold up the end.
    let idle = tokio::net::TcpStream::connect(server.addr()).await.unwrap();
    assert!(!running.is_finished());
    server.engine.gate.open();
    let reply = running.await.unwrap().unwrap();
    assert_eq!(reply.status(), 200);
    assert_eq!(json_of(reply).await["choices"][0]["finish_reason"], "stop");
    let (address, started) = (server.addr().to_owned(), std::time::Instant::now());
    server.ended().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(10), "it waited for the drain time");
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "the listener is gone with it");
    drop(idle);
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_does_not_wait_for_ever() {
    let mut server =
        Server::start_with(fake(), Options { drain: Duration::from_millis(50), ..options() }).await;
    server.engine.gate.close();
    let body = request(&triage(), "s").to_string();
    let running =
        tokio::spawn(server.client.post(format!("{}/v1/chat/completions", server.url)).body(body).send());
    let gate = server.engine.gate.clone();
    pass_at(&gate).await;
    server.stop();
    server.ended().await.unwrap();
    gate.open();
    drop(running);
}

#[tokio::test]
async fn shutdown_while_loading_ends_at_once() {
    let (_go, wait) = mpsc::channel::<()>();
    let mut server = Server::start_loading(options(), fake().controls(), move || {
        let _ = wait.recv();
        Err(Error::NoModel { reason: "never".into() })
    })
    .await;
    assert_eq!(server.get("/livez").await.status(), 200);
    server.stop();
    server.ended().await.unwrap();
}

#[tokio::test]
async fn http_1_0_and_keep_alive_are_served() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = Server::start(fake()).await;
    let mut socket = tokio::net::TcpStream::connect(server.addr()).await.unwrap();
    socket.write_all(b"GET /livez HTTP/1.0\r\n\r\n").await.unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.0 200") && reply.ends_with("{\"status\":\"ok\"}"), "{reply}");
}
