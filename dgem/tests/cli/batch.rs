//! `dgem batch` from the outside: rows in, lines out, resumed, sharded, interrupted, and a server that is busy.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::{completion, dgem, stderr, stdout};
use serde_json::{Value, json};

const POLICY: &str = r#"{# dgem: {"description": "d", "required": ["t"], "sample": {"t": "x"}} #}
{"schema": {"questions": [{"id": "q", "type": "choice", "options": ["billing", "support"]}]}, "state": {"t": {{ t | json_encode }}}}"#;

/// Answers by the text of the state on as many connections as come; counts requests and those at the same time.
pub(crate) struct Server {
    pub(crate) url: String,
    states: Arc<Mutex<Vec<String>>>,
    most: Arc<AtomicUsize>,
}

/// What the server does with a state.
pub(crate) type Rule = fn(&str, usize) -> (u16, String);

impl Server {
    /// `delay` before every answer; `rule` gets the state and how many requests came before.
    pub(crate) fn new(delay: Duration, rule: Rule) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (states, most, now) =
            (Arc::new(Mutex::new(Vec::new())), Arc::default(), Arc::new(AtomicUsize::new(0)));
        let server = Self { url, states: Arc::clone(&states), most: Arc::clone(&most) };
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (states, most, now) = (Arc::clone(&states), Arc::clone(&most), Arc::clone(&now));
                thread::spawn(move || serve(&stream.unwrap(), delay, rule, &states, &most, &now));
            }
        });
        server
    }

    pub(crate) fn states(&self) -> Vec<String> {
        let mut states = self.states.lock().unwrap().clone();
        states.sort();
        states
    }
}

fn serve(
    stream: &TcpStream,
    delay: Duration,
    rule: Rule,
    states: &Mutex<Vec<String>>,
    most: &AtomicUsize,
    now: &AtomicUsize,
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let body: Value = serde_json::from_slice(&body).ok()?;
        let state = body["messages"][1]["content"].as_str()?.to_owned();
        let before = {
            let mut states = states.lock().ok()?;
            states.push(state.clone());
            states.len() - 1
        };
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        thread::sleep(delay);
        let (status, reply) = rule(&state, before);
        now.fetch_sub(1, Ordering::SeqCst);
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            reply.len()
        );
        let mut stream = stream;
        stream.write_all((head + &reply).as_bytes()).ok()?;
    }
}

pub(crate) fn billing(p: f64) -> String {
    let (label, choice) = if p >= 0.5 { ("A", "billing") } else { ("B", "support") };
    let answer = json!({"type": "choice", "label": label, "choice": choice, "confidence": p.max(1.0 - p), "probabilities": {"billing": p, "support": 1.0 - p}});
    completion(&json!({"answers": {"q": answer}}).to_string())
}

/// Refuses a state with `bad`; the sure ones get 0.9, the others 0.6.
pub(crate) fn usual(state: &str, _: usize) -> (u16, String) {
    if state.contains("bad") {
        (400, json!({"error": {"message": "no good"}}).to_string())
    } else {
        (200, billing(if state.contains("sure") { 0.9 } else { 0.6 }))
    }
}

pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new(rows: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("p.json.tmpl"), POLICY).unwrap();
        std::fs::write(folder.path().join("rows.jsonl"), rows).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn run(&self, url: &str, arguments: &[&str]) -> Output {
        let mut command = dgem();
        command.current_dir(self.folder.path());
        command.args(["batch", "-u", url, "-t", "p.json.tmpl", "-i", "rows.jsonl", "-o", "out.jsonl"]);
        command.args(arguments).output().unwrap()
    }

    pub(crate) fn lines(&self) -> Vec<Value> {
        lines(&std::fs::read_to_string(self.path("out.jsonl")).unwrap())
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn rows(count: usize) -> String {
    let row = |row| json!({"id": format!("r{row}"), "t": format!("text {row}")}).to_string() + "\n";
    (0..count).map(row).collect::<Vec<_>>().concat()
}

pub(crate) fn ids(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["id"].as_str().unwrap()).collect()
}

pub(crate) const NOW: Duration = Duration::ZERO;

