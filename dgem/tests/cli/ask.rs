//! `dgem ask` from the outside: the request, the stream in all its forms, what goes to stdout and what to stderr, and every end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Output, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use crate::support::{Server, completion, dgem, shipped, stderr, stdout};
use serde_json::{Value, json};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn delta(delta: &Value) -> String {
    event(
        &json!({"id": "c", "object": "chat.completion.chunk", "model": "tiny-model", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]}),
    )
}

fn says(text: &str) -> String {
    delta(&json!({"content": text}))
}

fn finish(reason: &str) -> String {
    event(&json!({"model": "tiny-model", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}],
                  "x_generation": {"seed": 7, "blocks": 2, "steps": 20, "retries": 1, "unconverged": 0, "total_ms": 12.5}}))
}

const DONE: &str = "data: [DONE]\n\n";

/// A server that streams this body, as it is.
fn streaming(body: impl Into<Vec<u8>>) -> Server {
    let body = body.into();
    Server::writing(move |_, stream| {
        let _ = stream.write_all(&[HEAD.as_bytes(), &body[..]].concat());
    })
}

fn ask(server: &Server, arguments: &[&str]) -> Output {
    dgem().args(["ask", "-u", &server.url]).args(arguments).output().unwrap()
}

/// What `dgem ask hello` makes of this stream: exit code, stdout, stderr.
fn answer(body: &str) -> (Option<i32>, String, String) {
    let output = ask(&streaming(body), &["hello"]);
    (output.status.code(), stdout(&output), stderr(&output))
}

#[test]
fn words_are_asked_and_the_answer_is_all_that_stdout_gets() {
    let server = streaming(says("It is ") + &says("4.") + &finish("stop") + DONE);
    let output = ask(&server, &["what", "is", "2 + 2?"]);
    assert_eq!(
        (output.status.code(), stdout(&output), stderr(&output)),
        (Some(0), "It is 4.\n".to_owned(), String::new())
    );
    let request = server.request();
    assert!(request.head.starts_with("POST /v1/chat/completions "), "{}", request.head);
    assert!(request.header("accept").unwrap().contains("text/event-stream"));
    // Nothing that only some servers know.
    assert_eq!(
        request.json(),
        json!({"messages": [{"role": "user", "content": "what is 2 + 2?"}], "stream": true})
    );
}

#[test]
fn flags_become_the_keys_that_servers_know() {
    let server = streaming(says("ok\n") + &finish("stop") + DONE);
    let output = ask(
        &server,
        &["-m", "tiny-model", "--system", "Be brief.", "--think", "--max-tokens", "32", "--stats", "hello"],
    );
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "ok\n"));
    assert_eq!(
        server.request().json(),
        json!({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}], "model": "tiny-model",
               "max_tokens": 32, "chat_template_kwargs": {"enable_thinking": true}, "stream": true, "stream_options": {"include_usage": true}})
    );
}

#[test]
fn the_prompt_comes_from_stdin_or_from_a_text_template() {
    let reply = || {
        streaming(
            says("ok") + DONE.replace("[DONE]", "{\"choices\": [{\"finish_reason\": \"stop\"}]}").as_str(),
        )
    };
    let content =
        |server: &Server| server.request().json()["messages"][0]["content"].as_str().unwrap().to_owned();
    let server = reply();
    let output = dgem().args(["ask", "-u", &server.url, "-"]).write_stdin("a < \"b\"\né\n").output().unwrap();
    assert_eq!((output.status.code(), content(&server).as_str()), (Some(0), "a < \"b\"\né\n"));

    let file = shipped("ask_summary.txt.tmpl");
    for name in [file.to_str().unwrap(), "ask_summary", "ask_summary.txt"] {
        let server = reply();
        let output = ask(&server, &["-t", name, "-v", "topic=\"rain\"", "-v", "context=It <rains>."]);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
        let text = content(&server);
        assert!(text.starts_with("Summarise \"rain\" in two concise sentences."), "{text}");
        assert!(text.ends_with("\n\nIt <rains>."), "{text}");
    }
    let server = reply();
    let output = ask(&server, &["-t", "ask_summary", "-v", "topic=rain", "-v", "lenght=ten words"]);
    assert!(stderr(&output).contains("did you mean `length`?"), "{}", stderr(&output));
    assert!(!content(&server).contains("text below"));
}

