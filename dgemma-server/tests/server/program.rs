//! The program itself: its start, its messages, its signals.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dgemma-server"));
    command.env_remove("DGEMMA_MODEL").env_remove("RUST_LOG").env_remove("RAYON_NUM_THREADS");
    command.env_remove("DGEMMA_API_KEYS").env_remove("GOOGLE_CLOUD_PROJECT");
    command
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// A running server. It does not outlive the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server on a free port and its address, as the log tells it.
fn start(extra: &[&str]) -> (Running, String) {
    let mut child = program()
        .args(["--addr", "127.0.0.1:0", "--model"])
        .arg(crate::common::demo_model())
        .args(extra)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = lines
        .find_map(|line| {
            line.unwrap().split_once("listening on http://").map(|(_, address)| address.to_owned())
        })
        .unwrap();
    // The rest is read too, or the program would stop at a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    (Running(child), address)
}

async fn wait_until_ready(address: &str) -> serde_json::Value {
    let client = crate::common::client();
    loop {
        let reply = client.get(format!("http://{address}/health")).send().await.unwrap();
        let ready = reply.status() == 200;
        let body = reply.text().await.unwrap();
        if ready {
            return serde_json::from_str(&body).unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn signal(server: &Running, name: &str) {
    assert!(Command::new("kill").args([name, &server.0.id().to_string()]).status().unwrap().success());
}

#[cfg(unix)]
#[tokio::test]
async fn both_signals_end_it_with_success() {
    for name in ["-INT", "-TERM"] {
        let (mut server, address) = start(&["--threads", "1"]);
        let health = wait_until_ready(&address).await;
        assert_eq!(health["model"], "demo-model");
        assert_eq!(health["engine"], "diffusion");
        assert!(health["device"].as_str().unwrap().contains("1 thread"), "{health}");
        assert!(health["bytes_total"].as_u64().unwrap() > 3_000_000);
        assert_eq!(health["bytes_loaded"], health["bytes_total"]);
        signal(&server, name);
        assert_eq!(server.0.wait().unwrap().code(), Some(0), "{name}");
    }
}

/// A process that may open few files, and more clients than that.
#[cfg(unix)]
#[tokio::test]
async fn clients_beyond_the_file_descriptors_are_waited_for_warned_about_and_counted() {
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -n 40; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_dgemma-server")])
        .args(["--addr", "127.0.0.1:0", "--model"])
        .arg(crate::common::demo_model())
        .env_remove("DGEMMA_API_KEYS")
        .env_remove("RUST_LOG")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let address = lines
        .find_map(|line| line.split_once("listening on http://").map(|(_, found)| found.to_owned()))
        .unwrap();
    let _server = Running(child);
    wait_until_ready(&address).await;
    let clients: Vec<_> = (0..60).map(|_| std::net::TcpStream::connect(&address).unwrap()).collect();
    let warning = lines.find(|line| line.contains("cannot accept connections")).unwrap();
    assert!(warning.contains("hint:") && warning.contains("ulimit -n"), "{warning}");
    drop(clients);
    let reply = crate::common::client().get(format!("http://{address}/metrics")).send().await.unwrap();
    let metrics = reply.text().await.unwrap();
    let line = metrics.lines().find(|line| line.starts_with("dgemma_accept_errors_total ")).unwrap();
    let count: u64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
    // A pause stands between two of them.
    assert!((1..1000).contains(&count), "{line}");
}

#[test]
fn without_a_model_it_lists_the_three_ways() {
    let dir = tempfile::tempdir().unwrap();
    let Output { status, stdout, stderr } = program().current_dir(dir.path()).output().unwrap();
    let stderr = text(&stderr);
    assert_eq!(status.code(), Some(1));
    assert!(stdout.is_empty());
    for way in ["--model DIR", "DGEMMA_MODEL", "./model"] {
        assert!(stderr.contains(way), "{stderr}");
    }
}

#[test]
fn the_variable_names_a_model() {
    let output = program().env("DGEMMA_MODEL", "/nowhere").output().unwrap();
    assert!(text(&output.stderr).contains("/nowhere"), "{}", text(&output.stderr));
}

#[test]
fn a_damaged_checkpoint_ends_it_with_the_file_at_fault() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"] {
        std::fs::copy(crate::common::demo_model().join(name), dir.path().join(name)).unwrap();
    }
    let output = program().args(["--addr", "127.0.0.1:0", "--model"]).arg(dir.path()).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let error = stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
    assert!(error.contains("hint:") && error.contains("safetensors"), "{error}");
}

#[test]
fn a_taken_port_is_an_error_with_a_hint() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output =
        program().args(["--addr", &address, "--model"]).arg(crate::common::demo_model()).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains(&address) && stderr.contains("port 0"), "{stderr}");
}

#[test]
fn usage_errors_exit_2_and_the_version_names_the_commit() {
    assert_eq!(program().args(["--queue", "0"]).output().unwrap().status.code(), Some(2));
    assert_eq!(program().env("DGEMMA_QUEUE", "many").output().unwrap().status.code(), Some(2));
    let version = text(&program().arg("--version").output().unwrap().stdout);
    assert!(version.starts_with("dgemma-server 0.1.0 (git "), "{version}");
}

