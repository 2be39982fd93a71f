//! Connections that are not as they should be: slow, half closed, no HTTP at all, cut by the end of the drain or of the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{
    CANVAS, CONTEXT, Server, VOCABULARY, fake, openai_error, options, pass_at, request, text, triage,
};
use dgemma_server::engine::fake::{Fake, FakeReply, FakeSequence};
use dgemma_server::engine::{Engine, EngineError, EngineInfo, PassItem, PassOutput, ReplyOptions};
use dgemma_server::http::keys::Keys;
use dgemma_server::{Error, Options, Parts, serve};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Short enough to wait for, long enough not to hit a healthy request on a busy machine.
const LIMIT: Duration = Duration::from_millis(400);

async fn impatient() -> Server {
    Server::start_with(fake(), Options { receive_limit: LIMIT, ..options() }).await
}

/// Everything until the server closes.
async fn rest(socket: &mut TcpStream) -> String {
    let mut reply = Vec::new();
    // A reset after the reply is as good as an end.
    let _ = socket.read_to_end(&mut reply).await;
    String::from_utf8(reply).unwrap()
}

/// Status and error of a reply as it came over the wire.
fn parsed(reply: &str) -> (u16, Value) {
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no reply: {reply:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {reply}"));
    assert!(head.contains(&format!("x-request-id: {}", body["request_id"].as_str().unwrap())), "{reply}");
    assert!(body["error"]["message"].as_str().unwrap().contains("hint:"), "{reply}");
    (status, body["error"].clone())
}

fn post(body: &str) -> String {
    let length = body.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn a_head_that_never_ends_is_answered_with_408_and_closed() {
    let server = impatient().await;
    let mut socket = TcpStream::connect(server.addr()).await.unwrap();
    socket.write_all(b"POST /v1/chat/completions HTTP/1.1\r\n").await.unwrap();
    // One byte at a time keeps no connection open.
    let (mut from, mut to) = socket.split();
    let drip = async {
        while to.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::future::pending::<()>().await;
    };
    let mut reply = Vec::new();
    tokio::select! {
        _ = from.read_to_end(&mut reply) => {}
        () = drip => {}
    }
    let (status, error) = parsed(&String::from_utf8(reply).unwrap());
    assert_eq!((status, &error["code"]), (408, &"head_timeout".into()));
    server.decide(&triage(), "still here").await;
}

#[tokio::test]
async fn a_body_that_never_ends_is_answered_with_408() {
    let server = impatient().await;
    let mut socket = TcpStream::connect(server.addr()).await.unwrap();
    socket
        .write_all(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
        .await
        .unwrap();
    let (status, error) = parsed(&rest(&mut socket).await);
    assert_eq!((status, &error["code"]), (408, &"body_timeout".into()));
    assert!(error["message"].as_str().unwrap().contains("--receive-seconds"), "{error}");
    assert!(server.engine.log.calls().is_empty());
}

/// Status and error of the next reply on a connection that may stay open.
async fn next_reply(socket: &mut TcpStream) -> (u16, Value) {
    let mut reply = Vec::new();
    loop {
        reply.push(socket.read_u8().await.unwrap());
        let text = String::from_utf8_lossy(&reply);
        if text.split_once("\r\n\r\n").is_some_and(|(_, body)| serde_json::from_str::<Value>(body).is_ok()) {
            return parsed(&text);
        }
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_it_comes() {
    let server = Server::start_with(fake(), Options { body_limit_bytes: 1000, ..options() }).await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    for more in ["", "Expect: 100-continue\r\n"] {
        let mut socket = TcpStream::connect(server.addr()).await.unwrap();
        socket.write_all(format!("{head}{more}Content-Length: 1001\r\n\r\n").as_bytes()).await.unwrap();
        // Nothing of the body is sent, and the first thing that comes is the refusal.
        let (status, error) = next_reply(&mut socket).await;
        assert_eq!((status, &error["code"]), (413, &"body_too_large".into()));
    }
    // A body of no known length is refused as it passes the limit, although more is to come.
    let mut socket = TcpStream::connect(server.addr()).await.unwrap();
    let piece = format!("{:x}\r\n{}\r\n", 600, " ".repeat(600));
    socket
        .write_all(format!("{head}Transfer-Encoding: chunked\r\n\r\n{piece}{piece}").as_bytes())
        .await
        .unwrap();
    let (status, error) = next_reply(&mut socket).await;
    assert_eq!((status, &error["code"]), (413, &"body_too_large".into()));
    server.decide(&triage(), "still here").await;
}

#[tokio::test]
async fn a_client_that_sends_everything_before_it_reads_gets_its_refusal() {
    let server = Server::start_with(fake(), Options { body_limit_bytes: 1000, ..options() }).await;
    for (kind, status) in [("application/json", 413), ("text/plain", 415)] {
        let mut socket = TcpStream::connect(server.addr()).await.unwrap();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            20 << 20
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        let piece = vec![b' '; 1 << 20];
        for _ in 0..20 {
            socket.write_all(&piece).await.unwrap();
        }
        assert_eq!(parsed(&rest(&mut socket).await).0, status);
    }
}

#[tokio::test]
async fn a_server_without_keys_answers_on_loopback_to_names_of_this_machine() {
    let hosts = vec!["model.example".to_owned()];
    let server = Server::start_with(fake(), Options { hosts, ..options() }).await;
    let ask = |host: &'static str, more: &'static str| {
        let address = server.addr().to_owned();
        async move {
            let mut socket = TcpStream::connect(address).await.unwrap();
            let head = format!("GET /v1/models HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n");
            socket.write_all(head.as_bytes()).await.unwrap();
            rest(&mut socket).await
        }
    };
    for host in ["localhost:8080", "127.0.0.1", "[::1]:80", "model.example"] {
        assert!(ask(host, "").await.starts_with("HTTP/1.1 200"), "{host}");
    }
    let (status, error) = parsed(&ask("rebound.example:8080", "").await);
    assert_eq!((status, &error["code"]), (403, &"foreign_host".into()));
    assert!(error["message"].as_str().unwrap().contains("--allow-host"), "{error}");
    let (status, error) = parsed(&ask("localhost", "Origin: https://page.example\r\n").await);
    assert_eq!((status, &error["code"]), (403, &"foreign_origin".into()));
    let keys = Keys::load(None, Some("key".into())).unwrap();
    let server = Server::start_with(fake(), Options { keys, ..options() }).await;
    let mut socket = TcpStream::connect(server.addr()).await.unwrap();
    let head =
        "GET /v1/models HTTP/1.1\r\nHost: proxied.example\r\nX-API-Key: key\r\nConnection: close\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    assert!(rest(&mut socket).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed_without_a_word() {
    let server = impatient().await;
    let mut socket = TcpStream::connect(server.addr()).await.unwrap();
    assert_eq!(rest(&mut socket).await, "");
    // After a reply it may rest for longer than a head may take.
    let mut socket = TcpStream::connect(server.addr()).await.unwrap();
    for _ in 0..2 {
        socket.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut reply = Vec::new();
        while !reply.ends_with(b"{\"status\":\"ok\"}") {
            reply.push(socket.read_u8().await.unwrap());
        }
        tokio::time::sleep(LIMIT * 2).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_closed_its_own_direction_gets_its_reply() {
    let server = Server::start(fake()).await;
    for busy in [false, true] {
        if busy {
            server.engine.gate.close();
        }
        let mut socket = TcpStream::connect(server.addr()).await.unwrap();
        socket.write_all(post(&request(&triage(), "s").to_string()).as_bytes()).await.unwrap();
        socket.shutdown().await.unwrap();
        let gate = server.engine.gate.clone();
        let opened = tokio::spawn(async move {
            if busy {
                // Long enough for the server to ask whether somebody still listens.
                tokio::time::sleep(Duration::from_millis(500)).await;
                gate.open();
            }
        });
        let reply = rest(&mut socket).await;
        // An interim reply is no reply.
        let last = reply.strip_prefix("HTTP/1.1 102 Processing\r\n\r\n").unwrap_or(&reply);
        assert!(
            last.starts_with("HTTP/1.1 200 OK\r\n") && last.contains("\"finish_reason\":\"stop\""),
            "{reply}"
        );
        opened.await.unwrap();
    }
}

#[tokio::test]
async fn what_is_no_request_gets_an_error_like_any_other() {
    let server = Server::start(fake()).await;
    let long = "x".repeat(100_000);
    let many = "h: v\r\n".repeat(200);
    for (head, status, code) in [
        ("NO HTTP AT ALL\r\n\r\n".to_owned(), 400, "bad_request"),
        ("GET /livez HTTP/1.1\r\nno colon\r\n\r\n".to_owned(), 400, "bad_request"),
        (format!("GET /{long} HTTP/1.1\r\n\r\n"), 414, "uri_too_long"),
        (format!("GET /livez HTTP/1.1\r\n{many}\r\n"), 431, "head_too_large"),
    ] {
        let mut socket = TcpStream::connect(server.addr()).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        let (found, error) = parsed(&rest(&mut socket).await);
        assert_eq!((found, &error["code"]), (status, &code.into()), "{error}");
    }
    let metrics = server.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("dgemma_rejected_total{reason=\"uri_too_long\"} 1\n"), "{metrics}");
    assert!(metrics.contains("dgemma_requests_total{route=\"other\",status=\"400\"} 2\n"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_still_runs_after_the_drain_is_refused_as_draining() {
    let drain = Duration::from_millis(50);
    let mut server = Server::start_with(fake(), Options { drain, ..options() }).await;
    server.engine.gate.close();
    let body = request(&triage(), "s").to_string();
    let url = format!("{}/v1/chat/completions", server.url);
    let running = tokio::spawn(server.client.post(url).body(body).send());
    let gate = server.engine.gate.clone();
    pass_at(&gate).await;
    server.stop();
    let reply = running.await.unwrap().expect("the connection is not cut");
    assert_eq!(reply.headers()["retry-after"], "2");
    let error = openai_error(reply, 503).await;
    assert_eq!(error["code"], "draining");
    server.ended().await.unwrap();
    gate.open();
}

/// An engine whose thread dies when told to.
struct Mortal {
    fake: Fake,
    dies: Arc<AtomicBool>,
}

impl Engine for Mortal {
    type Sequence = FakeSequence;
    type Reply = FakeReply;

    fn info(&self) -> &EngineInfo {
        self.fake.info()
    }

    fn begin(&mut self, prompt: &[u32]) -> Result<FakeSequence, EngineError> {
        self.fake.begin(prompt)
    }

    fn committed_tokens(&self, sequence: &FakeSequence) -> usize {
        // Not among the calls that the scheduler guards.
        assert!(!self.dies.load(Ordering::SeqCst), "scripted end of the thread");
        self.fake.committed_tokens(sequence)
    }

    fn reply(&mut self, options: &ReplyOptions) -> Result<FakeReply, EngineError> {
        self.fake.reply(options)
    }

    fn pass(
        &mut self,
        batch: &mut [PassItem<'_, FakeSequence, FakeReply>],
    ) -> Result<Vec<PassOutput>, EngineError> {
        self.fake.pass(batch)
    }

    fn finish(&mut self, sequence: FakeSequence) {
        self.fake.finish(sequence);
    }

    fn kept_bytes(&self) -> usize {
        self.fake.kept_bytes()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_engine_thread_ends_the_server_and_every_request_with_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let fake = Fake::new(CONTEXT, CANVAS, VOCABULARY);
    let (controls, dies) = (fake.controls(), Arc::new(AtomicBool::new(false)));
    let mortal = Mortal { fake, dies: Arc::clone(&dies) };
    let load = move |_: &_| Ok(Parts { engine: mortal, text: text() });
    let running = tokio::spawn(serve(listener, options(), load, std::future::pending()));
    let client = crate::common::client();
    while client.get(format!("{url}/readyz")).send().await.unwrap().status() != 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // One is in a pass, two wait behind it; the thread ends with the first of those.
    controls.gate.close();
    let ask = || {
        let body = request(&triage(), "s").to_string();
        tokio::spawn(client.post(format!("{url}/v1/chat/completions")).body(body).send())
    };
    let first = ask();
    pass_at(&controls.gate).await;
    let waiting = [first, ask(), ask()];
    let depth = || async {
        let text = client.get(format!("{url}/metrics")).send().await.unwrap().text().await.unwrap();
        text.contains("dgemma_queue_depth 2\n")
    };
    while !depth().await {
        tokio::task::yield_now().await;
    }
    dies.store(true, Ordering::SeqCst);
    let started = Instant::now();
    controls.gate.open();
    let mut refused = 0;
    for request in waiting {
        let reply = request.await.unwrap().unwrap();
        if reply.status() != 200 {
            assert_eq!(openai_error(reply, 500).await["code"], "engine_gone");
            refused += 1;
        }
    }
    assert!(refused >= 2, "{refused}");
    assert!(matches!(running.await.unwrap(), Err(Error::EngineGone)));
    assert!(started.elapsed() < Duration::from_secs(20), "nobody waited for a limit");
    assert!(client.get(format!("{url}/readyz")).send().await.is_err(), "the port is closed");
}
