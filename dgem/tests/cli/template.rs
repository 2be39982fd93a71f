//! `dgem template` and the shipped templates from the outside.

use crate::support::{Server, dgem, shipped, stderr, stdout, support_reply, template};
use serde_json::{Value, json};

/// Ids, types and answers that datasets and users rely on.
const SHIPPED: [(&str, &str); 3] = [
    (
        "support_triage",
        "urgent boolean; team choice billing support engineering; sentiment score calm frustrated furious",
    ),
    (
        "code_review",
        "approved boolean; category choice bugfix feature refactor security; risk_level score low medium high critical",
    ),
    (
        "security_incident",
        "data_compromise boolean; action choice monitor revoke_key isolate_host page_oncall; severity score p3_low p2_medium p1_high p0_critical",
    ),
];

fn render(path: &std::path::Path, arguments: &[&str]) -> std::process::Output {
    dgem().args(["template", "render", "-t"]).arg(path).args(arguments).output().unwrap()
}

fn rendered(path: &std::path::Path, arguments: &[&str]) -> Value {
    let output = render(path, arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

fn summary(schema: &Value) -> String {
    let questions = schema["questions"].as_array().unwrap().iter().map(|question| {
        let names = question["options"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|option| option["name"].as_str().unwrap())
            .chain(question["levels"].as_array().into_iter().flatten().map(|level| level.as_str().unwrap()));
        let parts: Vec<&str> = [question["id"].as_str().unwrap(), question["type"].as_str().unwrap()]
            .into_iter()
            .chain(names)
            .collect();
        parts.join(" ")
    });
    questions.collect::<Vec<_>>().join("; ")
}

#[test]
fn the_shipped_templates_keep_their_ids_types_and_options_and_pass_the_check() {
    for (name, questions) in SHIPPED {
        let path = shipped(&format!("{name}.json.tmpl"));
        let document = rendered(&path, &["--sample"]);
        assert_eq!(summary(&document["schema"]), questions);
        assert_eq!(document["schema"]["samples"], 1);
        let check = dgem().args(["template", "check"]).arg(&path).output().unwrap();
        assert_eq!((check.status.code(), stdout(&check)), (Some(0), format!("ok     {}\n", path.display())));
    }
}

#[test]
fn render_prints_what_decide_sends() {
    let server = Server::deciding(&support_reply());
    let path = shipped("support_triage.json.tmpl");
    let arguments = ["-v", "ticket=a \"b\" < 東\n", "-v", "samples=auto"];
    dgem().args(["decide", "-u", &server.url, "-t"]).arg(&path).args(arguments).assert().success();
    let request = server.request();
    let output = render(&path, &arguments);
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(document["schema"].to_string(), request.json()["messages"][0]["content"].as_str().unwrap());
    assert!(stdout(&output).contains(&request.state()), "{}", stdout(&output));
}

#[test]
fn case_01_the_value_may_hold_equals_signs() {
    assert_eq!(
        rendered(&shipped("support_triage.json.tmpl"), &["-v", "ticket=a=b=c"])["state"],
        json!({"ticket": "a=b=c"})
    );
}

#[test]
fn case_03_a_ticket_with_every_kind_of_quote_comes_back_identical() {
    let ticket = "He said \"no\"\nC:\\temp\tx 'y' {{ z }} </script>";
    assert_eq!(
        rendered(&shipped("support_triage.json.tmpl"), &["-v", &format!("ticket={ticket}")])["state"]["ticket"],
        ticket
    );
}

#[test]
fn case_07_render_reads_the_data_file_and_a_variable_flag_wins() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("vars.json");
    std::fs::write(&data, r#"{"ticket": "from file", "samples": 3}"#).unwrap();
    let path = shipped("support_triage.json.tmpl");
    let document = rendered(&path, &["-d", data.to_str().unwrap()]);
    assert_eq!(
        (&document["state"]["ticket"], &document["schema"]["samples"]),
        (&json!("from file"), &json!(3))
    );
    assert_eq!(
        rendered(&path, &["-d", data.to_str().unwrap(), "-v", "ticket=typed"])["state"]["ticket"],
        "typed"
    );
}

#[test]
fn case_08_inline_data_works() {
    assert_eq!(
        rendered(&shipped("support_triage.json.tmpl"), &["-d", "{\"ticket\": \"x\"}"])["state"]["ticket"],
        "x"
    );
    let output = render(&shipped("support_triage.json.tmpl"), &["-d", "ticket=x"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("ticket=x"), "{}", stderr(&output));
}

#[test]
fn case_10_a_missing_variable_names_itself_the_file_and_the_line() {
    let path = shipped("support_triage.json.tmpl");
    let source = std::fs::read_to_string(&path).unwrap();
    let line = source.lines().position(|line| line.contains("{{ ticket")).unwrap() + 1;
    let output = render(&path, &["-v", "tiket=x"]);
    let message = stderr(&output);
    assert!(
        message.contains(&format!("support_triage.json.tmpl, line {line}"))
            && message.contains("`ticket` is not defined")
            && message.contains("`tiket`"),
        "{message}"
    );
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""));
}

#[test]
fn case_12_order_is_that_of_the_source_in_fifty_renders() {
    let (path, _folder) = template(
        r#"{"questions": {"z": {"type": "choice", "options": {"y": "1", "b": "2", "a": "3"}}, "a": {"type": "boolean"}}, "input": {{ v | json_encode }}}"#,
    );
    let first = stdout(&render(&path, &["-v", "v={\"q\":1,\"a\":2}"]));
    assert_eq!(
        summary(&serde_json::from_str::<Value>(&first).unwrap()["schema"]),
        "z choice y b a; a boolean"
    );
    for _ in 0..10 {
        assert_eq!(stdout(&render(&path, &["-v", "v={\"q\":1,\"a\":2}"])), first);
    }
}

#[test]
fn case_15_one_option_or_twenty_seven_are_refused_before_any_request() {
    for count in [1, 27] {
        let options: Vec<String> = (0..count).map(|index| format!("o{index}")).collect();
        let (path, _folder) = template(
            r#"{"schema": {"questions": [{"id": "wide", "type": "choice", "options": {{ options | as_options | json_encode }}}]}, "state": "x"}"#,
        );
        let output = render(&path, &["-v", &format!("options={}", options.join(","))]);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            stderr(&output).contains("\"wide\"") && stderr(&output).contains("\nhint: "),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn case_16_json_true_in_ask_if_gets_the_hint_yes() {
    let (path, _folder) = template(
        r#"{"schema": {"questions": [{"id": "x", "type": "boolean"}, {"id": "y", "type": "boolean", "ask_if": {"x": [true]}}]}, "state": "x"}"#,
    );
    let output = render(&path, &[]);
    assert!(output.status.code() == Some(2) && stderr(&output).contains("yes"), "{}", stderr(&output));
}

#[test]
fn raw_prints_the_text_even_when_it_is_no_json() {
    let (path, _folder) = template("{\"a\": {{ x }},}");
    let output = render(&path, &["--raw", "-v", "x=1"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "{\"a\": 1,}"));
}

#[test]
fn go_syntax_is_recognised_and_rewritten() {
    let (path, _folder) = template("{\n \"state\": {\"t\": {{ default \"x\" .ticket | toJson }}}}");
    let output = render(&path, &["-v", "ticket=y"]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        message.contains("line 2")
            && message.contains("Go template")
            && message.contains("{{ ticket | or_default(value=\"x\") | json_encode }}"),
        "{message}"
    );
}

#[test]
fn list_finds_templates_in_sub_folders_with_their_variables() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("family")).unwrap();
    std::fs::write(
        folder.path().join("b.json.tmpl"),
        "{# dgem: {\"description\": \"second\"} #}{{ need | json_encode }}{{ may | default(value=1) }}",
    )
    .unwrap();
    std::fs::write(folder.path().join("family/a.json.tmpl"), "{# dgem: {\"description\": \"first\"} #}")
        .unwrap();
    std::fs::write(folder.path().join("broken.json.tmpl"), "{{ .x }}").unwrap();
    std::fs::write(folder.path().join("note.txt"), "").unwrap();
    let output = dgem().args(["template", "list"]).arg(folder.path()).output().unwrap();
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().skip(2).map(str::trim_end).collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("b ") && lines[0].contains("| need [may] | second"), "{text}");
    assert!(
        lines[1].starts_with("broken ")
            && lines[1].contains("(cannot be loaded)")
            && stderr(&output).contains("Go template"),
        "{text}"
    );
    assert!(lines[2].starts_with("family/a ") && lines[2].ends_with("first"), "{text}");
    assert_eq!(output.status.code(), Some(0));
    let absent = dgem().args(["template", "list", "/no/such/folder"]).output().unwrap();
    assert!(absent.status.code() == Some(2) && stderr(&absent).contains("/no/such/folder"));
}