#[test]
fn a_text_template_is_listed_shown_checked_and_rendered() {
    let file = shipped("ask_summary.txt.tmpl");
    let list = stdout(&dgem().args(["template", "list"]).arg(shipped("")).output().unwrap());
    assert!(
        list.lines().any(|line| line.starts_with("ask_summary.txt ") && line.contains("topic")),
        "{list}"
    );
    let show = dgem().args(["template", "show", "ask_summary.txt"]).output().unwrap();
    assert!(show.status.success() && stdout(&show).contains("| required "), "{}", stderr(&show));
    let check = dgem().args(["template", "check"]).arg(&file).output().unwrap();
    assert!(check.status.success() && stdout(&check).lines().count() == 1, "{}", stdout(&check));
    let render = dgem().args(["template", "render", "--sample", "-t"]).arg(&file).output().unwrap();
    assert!(stdout(&render).starts_with("Summarise how a diffusion"), "{}", stdout(&render));
}

#[test]
fn what_cannot_be_asked_is_a_mistake_and_costs_no_request() {
    let server = streaming(DONE);
    let questions = shipped("support_triage.json.tmpl");
    let cases: &[(&[&str], &str)] = &[
        (&[], "PROMPT"),
        (&[" ", ""], "it is empty"),
        (&["hello", "-t", "ask_summary"], "cannot be used with"),
        (&["hello", "-v", "a=b"], "cannot be used with"),
        (&["-t", "ask_summary"], "`topic`"),
        (&["-t", "ask_summary", "-v", "topic"], "`topic`"),
        (&["-t", "ask_sumary", "-v", "topic=x"], "did you mean -t ask_summary.txt?"),
        (&["-t", "ask_sumary.txt", "-v", "topic=x"], "there is no template `ask_sumary.txt`"),
        (&["-t", "support_triage"], "dgem decide -t support_triage"),
        (&["-t", questions.to_str().unwrap()], "holds questions"),
        (&["--max-tokens", "0", "hello"], "--max-tokens"),
        (&["-I", "/no/such.png", "hello"], "/no/such.png"),
        (&["--no-stream", "--show-diffusion", "hello"], "cannot be used with"),
    ];
    for (arguments, part) in cases {
        let output = ask(&server, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(part), "{arguments:?}: {}", stderr(&output));
    }
    let output = dgem().args(["ask", "-u", &server.url, "-"]).write_stdin(&b"\xff"[..]).output().unwrap();
    assert!(output.status.code() == Some(2) && stderr(&output).contains("not UTF-8"), "{}", stderr(&output));
    let output = dgem()
        .args(["decide", "-u", &server.url, "-t", "ask_summary.txt", "-v", "topic=x"])
        .output()
        .unwrap();
    assert!(output.status.code() == Some(2) && stderr(&output).contains("`dgem ask`"), "{}", stderr(&output));
    assert!(server.got_nothing());
}

#[test]
fn the_thought_goes_to_stderr_and_the_answer_to_stdout() {
    let body = delta(&json!({"role": "assistant", "content": ""}))
        + &delta(&json!({"reasoning_content": "2 and 2"}))
        + &delta(&json!({"reasoning_content": " make 4"}))
        + &says("4")
        + &finish("stop")
        + DONE;
    assert_eq!(answer(&body), (Some(0), "4\n".to_owned(), "2 and 2 make 4\n".to_owned()));
    let server = streaming(body);
    let output = dgem().args(["ask", "-u", &server.url, "--color", "always", "hello"]).output().unwrap();
    assert_eq!(stderr(&output), "\u{1b}[2m2 and 2\u{1b}[0m\u{1b}[2m make 4\u{1b}[0m\n");
}

#[test]
fn each_block_is_printed_while_the_next_one_is_made() {
    let (go_on, may_go_on) = channel::<()>();
    let server = Server::writing(move |_, stream: &mut TcpStream| {
        // The character is cut in two.
        let first = says("one é");
        let cut = first.find('é').unwrap() + 1;
        stream.write_all(&[HEAD.as_bytes(), &first.as_bytes()[..cut]].concat()).unwrap();
        stream.write_all(&[&first.as_bytes()[cut..], b": 12 of 30 prompt tokens\n\n"].concat()).unwrap();
        may_go_on.recv().unwrap();
        stream.write_all((says(" two") + &finish("stop") + DONE).as_bytes()).unwrap();
    });
    let mut child = start(&server);
    let mut out = child.stdout.take().unwrap();
    let mut first = [0; 6];
    out.read_exact(&mut first).unwrap();
    assert_eq!(&first, "one é".as_bytes());
    go_on.send(()).unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), child.wait().unwrap().code()), (" two\n", Some(0)));
}

