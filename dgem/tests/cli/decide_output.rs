//! What `dgem decide` shows of a decision: table, JSON, CSV, bare answers, distributions.

use crate::decide::{TICKET, answer, decide};
use crate::support::{Server, completion, dgem, stderr, stdout, support_reply, template};
use serde_json::{Value, json};

#[test]
fn the_table_and_the_stats_look_as_in_the_readme_and_follow_the_schema() {
    let server = Server::deciding(&support_reply());
    let output = decide(&server.url).args(["-v", TICKET, "--stats"]).output().unwrap();
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "QUESTION         | TYPE       | VALUE / CHOICE       | CONFIDENCE | ENTROPY (H) | AGREEMENT  | HESITATION "
    );
    assert_eq!(lines[1], "-".repeat(lines[0].len()));
    assert_eq!(
        lines[2],
        "urgent           | boolean    | yes                  | 99.9%      | 0.001 nats  | 1.00       | 0.1%       "
    );
    assert_eq!(
        lines[3],
        "team             | choice     | billing              | 100.0%     | 0.000 nats  | 1.00       | 0.0%       "
    );
    assert_eq!(
        lines[4],
        "sentiment        | score      | frustrated           | 99.8%      | 0.002 nats  | 1.00       | 0.2%       "
    );
    assert_eq!(lines[6], format!("{} STATS {}", "─".repeat(32), "─".repeat(32)));
    assert_eq!(lines[7], "  Model:             tiny-model");
    assert_eq!(lines[8], format!("  Endpoint:          {}/chat/completions", server.url));
    assert!(lines[9].starts_with("  Total Wall Time:   ") && lines[9].ends_with(" ms"), "{}", lines[9]);
    assert_eq!(lines[10], "  KV Cache Reused:   169 tokens (82.8% hit rate)");
    assert_eq!(lines[11], "  Denoise Steps:     1 step (policy: samples=1)");
    assert_eq!(lines[12], "─".repeat(71));
    assert!(!text.contains('\u{1b}'), "no colour without a terminal");
}

