//! `dgem doctor` and `dgem models` from the outside.

use crate::support::{Server, dgem, stderr, stdout};
use serde_json::{Value, json};

/// A server that is ready and has one model.
fn healthy() -> Server {
    Server::answering(|request| {
        let limits = json!({"questions": 64, "alternatives": 255, "reads": 32, "context_tokens": 4096});
        let body = if request.head.starts_with("GET /v1/models ") {
            json!({"object": "list", "data": [{"id": "tiny-model", "object": "model", "limits": limits}]})
        } else if request.head.starts_with("GET /readyz ") {
            json!({"status": "ok", "phase": "ready"})
        } else {
            return (404, "{}".to_owned());
        };
        (200, body.to_string())
    })
}

fn doctor(server: &Server, arguments: &[&str]) -> std::process::Output {
    dgem().args(["doctor", "-u", &server.url]).args(arguments).output().unwrap()
}

#[test]
fn every_step_is_told_in_text_and_in_json() {
    let server = healthy();
    let output = doctor(&server, &[]);
    let text = stdout(&output);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{text}");
    let steps: Vec<(&str, &str)> = text.lines().map(|line| (line[..9].trim(), line[9..19].trim())).collect();
    assert_eq!(steps, [("ok", "settings"), ("ok", "token"), ("ok", "server"), ("ok", "model")], "{text}");
    assert!(text.contains("no settings file; server") && text.contains("(--url)"), "{text}");
    let document: Value = serde_json::from_str(&stdout(&doctor(&server, &["--json"]))).unwrap();
    assert_eq!(document["ok"], json!(true));
    assert_eq!(document["settings"]["url"], json!({"value": server.url, "origin": "--url"}));
    assert_eq!(document["checks"].as_array().unwrap().len(), 4);
}

#[test]
fn a_step_that_fails_says_why_and_gives_the_exit_code() {
    let server = Server::answering(|request| {
        if request.head.starts_with("GET /readyz ") {
            (200, "{}".to_owned())
        } else {
            (401, "{\"detail\": \"who?\"}".to_owned())
        }
    });
    let output = doctor(&server, &[]);
    assert_eq!(output.status.code(), Some(3), "{}", stdout(&output));
    assert!(stdout(&output).contains("failed   model") && stdout(&output).contains("HTTP 401: who?"));
    // Without the token that it needs the server is not blamed.
    let output = doctor(&server, &["--token-command", "exit 1"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("failed   token") && text.contains("skipped  server"), "{text}");
    let output = dgem().args(["doctor", "-u", "ftp://x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("failed   settings"), "{}", stdout(&output));
    let output = dgem().args(["doctor", "--json", "-u", "http://127.0.0.1:1/v1"]).output().unwrap();
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((output.status.code(), &document["ok"]), (Some(5), &json!(false)));
    assert_eq!(document["checks"][3]["status"], "skipped");
    let starting =
        Server::new(503, json!({"phase": "loading", "bytes_loaded": 1, "bytes_total": 2}).to_string());
    let output = doctor(&starting, &[]);
    assert_eq!(output.status.code(), Some(5));
    assert!(stdout(&output).contains("is not ready: loading, 0.00 of 0.00 GiB (50%)"), "{}", stdout(&output));
}

#[test]
fn a_model_that_the_server_does_not_have_is_a_warning() {
    let output = doctor(&healthy(), &["-m", "other"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        stdout(&output).contains("warning  model     `other` is not among tiny-model"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn models_are_listed_with_their_limits() {
    let server = healthy();
    let output = dgem().args(["models", "-u", &server.url]).output().unwrap();
    let line = stdout(&output).lines().nth(2).unwrap().to_owned();
    assert!(line.starts_with("tiny-model ") && line.contains("| 64 ") && line.contains("| 255 "), "{line}");
    let output = dgem().args(["models", "--json", "-u", &server.url]).output().unwrap();
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&document[0]["id"], &document[0]["limits"]["reads"]), (&json!("tiny-model"), &json!(32)));
    let plain = Server::new(200, "<html>hello</html>");
    let output = dgem().args(["models", "-u", &plain.url]).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(
        stderr(&output).contains("<html>hello") && stderr(&output).contains("/v1"),
        "{}",
        stderr(&output)
    );
}
