//! What `dgem decide` makes of a server that fails, is silent, redirects, or answers something else.

use crate::decide::{TICKET, answer, decide};
use crate::support::{Server, completion, stderr, stdout, support_reply};
use serde_json::{Value, json};

#[test]
fn case_21_fenced_and_preceded_replies_are_read() {
    for content in [format!("```json\n{}\n```", support_reply()), format!("thought\n{}", support_reply())] {
        let output =
            decide(&Server::new(200, completion(&content)).url).args(["-v", TICKET]).output().unwrap();
        assert!(output.status.success() && stdout(&output).contains("billing"), "{}", stderr(&output));
    }
}

#[test]
fn case_29_a_missing_answer_is_visible_and_fails_only_under_strict() {
    let mut reply = support_reply();
    reply["answers"].as_object_mut().unwrap().remove("team");
    let relaxed = answer(&reply, &[]);
    assert_eq!(relaxed.status.code(), Some(0));
    assert!(stdout(&relaxed).lines().nth(3).unwrap().contains("| missing "), "{}", stdout(&relaxed));
    assert!(stderr(&relaxed).contains("`team`"), "{}", stderr(&relaxed));
    let strict = answer(&reply, &["--strict", "-f", "json"]);
    let document: Value = serde_json::from_str(&stdout(&strict)).unwrap();
    assert_eq!((strict.status.code(), &document["missing"]), (Some(1), &json!(["team"])));
    assert!(stderr(&strict).contains("`team`"));
}

#[test]
fn every_failure_of_the_server_has_its_exit_code_a_message_and_a_hint() {
    for (status, code) in
        [(400, 4), (401, 3), (403, 3), (404, 4), (413, 4), (422, 4), (429, 5), (500, 5), (503, 5)]
    {
        let server = Server::new(
            status,
            r#"{"error": {"message": "because of this", "type": "x", "param": null, "code": null}}"#,
        );
        let output = decide(&server.url).args(["-v", TICKET]).output().unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{status}");
        assert!(
            message.starts_with("error: ")
                && message.contains(&format!("HTTP {status}: because of this"))
                && message.contains("\nhint: "),
            "{message}"
        );
        assert!(stdout(&output).is_empty());
    }
}

#[test]
fn a_hint_of_the_server_is_the_only_hint() {
    let server = Server::new(400, r#"{"error": {"message": "no such part; hint: send text"}}"#);
    let output = decide(&server.url).args(["-v", TICKET]).output().unwrap();
    assert!(stderr(&output).ends_with("HTTP 400: no such part\nhint: send text\n"), "{}", stderr(&output));
}

#[test]
fn what_is_no_decision_exits_4_and_shows_the_reply() {
    for body in
        [completion("I would say billing."), "<html>hello</html>".to_owned(), "{\"choices\": []}".to_owned()]
    {
        let output = decide(&Server::new(200, body).url).args(["-v", TICKET]).output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
        assert!(stderr(&output).contains("is no decision"), "{}", stderr(&output));
    }
}

#[test]
fn an_unreachable_or_silent_server_exits_5() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The kernel accepts the connection, but nobody ever answers.
    let silent =
        decide(&format!("http://{address}/v1")).args(["-v", TICKET, "--timeout", "300ms"]).output().unwrap();
    assert!(
        stderr(&silent).contains("within 0.3 s") && stderr(&silent).contains("--timeout"),
        "{}",
        stderr(&silent)
    );
    drop(listener);
    let refused = decide(&format!("http://{address}/v1")).args(["-v", TICKET]).output().unwrap();
    assert!(
        stderr(&refused).contains(&format!("cannot reach http://{address}"))
            && stderr(&refused).contains("dgemma-server"),
        "{}",
        stderr(&refused)
    );
    assert_eq!((silent.status.code(), refused.status.code()), (Some(5), Some(5)));
}

#[test]
fn a_redirect_is_not_followed() {
    let elsewhere = Server::deciding(&support_reply());
    let location: &'static str =
        Box::leak(format!("location: {}/chat/completions\r\n", elsewhere.url).into_boxed_str());
    let server = Server::with_headers(307, location, "");
    let output = decide(&server.url).args(["-v", TICKET]).env("DGEM_TOKEN", "s3cret").output().unwrap();
    assert_eq!((output.status.code(), elsewhere.got_nothing()), (Some(4), true));
    assert!(stderr(&output).contains(&elsewhere.url), "{}", stderr(&output));
}

#[test]
fn the_token_is_sent_once_as_bearer_and_printed_nowhere() {
    let server = Server::deciding(&support_reply());
    let output = decide(&server.url)
        .args(["-v", TICKET, "--stats", "-f", "json"])
        .env("DGEM_TOKEN", "Bearer s3cret")
        .output()
        .unwrap();
    assert_eq!(server.request().header("authorization").as_deref(), Some("Bearer s3cret"));
    assert!(!stdout(&output).contains("s3cret") && !stderr(&output).contains("s3cret"));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "from-file\n").unwrap();
    decide(&server.url)
        .args(["-v", TICKET, "--token-file"])
        .arg(&path)
        .env("DGEM_TOKEN", "s3cret")
        .assert()
        .success();
    assert_eq!(server.request().header("authorization").as_deref(), Some("Bearer from-file"));

    let absent = decide(&server.url).args(["-v", TICKET, "--token-file", "/no/such/token"]).output().unwrap();
    let clear =
        decide("http://198.51.100.1/v1").args(["-v", TICKET]).env("DGEM_TOKEN", "s3cret").output().unwrap();
    assert_eq!((absent.status.code(), clear.status.code()), (Some(3), Some(3)));
    assert!(!stderr(&clear).contains("s3cret"), "{}", stderr(&clear));
}

#[test]
fn hints_name_the_flags_of_the_client_beside_what_the_server_says() {
    for (status, says, hint) in [
        (401, "no key; hint: send a header", "--token-file FILE, DGEM_TOKEN or -k"),
        (404, "no route; hint: post elsewhere", "the base URL ends in /v1: -u http://"),
        (429, "full; hint: wait", "--retries 3"),
        (400, "no parts of type \"image_url\"; hint: send text", "no pictures yet; leave out -I"),
    ] {
        let server = Server::new(status, json!({"error": {"message": says}}).to_string());
        let base = server.url.trim_end_matches("/v1");
        let message = stderr(&decide(base).args(["-v", TICKET]).output().unwrap());
        assert!(message.contains(hint) && message.matches("hint:").count() == 1, "{message}");
    }
}
