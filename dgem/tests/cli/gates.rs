//! Gates: each fails with exit code 1 and a line on stderr, and costs no request when it makes no sense.

use crate::support::{Server, dgem, shipped, stderr, stdout, support_reply, template};
use serde_json::{Value, json};
use std::process::Output;

fn decide(reply: &Value, arguments: &[&str]) -> Output {
    let server = Server::deciding(reply);
    let mut command = dgem();
    command
        .args(["decide", "-v", "ticket=x", "-u", &server.url, "-t"])
        .arg(shipped("support_triage.json.tmpl"));
    command.args(arguments).output().unwrap()
}

/// Urgent yes 0.9, team support 0.6; everything else is certain.
fn doubtful() -> Value {
    let mut reply = support_reply();
    reply["answers"]["urgent"] = json!({"type": "boolean", "probabilities": {"yes": 0.9, "no": 0.1}});
    reply["answers"]["team"] =
        json!({"type": "choice", "probabilities": {"billing": 0.3, "support": 0.6, "engineering": 0.1}});
    for (id, mass) in [("urgent", 0.99), ("team", 0.4), ("sentiment", 0.98)] {
        reply["diagnostics"]["questions"][id] = json!({ "label_mass": mass });
    }
    reply
}

/// The gate fails about exactly these questions.
fn assert_fails(arguments: &[&str], gate: &str, questions: &[&str]) {
    let output = decide(&doubtful(), arguments);
    let lines = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{lines}");
    let expected: Vec<String> = questions.iter().map(|id| format!("gate {gate}: `{id}`: ")).collect();
    assert_eq!(lines.lines().count(), expected.len(), "{lines}");
    for (line, start) in lines.lines().zip(&expected) {
        assert!(line.starts_with(start), "{line}");
    }
    // The answers are printed all the same.
    assert!(stdout(&output).contains("| support "), "{}", stdout(&output));
}

fn assert_passes(arguments: &[&str]) {
    let output = decide(&doubtful(), arguments);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{arguments:?}");
}

#[test]
fn fail_if_names_an_answer_that_must_not_be() {
    assert_fails(&["--fail-if", "urgent=yes"], "--fail-if", &["urgent"]);
    assert_fails(&["--fail-if", "urgent=no", "--fail-if", "team=billing|support"], "--fail-if", &["team"]);
    assert_passes(&["--fail-if", "urgent=no", "--fail-if", "team=billing|engineering"]);
}

#[test]
fn hesitation_confidence_and_label_mass_have_limits() {
    assert_fails(&["--max-hesitation", "16%"], "--max-hesitation", &["urgent", "team"]);
    assert_fails(&["--max-hesitation", "0.5"], "--max-hesitation", &["team"]);
    assert_fails(&["--min-confidence", "95%"], "--min-confidence", &["urgent", "team"]);
    assert_fails(&["--min-label-mass", "0.5"], "--min-label-mass", &["team"]);
    assert_passes(&["--max-hesitation", "90%", "--min-confidence", "0.6", "--min-label-mass", "40%"]);
}

