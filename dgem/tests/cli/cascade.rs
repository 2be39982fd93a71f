//! The cascade: only uncertain questions go to the second model, whose answers are checked, and whatever fails changes nothing.

use crate::support::{Recorded, Server, completion, dgem, stderr, stdout, summary, support_reply, template};
use serde_json::{Value, json};
use std::process::Output;

const TEMPLATE: &str = r#"{"schema": {"instructions": "Triage.", "questions": [
    {"id": "urgent", "type": "boolean", "instructions": "Urgent?", "criteria": {"true": "an outage", "false": "it can wait"}},
    {"id": "team", "type": "choice", "options": [{"name": "billing", "description": "money"}, {"name": "support"}]},
    {"id": "paid", "type": "boolean", "ask_if": {"team": ["billing"]}}]}, "state": "the ticket"}"#;

/// Urgent is certain; the team is not (62 to 38), and `paid` hangs on it.
fn first() -> Value {
    json!({"answers": {
        "urgent": {"type": "boolean", "noul": 0.99},
        "team": {"type": "choice", "probabilities": {"billing": 0.62, "support": 0.38}},
        "paid": {"type": "boolean", "noul": 0.98}}})
}

fn said(decision: &str, confidence: f64) -> Value {
    json!({"decision": decision, "confidence": confidence, "explanation": "because"})
}

/// A second model behind an OpenAI-compatible server.
fn second(reply: &Value) -> Server {
    let body = json!({"model": "big-model-2026", "choices": [{"message": {"role": "assistant", "content": reply.to_string()}}]});
    Server::new(200, body.to_string())
}

fn decide(first: &Server, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let (path, _folder) = template(TEMPLATE);
    let mut command = dgem();
    command
        .args(["decide", "-u", &first.url, "-t"])
        .arg(path)
        .args(arguments)
        .envs(environment.iter().copied());
    command.output().unwrap()
}

/// A run with an OpenAI-compatible second model: the document, and what the second model was asked.
fn run(first: &Value, second: &Server, arguments: &[&str]) -> (Value, Output) {
    let server = Server::deciding(first);
    let flags = ["-f", "json", "--cascade-url", &second.url, "--cascade-model", "big-model"];
    let output = decide(&server, &[&flags, arguments].concat(), &[("DGEM_CASCADE_TOKEN", "s3cret")]);
    assert!(!stdout(&output).contains("s3cret") && !stderr(&output).contains("s3cret"));
    (serde_json::from_str(&stdout(&output)).unwrap_or_default(), output)
}

fn prompt(request: &Recorded) -> String {
    request.json()["messages"][0]["content"].as_str().unwrap().to_owned()
}