fn start(server: &Server) -> std::process::Child {
    std::process::Command::new(env!("CARGO_BIN_EXE_dgem"))
        .args(["ask", "-u", &server.url, "hello"])
        .env_clear()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn every_form_of_events_is_read() {
    let body = "\u{feff}: hi\r\n\r\n".to_owned()
        + &says("a").replace('\n', "\r\n")
        + "event: message\rid: 3\rdata:{\"choices\": [{\"delta\":\rdata: {\"content\": \"b\"}}]}\r\r"
        + "data: {\"choices\": []}\n\ndata: {\"choices\": [{\"index\": 1, \"delta\": {\"content\": \"other\"}}]}\n\n"
        + &finish("stop");
    assert_eq!(answer(&body), (Some(0), "ab\n".to_owned(), String::new()), "without an end mark");
    assert_eq!(answer(&(says("a") + "data: [DONE]")).0, Some(0), "without a finish reason");
    // Nothing behind the mark counts.
    assert_eq!(answer(&(says("a") + DONE + &says("b"))).1, "a\n");
}

#[test]
fn a_stream_that_breaks_off_is_an_error_behind_what_came() {
    let (code, out, err) = answer(&says("half"));
    assert_eq!((code, out.as_str()), (Some(5), "half\n"));
    assert!(err.contains("broke off: it ended in the middle of the message\nhint: "), "{err}");

    let server = Server::writing(|_, stream| {
        let body = says("half");
        let head = HEAD.replace("connection: close", "transfer-encoding: chunked");
        let _ = stream.write_all(format!("{head}{:x}\r\n{body}\r\n5\r\nda", body.len()).as_bytes());
    });
    let output = ask(&server, &["--retries", "3", "hello"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(5), "half\n"));
    assert!(stderr(&output).contains("broke off: the connection broke"), "{}", stderr(&output));
    assert_eq!(server.all().len(), 1, "nothing is asked again once text is there");
}

#[test]
fn an_error_in_the_stream_says_what_happened_and_whether_to_try_again() {
    for (error, code, part) in [
        (
            event(&json!({"error": {"message": "the server is closing", "type": "unavailable"}})),
            5,
            "the server is closing",
        ),
        (event(&json!({"error": {"message": "too long", "type": "invalid_request_error"}})), 4, "too long"),
        ("event: error\ndata: {\"message\": \"worker died\"}\n\n".to_owned(), 5, "worker died"),
        ("event: error\ndata: out of memory\u{1b}[2J\n\n".to_owned(), 5, "out of memory [2J"),
        ("data: <html>\n\n".to_owned(), 4, "<html>"),
    ] {
        let (exit, out, err) = answer(&(says("half") + &error + DONE));
        assert_eq!((exit, out.as_str()), (Some(code), "half\n"), "{err}");
        assert!(err.starts_with("error: ") && err.contains(part) && err.contains("\nhint: "), "{err}");
        assert!(!err.contains('\u{1b}'));
    }
}

#[test]
fn a_line_without_end_is_an_error() {
    let (code, _, err) = answer(&format!("data: {}", "x".repeat(3 << 20)));
    assert!(code == Some(4) && err.contains("larger than 1 MiB"), "{err}");
}

#[test]
fn one_deadline_covers_the_whole_reply() {
    let (end, ended): (Sender<()>, _) = channel();
    let ended = Mutex::new(ended);
    let server = Server::writing(move |_, stream| {
        let _ = stream.write_all((HEAD.to_owned() + &says("half")).as_bytes());
        let _ = ended.lock().unwrap().recv();
    });
    let start = Instant::now();
    let output = ask(&server, &["--timeout", "1s", "--retries", "2", "hello"]);
    assert!(start.elapsed() >= Duration::from_secs(1));
    drop(end);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(5), "half\n"));
    assert!(stderr(&output).contains("1 s were not enough") && stderr(&output).contains("--timeout"));
    assert_eq!(server.all().len(), 1);
}

#[test]
fn before_the_first_byte_a_request_is_tried_again() {
    let tries = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::writing(move |_, stream| {
        let answer = match tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => "HTTP/1.1 503 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
            1 => HEAD.replace("connection: close", "transfer-encoding: chunked"),
            _ => HEAD.to_owned() + &says("ok") + DONE,
        };
        let _ = stream.write_all(answer.as_bytes());
    });
    let output = ask(&server, &["--retries", "2", "hello", "--stats"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "ok\n"), "{}", stderr(&output));
    assert!(stderr(&output).contains("Retries:            2"), "{}", stderr(&output));
    let output = ask(&Server::new(429, "{\"detail\": \"full\"}"), &["hello"]);
    assert!(output.status.code() == Some(5) && stderr(&output).contains("HTTP 429: full"));
    let output = ask(&Server::new(401, "{}"), &["hello"]);
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_server_that_does_not_stream_is_understood() {
    let server = Server::new(200, completion("It is 4."));
    let output = ask(&server, &["hello"]);
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(0), "It is 4.\n"),
        "{}",
        stderr(&output)
    );

    let server = Server::new(200, completion("It is 4."));
    let output = ask(&server, &["hello", "--no-stream"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "It is 4.\n"));
    assert_eq!(server.request().json().get("stream"), None);

    for body in ["<html>", "{}", "{\"choices\": []}"] {
        let output = ask(&Server::new(200, body), &["hello"]);
        assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
        assert!(stderr(&output).contains("no chat completion") && stderr(&output).contains(body));
    }
}

