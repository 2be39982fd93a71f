//! Further tries and waiting for a server, from the outside.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::support::{Server, completion, dgem, shipped, stderr, stdout, support_reply};
use serde_json::{Value, json};

/// Answers with these statuses in turn, the last one for ever.
fn statuses(list: &'static [u16]) -> Server {
    let count = AtomicUsize::new(0);
    Server::answering(move |_| {
        let status = list[count.fetch_add(1, Ordering::Relaxed).min(list.len() - 1)];
        let body = if status == 200 {
            completion(&support_reply().to_string())
        } else {
            "{\"detail\": \"busy\"}".to_owned()
        };
        (status, body)
    })
}

fn decide(server: &Server) -> assert_cmd::Command {
    let mut command = dgem();
    command
        .args(["decide", "-v", "ticket=x", "-u", &server.url, "-t"])
        .arg(shipped("support_triage.json.tmpl"));
    command
}

#[test]
fn case_31_a_busy_server_is_asked_again_only_when_retries_are_allowed() {
    for flag in ["--http-retries", "--retries"] {
        let server = statuses(&[503, 503, 200]);
        let output = decide(&server).args([flag, "3", "--stats", "-f", "json"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!((&document["stats"]["retries"], server.all().len()), (&json!(2), 3));
    }
    for arguments in [&["--retries", "0"][..], &[]] {
        let server = statuses(&[503, 503, 200]);
        let output = decide(&server).args(arguments).output().unwrap();
        assert_eq!((output.status.code(), server.all().len()), (Some(5), 1));
        assert!(stderr(&output).contains("HTTP 503: busy"), "{}", stderr(&output));
    }
}

#[test]
fn the_final_error_tells_attempts_waited_time_and_cause() {
    let server = statuses(&[503, 429, 502]);
    let output = decide(&server).args(["--retries", "2"]).output().unwrap();
    let message = stderr(&output);
    assert_eq!((output.status.code(), server.all().len()), (Some(5), 3));
    assert!(message.contains("HTTP 502: busy\n  gave up after 3 attempts and "), "{message}");
    assert!(message.contains(" s of waiting between them\nhint: "), "{message}");
}

#[test]
fn what_will_not_pass_is_asked_once() {
    for status in [400, 401, 403, 404, 413, 422, 500] {
        let server = Server::new(status, "{}");
        decide(&server).args(["--retries", "5"]).assert().failure();
        assert_eq!(server.all().len(), 1, "{status}");
    }
}

#[test]
fn retry_after_is_respected_and_the_deadline_too() {
    let server = Server::with_headers(429, "retry-after: 1\r\n", "{}");
    let start = Instant::now();
    let output = decide(&server).args(["--retries", "1"]).output().unwrap();
    assert!(start.elapsed().as_millis() >= 1_000, "{:?}", start.elapsed());
    assert_eq!((output.status.code(), server.all().len()), (Some(5), 2));

    let server = Server::with_headers(503, "retry-after: Tue, 01 Dec 2099 01:00:00 GMT\r\n", "{}");
    let start = Instant::now();
    let output = decide(&server).args(["--retries", "9", "--timeout", "20s"]).output().unwrap();
    assert!(start.elapsed().as_secs() < 15, "a wait that outlasts the deadline is not begun");
    assert_eq!((output.status.code(), server.all().len()), (Some(5), 1));
    let text = stderr(&output);
    assert!(text.contains("longer than the deadline leaves") && !text.contains("--retries"), "{text}");
}

#[test]
fn a_connection_that_is_refused_or_reset_is_tried_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let accepted = std::thread::spawn(move || {
        // Hangs up at once, twice.
        (0..2).map(|_| drop(listener.accept().unwrap().0)).count()
    });
    let output = dgem()
        .args(["decide", "-v", "ticket=x", "--retries", "2", "-u", &url, "-t"])
        .arg(shipped("support_triage.json.tmpl"))
        .output()
        .unwrap();
    assert_eq!((accepted.join().unwrap(), output.status.code()), (2, Some(5)));
    assert!(stderr(&output).contains("gave up after 3 attempts"), "{}", stderr(&output));
}

#[test]
fn wait_ready_shows_the_phase_and_the_bytes_and_then_decides() {
    let looks = AtomicUsize::new(0);
    let server = Server::answering(move |request| {
        if !request.head.starts_with("GET /readyz ") {
            return (200, completion(&support_reply().to_string()));
        }
        match looks.fetch_add(1, Ordering::Relaxed) {
            0 => (503, json!({"status": "unavailable", "phase": "loading", "bytes_loaded": 1 << 30, "bytes_total": 4_u64 << 30}).to_string()),
            1 => (503, json!({"status": "unavailable", "phase": "warming_up"}).to_string()),
            _ => (200, "{}".to_owned()),
        }
    });
    let output = decide(&server).args(["--wait-ready", "60s"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(
        stderr(&output),
        "waiting for the server: loading, 1.00 of 4.00 GiB (25%)\nwaiting for the server: warming_up\n"
    );
    assert_eq!(server.all().len(), 4);
}

#[test]
fn wait_ready_ends_and_says_how_far_the_server_was() {
    let server =
        Server::new(503, json!({"phase": "loading", "bytes_loaded": 5, "bytes_total": 10}).to_string());
    let output = decide(&server).args(["--wait-ready", "1500ms"]).output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(5), "{message}");
    assert!(message.contains("not ready within 1.5 s: loading, 0.00 of 0.00 GiB (50%)"), "{message}");
    // A server without that route is asked at once.
    let plain = Server::answering(|request| {
        if request.head.starts_with("GET ") {
            (404, "{}".to_owned())
        } else {
            (200, completion(&support_reply().to_string()))
        }
    });
    decide(&plain).args(["--wait-ready", "60s"]).assert().success();
}
