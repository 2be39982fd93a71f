//! `dgem calibrate`: a temperature belongs to one template and one model, changes how sure answers are and never which ones, and says
//! when it no longer holds.

use std::fs;

use crate::bench::Place;
use crate::support::{Server, completion, dgem, stderr, stdout};
use serde_json::{Value, json};

const POLICY: &str = r#"{"schema": {"questions": [
    {"id": "team", "type": "choice", "options": ["billing", "support"]},
    {"id": "level", "type": "score", "levels": ["low", "high"]}]}, "state": {"t": {{ t | json_encode }}}}"#;

/// Always 90 % sure of billing and of low.
fn answers() -> Value {
    json!({"answers": {
        "team": {"type": "choice", "probabilities": {"billing": 0.9, "support": 0.1}},
        "level": {"type": "score", "probabilities": {"low": 0.9, "high": 0.1}}}})
}

fn server() -> Server {
    Server::answering(|request| {
        let missing = request.head.starts_with("GET");
        if missing { (404, String::new()) } else { (200, completion(&answers().to_string())) }
    })
}

/// Twelve rows; the first `right` of them expect what the server says.
fn rows(right: usize) -> String {
    let row = |n: usize| {
        let team = if n < right { "billing" } else { "support" };
        json!({"id": n, "t": format!("ticket {n}"), "expected_team": team}).to_string()
    };
    (0..12).map(row).collect::<Vec<_>>().join("\n")
}

fn place() -> Place {
    // Right in 9 of 12 at 0.9: the best confidence is 0.75, at a temperature of 2.
    Place::new(&[
        ("p.json.tmpl", POLICY),
        ("rows.jsonl", &rows(9)),
        ("worse.jsonl", &rows(3)),
        ("none.jsonl", &rows(12)),
    ])
}