#[test]
fn case_20_zeros_are_present_in_the_json() {
    let mut reply = support_reply();
    reply["answers"]["urgent"] = json!({"type": "boolean", "label": "no", "confidence": 1.0, "probabilities": {"yes": 0.0, "no": 1.0}, "noul": 0.0, "entropy": 0.0, "hesitation": 0.0});
    reply["answers"]["sentiment"]["score"] = json!(0);
    let document: Value = serde_json::from_str(&stdout(&answer(&reply, &["-f", "json"]))).unwrap();
    assert_eq!(
        (
            &document["answers"]["urgent"]["noul"],
            &document["answers"]["urgent"]["entropy"],
            &document["answers"]["sentiment"]["score"]
        ),
        (&json!(0.0), &json!(0.0), &json!(0.0))
    );
    assert_eq!(
        document["answers"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["urgent", "team", "sentiment"]
    );
}

#[test]
fn case_23_a_missing_entropy_is_computed_and_the_diagnostics_stay_as_they_are() {
    let mut reply = support_reply();
    reply["answers"]["team"] = json!({"type": "choice", "label": "A", "choice": "billing", "confidence": 0.7, "probabilities": {"billing": 0.7, "support": 0.2, "engineering": 0.1}});
    reply["diagnostics"]["questions"]["team"] = json!({"entropy": 1.9});
    reply["diagnostics"]["samples"]["n"] = json!([3]);
    let document: Value = serde_json::from_str(&stdout(&answer(&reply, &["-f", "json"]))).unwrap();
    assert!((document["answers"]["team"]["entropy"].as_f64().unwrap() - 0.8018).abs() < 1e-4);
    assert_eq!(
        (&document["diagnostics"]["questions"]["team"]["entropy"], &document["diagnostics"]["samples"]["n"]),
        (&json!([1.9]), &json!(3))
    );
}

#[test]
fn case_24_certainty_has_no_entropy_and_no_minus_sign() {
    let mut reply = support_reply();
    reply["answers"]["urgent"] = json!({"type": "boolean", "label": "yes", "confidence": 1.0, "probabilities": {"yes": 1.0, "no": 0.0}, "noul": 1.0});
    let table = stdout(&answer(&reply, &[]));
    assert!(
        table.contains("100.0%     | 0.000 nats") && !table.contains("-0") && !table.contains("NaN"),
        "{table}"
    );
    let document: Value = serde_json::from_str(&stdout(&answer(&reply, &["-f", "json"]))).unwrap();
    for key in ["entropy", "hesitation"] {
        let value = document["answers"]["urgent"][key].as_f64().unwrap();
        assert!(value == 0.0 && value.is_sign_positive(), "{key} {value}");
    }
}

#[test]
fn case_25_an_option_called_like_another_label_is_shown_by_its_name() {
    let (path, _folder) = template(
        r#"{"schema": {"questions": [{"id": "q", "type": "choice", "options": ["B", "A"]}]}, "state": "x"}"#,
    );
    for choice in [json!({"choice": "B"}), json!({})] {
        let mut reply = json!({"answers": {"q": {"type": "choice", "label": "A", "confidence": 0.9, "probabilities": {"B": 0.9, "A": 0.1}}}});
        reply["answers"]["q"].as_object_mut().unwrap().extend(choice.as_object().unwrap().clone());
        let server = Server::deciding(&reply);
        let output = dgem().args(["decide", "-u", &server.url, "-t"]).arg(&path).output().unwrap();
        assert!(
            stdout(&output).lines().nth(2).unwrap().contains("| B                    | 90.0%"),
            "{}",
            stdout(&output)
        );
    }
}

#[test]
fn case_28_a_skipped_question_says_so() {
    let (path, _folder) = template(
        r#"{"schema": {"questions": [{"id": "a", "type": "boolean"}, {"id": "b", "type": "boolean", "ask_if": {"a": ["yes"]}}]}, "state": "x"}"#,
    );
    let server = Server::deciding(
        &json!({"answers": {"a": {"type": "boolean", "label": "no", "confidence": 0.9, "probabilities": {"yes": 0.1, "no": 0.9}}, "b": null},
        "diagnostics": {"skipped": {"b": {"because": "a", "was": "no", "wanted": ["yes"]}}}}),
    );
    let run = |format: &str| {
        dgem()
            .args(["decide", "--strict", "-f", format, "-u", &server.url, "-t"])
            .arg(&path)
            .output()
            .unwrap()
    };
    let table = run("table");
    assert_eq!(table.status.code(), Some(0));
    let line = stdout(&table).lines().nth(3).unwrap().to_owned();
    assert!(line.contains("skipped (a was no, not yes)") && !line.contains('%'), "{line}");
    let document: Value = serde_json::from_str(&stdout(&run("json"))).unwrap();
    assert_eq!((&document["answers"]["b"], &document["missing"]), (&Value::Null, &json!([])));
    assert!(document["answers"].as_object().unwrap().contains_key("b"));
}

#[test]
fn case_40_no_prompt_length_gives_no_infinite_hit_rate() {
    let mut reply = support_reply();
    reply["diagnostics"]["timing"]["prompt_tokens"] = json!(0);
    let body = completion(&reply.to_string())
        .replace("\"prompt_tokens\":204,\"completion_tokens\"", "\"prompt_tokens\":0,\"completion_tokens\"");
    let server = Server::new(200, body);
    let table = decide(&server.url).args(["-v", TICKET, "--stats"]).output().unwrap();
    assert!(stdout(&table).contains("169 tokens (hit rate unknown)"), "{}", stdout(&table));
    let json = decide(&server.url).args(["-v", TICKET, "--stats", "-f", "json"]).output().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&stdout(&json)).unwrap()["stats"]["cache_hit_rate"],
        Value::Null
    );
}

