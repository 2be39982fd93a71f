//! `dgem decide` from the outside: the real binary against a recording server.

use crate::support::{Server, dgem, shipped, stderr, stdout, support_reply, template};
use serde_json::{Value, json};

pub(crate) const TICKET: &str = "ticket=I was billed $500 twice for my annual renewal this morning!";

pub(crate) fn decide(url: &str) -> assert_cmd::Command {
    let mut command = dgem();
    command.args(["decide", "-u", url, "-t"]).arg(shipped("support_triage.json.tmpl"));
    command
}

/// Runs the support policy against a server that gives this reply.
pub(crate) fn answer(reply: &Value, arguments: &[&str]) -> std::process::Output {
    decide(&Server::deciding(reply).url).args(["-v", TICKET]).args(arguments).output().unwrap()
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
fn case_32_a_trailing_slash_in_the_url_is_not_doubled() {
    let server = Server::deciding(&support_reply());
    decide(&format!("{}/", server.url)).args(["-v", TICKET]).assert().success();
    assert!(server.request().head.starts_with("POST /v1/chat/completions HTTP"));
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
    for stdin in ["{}", ""] {
        let twice =
            decide(&server.url).args(["-d", "-", "-v", "ticket=-"]).write_stdin(stdin).output().unwrap();
        assert_eq!(twice.status.code(), Some(2));
        assert!(
            stderr(&twice).contains("-v ticket=-") && stderr(&twice).contains("stdin"),
            "{}",
            stderr(&twice)
        );
    }
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
    // Variables that only the template's own state shows are not needed then.
    decide(&server.url).args(["--state", "-"]).write_stdin("from elsewhere").assert().success();
    assert_eq!(server.request().state(), "from elsewhere");
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
    // One argument of a program has a limit, which a picture may exceed.
    let large = "it's large ".repeat(20_000);
    let curl = decide(&server.url).args(["-v", "ticket=-", "--curl"]).write_stdin(large).output().unwrap();
    let shown = stdout(&curl);
    assert!(
        shown.contains("--data-binary @- <<'END_OF_REQUEST'\n{") && shown.ends_with("}\nEND_OF_REQUEST\n")
    );
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), shown.replace("curl -sS", "echo")).unwrap();
    let run = std::process::Command::new("sh").arg(script.path()).output().unwrap();
    assert!(run.status.success() && stderr(&run).is_empty(), "{}", stderr(&run));
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
fn show_says_that_a_policy_is_about_images() {
    let shown = |name: &str| stdout(&dgem().args(["template", "show", name]).output().unwrap());
    assert!(shown("multimodal/kyc_document_audit").contains("give them with -I"));
    assert!(!shown("support_triage").contains("-I"));
}

#[test]
fn a_policy_about_images_warns_without_one() {
    let warnings = |template: &str, variable: &str| {
        let output = dgem().args(["decide", "--dry-run", "-t", template, "-v", variable]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output).matches("expects an image").count()
    };
    assert_eq!(warnings("multimodal/bbox_localization", "target=mug"), 1);
    assert_eq!(warnings("multimodal/pcb_defect_triage", "camera_id=1"), 1);
    assert_eq!(warnings("multimodal/call_quality_audio", "transcript=hello"), 0);
    assert_eq!(warnings("support_triage", TICKET), 0);
}
