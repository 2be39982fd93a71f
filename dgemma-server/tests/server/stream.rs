//! Streams: their events, what is held back, and how they end when something goes wrong.

use std::time::Duration;

use dgemma_server::engine::fake::{Fake, Fault};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::common::talk::{events, generated, says, user, with};
use crate::common::{CANVAS, Server, VOCABULARY, fake, options};

#[tokio::test]
async fn text_comes_block_by_block_and_the_end_is_said_once() {
    let script = "one two three four five six";
    let server = Server::start(says(script, 3)).await;
    let events = server.events(&user("Count")).await;
    let blocks = generated(script).len().div_ceil(3);
    assert_eq!(events.len(), blocks + 2, "{events:?}");
    for event in &events {
        assert_eq!((&event["object"], &event["id"]), (&json!("chat.completion.chunk"), &events[0]["id"]));
        assert!(event.get("usage").is_none());
    }
    let begin = json!([{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": null, "finish_reason": null}]);
    assert_eq!(events[0]["choices"], begin);
    let end = json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": "stop"}]);
    assert_eq!(events.last().unwrap()["choices"], end);
    assert_eq!(events.last().unwrap()["x_generation"]["blocks"], blocks);
}

#[tokio::test]
async fn usage_is_told_to_those_who_ask() {
    let server = Server::start(says("one two", 64)).await;
    let request = with(user("Count"), &json!({"stream_options": {"include_usage": true}}));
    let events = server.events(&request).await;
    let last = events.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    let mut plain = server.completion(&user("Count")).await["usage"].clone();
    // The second of two equal requests finds its prompt in the cache.
    plain["prompt_tokens_details"] = last["usage"]["prompt_tokens_details"].clone();
    assert_eq!(last["usage"], plain);
}

#[tokio::test]
async fn nothing_of_a_stop_string_leaks_into_a_stream() {
    let server = Server::start(says("one tw two END three", 1)).await;
    let events = server.events(&with(user("Count"), &json!({"stop": ["two END"]}))).await;
    let text: Vec<&str> =
        events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text.concat(), "one tw ");
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn drafts_show_a_block_before_it_is_done() {
    let server = Server::start(says("one two", 64)).await;
    let events = server.events(&with(user("Count"), &json!({"x_diffusion_drafts": true}))).await;
    let drafts: Vec<&Value> =
        events.iter().filter(|event| event.get("x_diffusion_draft").is_some()).collect();
    assert_eq!(drafts.len(), 1);
    assert_eq!(drafts[0]["choices"], json!([]));
    let draft = json!({"block": 0, "step": 1, "text": "one two", "accepted": 1.0});
    assert_eq!(drafts[0]["x_diffusion_draft"], draft);
}

#[tokio::test]
async fn an_engine_that_fails_on_the_way_ends_the_stream_with_an_error() {
    let server = Server::start(says("one two three four", 1)).await;
    // Prompt and first step, then the end of the first block, then the fault.
    server.engine.fail_next(&[Fault::None, Fault::None, Fault::None, Fault::None, Fault::NonFinite]);
    let response = server.post(with(user("Count"), &json!({"stream": true})).to_string()).await;
    assert_eq!(response.status(), 200);
    let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    let events = events(response).await;
    let last = events.last().unwrap();
    assert_eq!(last["error"]["code"], "engine_fault", "{events:?}");
    assert_eq!(last["request_id"], *id);
    assert!(!events.contains(&json!("[DONE]")));
    assert!(
        events.iter().any(|event| event["choices"][0]["delta"]["content"]
            .as_str()
            .is_some_and(|text| !text.is_empty()))
    );
    // A plain reply is a plain error.
    server.engine.fail_next(&[Fault::None, Fault::NonFinite]);
    assert_eq!(server.refused(user("Count").to_string(), 500).await["code"], "engine_fault");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_stops_the_work_and_is_counted() {
    let long: Vec<Vec<u32>> = vec![generated("word "); 40];
    let server = Server::start(fake().with_reply(long).with_delay(Duration::from_millis(100))).await;
    let mut response = server.post(with(user("Go"), &json!({"stream": true})).to_string()).await;
    while !response.chunk().await.unwrap().unwrap().windows(4).any(|window| window == b"word") {}
    drop(response);
    let patience = std::time::Instant::now() + Duration::from_secs(20);
    while !server.get("/metrics").await.text().await.unwrap().contains("dgemma_cancelled_total 1\n") {
        assert!(std::time::Instant::now() < patience, "nobody noticed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // One more may have been on its way.
    let passes = server.engine.log.passes().len();
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(server.engine.log.passes().len() <= passes + 1);
    assert!(passes < 80, "all of the reply was made");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stays_and_reads_nothing_is_given_up() {
    let endless: Vec<Vec<u32>> = vec![generated("word "); 40_000];
    let engine = Fake::new(1 << 20, CANVAS, VOCABULARY).with_reply(endless);
    let short = dgemma_server::Options { receive_limit: Duration::from_millis(400), ..options() };
    let server = Server::start_with(engine, short).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut socket = socket.connect(server.addr().parse().unwrap()).await.unwrap();
    let body = with(user("Go"), &json!({"stream": true, "max_tokens": 1_000_000})).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes()).await.unwrap();
    let patience = std::time::Instant::now() + Duration::from_secs(30);
    while !server.get("/metrics").await.text().await.unwrap().contains("dgemma_cancelled_total 1\n") {
        assert!(std::time::Instant::now() < patience, "it is waited for without end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The connection is let go as well: what the system still holds of the reply comes, then its end.
    let mut rest = Vec::new();
    let end = tokio::time::timeout(Duration::from_secs(20), socket.read_to_end(&mut rest));
    assert!(end.await.is_ok(), "the connection stays");
    assert!(!String::from_utf8_lossy(&rest).contains("[DONE]"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_wait_is_filled_with_comments() {
    let server = Server::start(says("done", 64)).await;
    server.engine.gate.close();
    let mut response = server.post(with(user("Go"), &json!({"stream": true})).to_string()).await;
    let mut seen = String::new();
    while !seen.contains(": still working\n\n") {
        seen += std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap();
    }
    server.engine.gate.open();
    assert!(response.text().await.unwrap().ends_with("data: [DONE]\n\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_holds_for_a_stream_too() {
    let long: Vec<Vec<u32>> = vec![generated("word "); 40];
    let server = Server::start(fake().with_reply(long).with_delay(Duration::from_millis(50))).await;
    let request = server.client.post(format!("{}/v1/chat/completions", server.url));
    let body = with(user("Go"), &json!({"stream": true})).to_string();
    let response = request.header("x-request-timeout-ms", "500").body(body).send().await.unwrap();
    assert_eq!(events(response).await.last().unwrap()["error"]["code"], "deadline_exceeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_past_the_drain_is_told_so() {
    let long: Vec<Vec<u32>> = vec![generated("word "); 100];
    let short = dgemma_server::Options { drain: Duration::from_millis(200), ..options() };
    let mut server =
        Server::start_with(fake().with_reply(long).with_delay(Duration::from_millis(50)), short).await;
    let response = server.post(with(user("Go"), &json!({"stream": true})).to_string()).await;
    server.stop();
    assert_eq!(events(response).await.last().unwrap()["error"]["code"], "draining");
    server.ended().await.unwrap();
}