#[test]
fn every_row_gets_a_line_and_a_bad_one_stops_nothing() {
    let server = Server::new(NOW, usual);
    let place = Place::new(
        "{\"id\": \"a\", \"t\": \"sure \\\"東\\\"\\n\"}\n{\"id\": \"b\", \"t\": \"bad\"}\n{broken\n{\"id\": \"d\"}\n{\"t\": \"e\"}\n{\"id\": \"a\", \"t\": \"again\"}\n",
    );
    let output = place.run(&server.url, &["--keep-order"]);
    let found = place.lines();
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    assert_eq!(ids(&found), ["a", "b", "3", "d", "5", "a (row 6)"]);
    let statuses: Vec<&str> = found.iter().map(|line| line["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["ok", "error", "error", "error", "ok", "error"]);
    assert_eq!(found[0]["answers"]["q"]["choice"], "billing");
    for (index, part) in
        [(1, "no good"), (2, "line 3"), (3, "`t` is not defined"), (5, "an earlier row has the id `a`")]
    {
        assert!(found[index]["error"].as_str().unwrap().contains(part), "{}", found[index]);
    }
    assert_eq!(server.states(), ["{\"t\": \"bad\"}", "{\"t\": \"e\"}", "{\"t\": \"sure \\\"東\\\"\\n\"}"]);
    let message = stderr(&output);
    assert!(message.contains("6 rows: 2 ok, 4 errors") && message.contains("--resume"), "{message}");
    assert!(!message.contains('\u{1b}'), "no bar without a terminal: {message}");
}

#[test]
fn csv_and_stdin_and_stdout_work_with_fixed_variables() {
    let server = Server::new(NOW, usual);
    let place = Place::new("");
    std::fs::write(place.path("rows.csv"), "id,expected_q\nx,billing\ny,support\n").unwrap();
    let batch = |arguments: &[&str], stdin: &str| {
        let mut command = dgem();
        command.current_dir(place.folder.path()).args([
            "batch",
            "-u",
            &server.url,
            "-t",
            "p.json.tmpl",
            "--keep-order",
        ]);
        command.args(arguments).write_stdin(stdin.to_owned()).output().unwrap()
    };
    let csv = batch(&["-i", "rows.csv", "-v", "t=fixed"], "");
    assert_eq!(
        (csv.status.code(), ids(&lines(&stdout(&csv)))),
        (Some(0), vec!["x", "y"]),
        "{}",
        stderr(&csv)
    );
    let piped = batch(&["-i", "-", "-v", "t=fixed"], "{\"t\": \"own\"}\n{}\n");
    assert_eq!(ids(&lines(&stdout(&piped))), ["1", "2"], "{}", stderr(&piped));
    assert_eq!(
        server.states(),
        ["{\"t\": \"fixed\"}", "{\"t\": \"fixed\"}", "{\"t\": \"fixed\"}", "{\"t\": \"own\"}"]
    );
    let piped = batch(&["-i", "-", "--input-format", "csv"], "id,t\n7,cell\n");
    assert_eq!(ids(&lines(&stdout(&piped))), ["7"], "{}", stderr(&piped));
}

#[test]
fn order_is_kept_when_asked_for_while_requests_overlap() {
    // Later rows are answered sooner.
    let server = Server::new(NOW, |state, _| {
        let number: u64 = state.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap();
        thread::sleep(Duration::from_millis(40 - number));
        (200, billing(0.9))
    });
    let place = Place::new(&rows(40));
    let output = place.run(&server.url, &["--keep-order", "-j", "8"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let expected: Vec<String> = (0..40).map(|row| format!("r{row}")).collect();
    assert_eq!(ids(&place.lines()), expected);
    let most = server.most.load(Ordering::SeqCst);
    assert!((2..=8).contains(&most), "{most} at the same time");
}

#[test]
fn resume_asks_only_for_what_is_not_done_and_repairs_a_torn_line() {
    let server = Server::new(NOW, usual);
    let place = Place::new(&(rows(5) + "{\"id\": \"r5\", \"t\": \"bad\"}\n"));
    let first = place.run(&server.url, &[]);
    assert_eq!(first.status.code(), Some(6));
    let refused = place.run(&server.url, &[]);
    assert!(
        refused.status.code() == Some(2) && stderr(&refused).contains("--resume"),
        "{}",
        stderr(&refused)
    );

    let mut text = std::fs::read_to_string(place.path("out.jsonl")).unwrap();
    let kept: Vec<&str> = text.lines().filter(|line| !line.contains("\"r3\"")).collect();
    text = kept.join("\n") + "\n{\"id\":\"r3\",\"stat";
    std::fs::write(place.path("out.jsonl"), text).unwrap();
    let again = Server::new(NOW, |_, _| (200, billing(0.9)));
    let second = place.run(&again.url, &["--resume"]);
    assert!(second.status.success() && stderr(&second).contains("4 rows are done"), "{}", stderr(&second));
    assert_eq!(again.states(), ["{\"t\": \"bad\"}", "{\"t\": \"text 3\"}"]);
    let mut done: HashMap<String, String> = HashMap::new();
    for line in place.lines() {
        done.insert(line["id"].as_str().unwrap().to_owned(), line["status"].as_str().unwrap().to_owned());
    }
    assert!(done.len() == 6 && done.values().all(|status| status == "ok"), "{done:?}");
    let third = place.run("http://127.0.0.1:1/v1", &["--resume"]);
    assert!(third.status.success() && stderr(&third).contains("0 rows: 0 ok"), "{}", stderr(&third));
}

#[test]
fn shards_share_the_rows_without_gaps_or_doubles() {
    let server = Server::new(NOW, usual);
    let place = Place::new(&rows(7));
    for (arguments, variables) in [
        (vec!["--shard", "0/3"], vec![]),
        (vec![], vec![("CLOUD_RUN_TASK_INDEX", "1"), ("CLOUD_RUN_TASK_COUNT", "3")]),
        (vec!["--shard", "2/3"], vec![("CLOUD_RUN_TASK_INDEX", "1"), ("CLOUD_RUN_TASK_COUNT", "3")]),
    ] {
        let mut command = dgem();
        command.current_dir(place.folder.path());
        command.args([
            "batch",
            "-u",
            &server.url,
            "-t",
            "p.json.tmpl",
            "-i",
            "rows.jsonl",
            "-o",
            "out-{shard}.jsonl",
        ]);
        let output = command.args(arguments).envs(variables).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let count = |index: usize| {
        std::fs::read_to_string(place.path(&format!("out-{index}.jsonl"))).unwrap().lines().count()
    };
    assert_eq!([count(0), count(1), count(2)], [3, 2, 2]);
    assert_eq!(server.states().len(), 7);
    let wrong = place.run(&server.url, &["--shard", "3/3"]);
    assert!(wrong.status.code() == Some(2) && stderr(&wrong).contains("from 0"), "{}", stderr(&wrong));
}

#[test]
fn a_busy_server_gets_fewer_requests_and_every_row_is_answered() {
    let server = Server::new(Duration::from_millis(2), |_, before| match before {
        0..20 => (429, json!({"error": {"message": "busy"}}).to_string()),
        _ => (200, billing(0.9)),
    });
    let place = Place::new(&rows(60));
    let output = place.run(&server.url, &["-j", "16", "--retries", "6"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!((place.lines().len(), server.states().len()), (60, 80));
}

#[test]
fn expected_answers_give_a_report_over_this_run_and_the_one_before() {
    let server = Server::new(NOW, usual);
    let place = Place::new(
        "{\"id\": 1, \"t\": \"sure\", \"expected_q\": \"billing\"}\n{\"id\": 2, \"t\": \"sure\", \"expected_q\": \"Billing\"}\n{\"id\": 3, \"t\": \"x\", \"expected_q\": \"support\"}\n{\"id\": 4, \"t\": \"x\", \"expected_q\": \"oos\"}\n",
    );
    let output = place.run(&server.url, &[]);
    let message = stderr(&output);
    assert!(output.status.success(), "{message}");
    // Two right at 0.9 and one wrong at 0.6: Brier (2·0.02 + 0.72)/3, ECE (2·0.1 + 0.6)/3.
    for part in [
        "| 3 ",
        "66.7%",
        "0.2533",
        "0.2667",
        "1 row expects an answer that `q` does not have; it is not counted",
        "HESITATION FROM",
    ] {
        assert!(message.contains(part), "{part} not in {message}");
    }
    let again = place.run("http://127.0.0.1:1/v1", &["--resume"]);
    assert!(stderr(&again).contains("0.2533"), "{}", stderr(&again));
}

#[test]
fn too_many_errors_and_a_hopeless_server_stop_the_run() {
    let server = Server::new(NOW, |_, _| (400, json!({"error": {"message": "no"}}).to_string()));
    let place = Place::new(&rows(200));
    let output = place.run(&server.url, &["--max-errors", "5", "-j", "2"]);
    // No row worked: it ends as the last error says.
    assert_eq!(output.status.code(), Some(4));
    assert!(server.states().len() <= 7 && stderr(&output).contains("--max-errors 5"), "{}", stderr(&output));
    let server = Server::new(NOW, |state, n| {
        if n == 0 { usual(state, n) } else { (400, json!({"error": {"message": "no"}}).to_string()) }
    });
    let output = Place::new(&rows(200)).run(&server.url, &["--max-errors", "5", "-j", "1"]);
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));

    let denied = Server::new(NOW, |_, _| (401, json!({"error": {"message": "no key"}}).to_string()));
    let place = Place::new(&rows(200));
    let output = place.run(&denied.url, &["-j", "2"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(denied.states().len() <= 4, "{}", denied.states().len());
}

#[test]
fn mistakes_are_told_before_anything_is_sent() {
    let server = Server::new(NOW, usual);
    let place = Place::new(&rows(1));
    for (arguments, part) in [
        (vec!["-i", "absent.jsonl", "-o", "new.jsonl"], "absent.jsonl"),
        (vec!["-i", "rows.jsonl", "-o", "rows.jsonl"], "it is the input too"),
        (vec!["-i", "rows.jsonl", "--resume"], "name a file with -o"),
        (vec!["-i", "rows.jsonl", "-j", "0"], "-j"),
        (vec!["-i", "."], "cannot read the rows"),
        #[cfg(unix)]
        (vec!["-i", "rows.jsonl", "-o", "/dev/null"], "a device or a pipe"),
    ] {
        let mut command = dgem();
        command.current_dir(place.folder.path()).args(["batch", "-u", &server.url, "-t", "p.json.tmpl"]);
        let output = command.args(&arguments).output().unwrap();
        assert!(
            output.status.code() == Some(2) && stderr(&output).contains(part),
            "{part}: {}",
            stderr(&output)
        );
    }
    assert!(server.states().is_empty());
    assert_eq!(std::fs::read_to_string(place.path("rows.jsonl")).unwrap(), rows(1));
}

#[test]
fn case_59_an_output_in_a_missing_folder_is_told_before_anything_is_sent() {
    let server = Server::new(NOW, usual);
    let place = Place::new(&rows(1));
    let mut command = dgem();
    command.current_dir(place.folder.path()).args(["batch", "-u", &server.url, "-t", "p.json.tmpl"]);
    let output = command.args(["-i", "rows.jsonl", "-o", "no/such/folder.jsonl"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("the folder must exist"), "{}", stderr(&output));
    assert!(server.states().is_empty());
}

#[cfg(unix)]
fn signal(child: &std::process::Child, name: &str) {
    let status =
        std::process::Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(status.unwrap().success());
}

#[cfg(unix)]
fn start(place: &Path, url: &str, input: &str) -> std::process::Child {
    std::process::Command::new(env!("CARGO_BIN_EXE_dgem"))
        .args(["batch", "-u", url, "-t", "p.json.tmpl", "-j", "4", "-i", input, "-o", "out.jsonl"])
        .current_dir(place)
        .env_clear()
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
#[cfg(unix)]
fn an_interrupt_finishes_what_is_in_flight_and_tells_how_to_go_on() {
    for name in ["INT", "TERM"] {
        let server = Server::new(Duration::from_millis(30), usual);
        let place = Place::new(&rows(2_000));
        let child = start(place.folder.path(), &server.url, "rows.jsonl");
        while server.states.lock().unwrap().len() < 8 {
            thread::sleep(Duration::from_millis(5));
        }
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(130), "{message}");
        assert!(
            message.contains(&format!(
                "dgem batch -u {} -t p.json.tmpl -i rows.jsonl -j 4 -o out.jsonl --resume",
                server.url
            )),
            "{message}"
        );
        let (asked, written) = (server.states().len(), place.lines().len());
        assert!(asked < 2_000 && asked == written, "{asked} asked, {written} written");
    }
}

#[test]
#[cfg(unix)]
fn an_interrupt_does_not_wait_for_stdin() {
    let server = Server::new(NOW, usual);
    let place = Place::new("");
    let mut child = start(place.folder.path(), &server.url, "-");
    // Stdin stays open: the reading never ends by itself. One whole chunk comes first.
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(rows(128).as_bytes()).unwrap();
    while server.states.lock().unwrap().len() < 128 {
        thread::sleep(Duration::from_millis(5));
    }
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert_eq!(place.lines().len(), 128);
    drop(stdin);
}

#[test]
fn a_column_that_the_template_does_not_use_is_warned_of_once() {
    let server = Server::new(Duration::ZERO, usual);
    let row = |row: usize| {
        let id = format!("r{row}");
        let mut row =
            json!({"id": id, "t": id, "tt": 1, "expected_q": "billing", format!("n{}", row % 20): 2})
                .to_string();
        row.push('\n');
        row
    };
    let rows: String = (0..300).map(row).collect();
    let output = Place::new(&rows).run(&server.url, &["-v", "u=1"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stderr(&output);
    let told = |name: &str| text.matches(&format!("does not use the variable `{name}`")).count();
    assert_eq!((told("tt"), told("u"), told("id"), told("expected_q")), (1, 1, 0, 0), "{text}");
    assert_eq!(text.matches("warning: ").count(), 8, "{text}");
    let misspelt = "{\"id\": 1, \"t\": \"a\", \"expected_qq\": \"billing\"}\n";
    let output = Place::new(misspelt).run(&server.url, &[]);
    assert!(
        stderr(&output).contains("has no question `qq`; did you mean `expected_q`?"),
        "{}",
        stderr(&output)
    );
}