#[test]
fn show_tells_variables_and_questions() {
    let output = dgem().args(["template", "show"]).arg(shipped("support_triage.json.tmpl")).output().unwrap();
    let text = stdout(&output);
    for part in [
        "ticket           | required",
        "samples          | optional",
        "I was billed $500 twice",
        "calm < frustrated < furious",
        "billing, support, engineering",
    ] {
        assert!(text.contains(part), "{part} not in {text}");
    }
}

#[test]
fn check_warns_of_what_may_surprise_and_fails_on_what_would_not_run() {
    let (suspicious, _a) = template(
        "{\"schema\": {\"questions\": [{\"id\": \"q\", \"type\": \"boolean\"}]}, \"state\": {\"t\": \"{{ t }}\"}}",
    );
    let output = dgem().args(["template", "check", "-v", "t=x"]).arg(&suspicious).output().unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0));
    for part in ["json_str", "no description", "`t` is needed, but has no sample value"] {
        assert!(text.contains(part), "{part} not in {text}");
    }
    let (broken, _b) = template("{{ nothing }}");
    let output = dgem().args(["template", "check"]).arg(&broken).arg(&suspicious).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stdout(&output).contains("FAILED") && stderr(&output).contains("2 of 2"),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
}

#[test]
fn version_and_mistyped_commands() {
    let version = dgem().arg("--version").output().unwrap();
    assert_eq!(stdout(&version), format!("dgem {}\n", env!("CARGO_PKG_VERSION")));
    let help = dgem().arg("--help").output().unwrap();
    assert!(stdout(&help).contains("Exit codes:\n  0  done"), "{}", stdout(&help));
    let typo = dgem().arg("decid").output().unwrap();
    assert!(typo.status.code() == Some(2) && stderr(&typo).contains("decide"), "{}", stderr(&typo));
}
