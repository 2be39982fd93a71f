//! Wrong answers of a server from the outside: shown as invalid, told on stderr, and never a success.

use crate::support::{Server, completion, dgem, shipped, stderr, stdout, support_reply, template};
use serde_json::{Value, json};
use std::process::Output;

fn decide(body: String, arguments: &[&str]) -> Output {
    let server = Server::new(200, body);
    let mut command = dgem();
    command
        .args(["decide", "-v", "ticket=x", "-u", &server.url, "-t"])
        .arg(shipped("support_triage.json.tmpl"));
    command.args(arguments).output().unwrap()
}

/// The support policy answered by this reply.
fn answered(reply: &Value, arguments: &[&str]) -> Output {
    decide(completion(&reply.to_string()), arguments)
}

/// A good reply but for one value in one answer.
fn with(question: &str, key: &str, value: Value) -> Value {
    let mut reply = support_reply();
    reply["answers"][question][key] = value;
    reply
}

fn row(output: &Output, question: &str) -> String {
    stdout(output).lines().find(|line| line.starts_with(question)).unwrap().to_owned()
}

/// The answer to the question is refused for this reason, and nothing else is.
fn assert_invalid(reply: &Value, question: &str, parts: &[&str]) {
    let output = answered(reply, &[]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(row(&output, question).contains("| invalid "), "{}", stdout(&output));
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with(&format!("warning: the answer to `{question}` is invalid: ")), "{message}");
    for part in parts {
        assert!(message.contains(part), "{part} not in {message}");
    }
    assert_eq!(answered(reply, &["--strict"]).status.code(), Some(4));
}

#[test]
fn an_answer_outside_of_the_allowed_is_invalid() {
    assert_invalid(
        &with("team", "choice", json!("sales")),
        "team",
        &["answer sales came", "billing, support, engineering"],
    );
    assert_invalid(
        &with("sentiment", "level", json!("happy")),
        "sentiment",
        &["happy", "calm, frustrated, furious"],
    );
    assert_invalid(&with("urgent", "label", json!("maybe")), "urgent", &["maybe", "yes, no"]);
    assert_invalid(&with("team", "label", json!("B")), "team", &["label B", "allowed: A"]);
    assert_invalid(&with("team", "label", json!("Z")), "team", &["label Z"]);
    assert_invalid(
        &with("urgent", "type", json!("choice")),
        "urgent",
        &["type choice came, allowed is boolean"],
    );
    assert_invalid(&with("urgent", "type", json!("poem")), "urgent", &["poem"]);
}

#[test]
fn probabilities_are_those_of_the_allowed_answers_and_a_distribution() {
    for (probabilities, part) in [
        (json!({"billing": 1.0, "support": 0.0}), "no probability of engineering"),
        (json!({"billing": 1.0, "support": 0.0, "engineering": 0.0, "sales": 0.0}), "a probability of sales"),
        (json!({"billing": 1.5, "support": -0.5, "engineering": 0.0}), "1.5"),
        (json!({"billing": 0.5, "support": 0.2, "engineering": 0.1}), "the sum 0.8000"),
        (json!({"billing": 0.9, "support": 0.9, "engineering": 0.9}), "the sum 2.7000"),
        (
            json!({"billing": 0.3, "support": 0.6, "engineering": 0.1}),
            "allowed is the most probable: support with 0.6",
        ),
        (json!({"billing": "1.0", "support": 0.0, "engineering": 0.0}), "1.0"),
        (json!({}), "empty"),
        (json!(null), "no probabilities"),
    ] {
        assert_invalid(&with("team", "probabilities", probabilities), "team", &[part]);
    }
    let twice = with("urgent", "probabilities", json!({"yes": 0.999, "true": 0.999, "no": 0.001}));
    assert_invalid(&twice, "urgent", &["two probabilities"]);
}

#[test]
fn the_numbers_beside_the_probabilities_are_in_their_ranges() {
    for (question, key, value) in [
        ("team", "confidence", 1.5),
        ("team", "confidence", -0.1),
        ("team", "entropy", -1.0),
        ("team", "hesitation", 7.0),
        ("team", "agreement", 2.0),
        ("sentiment", "score", 40.0),
        ("urgent", "noul", 0.1),
    ] {
        assert_invalid(
            &with(question, key, json!(value)),
            question,
            &[&format!("{key} {value} came, allowed is")],
        );
    }
}

#[test]
fn an_answer_that_is_no_object_costs_only_itself() {
    for raw in [json!("yes"), json!(true), json!([]), json!({}), json!(1)] {
        let mut reply = support_reply();
        reply["answers"]["urgent"] = raw;
        assert_invalid(&reply, "urgent", &[]);
    }
}

