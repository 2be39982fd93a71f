//! Servers that make no decisions: JSON by a schema, and the distribution of every answer from its own tokens.
//!
//! The replies are those in `fixtures/plain-server`; its README says which are recorded and which written by hand.

use crate::support::{Server, completion, dgem, stderr, stdout, template};
use serde_json::{Value, json};

const TEMPLATE: &str = r#"{"schema": {"questions": [
    {"id": "urgent", "type": "boolean"},
    {"id": "team", "type": "choice", "options": ["billing", "support", "engineering"]},
    {"id": "mood", "type": "score", "levels": ["calm", "angry"]}]}, "state": {"ticket": "x"}}"#;

fn recorded(name: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/plain-server/");
    std::fs::read_to_string(format!("{path}{name}")).unwrap()
}

/// A server that writes prose unless it is told what to write.
fn plain(reply: String) -> Server {
    Server::answering(move |request| {
        if request.head.starts_with("GET /v1/models ") {
            return (
                200,
                json!({"object": "list", "data": [{"id": "small-model", "object": "model"}]}).to_string(),
            );
        }
        match request.json().get("response_format") {
            Some(_) => (200, reply.clone()),
            None => (200, completion("I would give this to billing.")),
        }
    })
}

fn decide(server: &Server, arguments: &[&str]) -> std::process::Output {
    let (path, _folder) = template(TEMPLATE);
    dgem().args(["decide", "-u", &server.url, "-t"]).arg(path).args(arguments).output().unwrap()
}