#[test]
fn only_the_uncertain_question_goes_to_the_second_model() {
    let second = second(&json!({"team": said("billing", 0.95)}));
    let (document, output) = run(&first(), &second, &["--cascade", "entropy"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    let request = second.request();
    assert_eq!(request.header("authorization").as_deref(), Some("Bearer s3cret"));
    let body = request.json();
    assert_eq!((&body["model"], &body["temperature"]), (&json!("big-model"), &json!(0)));
    let schema = &body["response_format"]["json_schema"]["schema"];
    assert_eq!(schema["properties"].as_object().unwrap().keys().collect::<Vec<_>>(), ["team"]);
    assert_eq!(schema["properties"]["team"]["properties"]["decision"]["enum"], json!(["billing", "support"]));
    let text = prompt(&request);
    for part in
        ["Triage.", "Question team:", "- billing: money", "leaned toward billing", "State:\nthe ticket"]
    {
        assert!(text.contains(part), "{part} not in {text}");
    }
    assert!(!text.contains("Question urgent"), "{text}");

    let team = &document["answers"]["team"];
    assert_eq!(
        (&team["choice"], &team["confidence"], &team["source"]),
        (&json!("billing"), &json!(0.95), &json!("stage2_stated"))
    );
    assert!(document["answers"]["urgent"].get("source").is_none());
    let cascade = &document["cascade"];
    for (key, value) in [
        ("mode", json!("entropy")),
        ("threshold", json!(0.16)),
        ("threshold_unit", json!("normalised")),
        ("prior", json!("soft")),
        ("stage1_model", json!("tiny-model")),
        ("stage2_requested", json!("big-model")),
        ("stage2_model", json!("big-model-2026")),
        ("questions_total", json!(3)),
        ("escalated", json!(1)),
        ("replaced", json!(1)),
        ("error", Value::Null),
    ] {
        assert_eq!(cascade[key], value, "{key}");
    }
    assert!(cascade["latency_ms"].as_f64().unwrap() > 0.0);
    let entry = &cascade["questions"][0];
    assert_eq!(
        (&entry["id"], &entry["reason"], &entry["kept"]),
        (&json!("team"), &json!("entropy"), &json!("stage2"))
    );
    assert_eq!(
        (&entry["stage1"]["value"], &entry["stage2"]["explanation"]),
        (&json!("billing"), &json!("because"))
    );
}

#[test]
fn the_threshold_has_a_unit_and_nothing_is_sent_below_it() {
    let second = second(&json!({}));
    for (threshold, sent) in [("97%", false), ("95%", true), ("0.67nats", false), ("0.66nats", true)] {
        run(&first(), &second, &["--cascade", "entropy", "--cascade-threshold", threshold]);
        assert_eq!(!second.got_nothing(), sent, "{threshold}");
    }
    let (document, _) = run(&first(), &second, &["--cascade", "on-miss"]);
    assert!(second.got_nothing());
    assert_eq!((&document["cascade"]["escalated"], &document["cascade"]["replaced"]), (&json!(0), &json!(0)));
    let (document, _) = run(&first(), &second, &[]);
    assert!(second.got_nothing() && document.get("cascade").is_none());
    let (_, output) = run(&first(), &second, &["--cascade", "entropy", "--cascade-threshold", "0.35"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("0.35nats"), "{}", stderr(&output));
}

#[test]
fn missing_and_invalid_answers_are_asked_again() {
    let mut reply = first();
    reply["answers"].as_object_mut().unwrap().remove("urgent");
    reply["answers"]["team"]["choice"] = json!("sales");
    let second = second(&json!({"urgent": said("no", 0.9), "team": said("billing", 0.7)}));
    let (document, output) = run(&reply, &second, &["--cascade", "on-miss", "--strict"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let reasons: Vec<&Value> =
        document["cascade"]["questions"].as_array().unwrap().iter().map(|entry| &entry["reason"]).collect();
    assert_eq!(reasons, ["missing", "invalid"]);
    assert_eq!((&document["missing"], &document["invalid"]), (&json!([]), &json!({})));
    assert!((document["answers"]["urgent"]["noul"].as_f64().unwrap() - 0.1).abs() < 1e-9);
}

#[test]
fn an_answer_of_the_second_model_that_is_not_allowed_keeps_the_first() {
    for (reply, reason) in [
        (json!({"team": said("sales", 0.9)}), "`sales` is none of the allowed answers"),
        (json!({"team": said("support", 7.0)}), "no confidence between 0 and 1"),
        (json!({"team": {"confidence": 0.9}}), "has no decision"),
        (json!({"other": 1}), "no answer came"),
    ] {
        let (document, output) = run(&first(), &second(&reply), &["--cascade", "entropy"]);
        assert_eq!(output.status.code(), Some(0));
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
        assert_eq!(document["answers"]["team"]["choice"], "billing");
        assert_eq!(document["cascade"]["questions"][0]["kept"], "stage1");
        assert!(document["cascade"]["error"].as_str().unwrap().contains(reason));
    }
}

#[test]
fn a_second_model_that_fails_keeps_the_first_and_says_so() {
    for server in [
        Server::new(400, r#"{"error": {"message": "no such model"}}"#),
        Server::new(200, "not JSON"),
        Server::new(200, completion("I think billing.")),
    ] {
        let (document, output) = run(&first(), &server, &["--cascade", "entropy"]);
        assert_eq!(output.status.code(), Some(0));
        assert!(stderr(&output).contains("the first model's answers stand"), "{}", stderr(&output));
        assert_eq!(
            (&document["answers"]["team"]["choice"], &document["cascade"]["replaced"]),
            (&json!("billing"), &json!(0))
        );
        assert!(document["cascade"]["error"].is_string());
    }
}

#[test]
fn when_the_first_model_fails_the_second_is_asked_everything() {
    let second =
        second(&json!({"urgent": said("yes", 0.9), "team": said("support", 0.8), "paid": said("no", 0.6)}));
    let broken = Server::new(503, "");
    let flags = ["-f", "json", "--cascade", "entropy", "--cascade-url", &second.url];
    let output = decide(&broken, &flags, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("the first model gave no answer") && stderr(&output).contains("503"),
        "{}",
        stderr(&output)
    );
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    // The condition of `paid` does not hold on the second model's answers.
    assert_eq!(
        (&document["answers"]["team"]["choice"], &document["answers"]["paid"]),
        (&json!("support"), &Value::Null)
    );
    let nothing = decide(
        &Server::new(503, ""),
        &["--cascade", "on-miss", "--cascade-url", "http://127.0.0.1:1/v1", "--cascade-timeout", "2"],
        &[],
    );
    assert_eq!(nothing.status.code(), Some(4), "{}", stderr(&nothing));
    // A mistake of the user stays one.
    assert_eq!(decide(&Server::new(401, ""), &flags, &[]).status.code(), Some(3));
}

#[test]
fn a_changed_answer_changes_what_hangs_on_it() {
    let (document, output) =
        run(&first(), &second(&json!({"team": said("support", 0.9)})), &["--cascade", "entropy"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(document["answers"]["paid"], Value::Null);
}

#[test]
fn the_prior_says_as_much_as_it_is_allowed_to() {
    let second = second(&json!({"team": said("billing", 0.9)}));
    for (prior, part, there) in [
        ("full", "billing 62.0%, support 38.0%", true),
        ("soft", "leaned toward billing", true),
        ("soft", "62.0%", false),
        ("none", "faster model", false),
    ] {
        run(&first(), &second, &["--cascade", "entropy", "--cascade-prior", prior]);
        assert_eq!(prompt(&second.request()).contains(part), there, "{prior}: {part}");
    }
}

/// A reply of Gemini.
fn gemini(reply: &Value) -> String {
    json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "hm", "thought": true}, {"text": reply.to_string()}]}, "finishReason": "STOP"}],
           "modelVersion": "gemini-3.8-flash-001"})
    .to_string()
}

#[test]
fn gemini_is_reached_with_a_key() {
    let second = Server::new(200, gemini(&json!({"team": said("support", 0.9)})));
    let base = second.url.trim_end_matches("/v1");
    let server = Server::deciding(&first());
    let arguments = [
        "-f",
        "json",
        "--cascade",
        "entropy",
        "--cascade-via",
        "gemini",
        "--cascade-url",
        base,
        "-I",
        "data:image/gif;base64,R0lGODlhAQABAAAAACw=",
    ];
    let output = decide(&server, &arguments, &[("GEMINI_API_KEY", "k3y")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let request = second.request();
    assert!(
        request.head.starts_with("POST /v1beta/models/gemini-3.8-flash:generateContent HTTP"),
        "{}",
        request.head
    );
    assert_eq!(
        (request.header("x-goog-api-key").as_deref(), request.header("authorization")),
        (Some("k3y"), None)
    );
    let body = request.json();
    assert_eq!(body["contents"][0]["parts"][0]["inlineData"]["mimeType"], "image/gif");
    assert!(body["contents"][0]["parts"][1]["text"].as_str().unwrap().contains("Question team"));
    let config = &body["generationConfig"];
    assert_eq!(
        (&config["temperature"], &config["responseMimeType"]),
        (&json!(0), &json!("application/json"))
    );
    assert_eq!(
        config["responseSchema"]["properties"]["team"]["properties"]["decision"],
        json!({"type": "STRING", "enum": ["billing", "support"]})
    );
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (&document["cascade"]["stage2_model"], &document["answers"]["team"]["choice"]),
        (&json!("gemini-3.8-flash-001"), &json!("support"))
    );
    assert!(!stdout(&output).contains("k3y") && !stderr(&output).contains("k3y"));
}

#[test]
fn gemini_is_reached_through_vertex() {
    let second = Server::new(200, gemini(&json!({"team": said("support", 0.9)})));
    let base = second.url.trim_end_matches("/v1");
    let server = Server::deciding(&first());
    let arguments = [
        "--cascade",
        "entropy",
        "--cascade-via",
        "vertex",
        "--cascade-url",
        base,
        "--cascade-model",
        "gemini-3.8-pro",
    ];
    let environment = [("GOOGLE_CLOUD_PROJECT", "my-project"), ("DGEM_CASCADE_TOKEN", "access")];
    let output = decide(&server, &arguments, &environment);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("| stage2_stated"), "{}", stdout(&output));
    let request = second.request();
    let path =
        "/v1/projects/my-project/locations/global/publishers/google/models/gemini-3.8-pro:generateContent";
    assert!(request.head.starts_with(&format!("POST {path} HTTP")), "{}", request.head);
    assert_eq!(request.header("authorization").as_deref(), Some("Bearer access"));
}

#[test]
fn settings_that_cannot_work_cost_no_request() {
    for (arguments, environment, part) in [
        (&[][..], &[][..], "there is no second model"),
        (&["--cascade-via", "openai"], &[], "its URL is missing"),
        (&["--cascade-via", "gemini"], &[], "GEMINI_API_KEY"),
        (&["--cascade-via", "vertex"], &[], "needs a project"),
        (&["--cascade-via", "vertex", "--cascade-project", "a/b"], &[], "`a/b`"),
        (&["--cascade-url", "http://198.51.100.1/v1"], &[("DGEM_CASCADE_TOKEN", "s3cret")], "plain http"),
        (&["--cascade-url", "http://127.0.0.1:1/v1", "--cascade-timeout", "soon"], &[], "soon"),
    ] {
        let server = Server::deciding(&support_reply());
        let output = decide(&server, &[&["--cascade", "entropy"], arguments].concat(), environment);
        let expected = if part == "plain http" { 3 } else { 2 };
        assert_eq!(
            (output.status.code(), server.got_nothing()),
            (Some(expected), true),
            "{}",
            stderr(&output)
        );
        assert!(stderr(&output).contains(part) && !stderr(&output).contains("s3cret"), "{}", stderr(&output));
    }
}

/// A second model that makes decisions: other shapes of JSON are refused, and its list of models names limits.
fn deciding_second(request: &Recorded) -> (u16, String) {
    if request.head.starts_with("GET") {
        return (
            200,
            json!({"data": [{"id": "big-model", "limits": {"questions": 16, "alternatives": 26}}]})
                .to_string(),
        );
    }
    let body = request.json();
    if body.get("response_format").is_some() {
        let error =
            json!({"error": {"message": "only schemas of enums", "code": "unsupported_response_format"}});
        return (400, error.to_string());
    }
    let answer = json!({"type": "choice", "probabilities": {"billing": 0.1, "support": 0.9}});
    let content =
        json!({"answers": {"team": answer}, "diagnostics": {"questions": {"team": {"label_mass": 0.7}}}});
    (200, completion(&content.to_string()))
}

#[test]
fn a_second_model_that_makes_decisions_is_asked_for_one() {
    let second = Server::answering(deciding_second);
    let (document, output) =
        run(&first(), &second, &["--cascade", "entropy", "--min-label-mass", "80%", "--fields", "team"]);
    let requests = second.all();
    let routes: Vec<&str> = requests.iter().map(|request| request.head.lines().next().unwrap()).collect();
    assert_eq!(
        routes,
        [
            "POST /v1/chat/completions HTTP/1.1",
            "GET /v1/models HTTP/1.1",
            "POST /v1/chat/completions HTTP/1.1"
        ]
    );
    // The uncertain question alone, with what the first model thought of it.
    let (schema, state) = (requests[2].schema(), requests[2].state());
    assert_eq!((summary(&schema).as_str(), state.as_str()), ("team choice billing support", "the ticket"));
    assert_eq!(schema["instructions"], "Triage.");
    let told = schema["questions"][0]["instructions"].as_str().unwrap();
    assert!(told.starts_with("A faster model leaned toward billing."), "{told}");
    let team = &document["answers"]["team"];
    assert_eq!(
        (&team["choice"], &team["confidence"], &team["source"]),
        (&json!("support"), &json!(0.9), &json!("stage2"))
    );
    let entry = &document["cascade"]["questions"][0];
    assert_eq!(
        (&entry["kept"], &entry["stage2"]["confidence"], &document["cascade"]["error"]),
        (&json!("stage2"), &json!(0.9), &Value::Null)
    );
    assert!(entry["stage2"]["entropy"].as_f64().unwrap() > 0.3, "{entry}");
    // Where it was read is the second model's too: nothing of the first one's place stays.
    assert_eq!(document["diagnostics"]["questions"]["team"], json!({"label_mass": 0.7}));
    // Its label mass counts, and the condition on its answer too.
    assert!(stderr(&output).contains("`team`: a label mass of 70.0% is below 80.0%"), "{}", stderr(&output));
    let (document, _) = run(&first(), &second, &["--cascade", "entropy"]);
    assert_eq!(document["answers"]["paid"], Value::Null);
}

#[test]
fn the_prior_none_tells_a_deciding_second_model_nothing() {
    let second = Server::answering(deciding_second);
    run(&first(), &second, &["--cascade", "entropy", "--cascade-prior", "none"]);
    let schema = second.all().pop().unwrap().schema();
    assert!(schema["questions"][0].get("instructions").is_none(), "{schema}");
}

#[test]
fn a_refusal_of_another_second_model_stays_its_refusal() {
    let second = Server::new(400, json!({"error": {"message": "no such model"}}).to_string());
    let (document, output) = run(&first(), &second, &["--cascade", "entropy"]);
    assert_eq!(document["answers"]["team"]["choice"], "billing");
    assert!(
        stderr(&output).contains("HTTP 400: no such model; the first model's answers stand"),
        "{}",
        stderr(&output)
    );
}
