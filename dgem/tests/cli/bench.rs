//! `dgem bench` from the outside: receipts that hold everything and are never overwritten, figures that a receipt gives again without
//! a server, comparison, and what happens when cases fail.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use crate::support::{Server, completion, decision, dgem, stderr, stdout};
use serde_json::{Value, json};

const POLICY: &str = r#"{"schema": {"questions": [
    {"id": "urgent", "type": "boolean"},
    {"id": "team", "type": "choice", "options": ["billing", "support", "engineering"]}]}, "state": {"t": {{ t | json_encode }}}}"#;

/// A folder with a policy and cases, in which the program runs.
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn run(&self, url: &str, arguments: &[&str]) -> Output {
        dgem().current_dir(self.folder.path()).args(arguments).args(["-u", url]).output().unwrap()
    }

    pub(crate) fn receipt(&self, name: &str) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path(name)).unwrap()).unwrap()
    }
}

/// Three cases: `text` decides what the server below says.
fn cases() -> String {
    let case = |id: &str, text: &str, expected: Value, tier: &str| {
        json!({"id": id, "domain": "support", "template": "p.json.tmpl", "variables": {"t": text}, "expected": expected, "tier": tier})
            .to_string()
    };
    [
        case("a", "billing now", json!({"urgent": true, "team": "Billing"}), "easy"),
        case("b", "support now", json!({"urgent": "no", "team": "support"}), "easy"),
        "# a comment".to_owned(),
        case("c", "engineering", json!({"team": "engineering"}), "hard"),
    ]
    .join("\n")
}

/// Urgent unless told otherwise, and the team that the text names; `fail` is refused.
fn says(text: &str, schema: &Value) -> Value {
    decision(schema, |id, name| {
        let hit = match id {
            "urgent" => name == "yes",
            _ => text.contains(name),
        };
        if hit { 0.9 } else { 0.05 }
    })
}

