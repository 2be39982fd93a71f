//! Hostile or careless surroundings from the outside: templates that would overwhelm the parser, endless files, closed or full
//! outputs, secrets in the wrong place. Each ends in an error with a hint, never in an abort.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Output, Stdio};

use crate::support::{Server, dgem, shipped, stderr, stdout, support_reply, template};
use serde_json::json;

fn render(path: &Path) -> Output {
    dgem().args(["template", "render", "--raw", "-t"]).arg(path).output().unwrap()
}

/// The program in a shell, for redirections that a test cannot make otherwise.
fn shell(script: &str, arguments: &[&str]) -> Output {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script]).arg(env!("CARGO_BIN_EXE_dgem")).args(arguments).env_clear();
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_template_that_would_use_up_the_stack_is_an_error() {
    let deep = format!("{}{}", "{% if a %}".repeat(20_000), "{% endif %}".repeat(20_000));
    let chain = (0..100)
        .map(|index| format!("{{% macro m{index}() %}}{{{{ self::m{}() }}}}{{% endmacro %}}", index + 1))
        .collect::<Vec<_>>()
        .concat();
    let mut sources = vec![
        (deep.clone(), "line 1: more than 32 tags"),
        (format!("{{% raw %}}{{{{{{% endraw %}}{deep}"), "more than 32 tags"),
        (format!("{{{{ 1{} }}}}", "+1".repeat(20_000)), "operators"),
        (format!("{{{{ {}1{} }}}}", "(".repeat(20_000), ")".repeat(20_000)), "brackets"),
        (format!("{{{{ {}1{} }}}}", "range(end=".repeat(40), ")".repeat(40)), "brackets"),
        (format!("{{{{ {}1{} }}}}\n", "range(end=".repeat(6), ")".repeat(6)).repeat(1_000), "line 46: the brackets"),
        (format!("{{{{ x{}{} }}}}", " | default(value=x".repeat(40), ")".repeat(40)), "brackets"),
        (format!("{chain}{{{{ self::m0() }}}}"), "chain"),
        ("{% macro a() %}{{ self::a() }}{% endmacro %}{{ self::a() }}".to_owned(), "`a` calls itself"),
        (
            "{% macro a() %}{% if x %}{{ self::b() }}{% endif %}{% endmacro %}{% macro b() %}{{ 1 + self :: a() }}{% endmacro %}{{ self::a() }}"
                .to_owned(),
            "calls itself, directly or through others",
        ),
    ];
    sources.extend(
        ["range(end=1000000000)", "range(end=10, step_by=0)", "range(end=9223372036854775807)"]
            .map(|call| (format!("{{% for i in {call} %}}x{{% endfor %}}"), "range")),
    );
    for (source, part) in sources {
        let (path, _folder) = template(&source);
        let output = render(&path);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{part}: {message}");
        assert!(message.starts_with("error: ") && message.contains(part), "{part} not in {message}");
        assert!(message.contains("\nhint: ") && message.len() < 2_000, "{message}");
    }
}

#[test]
fn a_template_cannot_fill_the_memory_with_loops_in_loops() {
    let (path, _folder) = template(&format!(
        "{{% for i in range(end=100000) %}}{{% for j in range(end=100000) %}}{}{{% endfor %}}{{% endfor %}}",
        "x".repeat(10_000)
    ));
    let output = render(&path);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
    assert!(stderr(&output).contains("larger than 65536 KiB"), "{}", stderr(&output));
}

#[test]
fn numbers_that_make_tera_panic_are_an_error() {
    for source in [format!("{{{{ {}.0 }}}}", "9".repeat(400)), "{{ -9223372036854775808 % -1 }}".to_owned()] {
        let (path, _folder) = template(&source);
        let output = render(&path);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
        let message = stderr(&output);
        assert!(message.starts_with("error: ") && message.contains("out of range"), "{message}");
    }
}

