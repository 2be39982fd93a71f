//! `dgem decide` from the outside: the real binary against a recording server.

use crate::support::{Server, completion, dgem, shipped, stderr, stdout, support_reply, template};
use serde_json::{Value, json};

const TICKET: &str = "ticket=I was billed $500 twice for my annual renewal this morning!";

fn decide(url: &str) -> assert_cmd::Command {
    let mut command = dgem();
    command.args(["decide", "-u", url, "-t"]).arg(shipped("support_triage.json.tmpl"));
    command
}

/// Runs the support policy against a server that gives this reply.
fn answer(reply: &Value, arguments: &[&str]) -> std::process::Output {
    decide(&Server::deciding(reply).url).args(["-v", TICKET]).args(arguments).output().unwrap()
}

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
fn the_request_holds_the_schema_the_state_and_no_model_unless_named() {
    let server = Server::deciding(&support_reply());
    decide(&server.url).args(["-v", TICKET]).assert().success();
    let request = server.request();
    assert!(request.head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{}", request.head);
    assert_eq!(request.header("content-type").as_deref(), Some("application/json"));
    assert_eq!(request.header("authorization"), None);
    assert_eq!(
        request.state(),
        "{\"ticket\": \"I was billed $500 twice for my annual renewal this morning!\"}"
    );
    let ids: Vec<Value> = request.schema()["questions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|question| question["id"].clone())
        .collect();
    assert_eq!(
        (ids, request.schema()["samples"].clone()),
        (vec![json!("urgent"), json!("team"), json!("sentiment")], json!(1))
    );
    assert_eq!(request.json().as_object().unwrap().keys().collect::<Vec<_>>(), ["messages"]);

    decide(&server.url)
        .args(["-v", TICKET, "-m", "big", "--seed", "7", "--samples", "auto"])
        .assert()
        .success();
    let request = server.request();
    assert_eq!(
        (&request.json()["model"], &request.schema()["seed"], &request.schema()["samples"]),
        (&json!("big"), &json!(7), &json!("auto"))
    );
}

#[test]
fn case_04_the_body_carries_literal_characters_and_no_escapes() {
    let server = Server::deciding(&support_reply());
    let ticket = "if a < b && c > d: 東京 naïve 🙂 \u{2028} 'x'";
    decide(&server.url).args(["-v", &format!("ticket={ticket}")]).assert().success();
    let body = server.request().text();
    assert!(body.contains(ticket), "{body}");
    assert!(!body.contains("\\u"), "{body}");
}

#[test]
fn case_02_a_pair_without_equals_sign_is_the_same_error_everywhere() {
    let path = shipped("support_triage.json.tmpl");
    let decide = dgem().args(["decide", "-v", "ticket", "-t"]).arg(&path).output().unwrap();
    let render = dgem().args(["template", "render", "-v", "ticket", "-t"]).arg(&path).output().unwrap();
    assert!(
        stderr(&decide).starts_with("error: invalid variable `ticket`: expected key=value\nhint: "),
        "{}",
        stderr(&decide)
    );
    assert_eq!(
        (decide.status.code(), render.status.code(), stderr(&render)),
        (Some(2), Some(2), stderr(&decide))
    );
}

#[test]
fn case_06_samples_as_a_variable_reach_the_schema_as_number_or_auto() {
    let server = Server::deciding(&support_reply());
    for (value, expected) in [("4", json!(4)), ("auto", json!("auto"))] {
        decide(&server.url).args(["-v", TICKET, "-v", &format!("samples={value}")]).assert().success();
        assert_eq!(server.request().schema()["samples"], expected);
    }
    for arguments in [
        ["-v", "samples=0"],
        ["-v", "samples=x"],
        ["--samples", "0"],
        ["--samples", "x"],
        ["--samples", "99"],
    ] {
        let output = decide(&server.url).args(["-v", TICKET]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            stderr(&output).starts_with("error: ") && stderr(&output).contains("hint: "),
            "{}",
            stderr(&output)
        );
    }
    assert!(server.got_nothing());
}

#[test]
fn case_11_an_unknown_variable_is_a_warning_with_the_known_ones() {
    let output = answer(&support_reply(), &["-v", "target_object=x"]);
    assert_eq!(output.status.code(), Some(0));
    let warning = stderr(&output);
    assert!(
        warning.starts_with("warning: ")
            && warning.contains("`target_object`")
            && warning.contains("ticket, samples"),
        "{warning}"
    );
}

#[test]
fn case_14_a_broken_template_never_reaches_the_network() {
    let server = Server::deciding(&support_reply());
    let (path, _folder) =
        template("{\"schema\": {\"questions\": [\n  {\"id\": \"a\", \"type\": \"boolean\"},\n]}}");
    let output = dgem().args(["decide", "-u", &server.url, "-t"]).arg(&path).output().unwrap();
    let message = stderr(&output);
    assert!(
        message.contains("line 3, column 1") && message.contains("  3 | ]}}") && message.contains("| ^"),
        "{message}"
    );
    assert_eq!((output.status.code(), server.got_nothing()), (Some(2), true));
}

#[test]
fn case_18_a_variable_of_a_megabyte_on_one_line_arrives_whole() {
    let server = Server::deciding(&support_reply());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big.txt");
    let diff = "+ 東 x".repeat(150_000);
    std::fs::write(&path, &diff).unwrap();
    decide(&server.url).args(["-v", &format!("ticket=@{}", path.display())]).assert().success();
    let state: Value = serde_json::from_str(&server.request().state()).unwrap();
    assert!(diff.len() > 1_000_000 && state["ticket"] == diff.as_str());
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
fn case_21_fenced_and_preceded_replies_are_read() {
    for content in [format!("```json\n{}\n```", support_reply()), format!("thought\n{}", support_reply())] {
        let output =
            decide(&Server::new(200, completion(&content)).url).args(["-v", TICKET]).output().unwrap();
        assert!(output.status.success() && stdout(&output).contains("billing"), "{}", stderr(&output));
    }
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
fn case_32_a_trailing_slash_in_the_url_is_not_doubled() {
    let server = Server::deciding(&support_reply());
    decide(&format!("{}/", server.url)).args(["-v", TICKET]).assert().success();
    assert!(server.request().head.starts_with("POST /v1/chat/completions HTTP"));
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
fn case_45_an_unknown_format_is_refused_and_runtime_errors_show_no_usage() {
    let format = answer(&support_reply(), &["-f", "yaml"]);
    assert_eq!(format.status.code(), Some(2));
    assert!(stderr(&format).contains("yaml") && stdout(&format).is_empty(), "{}", stderr(&format));
    let runtime = decide("http://127.0.0.1:1/v1").args(["-v", TICKET]).output().unwrap();
    assert!(!stderr(&runtime).contains("Usage"), "{}", stderr(&runtime));
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
fn the_environment_is_honoured_and_a_proxy_is_not_used_for_this_machine() {
    let server = Server::deciding(&support_reply());
    dgem()
        .args(["decide", "-v", TICKET, "-t"])
        .arg(shipped("support_triage.json.tmpl"))
        .env("DGEM_URL", &server.url)
        .env("DGEM_MODEL", "m")
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .assert()
        .success();
    assert_eq!(server.request().json()["model"], "m");
    let output = decide(&server.url).args(["-v", TICKET]).env("DGEM_TIMEOUT", "soon").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("`soon`"), "{}", stderr(&output));
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
fn variables_come_from_a_file_from_stdin_and_from_inline_data() {
    let server = Server::deciding(&support_reply());
    decide(&server.url).args(["-v", "ticket=-"]).write_stdin("from stdin\n").assert().success();
    assert_eq!(server.request().state(), "{\"ticket\": \"from stdin\\n\"}");
    decide(&server.url).args(["-d", "-"]).write_stdin("{\"ticket\": \"from data\"}").assert().success();
    assert_eq!(server.request().state(), "{\"ticket\": \"from data\"}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("vars.json");
    std::fs::write(&file, "{\"ticket\": \"from file\"}").unwrap();
    for data in [file.display().to_string(), format!("@{}", file.display())] {
        decide(&server.url).args(["-d", &data]).assert().success();
        assert_eq!(server.request().state(), "{\"ticket\": \"from file\"}");
    }
    let absent = decide(&server.url).args(["-d", "@/no/such/file"]).output().unwrap();
    assert_eq!((absent.status.code(), stderr(&absent).matches("hint:").count()), (Some(2), 1));
    assert!(stderr(&absent).contains("cannot use /no/such/file as variables"), "{}", stderr(&absent));
    let twice = decide(&server.url).args(["-d", "-", "-v", "ticket=-"]).write_stdin("{}").output().unwrap();
    assert_eq!(twice.status.code(), Some(2));
    assert!(stderr(&twice).contains("stdin"), "{}", stderr(&twice));
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
        "question,type,status,answer,confidence,entropy,hesitation,stderr,agreement,probabilities"
    );
    assert_eq!(
        lines[1],
        r#"urgent,boolean,answered,yes,0.999,0.001,0.0014,,,"{""yes"":0.999,""no"":0.001}""#
    );
    assert_eq!((lines[2], lines.len()), ("team,choice,missing,,,,,,,", 4));
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

#[test]
fn questions_may_come_from_a_schema_file_and_the_state_from_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let schema = folder.path().join("schema.json");
    std::fs::write(&schema, r#"{"questions": [{"id": "q", "type": "boolean"}]}"#).unwrap();
    let file = folder.path().join("state.txt");
    std::fs::write(&file, "  as it is \n").unwrap();
    let server = Server::deciding(&json!({"answers": {"q": {"type": "boolean", "noul": 0.9}}}));
    let run = |arguments: &[&str], stdin: &str| {
        let mut command = dgem();
        command.args(["decide", "-u", &server.url, "--schema"]).arg(&schema).args(arguments);
        command.write_stdin(stdin.to_owned()).output().unwrap()
    };
    for (arguments, stdin, state) in [
        (&["--state", file.to_str().unwrap()][..], "", "  as it is \n"),
        (&["--state", "{\"a\":  1}"], "", "{\"a\":  1}"),
        (&["--state", "-"], "from stdin 東\n", "from stdin 東\n"),
        (&["-v", "a=1", "-v", "b=true"], "", "{\"a\":\"1\",\"b\":true}"),
    ] {
        let output = run(arguments, stdin);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(server.request().state(), state);
    }
    for (arguments, part) in [
        (&[][..], "nothing to decide on"),
        (&["--state", "{\"a\":"], "the JSON given to --state"),
        (&["--state", "/no/such/file"], "/no/such/file"),
        (&["--state", "-", "-v", "a=-"], "stdin"),
        (&["--state", "-", "-t", "x"], "cannot be used with"),
    ] {
        let output = run(arguments, "");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
    assert!(server.got_nothing());
    let neither = dgem().args(["decide", "--state", "{}"]).output().unwrap();
    assert_eq!(neither.status.code(), Some(2));
}

#[test]
fn a_given_state_wins_over_that_of_the_template() {
    let server = Server::deciding(&support_reply());
    decide(&server.url).args(["-v", TICKET, "--state", "[1]"]).assert().success();
    assert_eq!(server.request().state(), "[1]");
}

#[test]
fn layout_and_thought_reach_the_schema() {
    let server = Server::deciding(&support_reply());
    decide(&server.url)
        .args(["-v", TICKET, "--layout", "document_first", "--think", "64"])
        .assert()
        .success();
    let schema = server.request().schema();
    assert_eq!((&schema["layout"], &schema["think"]), (&json!("document_first"), &json!(64)));
    for arguments in [["--layout", "sideways"], ["--think", "5000"], ["--permute", "0"]] {
        let output = decide(&server.url).args(["-v", TICKET]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains("hint: "), "{}", stderr(&output));
    }
}

#[test]
fn dry_run_and_curl_show_the_request_without_sending_it_and_without_the_token() {
    let server = Server::deciding(&support_reply());
    let show = |flag: &str| {
        let mut command = decide(&server.url);
        command.args(["-v", "ticket=it's < down", flag]).env("DGEM_TOKEN", "s3cret").output().unwrap()
    };
    let dry = show("--dry-run");
    let request: Value = serde_json::from_str(&stdout(&dry)).unwrap();
    assert_eq!(request["url"], format!("{}/chat/completions", server.url));
    assert_eq!(request["headers"]["authorization"], "Bearer ***");
    assert_eq!(request["body"]["messages"][1]["content"], "{\"ticket\": \"it's < down\"}");
    let curl = show("--curl");
    assert!(stdout(&curl).contains("-H \"Authorization: Bearer $DGEM_TOKEN\""), "{}", stdout(&curl));
    assert!(stdout(&curl).contains(r"it'\''s < down"), "{}", stdout(&curl));
    for output in [&dry, &curl] {
        assert!(output.status.success() && !stdout(output).contains("s3cret"), "{}", stderr(output));
    }
    assert!(server.got_nothing());
    // What was shown is what is sent.
    decide(&server.url).args(["-v", "ticket=it's < down"]).assert().success();
    assert_eq!(server.request().json(), request["body"]);
}

#[test]
fn systemone_is_asked_in_its_own_shape() {
    let reply = json!({"model": "jev", "usage": {"input_tokens": 7, "output_tokens": 3}, "answers": {
        "urgent": {"type": "noul", "noul": 0.9},
        "team": {"type": "choice", "choice": "support", "probabilities": {"billing": 0.2, "support": 0.7, "engineering": 0.1}, "confidence": 0.55},
        "sentiment": {"type": "score", "score": 1.1, "legend": {}, "probabilities": {"0": 0.1, "1": 0.7, "2": 0.2}, "confidence": 0.5}}});
    let server = Server::new(200, reply.to_string());
    let output =
        decide(&server.url).args(["-v", TICKET, "--api", "systemone", "-f", "json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let request = server.request();
    assert!(request.head.starts_with("POST /v1/systemone HTTP"), "{}", request.head);
    let body = request.json();
    assert_eq!(body["questions"]["urgent"]["type"], "noul");
    assert_eq!(body["questions"]["sentiment"]["criteria"], json!(["calm", "frustrated", "furious"]));
    assert_eq!(
        body["questions"]["team"]["criteria"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["billing", "support", "engineering"]
    );
    assert!(body["state"].as_str().unwrap().contains("I was billed"));
    let answers = &serde_json::from_str::<Value>(&stdout(&output)).unwrap()["answers"];
    assert_eq!(
        (&answers["urgent"]["label"], &answers["team"]["confidence"], &answers["sentiment"]["level"]),
        (&json!("yes"), &json!(0.7), &json!("frustrated"))
    );
    assert!((answers["sentiment"]["score"].as_f64().unwrap() - 2.1).abs() < 1e-9);
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

#[test]
fn a_schema_may_stand_on_the_command_line() {
    let run = |schema: &str| {
        dgem().args(["decide", "--dry-run", "--state", "[1]", "--schema", schema]).output().unwrap()
    };
    let output = run(r#"{"questions": [{"id": "urgent", "type": "boolean"}]}"#);
    assert!(output.status.success() && stdout(&output).contains("urgent"), "{}", stderr(&output));
    let output = run(r#"{"questions": 1}"#);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("the JSON given to --schema"), "{}", stderr(&output));
}

#[test]
fn too_many_samples_are_a_mistake_of_the_flag() {
    let output = decide("http://127.0.0.1:9/v1").args(["-v", TICKET, "--samples", "33"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("invalid --samples `33`\nhint: use a whole number from 1 to 32"));
}

#[test]
fn a_preview_of_several_requests_says_that_it_shows_one() {
    let notes = |flags: &[&str]| {
        let output =
            decide("http://127.0.0.1:9/v1").args(["-v", TICKET, "--dry-run"]).args(flags).output().unwrap();
        stderr(&output).matches("only one request is shown").count()
    };
    assert_eq!((notes(&[]), notes(&["--permute", "3"])), (0, 1));
}

#[test]
fn a_policy_about_images_warns_without_one() {
    let warnings = |template: &str, variable: &str| {
        let output = dgem().args(["decide", "--dry-run", "-t", template, "-v", variable]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output).matches("expects an image").count()
    };
    assert_eq!(warnings("multimodal/bbox_localization", "target=mug"), 1);
    assert_eq!(warnings("support_triage", TICKET), 0);
}