fn server() -> Server {
    Server::answering(|request| {
        if request.head.starts_with("GET /health") {
            return (200, json!({"version": "9.9", "git_revision": "abc", "device": "test"}).to_string());
        }
        if request.json()["messages"].as_array().unwrap().len() == 1 {
            return (200, completion(r#"{"urgent": "yes", "team": "billing"}"#));
        }
        let state = request.state();
        if state.contains("fail") {
            return (500, "{}".to_owned());
        }
        if state.contains("locked") {
            return (401, "{}".to_owned());
        }
        (200, completion(&says(&state, &request.schema()).to_string()))
    })
}

fn place() -> Place {
    Place::new(&[("p.json.tmpl", POLICY), ("c.jsonl", &cases())])
}

#[test]
fn a_receipt_holds_what_was_measured_by_whom_with_what() {
    let (server, place) = (server(), place());
    let flags = [
        "bench",
        "-d",
        "c.jsonl",
        "-o",
        "runs/new/r.json",
        "--html",
        "r.html",
        "--seed",
        "7",
        "-k",
        "s3cret",
    ];
    let output = place.run(&server.url, &flags);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let receipt = place.receipt("runs/new/r.json");
    for (pointer, value) in [
        ("/suite", json!("bench")),
        ("/target_model", json!("tiny-model")),
        ("/server/version", json!("9.9")),
        ("/seed", json!(7)),
        ("/workers", json!(1)),
        ("/settings/mode", json!("slot")),
        ("/mode", json!("slot")),
        ("/dataset/rows", json!(3)),
        ("/warm_up/counted", json!(false)),
        ("/interrupted", json!(false)),
        ("/planned_cases", json!(3)),
        ("/total_cases", json!(3)),
        ("/failed_cases", json!(0)),
        ("/summary/all/right", json!(2)),
        ("/summary/tiers/easy/accuracy", json!(0.5)),
        ("/summary/answers/boolean/asked", json!(2)),
        ("/summary/latency/count", json!(3)),
        ("/cases/0/accurate", json!(true)),
        ("/cases/0/slot_accurate", json!(true)),
        ("/cases/0/slot_answers/team", json!("billing")),
        ("/cases/1/accurate", json!(false)),
        ("/cases/1/answers/urgent/correct", json!(false)),
        ("/cases/1/answers/urgent/expected", json!("no")),
    ] {
        assert_eq!(receipt.pointer(pointer), Some(&value), "{pointer}");
    }
    assert!((receipt["slot_accuracy_pct"].as_f64().unwrap() - 200.0 / 3.0).abs() < 1e-9);
    assert_eq!(receipt["dataset"]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(receipt["templates"]["p.json.tmpl"].as_str().unwrap().len(), 64);
    // Accuracy 4 of 5 single answers, each with 0.9 of its weights.
    let all = &receipt["summary"]["answers"]["all"];
    assert_eq!((&all["asked"], &all["right"]), (&json!(5), &json!(4)));
    // The health, the warm-up, three cases. The seed goes with each.
    let requests = server.all();
    assert_eq!(requests.len(), 5);
    assert!(requests[1..].iter().all(|request| request.schema()["seed"] == 7));
    let (report, page) = (stdout(&output), fs::read_to_string(place.path("r.html")).unwrap());
    for part in ["66.7% (2 of 3", "urgent: yes, not no", "not counted", "git abc"] {
        assert!(report.contains(part) && page.contains(part), "{part}: {report}");
    }
    assert!(page.matches("<svg").count() >= 4 && !page.contains("http://www"), "{page}");
    let written = fs::read_to_string(place.path("runs/new/r.json")).unwrap();
    assert!(![report, page, written].iter().any(|text| text.contains("s3cret")));
}

#[test]
fn case_59_results_are_never_overwritten_and_a_bad_place_costs_no_request() {
    let (server, place) = (server(), place());
    fs::write(place.path("r.json"), "mine").unwrap();
    for flags in [["-o", "r.json"], ["--html", "r.json"], ["-o", "r.json/x.json"]] {
        let output = place.run(&server.url, &[&["bench", "-d", "c.jsonl"], &flags[..]].concat());
        assert_eq!((output.status.code(), server.got_nothing()), (Some(2), true), "{}", stderr(&output));
        assert!(stderr(&output).contains("hint:"), "{}", stderr(&output));
    }
    assert_eq!(fs::read_to_string(place.path("r.json")).unwrap(), "mine");
    // Without -o nothing is written.
    assert_eq!(place.run(&server.url, &["bench", "-d", "c.jsonl"]).status.code(), Some(0));
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 3);
}

#[test]
#[cfg(unix)]
fn figures_are_printed_also_where_the_disk_is_full_and_no_half_receipt_is_left() {
    let (server, place) = (server(), place());
    // A file may hold nothing, and writing to it is an error rather than the end of the program.
    let full = "trap '' XFSZ; ulimit -f 0; exec \"$0\" bench -d c.jsonl -o r.json -u \"$1\"";
    let program = dgem().get_program().to_owned();
    let output = std::process::Command::new("sh")
        .args(["-c", full])
        .arg(program)
        .arg(&server.url)
        .current_dir(place.folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("ACCURACY") && stderr(&output).contains("r.json"),
        "{}",
        stdout(&output)
    );
    assert!(!place.path("r.json").exists());
}

#[test]
fn a_receipt_gives_the_same_figures_again_without_a_server() {
    let (server, place) = (server(), place());
    let first = place.run(&server.url, &["bench", "-d", "c.jsonl", "-o", "r.json", "-M", "both"]);
    assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
    let nowhere = "http://127.0.0.1:1/v1";
    let again = place.run(nowhere, &["bench", "--from-receipt", "r.json", "-o", "again.json"]);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    assert_eq!(stdout(&first), stdout(&again));
    assert_eq!(place.receipt("r.json"), place.receipt("again.json"));
    fs::write(
        place.path("other.json"),
        fs::read_to_string(place.path("r.json")).unwrap().replacen("\"bench\"", "\"bench-intents\"", 1),
    )
    .unwrap();
    let changed = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut receipt = place.receipt("r.json");
        change(&mut receipt);
        fs::write(place.path(name), receipt.to_string()).unwrap();
    };
    changed("twice.json", &|receipt| receipt["cases"][1] = receipt["cases"][0].clone());
    changed("time.json", &|receipt| receipt["cases"][0]["wall_time_ms"] = json!(-5.0));
    changed("esc.json", &|receipt| receipt["suite"] = json!("\u{1b}[31mx"));
    for (file, part) in [
        ("other.json", "bench-intents"),
        ("c.jsonl", "hint:"),
        ("none.json", "none.json"),
        ("twice.json", "it is there twice"),
        ("time.json", "a time of -5e0 ms"),
        ("esc.json", "\u{fffd}[31mx"),
    ] {
        let output = place.run(nowhere, &["bench", "--from-receipt", file]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
}

#[test]
fn an_older_receipt_is_compared_case_by_case() {
    let (server, place) = (server(), place());
    place.run(&server.url, &["bench", "-d", "c.jsonl", "-o", "old.json"]);
    // `a` was wrong and `b` right in the older run.
    let mut old = place.receipt("old.json");
    old["cases"][0]["accurate"] = json!(false);
    old["cases"][1]["accurate"] = json!(true);
    old["dataset"]["sha256"] = json!("0");
    fs::write(place.path("old2.json"), old.to_string()).unwrap();
    let output = place.run(&server.url, &["bench", "-d", "c.jsonl", "--compare", "old2.json", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("different datasets"), "{}", stderr(&output));
    let receipt: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let comparison = &receipt["comparison"];
    assert_eq!((&comparison["mended"], &comparison["broken"]), (&json!(["a"]), &json!(["b"])));
    assert_eq!((&comparison["both_right"], &comparison["mcnemar_exact_p"]), (&json!(1), &json!(1.0)));
}

#[test]
fn case_48_a_case_that_fails_is_wrong_and_timeless_and_when_all_fail_the_error_ends_the_run() {
    let (server, place) = (server(), place());
    fs::write(place.path("c.jsonl"), cases().replace("support now", "fail")).unwrap();
    let output = place.run(&server.url, &["bench", "-d", "c.jsonl", "-o", "r.json", "-w", "3"]);
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    assert!(stderr(&output).contains("1 of 3 cases failed"), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    assert_eq!((&receipt["failed_cases"], &receipt["summary"]["latency"]["count"]), (&json!(1), &json!(2)));
    let case = &receipt["cases"][1];
    assert_eq!(
        (&case["id"], &case["http_status"], case.get("wall_time_ms")),
        (&json!("b"), &json!(500), None)
    );
    assert!(case["error"].as_str().unwrap().contains("500"));
    assert!((receipt["slot_accuracy_pct"].as_f64().unwrap() - 200.0 / 3.0).abs() < 1e-9);

    let output = place.run("http://127.0.0.1:1/v1", &["bench", "-d", "c.jsonl", "-o", "down.json"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(
        stderr(&output).contains("start the server") && stdout(&output).contains("not measured"),
        "{}",
        stdout(&output)
    );
    let text = fs::read_to_string(place.path("down.json")).unwrap();
    assert!(!text.contains("NaN") && !stdout(&output).contains("NaN"));
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["summary"]["latency"], Value::Null);
}

#[test]
fn case_47_datasets_and_templates_that_cannot_work_cost_no_request() {
    let (server, place) = (server(), place());
    let good = cases();
    for (text, flags, part) in [
        ("# none\n".to_owned(), &[][..], "there are no cases"),
        (good.clone(), &["-T", "impossible"], "the filters leave none"),
        (good.clone(), &["-n", "0"], "the filters leave none"),
        ("{\"id\": \"x\"}\n".to_owned(), &[], "c.jsonl, line 1"),
        (good.replace("\"c\"", "\"a\""), &[], "two cases have the id `a`"),
        (good.replace("\"team\":", "\"teem\":"), &[], "`teem`"),
        (good.replace("p.json.tmpl", "q.json.tmpl"), &[], "q.json.tmpl"),
        (good.clone(), &["--case-timeout", "soon"], "soon"),
    ] {
        fs::write(place.path("c.jsonl"), text).unwrap();
        let output = place.run(&server.url, &[&["bench", "-d", "c.jsonl", "-o", "r.json"], flags].concat());
        assert_eq!(
            (output.status.code(), server.got_nothing()),
            (Some(2), true),
            "{part}: {}",
            stderr(&output)
        );
        assert!(stderr(&output).contains(part) && stderr(&output).contains("hint:"), "{}", stderr(&output));
        assert!(!place.path("r.json").exists());
    }
    // An expected answer that no question has can never be right, and is told.
    fs::write(place.path("c.jsonl"), good.replace("\"engineering\"}", "\"oos\"}")).unwrap();
    let output = place.run(&server.url, &["bench", "-d", "c.jsonl"]);
    assert!(stderr(&output).contains("`oos`, which `team` does not allow"), "{}", stderr(&output));
    assert!(stdout(&output).contains("faults of the dataset"), "{}", stdout(&output));
}

#[test]
fn case_49_in_words_alone_no_slot_is_said_to_fail() {
    let (server, place) = (server(), place());
    let output = place.run(&server.url, &["bench", "-d", "c.jsonl", "-o", "r.json", "-M", "generative"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    assert!(receipt.get("slot_accuracy_pct").is_none() && receipt["cases"][0].get("slot_accurate").is_none());
    assert_eq!(
        (&receipt["gen_syntax_rate_pct"], &receipt["cases"][0]["accurate"]),
        (&json!(100.0), &json!(true))
    );
    assert!((receipt["gen_accuracy_pct"].as_f64().unwrap() - 100.0 / 3.0).abs() < 1e-9);
    // Both: the same beside the decision.
    place.run(&server.url, &["bench", "-d", "c.jsonl", "-o", "both.json", "-M", "both"]);
    let both = place.receipt("both.json");
    assert_eq!((&receipt["mode"], &both["mode"]), (&json!("generative"), &json!("both")));
    assert!(both["speed_up"].as_f64().unwrap() > 0.0 && both.get("slot_accuracy_pct").is_some());
    let asked = server.all();
    let prompt = asked.iter().find(|request| {
        request.head.starts_with("POST") && request.json()["messages"].as_array().unwrap().len() == 1
    });
    assert!(
        prompt.unwrap().json()["messages"][0]["content"]
            .as_str()
            .unwrap()
            .contains("One of: billing, support, engineering")
    );
}

#[test]
fn a_reply_in_words_that_fails_leaves_the_answer_at_the_slots() {
    let place = place();
    let server = Server::answering(|request| {
        if request.head.starts_with("GET") {
            return (404, String::new());
        }
        if request.json()["messages"].as_array().unwrap().len() == 1 {
            return (400, r#"{"error": {"message": "no prose here"}}"#.to_owned());
        }
        (200, completion(&says(&request.state(), &request.schema()).to_string()))
    });
    let output = place.run(&server.url, &["bench", "-d", "c.jsonl", "-o", "r.json", "-M", "both"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("in 3 cases what comes after the answer failed"), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    assert!((receipt["slot_accuracy_pct"].as_f64().unwrap() - 200.0 / 3.0).abs() < 1e-9);
    assert_eq!((&receipt["failed_cases"], &receipt["summary"]["all"]["right"]), (&json!(0), &json!(2)));
    assert_eq!((&receipt["gen_failed"], &receipt["gen_syntax_rate_pct"]), (&json!(3), &json!(0.0)));
    let case = &receipt["cases"][0];
    assert_eq!((&case["accurate"], &case["slot_accurate"]), (&json!(true), &json!(true)));
    assert!(case.get("error").is_none() && case["wall_time_ms"].is_f64(), "{case}");
    assert!(case["second_error"].as_str().unwrap().contains("no prose here"), "{case}");
}

#[test]
fn a_run_that_stops_early_says_so_in_the_receipt_the_reports_a_replay_and_a_comparison() {
    let (server, place) = (server(), place());
    fs::write(place.path("c.jsonl"), cases().replace("support now", "locked")).unwrap();
    let flags = ["bench", "-d", "c.jsonl", "-o", "r.json", "--html", "r.html"];
    let output = place.run(&server.url, &flags);
    // As when the first case is refused: the key is wrong.
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    assert_eq!((&receipt["planned_cases"], &receipt["total_cases"]), (&json!(3), &json!(2)));
    assert!(receipt["stopped"].as_str().unwrap().contains("HTTP 401"), "{}", receipt["stopped"]);
    assert_eq!(receipt["interrupted"], false);
    let told = "stopped after 2 of 3 cases (";
    let page = fs::read_to_string(place.path("r.html")).unwrap();
    for text in [stdout(&output), stderr(&output), page] {
        assert!(text.contains(told), "{text}");
    }
    let again = place.run("http://127.0.0.1:1/v1", &["bench", "--from-receipt", "r.json"]);
    assert!(stdout(&again).contains(told) && stderr(&again).contains(told), "{}", stderr(&again));
    let whole = place.run(&server.url, &["bench", "-d", "c.jsonl", "-n", "1", "-o", "whole.json"]);
    // The one case is right: there was no error to catch.
    let gate = &place.receipt("whole.json")["summary"]["gates"][0];
    assert_eq!((&gate["errors_caught"], &gate["accuracy_of_kept"]), (&Value::Null, &Value::Null));
    assert!(!stdout(&whole).contains("STOPPED") && place.receipt("whole.json").get("stopped").is_none());
    for (now, old) in [("r.json", "whole.json"), ("whole.json", "r.json")] {
        let output = place.run(
            "http://127.0.0.1:1/v1",
            &["bench", "--from-receipt", now, "--compare", old, "-o", &format!("{now}.compared")],
        );
        let name = if old == "r.json" { "older" } else { "newer" };
        let told = format!("the {name} run {told}");
        assert!(stdout(&output).contains(&told) && stderr(&output).contains(&told), "{}", stdout(&output));
        let notes = &place.receipt(&format!("{now}.compared"))["comparison"]["notes"];
        assert!(notes[0].as_str().unwrap().starts_with(&told), "{notes}");
    }
}

#[test]
fn when_several_models_answer_the_receipt_names_all_of_them() {
    let place = place();
    let server = Server::answering(|request| {
        if request.head.starts_with("GET") {
            return (404, String::new());
        }
        let state = request.state();
        let reply = completion(&says(&state, &request.schema()).to_string());
        (200, if state.contains("support") { reply.replace("tiny-model", "big-model") } else { reply })
    });
    let output = place.run(&server.url, &["bench", "-d", "c.jsonl", "-o", "r.json"]);
    assert!(stderr(&output).contains("2 models answered: tiny-model, big-model"), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    assert_eq!(
        (&receipt["target_model"], &receipt["settings"]["models"]),
        (&json!("tiny-model"), &json!(["tiny-model", "big-model"]))
    );
    let fit = ["calibrate", "fit", "-t", "p.json.tmpl", "--from-receipt", "r.json", "-o", "c.json"];
    let output = place.run(&server.url, &fit);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("several models answered"), "{}", stderr(&output));
}

#[test]
fn a_server_that_is_not_there_stops_the_run_and_the_receipt_says_it() {
    let place = place();
    let case = |n: usize| {
        json!({"id": format!("r{n}"), "template": "p.json.tmpl", "variables": {"t": "x"}, "expected": {"team": "billing"}})
            .to_string()
    };
    fs::write(place.path("c.jsonl"), (0..40).map(case).collect::<Vec<_>>().join("\n")).unwrap();
    let output = place.run("http://127.0.0.1:1/v1", &["bench", "-d", "c.jsonl", "-o", "r.json"]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    assert_eq!((&receipt["planned_cases"], &receipt["total_cases"]), (&json!(40), &json!(20)));
    assert!(receipt["stopped"].as_str().unwrap().contains("cannot reach"), "{}", receipt["stopped"]);
}

#[test]
fn a_receipt_of_an_older_version_is_still_read() {
    let (server, place) = (server(), place());
    place.run(&server.url, &["bench", "-d", "c.jsonl", "-o", "r.json"]);
    let mut old = place.receipt("r.json");
    old.as_object_mut().unwrap().remove("planned_cases");
    old["interrupted"] = json!(true);
    fs::write(place.path("old.json"), old.to_string()).unwrap();
    let output = place.run("http://127.0.0.1:1/v1", &["bench", "--from-receipt", "old.json"]);
    assert!(stdout(&output).contains("stopped after 3 cases (interrupted)"), "{}", stdout(&output));
}

/// Every receipt that is part of this project.
#[test]
fn the_committed_receipts_are_still_read() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../benchmarks/runs/demo-model");
    let place = Place::new(&[]);
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let receipt: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let (suite, right) = (receipt["suite"].as_str().unwrap(), &receipt["summary"]["all"]["right"]);
        let flags = [suite, "--json", "--from-receipt", path.to_str().unwrap()];
        let output = place.run("http://127.0.0.1:1/v1", &flags);
        assert_eq!(output.status.code(), Some(0), "{}: {}", path.display(), stderr(&output));
        let again: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(&again["summary"]["all"]["right"], right, "{}", path.display());
        seen += 1;
    }
    assert_eq!(seen, 7);
}

#[test]
#[cfg(unix)]
fn an_interrupt_keeps_what_was_measured() {
    let place = place();
    let case = |n: usize| {
        json!({"id": format!("r{n}"), "domain": "d", "template": "p.json.tmpl", "variables": {"t": "billing"}, "expected": {"team": "billing"}})
            .to_string()
    };
    fs::write(place.path("c.jsonl"), (0..500).map(case).collect::<Vec<_>>().join("\n")).unwrap();
    let server = Server::answering(|request| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        if request.head.starts_with("GET") {
            return (404, String::new());
        }
        (200, completion(&says(&request.state(), &request.schema()).to_string()))
    });
    let program = assert_cmd::cargo::cargo_bin("dgem");
    let child = std::process::Command::new(program)
        .env_clear()
        .current_dir(place.folder.path())
        .args(["bench", "-d", "c.jsonl", "-o", "r.json", "-u", &server.url])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // The route of health, the warm-up, some cases.
    let mut seen = 0;
    while seen < 6 {
        seen += server.all().len();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    let cases = receipt["cases"].as_array().unwrap();
    assert_eq!(receipt["interrupted"], true);
    assert!((1..500).contains(&cases.len()) && cases.iter().all(|case| case["accurate"] == true));
    assert_eq!((&receipt["planned_cases"], &receipt["stopped"]), (&json!(500), &json!("interrupted")));
    let told = format!("stopped after {} of 500 cases (interrupted)", cases.len());
    assert!(stdout(&output).contains("STOPPED") && stdout(&output).contains(&told), "{}", stdout(&output));
}

#[test]
fn what_chooses_cases_is_refused_where_a_receipt_has_chosen_them() {
    let place = Place::new(&[]);
    for flag in [
        ["-T", "ambiguous"],
        ["-n", "3"],
        ["--offset", "1"],
        ["-M", "both"],
        ["-d", "x.jsonl"],
        ["--samples", "4"],
        ["-w", "2"],
    ] {
        let flags = ["bench", "--from-receipt", "r.json", flag[0], flag[1]];
        let output = place.run("http://127.0.0.1:1/v1", &flags);
        assert_eq!(output.status.code(), Some(2), "{flag:?}");
        assert!(stderr(&output).contains("--from-receipt"), "{}", stderr(&output));
    }
}