fn answers(reply: &str, arguments: &[&str]) -> Value {
    let output = decide(&plain(recorded(reply)), &[&["-f", "json", "--api", "openai"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

fn p(document: &Value, question: &str, name: &str) -> f64 {
    document["answers"][question]["probabilities"][name].as_f64().unwrap()
}

#[test]
fn every_server_shape_gives_each_question_the_distribution_of_its_own_tokens() {
    // Labels alone, labels with their quote, labels in pieces: what tokenizers make of the same JSON.
    for reply in ["vllm.json", "quotes.json", "pieces.json"] {
        let document = answers(reply, &[]);
        assert_eq!(
            (
                &document["answers"]["urgent"]["label"],
                &document["answers"]["team"]["choice"],
                &document["answers"]["mood"]["level"]
            ),
            (&json!("yes"), &json!("support"), &json!("angry")),
            "{reply}"
        );
        assert!((p(&document, "urgent", "yes") - 0.9).abs() < 1e-3, "{reply}: {document}");
        assert!((p(&document, "team", "support") - 0.625).abs() < 1e-3, "{reply}: {document}");
        assert!((p(&document, "team", "billing") - 0.25).abs() < 1e-3, "{reply}: {document}");
        assert!((p(&document, "mood", "angry") - 0.75).abs() < 1e-3, "{reply}: {document}");
        for id in ["urgent", "team", "mood"] {
            assert_eq!(document["answers"][id]["source"], "generation_logprobs");
        }
        let usage: Value = serde_json::from_str(&recorded(reply)).unwrap();
        assert_eq!(document["diagnostics"]["prompt_tokens"], usage["usage"]["prompt_tokens"], "{reply}");
        // 0.8 of the mass at that place was on labels.
        let mass = document["diagnostics"]["questions"]["team"]["label_mass"].as_f64().unwrap();
        assert!((mass - 0.8).abs() < 1e-3, "{reply}: {mass}");
    }
}

#[test]
fn a_recorded_reply_of_llama_cpp_gives_the_probabilities_of_its_model() {
    // Shares of the labels as scripts/llama_server.py gives them to the model, of 1 in all.
    let document = answers("llama-cpp.json", &[]);
    for (question, labels) in [
        ("urgent", vec![("yes", 0.30), ("no", 0.10)]),
        ("team", vec![("billing", 0.08), ("support", 0.20), ("engineering", 0.04)]),
        ("mood", vec![("calm", 0.05), ("angry", 0.15)]),
    ] {
        let mass: f64 = labels.iter().map(|(_, share)| share).sum();
        for (name, share) in labels {
            assert!((p(&document, question, name) - share / mass).abs() < 1e-3, "{document}");
        }
        let counted = document["diagnostics"]["questions"][question]["label_mass"].as_f64().unwrap();
        assert!((counted - mass).abs() < 2e-3, "{counted} {mass}");
    }
}

/// A reply of one token a character, but for the label of `urgent`.
fn one_answer(content: &str, label: &Value) -> String {
    let single = |c: char| json!({"token": c.to_string(), "logprob": 0.0});
    let mut tokens: Vec<Value> = "{\"urgent\":\"".chars().map(single).collect();
    tokens.push(label.clone());
    tokens.extend("\"}".chars().map(single));
    json!({"model": "m", "choices": [{"message": {"content": content}, "logprobs": {"content": tokens}}]})
        .to_string()
}

#[test]
fn what_the_listed_tokens_leave_open_is_doubt() {
    const YES: &str = "{\"urgent\":\"yes\"}";
    let urgent = |reply: String| {
        let output = decide(&plain(reply), &["-f", "json", "--api", "openai"]);
        serde_json::from_str::<Value>(&stdout(&output)).unwrap_or_else(|_| panic!("{}", stderr(&output)))
    };
    let listed = |tops: Value| {
        one_answer(YES, &json!({"token": "yes", "logprob": 0.9_f64.ln(), "top_logprobs": tops}))
    };
    // 0.9 for yes, and nothing is said about no: it may have what is left.
    let document = urgent(listed(json!([{"token": "yes", "logprob": 0.9_f64.ln()}])));
    assert!((p(&document, "urgent", "no") - 0.1).abs() < 1e-9, "{document}");
    // What nobody has reported is no mass.
    let mass = document["diagnostics"]["questions"]["urgent"]["label_mass"].as_f64().unwrap();
    assert!((mass - 0.9).abs() < 1e-9, "{document}");
    // With other tokens in the list it has no more than the least of them.
    let tops = json!([{"token": "yes", "logprob": 0.9_f64.ln()}, {"token": "x", "logprob": 0.01_f64.ln()}]);
    let document = urgent(listed(tops));
    assert!((p(&document, "urgent", "no") - 0.01 / 0.91).abs() < 1e-9, "{document}");
    // A label that is not listed never wins over the one that was written.
    let label = json!({"token": "no", "logprob": 0.45_f64.ln(), "top_logprobs": [{"token": "no", "logprob": 0.45_f64.ln()}]});
    let document = urgent(one_answer("{\"urgent\":\"no\"}", &label));
    assert_eq!(document["answers"]["urgent"]["label"], "no", "{document}");
    for (label, reason) in [
        (json!({"token": "yes", "logprob": -0.1, "top_logprobs": []}), "lists no other tokens"),
        (
            json!({"token": "yes", "logprob": 5.0, "top_logprobs": [{"token": "yes", "logprob": 5.0}]}),
            "above 0",
        ),
    ] {
        let output = decide(&plain(one_answer(YES, &label)), &["--api", "openai"]);
        assert_eq!(output.status.code(), Some(4));
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
    let label = json!({"token": "yes", "logprob": -0.1, "top_logprobs": [{"token": "yes", "logprob": -0.1}]});
    let output = decide(&plain(one_answer("{\"urgent\":\"no\"}", &label)), &["--api", "openai"]);
    assert!(stderr(&output).contains("say different things about `urgent`"), "{}", stderr(&output));
}

#[test]
fn a_server_that_turns_out_to_make_no_decisions_is_asked_again() {
    let server = plain(recorded("vllm.json"));
    let output = decide(&server, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("makes no decisions") && stderr(&output).contains("over-confident"));
    assert!(stdout(&output).contains("generation_logprobs"), "{}", stdout(&output));
    let requests = server.all();
    let heads: Vec<&str> = requests.iter().map(|request| request.head.split(' ').nth(1).unwrap()).collect();
    assert_eq!(heads, ["/v1/chat/completions", "/v1/models", "/v1/chat/completions"]);
    let body = requests[2].json();
    assert_eq!(
        (&body["model"], &body["logprobs"], &body["temperature"]),
        (&json!("small-model"), &json!(true), &json!(0))
    );
    let schema = &body["response_format"]["json_schema"]["schema"];
    assert_eq!(schema["properties"]["team"]["enum"], json!(["A", "B", "C"]));
    assert_eq!(
        schema["properties"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["urgent", "team", "mood"]
    );
    let sheet = body["messages"][0]["content"].as_str().unwrap();
    assert!(sheet.contains("- A: billing") && sheet.ends_with("its label the value."), "{sheet}");

    // Who says which form it is gets no second try.
    let server = plain(recorded("vllm.json"));
    assert_eq!((decide(&server, &["--api", "chat"]).status.code(), server.all().len()), (Some(4), 1));
}

#[test]
fn names_instead_of_labels_are_understood() {
    let document = answers("names.json", &[]);
    assert_eq!(document["answers"]["team"]["choice"], "support");
    assert!((p(&document, "team", "support") - 0.7).abs() < 1e-3, "{document}");
}

#[test]
fn without_logprobs_there_is_no_answer() {
    let mut reply: Value = serde_json::from_str(&recorded("vllm.json")).unwrap();
    reply["choices"][0]["logprobs"] = Value::Null;
    let output = decide(&plain(reply.to_string()), &["--api", "openai"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(4), ""));
    assert!(stderr(&output).contains("no logprobs"), "{}", stderr(&output));
}

#[test]
fn a_value_that_is_no_answer_is_invalid_and_one_that_is_left_out_is_missing() {
    let reply = recorded("vllm.json")
        .replace("\"token\": \"B\"", "\"token\": \"Q\"")
        .replace("\\\"B\\\"", "\\\"Q\\\"");
    let output = decide(&plain(reply), &["--api", "openai"]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).contains("`team` is invalid: \"Q\" came"), "{}", stderr(&output));
    let short = completion("{\"urgent\": \"yes\"}");
    let mut reply: Value = serde_json::from_str(&short).unwrap();
    reply["choices"][0]["logprobs"] = json!({"content": [{"token": "{\"urgent\": \"", "logprob": 0.0, "top_logprobs": []},
        {"token": "yes", "logprob": -0.1, "top_logprobs": [{"token": "yes", "logprob": -0.1}, {"token": "no", "logprob": -3.0}]}, {"token": "\"}", "logprob": 0.0, "top_logprobs": []}]});
    let output = decide(&plain(reply.to_string()), &["--api", "openai", "--strict"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no answer for `team`, `mood`"), "{}", stderr(&output));
}

#[test]
fn what_such_a_server_cannot_do_is_said_and_its_refusal_is_shown() {
    let server = plain(recorded("vllm.json"));
    let output = decide(&server, &["--api", "openai", "--samples", "4", "--think", "32"]);
    assert!(
        stderr(&output).contains("without effect on a server that makes no decisions: samples, think"),
        "{}",
        stderr(&output)
    );
    let refusing =
        Server::new(400, json!({"error": {"message": "response_format is not supported"}}).to_string());
    let output = decide(&refusing, &["--api", "openai"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(stderr(&output).contains("response_format is not supported"), "{}", stderr(&output));
}

#[test]
fn more_options_than_top_logprobs_are_asked_in_groups() {
    let options: Vec<String> = (0..30).map(|index| format!("o{index}")).collect();
    let (path, _folder) = template(
        &json!({"schema": {"questions": [{"id": "q", "type": "choice", "options": options}]}, "state": "x"})
            .to_string(),
    );
    let server = Server::answering(|request| {
        if request.head.starts_with("GET ") {
            return (404, String::new());
        }
        let properties = request.json()["response_format"]["json_schema"]["schema"]["properties"].clone();
        let mut tokens = vec![json!({"token": "{", "logprob": 0.0})];
        for (number, (id, property)) in properties.as_object().unwrap().iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            tokens.push(json!({"token": format!("{comma}\"{id}\": \""), "logprob": 0.0}));
            let labels = property["enum"].as_array().unwrap();
            assert!(labels.len() <= 20);
            let top: Vec<Value> = labels
                .iter()
                .enumerate()
                .map(|(rank, label)| json!({"token": label, "logprob": -1.0 - rank as f64}))
                .collect();
            tokens.push(json!({"token": labels[0], "logprob": -1.0, "top_logprobs": top}));
            tokens.push(json!({"token": "\"", "logprob": 0.0}));
        }
        tokens.push(json!({"token": "}", "logprob": 0.0}));
        let text: String = tokens.iter().map(|token| token["token"].as_str().unwrap()).collect();
        (
            200,
            json!({"choices": [{"message": {"content": text}, "logprobs": {"content": tokens}}]}).to_string(),
        )
    });
    let output =
        dgem().args(["decide", "-q", "--api", "openai", "-u", &server.url, "-t"]).arg(path).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "o0\n"), "{}", stderr(&output));
}