#[test]
fn what_cannot_be_checked_fails() {
    let mut reply = doubtful();
    reply["diagnostics"]["questions"] = json!({});
    let unknown = decide(&reply, &["--min-label-mass", "0.1"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(stderr(&unknown).contains("does not report the label mass"), "{}", stderr(&unknown));
    reply["answers"].as_object_mut().unwrap().remove("urgent");
    let missing = decide(&reply, &["--fail-if", "urgent=yes"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("gate --fail-if: `urgent`: it has no answer"), "{}", stderr(&missing));
    assert_eq!(decide(&reply, &[]).status.code(), Some(0));
    assert_eq!(decide(&reply, &["--strict"]).status.code(), Some(1));
}

#[test]
fn a_question_that_is_skipped_passes() {
    let (path, _folder) = template(
        r#"{"schema": {"questions": [{"id": "a", "type": "boolean"}, {"id": "b", "type": "boolean", "ask_if": {"a": ["yes"]}}]}, "state": "x"}"#,
    );
    let server = Server::deciding(&json!({"answers": {"a": {"type": "boolean", "noul": 0.0}, "b": null},
        "diagnostics": {"skipped": {"b": {"because": "a", "was": "no", "wanted": ["yes"]}}}}));
    let mut command = dgem();
    command
        .args(["decide", "-u", &server.url, "--fail-if", "b=yes", "--min-confidence", "90%", "-t"])
        .arg(path);
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
}

#[test]
fn the_json_lists_the_gates_that_failed() {
    let parse =
        |arguments: &[&str]| serde_json::from_str::<Value>(&stdout(&decide(&doubtful(), arguments))).unwrap();
    let failed = parse(&["-f", "json", "--fail-if", "urgent=yes"]);
    assert_eq!(failed["gates"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&failed["gates"][0]["gate"], &failed["gates"][0]["question"]),
        (&json!("--fail-if"), &json!("urgent"))
    );
    assert_eq!(parse(&["-f", "json", "--fail-if", "urgent=no"])["gates"], json!([]));
    assert!(parse(&["-f", "json"]).get("gates").is_none());
}

#[test]
fn a_gate_that_makes_no_sense_costs_no_request() {
    for (arguments, part) in [
        (["--fail-if", "urgnt=yes"], "did you mean `urgent`"),
        (["--fail-if", "urgent=true"], "did you mean `yes`"),
        (["--fail-if", "urgent"], "ID=ANSWER"),
        (["--max-hesitation", "16"], "16%"),
        (["--min-confidence", "high"], "16%"),
        (["--min-label-mass", "-1"], "16%"),
    ] {
        let server = Server::deciding(&doubtful());
        let [flag, value] = arguments;
        let mut command = dgem();
        command
            .args(["decide", "-v", "ticket=x", "-u", &server.url, "-t"])
            .arg(shipped("support_triage.json.tmpl"));
        let output = command.arg(format!("{flag}={value}")).output().unwrap();
        assert_eq!((output.status.code(), server.got_nothing()), (Some(2), true), "{arguments:?}");
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
}

#[test]
fn gates_look_at_the_probabilities_and_not_at_what_the_reply_says_of_itself() {
    let mut reply = support_reply();
    reply["answers"]["team"] = json!({"type": "choice", "label": "B", "choice": "support", "confidence": 0.99, "entropy": 0.01, "hesitation": 0.01,
        "probabilities": {"billing": 0.35, "support": 0.4, "engineering": 0.25}});
    for (arguments, gate) in [
        (["--min-confidence", "90%"], "gate --min-confidence: `team`: a confidence of 40.0% is below 90.0%"),
        (["--max-hesitation", "16%"], "gate --max-hesitation: `team`: a hesitation of 98.4% is above 16.0%"),
    ] {
        let output = decide(&reply, &arguments);
        let lines = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{lines}");
        assert!(lines.contains(gate), "{lines}");
        assert!(
            lines.contains("warning: the answer to `team` contradicts itself: by its probabilities, which count, it has confidence 0.4 and not 0.99, entropy 1.0805 and not 0.01, hesitation 0.9835 and not 0.01\n"),
            "{lines}"
        );
        // What is shown is what counts.
        assert!(
            stdout(&output).contains("| support              | 40.0%      | 1.081 nats "),
            "{}",
            stdout(&output)
        );
    }
    // Within rounding there is nothing to tell, and a gate still takes the worse of the two.
    reply["answers"]["team"] = json!({"type": "choice", "label": "B", "choice": "support", "confidence": 0.904,
        "probabilities": {"billing": 0.05, "support": 0.899, "engineering": 0.051}});
    let output = decide(&reply, &["--min-confidence", "90%"]);
    assert_eq!(stderr(&output), "gate --min-confidence: `team`: a confidence of 89.9% is below 90.0%\n");
}

#[test]
fn case_52_a_truncated_distribution_is_as_doubtful_as_it_must_be_among_all_allowed_answers() {
    // 0.4 is unknown: the rest may all be one answer's.
    let mut reply = support_reply();
    reply["answers"]["team"] = json!({"type": "choice", "label": "A", "choice": "billing", "truncated": true, "hesitation": 0.0, "entropy": 0.0,
        "probabilities": {"billing": 0.6}});
    let output = decide(&reply, &["--max-hesitation", "30%"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("a hesitation of 61.3% is above 30.0%"), "{}", stderr(&output));
}