#[test]
fn case_44_json_with_stats_is_one_document() {
    let output = answer(&support_reply(), &["-f", "json", "--stats"]);
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        document.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["schema_version", "model", "answers", "missing", "invalid", "diagnostics", "stats"]
    );
    assert_eq!(
        (
            &document["schema_version"],
            &document["stats"]["reused_tokens"],
            &document["stats"]["prompt_tokens"]
        ),
        (&json!(1), &json!(169), &json!(204))
    );
    assert!(document["stats"]["wall_ms"].as_f64().unwrap() > 0.0);
    let plain: Value = serde_json::from_str(&stdout(&answer(&support_reply(), &["-f", "json"]))).unwrap();
    assert!(plain.get("stats").is_none());
}

#[test]
fn names_from_a_server_cannot_drive_the_terminal() {
    let mut reply = support_reply();
    reply["answers"]["team"]["choice"] = json!("\u{1b}[2Jbilling\n");
    let output = answer(&reply, &[]);
    assert!(stderr(&output).contains("[2Jbilling"), "{}", stderr(&output));
    assert!(
        !stdout(&output).contains('\u{1b}') && !stderr(&output).contains('\u{1b}'),
        "{}",
        stderr(&output)
    );
}

#[test]
fn quiet_prints_the_bare_answers_for_a_shell() {
    let all = answer(&support_reply(), &["-q"]);
    assert_eq!((all.status.code(), stdout(&all).as_str()), (Some(0), "yes\nbilling\nfrustrated\n"));
    let one = answer(&support_reply(), &["-q", "--fields", "team"]);
    assert_eq!((stdout(&one).as_str(), stderr(&one).as_str()), ("billing\n", ""));
    let unknown = answer(&support_reply(), &["-q", "--fields", "tem"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("did you mean `team`?"), "{}", stderr(&unknown));
    assert_eq!(answer(&support_reply(), &["-q", "-f", "json"]).status.code(), Some(2));
}

#[test]
fn jsonl_is_the_document_on_one_line_and_csv_one_row_a_question() {
    let document = stdout(&answer(&support_reply(), &["-f", "json"]));
    let line = stdout(&answer(&support_reply(), &["-f", "jsonl"]));
    assert_eq!(line.lines().count(), 1);
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(parse(&line), parse(&document));

    let mut reply = support_reply();
    reply["answers"].as_object_mut().unwrap().remove("team");
    let csv = stdout(&answer(&reply, &["-f", "csv"]));
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(
        lines[0],
        "question,type,status,answer,confidence,entropy,hesitation,stderr,agreement,probabilities,source"
    );
    assert_eq!(
        lines[1],
        r#"urgent,boolean,answered,yes,0.999,0.001,0.0014,,,"{""yes"":0.999,""no"":0.001}","#
    );
    assert_eq!((lines[2], lines.len()), ("team,choice,missing,,,,,,,,", 4));
}

#[test]
fn stderr_is_a_column_when_there_were_several_reads() {
    let mut reply = support_reply();
    reply["answers"]["team"]["stderr"] = json!(0.0123);
    reply["answers"]["team"]["agreement"] = json!(0.75);
    let table = stdout(&answer(&reply, &[]));
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].ends_with("| HESITATION | STDERR  "), "{table}");
    assert!(lines[3].contains("| 0.75       | 0.0%       | ±0.0123"), "{table}");
    assert!(lines[2].trim_end().ends_with("| -"), "{table}");
}

#[test]
fn explain_shows_every_probability_the_sheet_and_the_slots() {
    let text = stdout(&answer(&support_reply(), &["--explain"]));
    for part in [
        "urgent: yes",
        "  A  billing      100.0%  ████",
        "  B  support        0.0%\n",
        "  label mass 99.8%, slot at canvas row 6",
        "SHEET (schema_first)",
        "  Question team: ",
        "  - A: billing",
        "ANSWERS (read at ▢)",
        "  urgent: ▢",
    ] {
        assert!(text.contains(part), "{part} not in {text}");
    }
    let json: Value =
        serde_json::from_str(&stdout(&answer(&support_reply(), &["--explain", "-f", "json"]))).unwrap();
    assert!(json["explain"]["sheet"].as_str().unwrap().contains("Question urgent"));
    assert_eq!(json["explain"]["answer_template"], "urgent: ▢\nteam: ▢\nsentiment: ▢");
}