#[test]
fn why_an_answer_is_short_or_missing_is_told() {
    let (code, out, err) = answer(&(says("It i") + &finish("length") + DONE));
    assert_eq!((code, out.as_str()), (Some(0), "It i\n"));
    assert!(err.contains("cut off") && err.contains("--max-tokens"), "{err}");
    let (code, out, err) = answer(&(finish("content_filter") + DONE));
    assert_eq!((code, out.as_str()), (Some(4), ""));
    assert!(err.contains("`content_filter`") && err.contains("holds no answer"), "{err}");
}

#[test]
fn the_stats_go_to_stderr_with_what_the_server_says() {
    let usage = event(
        &json!({"choices": [], "usage": {"prompt_tokens": 19, "completion_tokens": 64, "total_tokens": 83,
        "prompt_tokens_details": {"cached_tokens": 16}, "completion_tokens_details": {"reasoning_tokens": 12}}}),
    );
    let output = ask(&streaming(says("ok") + &finish("stop") + &usage + DONE), &["hello", "--stats"]);
    assert_eq!(stdout(&output), "ok\n");
    let text = stderr(&output);
    for part in [
        "STATS",
        "  Model:              tiny-model\n",
        "  Time To First Text: ",
        "  Prompt:             19 tokens (16 reused)\n",
        "  Reply:              64 tokens (12 of them thought)\n",
        " tokens/s\n",
        "  Denoise Steps:      20 in 3 blocks (6.7 steps per block)\n",
        "  Tokens Per Forward: 3.2\n",
        "  Thrown Away:        1 of these, an empty start\n",
    ] {
        assert!(text.contains(part), "{part} not in {text}");
    }
    let text = stderr(&ask(&streaming(says("ok") + DONE), &["hello", "--stats"]));
    assert!(text.contains("tokens not counted by the server") && !text.contains("tokens/s"), "{text}");
}

#[test]
fn drafts_are_not_asked_for_without_a_terminal() {
    let server = streaming(says("ok") + DONE);
    let output = ask(&server, &["hello", "--show-diffusion"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "ok\n"));
    assert!(stderr(&output).contains("no terminal"), "{}", stderr(&output));
    assert_eq!(server.request().json().get("x_diffusion_drafts"), None);
}

#[test]
fn images_go_in_front_of_the_question() {
    let server = streaming(says("a button") + DONE);
    let image = "https://example.org/a.png";
    let output = ask(&server, &["-I", image, "what", "is", "this?"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(
        server.request().json()["messages"][0]["content"],
        json!([{"type": "image_url", "image_url": {"url": image}}, {"type": "text", "text": "what is this?"}])
    );
}

/// A server that has said something and says nothing more until the sender is dropped.
fn hanging() -> (Server, Sender<()>) {
    let (end, ended) = channel();
    let ended = Mutex::new(ended);
    let server = Server::writing(move |_, stream| {
        let _ = stream.write_all((HEAD.to_owned() + &says("half")).as_bytes());
        let _ = ended.lock().unwrap().recv();
        let _ = stream.write_all((says(" and half") + &finish("stop") + DONE).as_bytes());
    });
    (server, end)
}

#[test]
#[cfg(unix)]
fn an_interrupt_leaves_what_there_is_and_is_exit_130() {
    for name in ["INT", "TERM"] {
        let (server, end) = hanging();
        let mut child = start(&server);
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut [0; 4]).unwrap();
        let kill =
            std::process::Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
        assert!(kill.unwrap().success());
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), rest.as_str(), stderr(&output).as_str()), (Some(130), "\n", ""));
        drop(end);
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let (server, end) = hanging();
    let mut child = start(&server);
    child.stdout.take().unwrap().read_exact(&mut [0; 4]).unwrap();
    drop(end);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn a_secret_is_in_no_output() {
    let server = streaming(event(&json!({"error": {"message": "bad token t0p-secret", "code": 400}})));
    let output = ask(&server, &["--token", "t0p-secret", "hello"]);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(server.request().header("authorization").as_deref(), Some("Bearer t0p-secret"));
    assert!(!stderr(&output).contains("t0p-secret"), "{}", stderr(&output));
}
