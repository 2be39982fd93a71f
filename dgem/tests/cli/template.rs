//! `dgem template` and the shipped templates from the outside.

use crate::support::{Server, dgem, shipped, stderr, stdout, summary, support_reply, template};
use serde_json::{Value, json};

fn render(path: &std::path::Path, arguments: &[&str]) -> std::process::Output {
    dgem().args(["template", "render", "-t"]).arg(path).args(arguments).output().unwrap()
}

fn rendered(path: &std::path::Path, arguments: &[&str]) -> Value {
    let output = render(path, arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
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
fn case_15_one_option_or_more_than_can_be_asked_in_groups_are_refused_before_any_request() {
    for count in [1, 1025] {
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
    let lines: Vec<&str> =
        text.lines().skip(2).map(str::trim_end).filter(|line| !line.contains("| built in ")).collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[0].starts_with("b ") && lines[0].contains("| need [may] ") && lines[0].ends_with("| second"),
        "{text}"
    );
    assert!(
        lines[1].starts_with("broken ")
            && lines[1].contains("(cannot be loaded)")
            && stderr(&output).contains("Go template"),
        "{text}"
    );
    assert!(lines[2].starts_with("family/a ") && lines[2].ends_with("first"), "{text}");
    assert!(text.contains("support_triage ") && text.contains("| built in "), "{text}");
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
        stdout(&output).contains("FAILED") && stderr(&output).contains("1 of 2"),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
}

#[test]
fn version_and_mistyped_commands() {
    let version = dgem().arg("--version").output().unwrap();
    assert!(stdout(&version).starts_with(&format!("dgem {} ", env!("CARGO_PKG_VERSION"))));
    let help = dgem().arg("--help").output().unwrap();
    assert!(stdout(&help).contains("Exit codes:\n  0  done"), "{}", stdout(&help));
    let typo = dgem().arg("decid").output().unwrap();
    assert!(typo.status.code() == Some(2) && stderr(&typo).contains("decide"), "{}", stderr(&typo));
}

/// A folder of the test's own with one template, `family/mine`, whose question is `mine`.
fn folder_with_mine() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("family")).unwrap();
    let source = r#"{"schema": {"questions": [{"id": "mine", "type": "boolean"}]}, "state": "x"}"#;
    std::fs::write(folder.path().join("family/mine.json.tmpl"), source).unwrap();
    folder
}

fn asked(command: &mut assert_cmd::Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    document["schema"]["questions"][0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_template_is_found_by_name_in_the_folder_and_among_those_built_in() {
    let folder = folder_with_mine();
    let path = folder.path().to_str().unwrap();
    let render = |arguments: &[&str]| {
        let mut command = dgem();
        command.current_dir(folder.path()).args(["template", "render", "--sample"]).args(arguments);
        command
    };
    assert_eq!(asked(&mut render(&["-t", "family/mine", "--templates", path])), "mine");
    assert_eq!(asked(&mut render(&["family/mine", "--templates", path])), "mine");
    assert_eq!(asked(render(&["-t", "family/mine"]).env("DGEM_TEMPLATES", path)), "mine");
    assert_eq!(asked(&mut render(&["-t", "family/mine.json.tmpl"])), "mine");
    // No folder `templates` here: what is built in is still there.
    assert_eq!(asked(&mut render(&["-t", "support_triage"])), "urgent");
    // A file of the same name wins over what is built in.
    let own = folder.path().join("templates");
    std::fs::create_dir(&own).unwrap();
    std::fs::copy(folder.path().join("family/mine.json.tmpl"), own.join("support_triage.json.tmpl")).unwrap();
    assert_eq!(asked(&mut render(&["-t", "support_triage"])), "mine");
}

#[test]
fn every_name_that_list_prints_can_be_shown() {
    let folder = folder_with_mine();
    let run = |arguments: &[&str]| {
        dgem().arg("template").args(arguments).args(["--templates"]).arg(folder.path()).output().unwrap()
    };
    let listed = stdout(&run(&["list"]));
    let names: Vec<&str> = listed.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"family/mine") && names.len() > 3, "{listed}");
    for name in names {
        assert!(run(&["show", "-t", name]).status.success(), "{name}");
        assert!(run(&["check", "-t", name, name]).status.success(), "{name}");
    }
}

