//! A row of `dgem batch` is decided as `dgem decide` decides it: all orders, groups of wide choices, a second model, pictures.

use std::process::Output;

use crate::support::{Recorded, Server, completion, decision, dgem, stderr, stdout, template};
use serde_json::{Value, json};

const PICTURE: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNiAAAABgADNjd8qAAAAABJRU5ErkJggg==";

/// Prefers the first option a little, and `o17` much; refuses more options than it has labels for.
fn answer(request: &Recorded) -> (u16, String) {
    if request.head.starts_with("GET") {
        let limits = json!({"questions": 16, "alternatives": 26});
        return (200, json!({"data": [{"id": "tiny-model", "limits": limits}]}).to_string());
    }
    let schema = request.schema();
    let first = schema["questions"][0]["options"][0]["name"].as_str().unwrap_or("yes").to_owned();
    let content = decision(&schema, |_, name| {
        if name == "o17" {
            6.0
        } else if name == first {
            1.4
        } else {
            1.0
        }
    });
    (200, completion(&content.to_string()))
}

fn policy(options: usize) -> String {
    let options: Vec<String> = (0..options).map(|option| format!("o{option}")).collect();
    let options = json!(options);
    format!(
        r#"{{"schema": {{"questions": [{{"id": "q", "type": "choice", "options": {options}}}]}}, "state": {{"t": {{{{ t | json_encode }}}}}}}}"#
    )
}

fn run(command: &str, source: &str, row: &Value, arguments: &[&str], url: &str) -> Output {
    let (path, folder) = template(source);
    let mut dgem = dgem();
    dgem.current_dir(folder.path()).arg(command).args(["-u", url, "-t"]).arg(path);
    if command == "batch" {
        std::fs::write(folder.path().join("rows.jsonl"), row.to_string()).unwrap();
        dgem.args(["-i", "rows.jsonl"]);
    } else {
        dgem.args(["-f", "json", "-d", &json!({"t": row["t"]}).to_string()]);
    }
    dgem.args(arguments).output().unwrap()
}

/// Both say the same about `q`: the document of `decide` and the line of `batch`.
fn both(source: &str, arguments: &[&str]) -> (Value, Value) {
    let server = Server::answering(answer);
    let row = json!({"id": "a", "t": "text"});
    let decided = run("decide", source, &row, arguments, &server.url);
    let line = run("batch", source, &row, arguments, &server.url);
    assert_eq!(line.status.code(), Some(0), "{}{}", stdout(&line), stderr(&line));
    let read = |output: &Output| serde_json::from_str::<Value>(&stdout(output)).unwrap();
    let (decided, line) = (read(&decided), read(&line));
    assert_eq!(decided["answers"]["q"], line["answers"]["q"]);
    (decided, line)
}

#[test]
fn the_orders_of_the_options_are_asked_and_averaged() {
    let (decided, line) = both(&policy(3), &["--permute", "3"]);
    assert_eq!(line["permutation"], decided["permutation"]);
    // Every option was first once.
    let third = line["answers"]["q"]["probabilities"]["o2"].as_f64().unwrap();
    assert!((third - 1.0 / 3.0).abs() < 1e-9 && line["permutation"]["orders"] == 3, "{line}");
}

#[test]
fn a_choice_with_more_options_than_labels_is_asked_in_groups() {
    let (decided, line) = both(&policy(60), &[]);
    assert_eq!(line["answers"]["q"]["choice"], "o17");
    assert_eq!(line["answers"]["q"]["probabilities"].as_object().unwrap().len(), 60);
    assert!(decided["diagnostics"]["brackets"]["requests"].as_u64().unwrap() > 1);
}

#[test]
fn a_doubtful_row_goes_to_the_second_model() {
    let said = json!({"q": {"decision": "o2", "confidence": 0.97, "explanation": "because"}});
    let second = Server::new(
        200,
        json!({"model": "big", "choices": [{"message": {"content": said.to_string()}}]}).to_string(),
    );
    let arguments = ["--cascade", "entropy", "--cascade-url", &second.url];
    let (_, line) = both(&policy(3), &arguments);
    assert_eq!(
        (&line["answers"]["q"]["choice"], &line["answers"]["q"]["source"]),
        (&json!("o2"), &json!("stage2_stated"))
    );
    assert_eq!((&line["cascade"]["replaced"], &line["cascade"]["stage2_model"]), (&json!(1), &json!("big")));
    // A second model that fails keeps the first one's answers, and the line says so.
    let broken = Server::new(500, "{}");
    let (_, line) =
        both(&policy(3), &["--cascade", "entropy", "--cascade-url", &broken.url, "--cascade-timeout", "1"]);
    assert!(line["warnings"][0].as_str().unwrap().contains("the second model did not help"), "{line}");
}

#[test]
fn a_row_has_its_own_pictures_behind_those_of_all_rows() {
    let server = Server::answering(answer);
    let source = policy(3);
    for (row, arguments, pictures) in [
        (json!({"t": "x", "image": PICTURE}), vec![], 1),
        (
            json!({"t": "x", "image": [PICTURE, "https://example.org/b.png"]}),
            vec!["-I", "https://example.org/a.png"],
            3,
        ),
        (json!({"t": "x", "image": ""}), vec![], 0),
    ] {
        let output = run("batch", &source, &row, &arguments, &server.url);
        assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
        let request = server.all().pop().unwrap().json();
        let content = &request["messages"][1]["content"];
        let parts = content.as_array().map_or(0, |parts| parts.len() - 1);
        assert_eq!(parts, pictures, "{content}");
        if pictures == 3 {
            assert_eq!(content[0]["image_url"]["url"], "https://example.org/a.png");
        }
    }
    let output = run("batch", &source, &json!({"t": "x", "image": "absent.png"}), &[], &server.url);
    assert_eq!(output.status.code(), Some(6));
    assert!(stdout(&output).contains("absent.png"), "{}", stdout(&output));
}

#[test]
fn a_right_answer_that_the_reply_does_not_list_counts_as_a_wrong_one() {
    let answer = json!({"answers": {"q": {"type": "choice", "choice": "o0", "truncated": true, "probabilities": {"o0": 0.7, "o1": 0.2}}}});
    let server = Server::new(200, completion(&answer.to_string()));
    let row = json!({"id": "a", "t": "x", "expected_q": "O2"});
    let output = run("batch", &policy(3), &row, &[], &server.url);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let line: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        line["graded"]["q"],
        json!({"expected": "o2", "possible": true, "correct": false, "alternatives": 3})
    );
    let report = stderr(&output);
    let counted = report.lines().find(|line| line.starts_with("q ")).unwrap();
    assert_eq!(counted.split('|').take(3).map(str::trim).collect::<Vec<_>>(), ["q", "1", "0.0%"], "{report}");
    assert!(!report.contains("does not have"), "{report}");
}

#[test]
fn the_flags_of_the_reading_win_over_the_template() {
    let server = Server::answering(answer);
    let arguments = ["--samples", "4", "--seed", "9", "--layout", "document_first"];
    let output = run("batch", &policy(3), &json!({"t": "x"}), &arguments, &server.url);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let schema = server.request().schema();
    assert_eq!(
        (&schema["samples"], &schema["seed"], &schema["layout"]),
        (&json!(4), &json!(9), &json!("document_first"))
    );
    let wrong = run("batch", &policy(3), &json!({"t": "x"}), &["--samples", "x"], &server.url);
    assert!(wrong.status.code() == Some(2) && server.got_nothing(), "{}", stderr(&wrong));
}