#[test]
fn a_template_cannot_bring_in_itself_or_another() {
    for tag in ["include \"PATH\"", "import \"PATH\" as me", "extends \"PATH\""] {
        let (path, _folder) = template("");
        let source = format!("{{% {} %}}", tag.replace("PATH", path.to_str().unwrap()));
        std::fs::write(&path, source).unwrap();
        let output = render(&path);
        assert_eq!(output.status.code(), Some(2), "{tag}");
        assert!(stderr(&output).contains("a template is one file"), "{}", stderr(&output));
    }
}

#[test]
fn what_is_allowed_still_renders() {
    let nested = format!("{}x{}", "{% if 1 %}".repeat(32), "{% endif %}".repeat(32));
    let brackets = "{{ ((((((1)))))) }}";
    let sum = format!("{{{{ 1{} }}}}", " + 1".repeat(200));
    for (source, expected) in [
        (nested.as_str(), "x"),
        (brackets, "1"),
        (&sum, "201"),
        ("{{ range(start=0,end=3) | json_encode }}", "[0,1,2]"),
        (
            "{% macro a(n) %}{{ n }}!{% endmacro %}{% macro b() %}{{ self::a(n=1) }}{% endmacro %}{{ self::b() }}",
            "1!",
        ),
    ] {
        let (path, _folder) = template(source);
        let output = render(&path);
        assert_eq!(
            (stdout(&output).as_str(), output.status.code()),
            (expected, Some(0)),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn brackets_up_to_the_limit_are_parsed_quickly() {
    let start = std::time::Instant::now();
    for source in [
        format!("{{{{ {}1{} }}}}", "range(end=".repeat(6), ")".repeat(6)),
        format!("{{{{ x{}{} }}}}", " | default(value=x".repeat(6), ")".repeat(6)),
        format!("{{% if {}1{} %}}{{% endif %}}", "(a and ".repeat(6), ")".repeat(6)),
    ] {
        let (path, _folder) = template(&source);
        assert!(render(&path).status.code().is_some(), "{source}");
    }
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn endless_files_are_cut_off() {
    let template = dgem().args(["template", "check", "/dev/zero"]).output().unwrap();
    assert_eq!(template.status.code(), Some(2));
    assert!(stdout(&template).contains("larger than 1024 KiB"), "{}", stdout(&template));
    let policy = shipped("support_triage.json.tmpl");
    let token = dgem()
        .args(["decide", "-v", "ticket=x", "--token-file", "/dev/zero", "-t"])
        .arg(&policy)
        .output()
        .unwrap();
    assert_eq!(token.status.code(), Some(3));
    assert!(stderr(&token).contains("larger than 64 KiB"), "{}", stderr(&token));
    let value =
        dgem().args(["template", "render", "-v", "ticket=@/dev/zero", "-t"]).arg(&policy).output().unwrap();
    assert_eq!(value.status.code(), Some(2));
    assert!(stderr(&value).contains("larger than 65536 KiB"), "{}", stderr(&value));
}

#[test]
fn a_password_in_a_url_is_printed_nowhere() {
    for (url, host) in [
        ("http://me:s3cret@127.0.0.1:99999/v1", "127.0.0.1:99999"),
        ("me:s3cret@host:1/v1", "host:1"),
        ("http://me:s3cret@host/v1", "host"),
        ("http://me:s3cret@[::1/v1", "[::1"),
    ] {
        let mut by_flag = dgem();
        by_flag.args(["decide", "-u", url, "-t", "x"]);
        let mut by_environment = dgem();
        by_environment.args(["decide", "-t", "x"]).env("DGEM_URL", url);
        for command in [&mut by_flag, &mut by_environment] {
            let output = command.output().unwrap();
            let message = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{message}");
            assert!(
                !message.contains("s3cret") && !message.contains("me:") && message.contains(host),
                "{message}"
            );
        }
    }
}

#[test]
fn the_deadline_also_ends_a_reply_that_comes_in_drops() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // A reply before the request would be a fault of another kind.
        let _ = stream.read(&mut [0; 8_192]);
        let _ = stream.write_all(b"HTTP/1.1 200 X\r\ncontent-length: 1000000\r\n\r\n");
        // Ends when the client hangs up.
        while stream.write_all(b" ").is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    });
    let policy = shipped("support_triage.json.tmpl");
    let output = dgem()
        .args(["decide", "-v", "ticket=x", "--timeout", "500ms", "-u", &url, "-t"])
        .arg(&policy)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert!(stderr(&output).contains("within 0.5 s"), "{}", stderr(&output));
}

#[test]
fn a_decision_about_nothing_is_refused() {
    let (path, _folder) = template(r#"{"schema": {"questions": [{"id": "a", "type": "boolean"}]}}"#);
    let server = Server::deciding(&json!({"answers": {}}));
    let output = dgem().args(["decide", "-u", &server.url, "-t"]).arg(&path).output().unwrap();
    assert_eq!((output.status.code(), server.got_nothing()), (Some(2), true));
    assert!(stderr(&output).contains("nothing to decide on") && stderr(&output).contains("\nhint: "));
    let check = dgem().args(["template", "check"]).arg(&path).output().unwrap();
    assert!(check.status.success() && stdout(&check).contains("renders no `state`"), "{}", stdout(&check));
    let server = Server::deciding(&json!({"answers": {"a": {"type": "boolean", "noul": 1.0}}}));
    dgem().args(["decide", "-v", "ticket=x", "-u", &server.url, "-t"]).arg(&path).assert().success();
    assert_eq!(server.request().state(), "{\"ticket\":\"x\"}");
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written_is_a_failure() {
    let server = Server::deciding(&support_reply());
    let policy = shipped("support_triage.json.tmpl");
    let policy = policy.to_str().unwrap();
    let (raw, _folder) = template("no newline at the end");
    let runs: [&[&str]; 5] = [
        &["decide", "-v", "ticket=x", "-u", &server.url, "-t", policy],
        &["template", "render", "--raw", "-t", raw.to_str().unwrap()],
        &["template", "show", policy],
        &["--help"],
        &["--version"],
    ];
    for arguments in runs {
        for redirection in [">&-", ">/dev/full"] {
            let output = shell(&format!("exec \"$0\" \"$@\" {redirection}"), arguments);
            assert_eq!(output.status.code(), Some(2), "{arguments:?} {redirection}");
            assert!(stderr(&output).starts_with("error: cannot write the output: "), "{}", stderr(&output));
        }
        assert_eq!(shell("exec \"$0\" \"$@\" >/dev/null", arguments).status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn stderr_that_cannot_be_written_changes_no_exit_code() {
    let policy = shipped("support_triage.json.tmpl");
    let policy = policy.to_str().unwrap();
    for redirection in ["2>/dev/full", "2>&-"] {
        let script = format!("exec \"$0\" \"$@\" {redirection}");
        assert_eq!(shell(&script, &["template", "render", "-t", policy]).status.code(), Some(2));
        let warned = shell(&script, &["template", "render", "-t", policy, "-v", "ticket=x", "-v", "other=x"]);
        assert_eq!(warned.status.code(), Some(0));
        assert!(stdout(&warned).contains("ticket"));
    }
}

#[test]
fn a_name_cannot_turn_the_direction_of_a_table_around() {
    let (path, _folder) = template(
        r#"{"schema": {"questions": [{"id": "q", "type": "choice", "options": ["safe\u202egnp.exe", "other"]}]}, "state": "x"}"#,
    );
    let name = "safe\u{202e}gnp.exe";
    let reply = json!({"answers": {"q": {"type": "choice", "probabilities": {name: 0.9, "other": 0.1}}}});
    for format in [&["-f", "table"][..], &["-f", "csv"], &["-q"], &["--explain"]] {
        let server = Server::deciding(&reply);
        let output =
            dgem().args(["decide", "-u", &server.url, "-t"]).arg(&path).args(format).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = stdout(&output);
        assert!(text.contains("safe\u{fffd}gnp.exe") && !text.contains('\u{202e}'), "{format:?}: {text}");
    }
}