#[test]
fn an_unknown_template_is_an_error_with_the_name_that_was_meant() {
    for (name, meant) in [
        ("suport_triage", "did you mean -t support_triage?"),
        ("templates/support_triage.json.tmpl", "did you mean -t support_triage?"),
        ("nothing_like_it", "`dgem template list`"),
        ("../../etc/passwd.json", "`dgem template list`"),
    ] {
        let output = dgem().current_dir("/").args(["decide", "-t", name, "-v", "ticket=x"]).output().unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(&format!("`{name}`")) && message.contains(meant), "{message}");
    }
    let absent = dgem().args(["template", "list", "--templates", "/no/such/folder"]).output().unwrap();
    assert!(absent.status.code() == Some(2) && stderr(&absent).contains("/no/such/folder"));
}

#[test]
fn case_11_an_unknown_variable_is_warned_of_with_the_one_that_was_meant() {
    let output = render(
        &shipped("support_triage.json.tmpl"),
        &["-v", "ticket=x", "-v", "tickett=y", "-v", "object=z"],
    );
    let message = stderr(&output);
    assert!(output.status.success() && serde_json::from_str::<Value>(&stdout(&output)).is_ok());
    assert!(message.contains("`tickett`; did you mean `ticket`? It knows: ticket, samples"), "{message}");
    assert!(message.contains("`object`; it knows: ticket, samples"), "{message}");
}