fn fitted() -> (Place, Server) {
    let (place, server) = (place(), server());
    let output = place.run(&server.url, &["calibrate", "fit", "-t", "p.json.tmpl", "-i", "rows.jsonl"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    (place, server)
}

#[test]
fn a_fit_finds_the_temperature_and_lies_beside_the_template() {
    let (place, server) = fitted();
    let file = place.receipt("p.calibration.json");
    let choice = &file["temperatures"]["choice"];
    assert!((choice["temperature"].as_f64().unwrap() - 2.0).abs() < 1e-6, "{file}");
    assert_eq!((&file["model"], &choice["answers"]), (&json!("tiny-model"), &json!(12)));
    assert!(choice["nll_after"].as_f64() < choice["nll_before"].as_f64() && choice["ece_held_out"].is_f64());
    assert!(file["temperatures"].get("score").is_none());
    // Again: never over an older one, unless it is told so.
    let again = ["calibrate", "fit", "-t", "p.json.tmpl", "-i", "rows.jsonl"];
    let output = place.run(&server.url, &again);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("never overwritten"), "{}", stderr(&output));
    assert_eq!(place.run(&server.url, &[&again[..], &["--force"]].concat()).status.code(), Some(0));
    // Only a calibration is replaced.
    let output = place.run(&server.url, &[&again[..], &["--force", "-o", "rows.jsonl"]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert_eq!(fs::read_to_string(place.path("rows.jsonl")).unwrap(), rows(9));
}

#[test]
fn answers_that_set_no_temperature_are_refused() {
    let (place, server) = (place(), server());
    for (rows, flags, part) in [
        ("none.jsonl", &[][..], "all of them are right"),
        ("rows.jsonl", &["--min-answers", "50"], "too few"),
    ] {
        let flags = [&["calibrate", "fit", "-t", "p.json.tmpl", "-i", rows], flags].concat();
        let output = place.run(&server.url, &flags);
        assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
        assert!(!place.path("p.calibration.json").exists());
    }
}

fn decide(place: &Place, url: &str, more: &[&str]) -> std::process::Output {
    let flags =
        ["decide", "-t", "p.json.tmpl", "-v", "t=x", "-f", "json", "--calibration", "p.calibration.json"];
    place.run(url, &[&flags, more].concat())
}

#[test]
fn case_30_decide_applies_it_last_and_the_answer_stays() {
    let (place, server) = fitted();
    let output = decide(&place, &server.url, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let team = &document["answers"]["team"];
    assert_eq!(team["choice"], "billing");
    assert!((team["confidence"].as_f64().unwrap() - 0.75).abs() < 1e-6, "{team}");
    assert!((team["probabilities"]["support"].as_f64().unwrap() - 0.25).abs() < 1e-6);
    // A type without a temperature stays as it was.
    assert!((document["answers"]["level"]["confidence"].as_f64().unwrap() - 0.9).abs() < 1e-12);
    let calibration = &document["calibration"];
    assert!((calibration["raw"]["team"]["confidence"].as_f64().unwrap() - 0.9).abs() < 1e-12);
    assert!(calibration["raw"].get("level").is_none());
    assert!((calibration["temperatures"]["choice"].as_f64().unwrap() - 2.0).abs() < 1e-6);
}

#[test]
fn gates_look_at_what_the_model_said_unless_told_otherwise() {
    let (place, server) = fitted();
    for (flags, code) in [
        (&["--min-confidence", "80%"][..], 0),
        (&["--min-confidence", "80%", "--calibrated-gates"], 1),
        (&["--max-hesitation", "50%"], 0),
        (&["--max-hesitation", "50%", "--calibrated-gates"], 1),
    ] {
        let output = decide(&place, &server.url, flags);
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {}", stderr(&output));
    }
}

#[test]
fn it_is_refused_for_another_template_and_another_model() {
    let (place, server) = fitted();
    fs::write(place.path("p.json.tmpl"), format!("{POLICY} ")).unwrap();
    server.all();
    let output = decide(&place, &server.url, &[]);
    assert_eq!((output.status.code(), server.got_nothing()), (Some(2), true));
    assert!(
        stderr(&output).contains("this one is another") && stderr(&output).contains("hint:"),
        "{}",
        stderr(&output)
    );

    fs::write(place.path("p.json.tmpl"), POLICY).unwrap();
    let other =
        Server::answering(|_| (200, completion(&answers().to_string()).replace("tiny-model", "big-model")));
    let output = decide(&place, &other.url, &[]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
    assert!(stderr(&output).contains("`tiny-model`, and `big-model` answered"), "{}", stderr(&output));
    let output = place.run(&server.url, &["decide", "--schema", "{}", "--calibration", "p.calibration.json"]);
    assert_eq!(output.status.code(), Some(2));
    fs::write(place.path("broken.json"), "{}").unwrap();
    let output = decide(&place, &server.url, &[]);
    assert_eq!(output.status.code(), Some(0));
    let output =
        place.run(&server.url, &["decide", "-t", "p.json.tmpl", "-v", "t=x", "--calibration", "broken.json"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("broken.json"), "{}", stderr(&output));
}

#[test]
fn it_belongs_to_one_manner_of_reading_and_is_refused_for_another() {
    let (place, server) = fitted();
    let file = place.receipt("p.calibration.json");
    assert_eq!(
        file["reading"],
        json!({"samples": "1", "layout": "schema_first", "steps": 1, "think": 0, "permute": 1})
    );
    server.all();
    let verify = ["calibrate", "verify", "p.calibration.json", "-t", "p.json.tmpl", "-i", "rows.jsonl"];
    for (flags, part) in [
        (&["--samples", "4"][..], "samples 1, now 4"),
        (&["--layout", "document_first"], "layout schema_first, now document_first"),
        (&["--think", "64"], "think 0, now 64"),
        (&["--permute", "2"], "permute 1, now 2"),
    ] {
        for output in [decide(&place, &server.url, flags), place.run(&server.url, &[&verify, flags].concat())]
        {
            assert_eq!((output.status.code(), server.got_nothing()), (Some(2), true), "{flags:?}");
            assert!(
                stderr(&output).contains(part) && stderr(&output).contains("hint:"),
                "{}",
                stderr(&output)
            );
        }
    }
    // The seed is another draw of the same manner.
    assert_eq!(decide(&place, &server.url, &["--seed", "7"]).status.code(), Some(0));
    let fit = ["calibrate", "fit", "-t", "p.json.tmpl", "-i", "rows.jsonl", "--force", "--samples", "4"];
    assert_eq!(place.run(&server.url, &fit).status.code(), Some(0));
    assert!(server.all().iter().any(|request| request.text().contains("samples\\\":4")));
    assert_eq!(decide(&place, &server.url, &["--samples", "4"]).status.code(), Some(0));
    assert_eq!(decide(&place, &server.url, &[]).status.code(), Some(2));
}

#[test]
fn a_batch_applies_it_to_every_row_as_decide_does() {
    let (place, server) = fitted();
    fs::write(place.path("two.jsonl"), rows(9).lines().take(2).collect::<Vec<_>>().join("\n")).unwrap();
    let batch = |url: &str, flags: &[&str]| {
        let all = ["batch", "-t", "p.json.tmpl", "-i", "two.jsonl", "--calibration", "p.calibration.json"];
        place.run(url, &[&all, flags].concat())
    };
    let document: Value = serde_json::from_str(&stdout(&decide(&place, &server.url, &[]))).unwrap();
    let output = batch(&server.url, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert_eq!(line["answers"], document["answers"]);
        assert_eq!(line["calibration"], document["calibration"]);
    }
    // The report is of what the lines say.
    assert!(stderr(&output).contains("75.0%"), "{}", stderr(&output));

    server.all();
    let output = batch(&server.url, &["--samples", "4"]);
    assert_eq!((output.status.code(), server.got_nothing()), (Some(2), true));
    assert!(stderr(&output).contains("samples 1, now 4"), "{}", stderr(&output));
    let other =
        Server::answering(|_| (200, completion(&answers().to_string()).replace("tiny-model", "big-model")));
    let output = batch(&other.url, &["-j", "1"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("`tiny-model`, and `big-model` answered"), "{}", stderr(&output));
    assert_eq!(other.all().iter().filter(|request| request.head.starts_with("POST")).count(), 1);
    fs::write(place.path("p.json.tmpl"), format!("{POLICY} ")).unwrap();
    let output = batch(&server.url, &[]);
    assert_eq!((output.status.code(), server.got_nothing()), (Some(2), true));
    assert!(stderr(&output).contains("this one is another"), "{}", stderr(&output));
}

#[test]
fn verify_tells_drift_by_its_exit_code() {
    let (place, server) = fitted();
    let verify = |rows: &str| {
        place
            .run(&server.url, &["calibrate", "verify", "p.calibration.json", "-t", "p.json.tmpl", "-i", rows])
    };
    let holds = verify("rows.jsonl");
    assert_eq!(holds.status.code(), Some(0), "{}", stderr(&holds));
    assert!(stdout(&holds).contains("holds"), "{}", stdout(&holds));
    let drift = verify("worse.jsonl");
    assert_eq!(drift.status.code(), Some(1), "{}", stderr(&drift));
    assert!(stdout(&drift).contains("DRIFT") && stderr(&drift).contains("choice"), "{}", stdout(&drift));
}

#[test]
fn a_receipt_gives_the_answers_to_its_own_template() {
    let (place, server) = fitted();
    let case = |n: usize| {
        let team = if n < 9 { "billing" } else { "support" };
        json!({"id": format!("c{n}"), "template": "p.json.tmpl", "variables": {"t": n.to_string()}, "expected": {"team": team}}).to_string()
    };
    fs::write(place.path("c.jsonl"), (0..12).map(case).collect::<Vec<_>>().join("\n")).unwrap();
    let output = place.run(&server.url, &["bench", "-d", "c.jsonl", "-o", "r.json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let nowhere = |arguments: &[&str]| {
        dgem()
            .current_dir(place.folder.path())
            .args(arguments)
            .args(["-u", "http://127.0.0.1:1/v1"])
            .output()
            .unwrap()
    };
    let fit = ["calibrate", "fit", "--from-receipt", "r.json", "-o", "c.json", "-t", "p.json.tmpl"];
    let output = nowhere(&fit);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let temperature =
        |name: &str| place.receipt(name)["temperatures"]["choice"]["temperature"].as_f64().unwrap();
    assert!((temperature("c.json") - temperature("p.calibration.json")).abs() < 1e-9);
    // A receipt of an older version does not say how its answers were read.
    let mut old = place.receipt("r.json");
    assert_eq!(old["readings"]["p.json.tmpl"].as_array().unwrap().len(), 1);
    old.as_object_mut().unwrap().remove("readings");
    fs::write(place.path("old.json"), old.to_string()).unwrap();
    let output =
        nowhere(&["calibrate", "fit", "--from-receipt", "old.json", "-o", "d.json", "-t", "p.json.tmpl"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("how the answers were read"), "{}", stderr(&output));
    fs::write(place.path("p.json.tmpl"), format!("{POLICY} ")).unwrap();
    let output =
        nowhere(&["calibrate", "fit", "--from-receipt", "r.json", "-o", "d.json", "-t", "p.json.tmpl"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("hashes differ"), "{}", stderr(&output));
}