#[test]
fn rounded_probabilities_and_the_names_of_other_servers_are_fine() {
    let mut reply = support_reply();
    reply["answers"]["team"]["probabilities"] = json!({"engineering": 0.0, "billing": 0.995, "support": 0.0});
    reply["answers"]["urgent"] =
        json!({"type": "noul", "noul": 0.9, "probabilities": {"true": 0.9, "false": 0.1}});
    let output = answered(&reply, &["--strict", "-f", "json"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let names: Vec<&String> =
        document["answers"]["team"]["probabilities"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["billing", "support", "engineering"]);
    assert_eq!((&document["answers"]["urgent"]["label"], &document["invalid"]), (&json!("yes"), &json!({})));
}

#[test]
fn a_truncated_distribution_is_told() {
    let mut reply = support_reply();
    reply["answers"]["team"] = json!({"type": "choice", "label": "A", "choice": "billing", "truncated": true, "confidence": 0.6, "probabilities": {"billing": 0.6, "support": 0.3}});
    let output = answered(&reply, &["--strict"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        stderr(&output),
        "warning: the answer to `team` has 2 of 3 probabilities: the server truncated it\n"
    );
    reply["answers"]["team"]["probabilities"] = json!({"billing": 0.9, "support": 0.3});
    assert_eq!(answered(&reply, &[]).status.code(), Some(1));
}

#[test]
fn two_answers_under_one_key_are_no_decision() {
    let content = support_reply().to_string().replacen("\"team\":", "\"urgent\":", 1);
    let output = decide(completion(&content), &[]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(4), String::new()));
    assert!(stderr(&output).contains("\"urgent\" is written twice"), "{}", stderr(&output));
}

#[test]
fn only_a_question_with_a_condition_can_be_skipped() {
    let mut reply = support_reply();
    reply["answers"]["team"] = Value::Null;
    reply["diagnostics"]["skipped"] = json!({"team": {"because": "urgent", "was": "yes", "wanted": ["no"]}});
    let output = answered(&reply, &["--strict"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(row(&output, "team").contains("| missing "), "{}", stdout(&output));
    reply["answers"].as_object_mut().unwrap().remove("team");
    assert!(row(&answered(&reply, &[]), "team").contains("| missing "));
}

#[test]
fn a_reply_without_a_usable_answer_exits_4_even_without_strict() {
    for answers in
        [json!({}), json!({"a": {"type": "boolean", "label": "maybe", "noul": 0.5}}), json!({"a": null})]
    {
        let (path, _folder) =
            template(r#"{"schema": {"questions": [{"id": "a", "type": "boolean"}]}, "state": "x"}"#);
        let server = Server::deciding(&json!({"answers": answers}));
        let output = dgem().args(["decide", "-u", &server.url, "-t"]).arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(4), "{answers}");
        assert!(stderr(&output).contains("`a`"), "{}", stderr(&output));
    }
}

#[test]
fn invalid_answers_are_named_in_the_json_and_kept_out_of_its_answers() {
    let output = answered(&with("team", "choice", json!("sales")), &["-f", "json"]);
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(document["answers"].as_object().unwrap().keys().collect::<Vec<_>>(), ["urgent", "sentiment"]);
    assert!(document["invalid"]["team"].as_str().unwrap().contains("sales"), "{document}");
    assert_eq!(document["missing"], json!([]));
}

#[test]
fn a_very_long_name_is_cut_in_the_message() {
    let output = answered(&with("team", "choice", json!("x".repeat(100_000))), &[]);
    assert!(stderr(&output).len() < 1_000, "{}", stderr(&output).len());
}

#[test]
fn braces_without_end_are_read_in_linear_time() {
    let start = std::time::Instant::now();
    for content in [
        "{\"a\":".repeat(500_000),
        "{ ".repeat(1_500_000),
        "```".repeat(1_000_000),
        "{\"a\": \"".repeat(400_000),
    ] {
        let output = decide(completion(&content), &[]);
        assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
        assert!(stderr(&output).contains("no JSON object with `answers`"), "{}", stderr(&output));
    }
    // Quadratic, each of these took minutes.
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

#[test]
fn a_reply_above_the_limit_is_refused() {
    let output = decide(completion(&" ".repeat(5 << 20)), &[]);
    assert_eq!(output.status.code(), Some(4));
    assert!(stderr(&output).contains("larger than 4 MiB"), "{}", stderr(&output));
}