#[test]
fn new_writes_a_template_that_passes_the_check_and_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        dgem().current_dir(folder.path()).arg("template").args(arguments).output().unwrap()
    };
    let made = run(&["new", "family/mine"]);
    assert_eq!(stdout(&made), "templates/family/mine.json.tmpl\n", "{}", stderr(&made));
    let check = run(&["check", "family/mine"]);
    assert_eq!(stdout(&check), "ok     family/mine\n");
    assert_eq!(stdout(&run(&["new", "note.txt"])), "templates/note.txt.tmpl\n");
    assert_eq!(stdout(&run(&["check", "note.txt"])), "ok     note.txt\n");
    let text = run(&["render", "note.txt", "-v", "text=abc"]);
    assert_eq!(stdout(&text), "Summarise the following text in two sentences.\n\nabc\n", "{}", stderr(&text));
    let copy = run(&["new", "copy", "--from", "support_triage"]);
    assert!(copy.status.success(), "{}", stderr(&copy));
    let source = std::fs::read_to_string(folder.path().join("templates/copy.json.tmpl")).unwrap();
    assert_eq!(source, std::fs::read_to_string(shipped("support_triage.json.tmpl")).unwrap());
    assert_eq!(stdout(&run(&["show", "--source", "copy"])), source);
    let again = run(&["new", "copy"]);
    assert!(
        again.status.code() == Some(2) && stderr(&again).contains("not overwritten"),
        "{}",
        stderr(&again)
    );
    assert_eq!(std::fs::read_to_string(folder.path().join("templates/copy.json.tmpl")).unwrap(), source);
    for bad in ["../up", "/abs", "a/../b", "", "a\u{1b}b"] {
        let output = run(&["new", bad]);
        assert!(
            output.status.code() == Some(2) && stderr(&output).contains("cannot be the name"),
            "{bad}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn check_uses_placeholders_where_there_is_no_metadata() {
    let (path, _folder) = template(
        r#"{"schema": {"questions": [{"id": "q", "type": "choice", "options": [{% for o in options %}{% if not loop.first %},{% endif %}{{ o | json_encode }}{% endfor %}]}]}, "state": {"a": {{ a.b | json_encode }}, "t": {{ t | json_encode }}}}"#,
    );
    let output = dgem().args(["template", "check"]).arg(&path).output().unwrap();
    let text = stdout(&output);
    assert!(output.status.success() && text.contains("placeholder"), "{text}{}", stderr(&output));
    let (faulty, _folder) = template(
        r#"{"schema": {"questions": [{"id": "q", "type": "boolean"}, {"id": "q", "type": "boolean"}]}, "state": {{ t | json_encode }}}"#,
    );
    let output = dgem().args(["template", "check"]).arg(&faulty).output().unwrap();
    assert!(output.status.code() == Some(2) && stdout(&output).contains("\"q\""), "{}", stdout(&output));
}

#[test]
fn check_with_a_server_tells_what_only_the_server_knows() {
    let server =
        Server::new(400, r#"{"error": {"message": "the labels yes and no are not one token each"}}"#);
    let path = shipped("support_triage.json.tmpl");
    let check =
        |url: &str| dgem().args(["template", "check", "--server", "-u", url]).arg(&path).output().unwrap();
    let output = check(&server.url);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stdout(&output).contains("FAILED") && stdout(&output).contains("not one token each"),
        "{}",
        stdout(&output)
    );
    let server = Server::deciding(&support_reply());
    assert!(check(&server.url).status.success());
    assert_eq!(
        server.request().state(),
        "{\"ticket\": \"I was billed $500 twice for my annual renewal this morning!\"}"
    );
    assert_eq!(check("http://127.0.0.1:1/v1").status.code(), Some(5));
}

#[test]
fn a_template_that_wants_all_the_memory_or_time_is_stopped() {
    let many = "{% for i in range(end=100000) %}";
    let end = "{% endfor %}";
    for (source, part) in [
        (
            "{% set_global s = 'x' %}{% for i in range(end=99) %}{% set_global s = s ~ s %}{% endfor %}"
                .to_owned(),
            "is stopped: it ",
        ),
        (
            format!("{{% set s = 'xxxxxxxx' %}}{}", "{% set s = s | replace(from='x', to=s) %}".repeat(9)),
            "is stopped: it ",
        ),
        (
            format!("{{% set s = [1, 2] %}}{}", "{% set s = [s, s, s, s, s, s, s, s] %}".repeat(30)),
            "is stopped: it ",
        ),
        (format!("[{}0]", "[],".repeat(200_000)), "no object"),
        (format!("{many}[[],{end}"), "invalid JSON"),
        (format!("[{many}{{% for j in range(end=200) %}}[],{end}{end}0]"), "is stopped: it "),
        (format!("{many}{many}{end}{end}"), "longer than 5 s"),
    ] {
        let (path, _folder) = template(&source);
        let start = std::time::Instant::now();
        let output = dgem().args(["decide", "-v", "a=b", "-t"]).arg(&path).output().unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{part}: {message}");
        assert!(message.contains(part) && message.contains("\nhint: "), "{part} not in {message}");
        assert!(start.elapsed().as_secs() < 30, "{part}: {:?}", start.elapsed());
    }
}

#[test]
fn a_wrong_name_in_the_metadata_is_a_fault_of_the_metadata() {
    let text = r#"{# dgem: {"description": "d", "required": ["tikket"], "sample": {"ticket": "x"}} #}
{"schema": {"questions": [{"id": "a", "type": "boolean"}]}, "state": {{ ticket | json_encode }}}"#;
    let (path, _folder) = template(text);
    let output = dgem().args(["template", "check"]).arg(path).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = stdout(&output);
    assert!(message.contains("line 1: invalid metadata comment: `required` names `tikket`"), "{message}");
    assert!(!message.contains("-v tikket"), "{message}");
}

#[test]
fn a_text_is_shown_and_checked_under_the_name_that_ask_takes() {
    for command in ["show", "check"] {
        let output = dgem().args(["template", command, "ask_summary"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{command}: {}", stderr(&output));
    }
}