/// A reader of the log that has stopped reading: the pipe is full after 64 KiB.
#[cfg(unix)]
#[tokio::test]
async fn a_log_that_nobody_reads_does_not_stop_the_server() {
    let mut child = program()
        .args(["--addr", "127.0.0.1:0", "--model"])
        .arg(crate::common::demo_model())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = lines
        .find_map(|line| line.unwrap().split_once("listening on http://").map(|(_, found)| found.to_owned()))
        .unwrap();
    let mut server = Running(child);
    wait_until_ready(&address).await;
    let client = crate::common::client();
    let id = "x".repeat(128);
    for _ in 0..1500 {
        let sent = client.get(format!("http://{address}/livez")).header("x-request-id", &id);
        let sent = sent.timeout(std::time::Duration::from_secs(20));
        assert_eq!(sent.send().await.unwrap().status(), 200);
    }
    signal(&server, "-TERM");
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    drop(lines);
}

#[test]
fn a_chat_template_that_loses_a_text_ends_the_start() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(crate::common::demo_model().join(name), dir.path().join(name)).unwrap();
    }
    let whole = std::fs::read_to_string(crate::common::demo_model().join("chat_template.jinja")).unwrap();
    let one = "{% for message in messages %}<|turn>{{ message['role'] }}\n{{ TEXT }}<turn|>\n{% endfor %}<|turn>model\n";
    for (template, role) in [
        (one.replace("{{ TEXT }}", ""), Some("system")),
        (one.replace("TEXT", "message['content'] | upper"), Some("system")),
        (format!("{{% set messages = messages[1:] %}}{whole}"), Some("system")),
        (whole, None),
    ] {
        std::fs::write(dir.path().join("chat_template.jinja"), &template).unwrap();
        let output = program().args(["--addr", "127.0.0.1:0", "--model"]).arg(dir.path()).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        let error = stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
        match role {
            Some(role) => {
                assert!(error.contains("chat template") && error.contains(role), "{template}: {error}");
            }
            // It is the weights that are missing then.
            None => assert!(error.contains("safetensors"), "{error}"),
        }
    }
}

/// The log of a server that makes one decision and refuses one, with these options.
async fn log_of(extra: &[&str]) -> Vec<String> {
    let mut child = program()
        .args(["--addr", "127.0.0.1:0", "--model"])
        .arg(crate::common::demo_model())
        .args(extra)
        .env("DGEMMA_API_KEYS", "a-secret-key")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let _running = Running(child);
    let mut log = Vec::new();
    let mut until = |log: &mut Vec<String>, piece: &str| {
        loop {
            let line = lines.next().unwrap();
            log.push(line);
            if log[log.len() - 1].contains(piece) {
                break log[log.len() - 1].clone();
            }
        }
    };
    let line = until(&mut log, "listening on http://");
    let address = line.split_once("http://").unwrap().1.split('"').next().unwrap().to_owned();
    until(&mut log, "ready");
    for key in ["a-secret-key", "a-wrong-key"] {
        let body = crate::common::request(&crate::common::triage(), "a private matter").to_string();
        let sent =
            crate::common::client().post(format!("http://{address}/v1/chat/completions")).bearer_auth(key);
        let sent = sent.header("x-request-id", format!("id-{}", key.len()));
        let sent = sent.header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        sent.body(body).send().await.unwrap();
        until(&mut log, "/v1/chat/completions");
    }
    log
}

#[tokio::test]
async fn the_log_has_ids_and_neither_content_nor_keys() {
    for format in ["text", "json"] {
        let log = log_of(&["--log-format", format]).await;
        let all = log.join("\n");
        for hidden in ["private matter", "secret-key", "wrong-key", "urgent"] {
            assert!(!all.contains(hidden), "{hidden}: {all}");
        }
        assert!(log[log.len() - 2].contains("id-12") && log[log.len() - 1].contains("id-11"), "{all}");
        assert!(log[log.len() - 1].contains("invalid_api_key"), "{all}");
        if format == "json" {
            for line in &log {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                assert!(["time", "severity", "message"].iter().all(|key| line[key].is_string()), "{line}");
            }
            let last: serde_json::Value = serde_json::from_str(&log[log.len() - 1]).unwrap();
            assert_eq!(last["request_id"], "id-11");
            assert_eq!(last["status"], 401);
            assert_eq!(last["logging.googleapis.com/trace"], "4bf92f3577b34da6a3ce929d0e0e4736");
        }
    }
    let all = log_of(&["--log-content"]).await.join("\n");
    assert!(
        all.contains("private matter") && all.contains("probabilities") && !all.contains("secret-key"),
        "{all}"
    );
}

#[test]
fn a_server_that_was_to_have_keys_does_not_start_without() {
    let start = |name: &str, value: &str| {
        let output =
            program().args(["--model"]).arg(crate::common::demo_model()).env(name, value).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    assert!(start("DGEMMA_API_KEYS", "").contains("DGEMMA_API_KEYS"));
    assert!(start("DGEMMA_API_KEY_FILE", "/nowhere/keys").contains("/nowhere/keys"));
}

#[test]
fn bench_prints_both_ways() {
    let mut child = program()
        .args(["bench", "--runs", "3", "--model"])
        .arg(crate::common::demo_model())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut table = String::new();
    child.stdout.take().unwrap().read_to_string(&mut table).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(table.contains("\ncold ") && table.contains("\nschema known "), "{table}");
    assert!(table.contains("p50") && table.contains("the same answers"), "{table}");
}
