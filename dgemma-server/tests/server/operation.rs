//! What operators rely on, through a real socket: keys, origins, deadlines, cancelled work, metrics, kinds of HTTP.

use std::collections::HashMap;
use std::time::Duration;

use crate::common::{Server, fake, openai_error, options, pass_at, request, triage};
use dgemma_server::Options;
use dgemma_server::http::keys::Keys;
use dgemma_server::http::routes::ROUTES;
use dgemma_server::metrics;
use reqwest::{Method, Response, StatusCode, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CHAT: &str = "/v1/chat/completions";

fn keys() -> Keys {
    Keys::load(None, Some("first-key,second-key".into())).unwrap()
}

fn decision() -> String {
    request(&triage(), "s").to_string()
}

async fn send(server: &Server, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
    let method: Method = method.parse().unwrap();
    let mut sent = server.client.request(method, format!("{}{path}", server.url));
    for (name, value) in headers {
        sent = sent.header(*name, *value);
    }
    sent.body(decision()).send().await.unwrap()
}

/// The samples of `GET /metrics`, by name and labels as they stand there.
async fn samples(server: &Server) -> HashMap<String, f64> {
    let response = server.get("/metrics").await;
    assert_eq!(response.headers()["content-type"], metrics::CONTENT_TYPE);
    let text = response.text().await.unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

async fn until(server: &Server, name: &str, value: f64) {
    while samples(server).await.get(name) != Some(&value) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn every_route_but_two_asks_for_a_key() {
    let server = Server::start_with(fake(), Options { keys: keys(), ..options() }).await;
    let open: Vec<_> = ROUTES.iter().filter(|route| route.open).map(|route| route.path).collect();
    assert_eq!(open, ["/livez", "/readyz"]);
    for route in ROUTES {
        let ask = |headers: &'static [(&str, &str)]| send(&server, route.method, route.path, headers);
        if route.open {
            assert_eq!(ask(&[]).await.status(), 200, "{}", route.path);
            continue;
        }
        for (headers, code) in [
            (&[][..], "missing_api_key"),
            (&[("authorization", "Basic Zmlyc3Qta2V5")], "missing_api_key"),
            (&[("authorization", "Bearer first-ke")], "invalid_api_key"),
            (&[("authorization", "Bearer first-key2")], "invalid_api_key"),
            (&[("authorization", "Bearer")], "missing_api_key"),
            (&[("authorization", "Bearer ")], "missing_api_key"),
            (&[("x-api-key", "third-key")], "invalid_api_key"),
        ] {
            let response = ask(headers).await;
            assert_eq!(response.headers()["www-authenticate"], "Bearer");
            let error = openai_error(response, 401).await;
            assert_eq!((&error["type"], &error["code"]), (&"authentication_error".into(), &code.into()));
            assert!(!error.to_string().contains("first-ke"), "{error}");
        }
        for headers in [
            &[("authorization", "Bearer first-key")],
            &[("authorization", "bearer second-key")],
            &[("x-api-key", "second-key")],
        ] {
            assert_ne!(ask(headers).await.status(), 401, "{}", route.path);
        }
    }
    // No method of a guarded path gets past, whether it is one of the route or not.
    for route in ROUTES.iter().filter(|route| !route.open) {
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "X-OTHER"] {
            let response = send(&server, method, route.path, &[]).await;
            assert_eq!(response.headers()["www-authenticate"], "Bearer", "{method} {}", route.path);
            if method == "HEAD" {
                assert_eq!(response.status(), 401);
            } else if route.path == "/v1/systemone" {
                let body: serde_json::Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
                assert_eq!(body["detail"]["error_type"], "authentication_error", "{method}");
                assert_eq!(body["error"]["code"], "missing_api_key", "{method}");
            } else {
                openai_error(response, 401).await;
            }
        }
    }
    // What is no route must not tell so without a key, and an open path is open for its own method only by chance of name.
    for path in ["/v1/nothing", "/livez/", "/livez/../health", "//livez", "/metrics?key=first-key"] {
        assert_eq!(send(&server, "GET", path, &[]).await.status(), 401, "{path}");
    }
    let known = [("authorization", "Bearer first-key")];
    assert_eq!(send(&server, "POST", CHAT, &known).await.status(), 200);
    assert_eq!(send(&server, "GET", "/v1/nothing", &known).await.status(), 404);
}

#[test]
fn no_options_show_a_key() {
    assert!(!format!("{:?}", Options { keys: keys(), ..options() }).contains("first-key"));
}

#[tokio::test]
async fn other_origins_get_nothing_unless_they_are_named() {
    let preflight: &[(&str, &str)] = &[
        ("origin", "https://page.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ];
    let closed = Server::start(fake()).await;
    for method in ["OPTIONS", "POST"] {
        let response = send(&closed, method, CHAT, preflight).await;
        assert_eq!(response.status(), 403, "a server without keys is not for strange pages");
        assert!(!response.headers().keys().any(|name| name.as_str().starts_with("access-control")));
    }
    let cors_origins = vec!["https://page.example".parse().unwrap()];
    let server = Server::start_with(fake(), Options { keys: keys(), cors_origins, ..options() }).await;
    let response = send(&server, "OPTIONS", CHAT, preflight).await;
    assert_eq!(response.status(), 200, "a preflight carries no key");
    assert_eq!(response.headers()["access-control-allow-origin"], "https://page.example");
    assert!(response.headers()["access-control-allow-headers"].to_str().unwrap().contains("authorization"));
    // The page can read a refusal, too.
    let response = send(&server, "POST", CHAT, &[("origin", "https://page.example")]).await;
    assert_eq!(response.headers()["access-control-allow-origin"], "https://page.example");
    assert_eq!(response.status(), 401);
    let response = send(&server, "OPTIONS", CHAT, &[("origin", "https://other.example"), preflight[1]]).await;
    assert!(!response.headers().contains_key("access-control-allow-origin"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_too_long_is_refused_and_its_place_is_free() {
    let queue_wait = Duration::from_millis(50);
    let server = Server::start_with(fake(), Options { queue_places: 1, queue_wait, ..options() }).await;
    server.engine.gate.close();
    let running = tokio::spawn(server.client.post(format!("{}{CHAT}", server.url)).body(decision()).send());
    pass_at(&server.engine.gate).await;
    // The engine is busy with the first, so this one waits, for no longer than it may.
    let response = server.post(decision()).await;
    assert_eq!(response.headers()["retry-after"], "2");
    let error = openai_error(response, 503).await;
    assert_eq!(error["code"], "queue_timeout");
    assert!(error["message"].as_str().unwrap().contains("50 ms"), "{error}");
    server.engine.gate.open();
    assert_eq!(running.await.unwrap().unwrap().status(), 200, "what has begun is not cut off by the limit");
    server.decide(&triage(), "the place is free").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_can_limit_the_time_of_its_request() {
    let server = Server::start(fake()).await;
    for wrong in ["0", "-5", "soon", "1.5", "99999999999999999999"] {
        let error =
            openai_error(send(&server, "POST", CHAT, &[("x-request-timeout-ms", wrong)]).await, 400).await;
        assert_eq!(
            (&error["code"], &error["param"]),
            (&"invalid_header".into(), &"X-Request-Timeout-Ms".into())
        );
        assert!(error["message"].as_str().unwrap().contains(wrong), "{error}");
    }
    assert_eq!(send(&server, "POST", CHAT, &[("x-request-timeout-ms", "600000")]).await.status(), 200);
    server.engine.gate.close();
    let error = openai_error(send(&server, "POST", CHAT, &[("x-request-timeout-ms", "40")]).await, 504).await;
    assert_eq!((&error["code"], &error["type"]), (&"deadline_exceeded".into(), &"timeout_error".into()));
    server.engine.gate.open();
    server.decide(&triage(), "still here").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_leave_are_counted_and_their_places_are_free() {
    let server = Server::start_with(fake(), Options { queue_places: 2, ..options() }).await;
    server.engine.gate.close();
    let ask = || tokio::spawn(server.client.post(format!("{}{CHAT}", server.url)).body(decision()).send());
    let running = ask();
    pass_at(&server.engine.gate).await;
    let leavers = [ask(), ask()];
    until(&server, "dgemma_queue_depth", 2.0).await;
    server.refused(decision(), 429).await;
    leavers.iter().for_each(tokio::task::JoinHandle::abort);
    until(&server, "dgemma_cancelled_total", 2.0).await;
    server.engine.gate.open();
    assert_eq!(running.await.unwrap().unwrap().status(), 200);
    until(&server, "dgemma_queue_depth", 0.0).await;
    server.decide(&triage(), "next").await;
    assert_eq!(samples(&server).await["dgemma_cancelled_total"], 2.0, "who got an answer has not left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_many_reads_takes_as_many_places() {
    let server = Server::start_with(fake(), Options { queue_places: 4, ..options() }).await;
    let mut schema = triage();
    schema["samples"] = 5.into();
    let error = server.refused(request(&schema, "s").to_string(), 413).await;
    assert_eq!(error["code"], "too_many_reads");
    schema["samples"] = 4.into();
    server.decide(&schema, "s").await;
    server.engine.gate.close();
    let running = tokio::spawn(server.client.post(format!("{}{CHAT}", server.url)).body(decision()).send());
    pass_at(&server.engine.gate).await;
    let four = request(&schema, "s").to_string();
    let waiting = tokio::spawn(server.client.post(format!("{}{CHAT}", server.url)).body(four).send());
    until(&server, "dgemma_queue_depth", 4.0).await;
    server.refused(decision(), 429).await;
    server.engine.gate.open();
    assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
    assert_eq!(running.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let server = Server::start(fake()).await;
    let before = samples(&server).await;
    server.decide(&triage(), "one").await;
    server.decide(&triage(), "two").await;
    server.refused("not json", 400).await;
    openai_error(server.get("/v1/nothing").await, 404).await;
    openai_error(server.get("/v1/other").await, 404).await;
    let after = samples(&server).await;
    let grown = |name: &str| after[name] - before.get(name).copied().unwrap_or(0.0);
    assert_eq!(grown("dgemma_requests_total{route=\"/v1/chat/completions\",status=\"200\"}"), 2.0);
    assert_eq!(grown("dgemma_requests_total{route=\"/v1/chat/completions\",status=\"400\"}"), 1.0);
    assert_eq!(grown("dgemma_requests_total{route=\"other\",status=\"404\"}"), 2.0, "no series per path");
    assert_eq!(grown("dgemma_request_seconds_count{route=\"/v1/chat/completions\"}"), 3.0);
    assert_eq!(grown("dgemma_rejected_total{reason=\"body_not_json\"}"), 1.0);
    assert_eq!(grown("dgemma_rejected_total{reason=\"not_found\"}"), 2.0);
    assert_eq!(grown("dgemma_queue_wait_seconds_count"), 2.0);
    assert_eq!(grown("dgemma_forward_seconds_count"), 2.0);
    assert_eq!(grown("dgemma_batch_rows_count"), 2.0);
    assert_eq!(grown("dgemma_label_mass_count"), 6.0, "three slots each");
    assert_eq!(grown("dgemma_label_mass_sum"), 3.0, "the fake gives a half");
    assert!(grown("dgemma_reused_tokens_total") > 0.0, "the second shares its schema with the first");
    assert!(grown("dgemma_batch_rows_sum") > grown("dgemma_prefill_tokens_total"));
    assert_eq!(after["dgemma_queue_depth"], 0.0);
    assert!(after.contains_key("dgemma_model_load_seconds"));
    assert_eq!((after["dgemma_cancelled_total"], after["dgemma_panics_total"]), (0.0, 0.0));
    let build = after.keys().find(|name| name.starts_with("dgemma_build_info{")).unwrap();
    assert!(build.contains(&format!("version=\"{}\"", dgemma_server::build::VERSION)), "{build}");
    let kept: usize = server.engine.log.prompts().iter().map(|prompt| size_of_val(prompt.as_slice())).sum();
    until(&server, "dgemma_prefix_cache_bytes", kept as f64).await;
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let server = Server::start(fake()).await;
    let mut socket = TcpStream::connect(server.addr()).await.unwrap();
    for _ in 0..3 {
        socket.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut reply = Vec::new();
        while !reply.ends_with(b"{\"status\":\"ok\"}") {
            reply.push(socket.read_u8().await.unwrap());
        }
        assert!(reply.starts_with(b"HTTP/1.1 200"));
    }
}

#[tokio::test]
async fn http_2_clients_are_served() {
    let server = Server::start(fake()).await;
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let sent = client.post(format!("{}{CHAT}", server.url)).header("content-type", "application/json");
    let response = sent.body(decision()).send().await.unwrap();
    assert_eq!((response.status(), response.version()), (StatusCode::OK, Version::HTTP_2));
    let response = client.get(format!("{}/v1/nothing", server.url)).send().await.unwrap();
    openai_error(response, 404).await;
}
