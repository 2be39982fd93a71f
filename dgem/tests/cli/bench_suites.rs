//! The further benchmarks from the outside: calibration with its cascade, and the order of options. All of their built-in cases fit the
//! templates of this project and run to the end.

use std::fs;

use crate::bench::Place;
use crate::support::{Recorded, Server, completion, decision, stderr, stdout};
use serde_json::{Value, json};
use sha2::Digest as _;

/// Decides any schema: `weight` of question, answer and state.
fn deciding(weight: fn(&str, &str, &str) -> f64) -> Server {
    Server::answering(move |request| {
        if request.head.starts_with("GET") {
            return (404, String::new());
        }
        let state = request.state();
        let content = decision(&asked(request), |id, name| weight(id, name, &state));
        (200, completion(&content.to_string()))
    })
}

/// The schema with only the questions that are asked.
fn asked(request: &Recorded) -> Value {
    let mut schema = request.schema();
    if let Some(ask) = schema.get("ask").and_then(Value::as_array).cloned() {
        let questions = schema["questions"].as_array_mut().unwrap();
        questions.retain(|question| ask.contains(&question["id"]));
    }
    schema
}

fn repository() -> Place {
    Place::new(&[])
}

#[test]
fn all_50_cases_of_calibration_run_and_every_question_is_the_one_of_its_metric() {
    let (server, place) = (deciding(|_, name, _| if name == "yes" { 3.0 } else { 1.0 }), repository());
    let output =
        place.run(&server.url, &["bench-calibration", "-o", "r.json", "--html", "r.html", "-w", "4"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    assert_eq!((&receipt["total_cases"], &receipt["failed_cases"]), (&json!(50), &json!(0)));
    assert!(receipt["dataset"]["path"].as_str().unwrap().contains("built in"));
    let cases = receipt["cases"].as_array().unwrap();
    let cardinality = |id: &str| {
        let case = cases.iter().find(|case| case["id"].as_str().unwrap().starts_with(id)).unwrap();
        (case["vocab_cardinality"].as_u64().unwrap(), case["chance_baseline"].as_f64().unwrap())
    };
    assert_eq!(cardinality("tox-01"), (2, 0.5));
    assert!(
        cases.iter().any(|case| case["vocab_cardinality"] == 26)
            && cases.iter().all(|case| case["answers"].as_object().unwrap().len() == 1)
    );
    assert!(receipt.get("cascade").is_none());
    for key in [
        "overall_accuracy_pct",
        "chance_baseline_pct",
        "avg_brier_score",
        "ece_10bin",
        "p95_latency_ms",
        "temperature_fit",
    ] {
        assert!(!receipt[key].is_null(), "{key}");
    }
    // No second model was asked, so nothing is said about both; what a threshold would do is known all the same.
    let text = stdout(&output);
    assert!(
        text.contains("Thresholds") && text.contains("not measured") && text.contains("0.35 nats"),
        "{text}"
    );
    assert!(!text.contains("NaN"), "{text}");
    // The receipt says the same again.
    let again = place.run("http://127.0.0.1:1/v1", &["bench-calibration", "--from-receipt", "r.json"]);
    assert_eq!(stdout(&again), text);
}

const CASES: &str = r#"
{"id": "a", "metric": "calibration/prompt-injection-check", "tier": "easy", "category": "guardrail", "fields": {"user_input": "sure"}, "expected": "true"}
{"id": "b", "metric": "calibration/prompt-injection-check", "tier": "easy", "category": "guardrail", "fields": {"user_input": "unsure"}, "expected": "false"}
{"id": "c", "metric": "calibration/yelp-review-stars-rate", "tier": "hard", "category": "ordinal", "fields": {"review": "sure"}, "expected": "4"}
{"id": "d", "metric": "calibration/yelp-review-stars-rate", "tier": "hard", "category": "ordinal", "fields": {"review": "sure"}, "expected": "2"}
"#;

/// Sure of yes and of 5 stars; of `unsure` it says yes with 55 %.
fn first() -> Server {
    deciding(|_, name, state| match (name, state.contains("unsure")) {
        ("yes", true) => 0.55,
        ("no", true) => 0.45,
        ("yes" | "5", false) => 0.96,
        _ => 0.01,
    })
}

/// A second model that writes `no`.
fn second() -> Server {
    let said = json!({"injection": {"decision": "no", "confidence": 0.9, "explanation": "e"}, "stars": {"decision": "2", "confidence": 0.8, "explanation": "e"}});
    let reply = json!({"model": "second-model", "choices": [{"message": {"role": "assistant", "content": said.to_string()}}]});
    Server::answering(move |request| {
        let missing = request.head.starts_with("GET");
        if missing { (404, String::new()) } else { (200, reply.to_string()) }
    })
}

#[test]
fn a_score_counts_within_one_and_the_exact_figure_stands_beside_it() {
    let place = Place::new(&[("c.jsonl", CASES)]);
    let server = first();
    let output = place.run(&server.url, &["bench-calibration", "-d", "c.jsonl", "-o", "r.json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    let accurate: Vec<&Value> =
        receipt["cases"].as_array().unwrap().iter().map(|case| &case["accurate"]).collect();
    assert_eq!(accurate, [&json!(true), &json!(false), &json!(true), &json!(false)]);
    assert_eq!(
        (&receipt["overall_accuracy_pct"], &receipt["exact_accuracy_pct"]),
        (&json!(50.0), &json!(25.0))
    );
}

#[test]
fn a_cascade_sends_only_the_unsure_and_says_what_both_are_worth() {
    let place = Place::new(&[("c.jsonl", CASES)]);
    let (server, second) = (first(), second());
    let cascade = ["--cascade", "entropy", "--cascade-url", &second.url];
    let output = place.run(
        &server.url,
        &[
            &["bench-calibration", "-d", "c.jsonl", "-o", "r.json"],
            &cascade[..],
            &["--cascade-threshold", "50%"],
        ]
        .concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    for (key, value) in [
        ("escalated_cases", json!(1)),
        ("replaced_cases", json!(1)),
        ("pass1_accuracy_pct", json!(50.0)),
        ("cascade_accuracy_pct", json!(75.0)),
        ("accuracy_gain_pct", json!(25.0)),
        ("pass2_models", json!(["second-model"])),
    ] {
        assert_eq!(receipt["cascade"][key], value, "{key}");
    }
    // The usual figures are those of the first model.
    assert_eq!(receipt["overall_accuracy_pct"], 50.0);
    assert_eq!(
        (&receipt["cases"][1]["actual"], &receipt["cases"][1]["escalation"]["accurate"]),
        (&json!("yes"), &json!(true))
    );
    assert_eq!(receipt["cases"][0]["escalation"]["escalated"], false);
    let text = stdout(&output);
    // From 50 % on the second model has seen all, below it has not.
    assert!(
        text.lines().any(|line| line.starts_with("50%")
            && line.contains("1 of 4")
            && line.trim_end().ends_with("75.0%")),
        "{text}"
    );
    assert!(
        text.lines()
            .any(|line| line.starts_with("0%") && line.contains("4 of 4") && line.contains("not measured")),
        "{text}"
    );

    // The first model's answers from the receipt: only the second is asked, also about those that were sure.
    server.all();
    second.all();
    let from = ["bench-calibration", "-d", "c.jsonl", "--cascade-from", "r.json", "-o", "s.json"];
    let output = place.run(&server.url, &[&from[..], &cascade[2..], &["--cascade-threshold", "0%"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!server.all().iter().any(|request| request.head.starts_with("POST")));
    assert_eq!(second.all().iter().filter(|request| request.head.starts_with("POST")).count(), 4);
    let all = place.receipt("s.json");
    // Right now: b and d; the sure a and c are spoilt.
    assert_eq!(
        (&all["cascade"]["escalated_cases"], &all["cascade"]["cascade_accuracy_pct"]),
        (&json!(4), &json!(50.0))
    );
    let again = place.run(&server.url, &["bench-calibration", "--from-receipt", "s.json"]);
    assert!(
        stdout(&again)
            .lines()
            .any(|line| line.starts_with("0.35 nats") && line.trim_end().ends_with("75.0%")),
        "{}",
        stdout(&again)
    );
}

#[test]
fn first_answers_come_from_a_receipt_of_the_same_cases_and_templates_and_keep_the_name_of_their_model() {
    let place = Place::new(&[("c.jsonl", CASES), ("d.jsonl", &format!("{CASES}\n"))]);
    let (server, second) = (first(), second());
    let output = place.run(&server.url, &["bench-calibration", "-d", "c.jsonl", "-o", "r.json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let mut receipt = place.receipt("r.json");
    receipt["target_model"] = json!("model-of-then");
    fs::write(place.path("then.json"), receipt.to_string()).unwrap();
    receipt["templates"]["calibration/prompt_injection"] = json!("0".repeat(64));
    fs::write(place.path("other.json"), receipt.to_string()).unwrap();
    server.all();
    let run = |cases: &str, from: &str, file: &str| {
        let flags = ["bench-calibration", "-d", cases, "--cascade-from", from, "-o", file];
        let cascade = ["--cascade-url", &second.url, "--cascade-threshold", "0%"];
        place.run(&server.url, &[&flags[..], &cascade].concat())
    };
    for (cases, from, part) in [
        ("d.jsonl", "then.json", "over those in d.jsonl (sha256"),
        (
            "c.jsonl",
            "other.json",
            "`calibration/prompt_injection` was another one then (sha256 000000000000…)",
        ),
    ] {
        let output = run(cases, from, "refused.json");
        assert_eq!((output.status.code(), server.got_nothing(), second.got_nothing()), (Some(2), true, true));
        assert!(stderr(&output).contains(part) && stderr(&output).contains("hint:"), "{}", stderr(&output));
        assert!(!place.path("refused.json").exists());
    }
    let other = place.run(
        &server.url,
        &["bench-calibration", "-d", "c.jsonl", "--cascade-from", "r.json", "--samples", "4"],
    );
    assert!(stderr(&other).contains("there is no second model"), "{}", stderr(&other));
    let flags = ["bench-calibration", "-d", "c.jsonl", "--cascade-from", "r.json", "--cascade-url"];
    let other = place.run(&server.url, &[&flags[..], &[&second.url, "--samples", "4"]].concat());
    assert_eq!((other.status.code(), server.got_nothing()), (Some(2), true));
    assert!(stderr(&other).contains("samples 1, now 4"), "{}", stderr(&other));
    let output = run("c.jsonl", "then.json", "s.json");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let receipt = place.receipt("s.json");
    assert_eq!(receipt["target_model"], "model-of-then");
    let pass1 = &receipt["settings"]["pass1"];
    assert_eq!(
        (&pass1["receipt"], &pass1["target_model"], &pass1["target_url"]),
        (&json!("then.json"), &json!("model-of-then"), &place.receipt("r.json")["target_url"])
    );
}

#[test]
fn a_replay_with_another_gate_says_which_and_without_one_keeps_that_of_the_receipt() {
    let server = deciding(|_, name, _| 1.0 / (1.0 + f64::from(u8::try_from(name.len()).unwrap())));
    let place = repository();
    let output =
        place.run(&server.url, &["bench-permutation", "-o", "r.json", "--gate-threshold", "30%", "-w", "4"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(place.receipt("r.json")["settings"]["gate_threshold"], 0.3);
    for (flags, gate) in [(&[][..], 0.3), (&["--gate-threshold", "100%"], 1.0)] {
        let flags = [&["bench-permutation", "--from-receipt", "r.json", "--json"], flags].concat();
        let output = place.run("http://127.0.0.1:1/v1", &flags);
        let again: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(again["settings"]["gate_threshold"], gate);
    }
}

#[test]
fn an_order_that_fails_leaves_the_answer_in_the_own_order_and_is_no_measured_case() {
    let server = Server::answering(|request| {
        if request.head.starts_with("GET") {
            return (404, String::new());
        }
        let schema = request.schema();
        if schema["questions"][0]["options"][0]["name"] != "a" {
            return (400, r#"{"error": {"message": "not in this order"}}"#.to_owned());
        }
        (200, completion(&decision(&schema, |_, name| if name == "b" { 0.9 } else { 0.1 }).to_string()))
    });
    let case = r#"{"id": "x", "regime": "r", "state": "s", "options": [{"name": "a"}, {"name": "b"}], "expected": "b"}"#;
    let place = Place::new(&[("c.jsonl", case)]);
    let output = place.run(&server.url, &["bench-permutation", "-d", "c.jsonl", "-o", "r.json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("in 1 case what comes after"), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    assert_eq!(receipt["summary"]["all"]["right"], 1);
    assert!(receipt["cases"][0]["second_error"].as_str().unwrap().contains("not in this order"));
    assert!(receipt.get("flip_rate").is_none() && receipt["cases"][0].get("permutation").is_none());
}

#[test]
fn what_is_measured_is_not_averaged_away() {
    let (server, place) = (first(), repository());
    let output = place.run(&server.url, &["bench-permutation", "--permute", "2"]);
    assert_eq!((output.status.code(), server.got_nothing()), (Some(2), true));
    assert!(stderr(&output).contains("average over the orders"), "{}", stderr(&output));
    assert!(stderr(&output).contains("hint:"), "{}", stderr(&output));
}

#[test]
fn the_same_model_may_look_again_with_a_thought() {
    let place = Place::new(&[("c.jsonl", CASES)]);
    let server = Server::answering(|request| {
        if request.head.starts_with("GET") {
            return (404, String::new());
        }
        let (schema, state) = (asked(request), request.state());
        let thinks = schema["think"] == 64;
        let told =
            schema["questions"][0]["instructions"].as_str().unwrap_or_default().contains("leaned toward yes");
        let content = decision(&schema, |_, name| match (name, state.contains("unsure"), thinks && told) {
            ("no", true, true) | ("yes" | "5", false, _) => 0.96,
            ("yes" | "no", true, false) => 0.5,
            _ => 0.01,
        });
        (200, completion(&content.to_string()))
    });
    let output = place.run(
        &server.url,
        &["bench-calibration", "-d", "c.jsonl", "-o", "r.json", "--cascade-self-think", "64"],
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    assert_eq!(
        (&receipt["cascade"]["escalated_cases"], &receipt["cascade"]["cascade_accuracy_pct"]),
        (&json!(1), &json!(75.0))
    );
    assert_eq!(receipt["settings"]["cascade"]["think"], 64);
}

#[test]
fn when_the_first_model_fails_the_second_is_asked_and_the_case_still_counts_as_failed() {
    let place = Place::new(&[("c.jsonl", CASES)]);
    let server = Server::answering(|request| {
        if request.head.starts_with("GET") || request.state().contains("unsure") {
            return (500, String::new());
        }
        (
            200,
            completion(
                &decision(&asked(request), |_, name| if name == "yes" { 0.9 } else { 0.01 }).to_string(),
            ),
        )
    });
    let second = second();
    let output = place.run(
        &server.url,
        &[
            "bench-calibration",
            "-d",
            "c.jsonl",
            "-o",
            "r.json",
            "--cascade",
            "on-miss",
            "--cascade-url",
            &second.url,
        ],
    );
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    let case = &place.receipt("r.json")["cases"][1];
    assert_eq!(
        (&case["accurate"], &case["escalation"]["accurate"], &case["http_status"]),
        (&json!(false), &json!(true), &json!(500))
    );
}

#[test]
fn a_second_model_that_takes_too_long_leaves_the_first_answer() {
    let place = Place::new(&[("c.jsonl", CASES)]);
    let server = first();
    let second = Server::answering(|request| {
        if request.head.starts_with("POST") {
            std::thread::sleep(std::time::Duration::from_secs(60));
        }
        (404, String::new())
    });
    let flags = ["bench-calibration", "-d", "c.jsonl", "-o", "r.json", "--cascade", "entropy"];
    let cascade = ["--cascade-url", &second.url, "--cascade-threshold", "50%", "--case-timeout", "3"];
    let output = place.run(&server.url, &[&flags[..], &cascade].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    let case = &receipt["cases"][1];
    assert_eq!((&case["actual"], &case["accurate"]), (&json!("yes"), &json!(false)));
    assert!(case.get("error").is_none() && case["wall_time_ms"].is_f64(), "{case}");
    assert!(case["second_error"].as_str().unwrap().contains("--case-timeout"), "{case}");
    let cascade = &receipt["cascade"];
    assert_eq!(
        (&cascade["escalated_cases"], &cascade["failed_escalations"], &cascade["cascade_correct"]),
        (&json!(1), &json!(1), &json!(2))
    );
}

#[test]
fn accuracy_chance_and_what_is_above_it_are_over_all_cases() {
    let place = Place::new(&[("c.jsonl", CASES)]);
    let server = Server::answering(|request| {
        if request.head.starts_with("GET") || request.state().contains("unsure") {
            return (500, String::new());
        }
        let says = |_: &str, name: &str| if name == "yes" { 0.9 } else { 0.01 };
        (200, completion(&decision(&asked(request), says).to_string()))
    });
    let output = place.run(&server.url, &["bench-calibration", "-d", "c.jsonl", "-o", "r.json"]);
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    // Two of four within one, one exactly; two booleans and two scales of five, also the one that failed.
    for (key, value) in
        [("overall_accuracy_pct", 50.0), ("exact_accuracy_pct", 25.0), ("chance_baseline_pct", 35.0)]
    {
        assert!((receipt[key].as_f64().unwrap() - value).abs() < 1e-9, "{key}: {}", receipt[key]);
    }
    // A quarter is less than chance. Of the three with an answer a third is right, where chance has 30 %.
    assert_eq!((&receipt["chance_corrected_acc_pct"], &receipt["scored_answers"]), (&json!(0.0), &json!(3)));
    let all = &receipt["summary"]["answers"]["all"];
    assert_eq!((&all["asked"], &all["accuracy"]), (&json!(4), &json!(0.25)));
}

#[test]
fn what_cannot_work_costs_no_request() {
    let place = Place::new(&[("c.jsonl", CASES), ("m.jsonl", &CASES.replace("yelp-review", "yolp-review"))]);
    let server = first();
    for (flags, part) in [
        (&["-d", "m.jsonl"][..], "yolp-review-stars-rate"),
        (&["-d", "c.jsonl", "--cascade", "entropy"], "there is no second model"),
        (&["--from-receipt", "x.json", "--cascade-self-think", "8"], "asks nobody"),
        (
            &["-d", "c.jsonl", "--cascade-from", "none.json", "--cascade-url", "http://127.0.0.1:1/v1"],
            "none.json",
        ),
        (&["-d", "c.jsonl", "-T", "nope"], "the filters leave none"),
    ] {
        let output = place.run(&server.url, &[&["bench-calibration"], flags].concat());
        assert_eq!((output.status.code(), server.got_nothing()), (Some(2), true), "{}", stderr(&output));
        assert!(stderr(&output).contains(part) && stderr(&output).contains("hint:"), "{}", stderr(&output));
    }
}

#[test]
fn a_model_that_reads_the_place_is_found_out_by_the_orders() {
    // Always the first of the list.
    let server = Server::answering(|request| {
        if request.head.starts_with("GET") {
            return (404, String::new());
        }
        let schema = request.schema();
        let first = schema["questions"][0]["options"][0]["name"].as_str().unwrap().to_owned();
        (200, completion(&decision(&schema, |_, name| if name == first { 0.9 } else { 0.02 }).to_string()))
    });
    let place = repository();
    let output = place.run(&server.url, &["bench-permutation", "-o", "r.json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    assert_eq!(
        (&receipt["total_cases"], &receipt["flip_rate"], &receipt["cases_flipped"]),
        (&json!(16), &json!(1.0), &json!(16))
    );
    assert_eq!(receipt["gate_recall_on_errors"], 1.0);
    assert!(stdout(&output).contains("100.0%, 0.0%"), "{}", stdout(&output));

    // One that reads the names never flips.
    let steady = deciding(|_, name, _| 1.0 / (1.0 + f64::from(u8::try_from(name.len()).unwrap())));
    fs::write(
        place.path("c.jsonl"),
        r#"{"id": "x", "regime": "r", "state": "s", "instructions": "i", "options": [{"name": "aaa"}, {"name": "b"}, {"name": "cccc"}], "expected": "b"}"#,
    )
    .unwrap();
    let output = place.run(&steady.url, &["bench-permutation", "-d", "c.jsonl", "-o", "s.json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let receipt = place.receipt("s.json");
    assert_eq!(
        (&receipt["flip_rate"], &receipt["ensemble_accuracy"], &receipt["orders_asked"]),
        (&json!(0.0), &json!(1.0), &json!(4))
    );
    assert!(receipt["mean_jsd_nats"].as_f64().unwrap() < 1e-12);
    // No error to catch: not measured, no zero.
    assert!(
        receipt["gate_recall_on_errors"].is_null() && stdout(&output).contains("not measured"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn unsure_intents_get_a_tie_break_and_out_of_scope_its_own_figures() {
    // Sure of the first word of the text; unsure where it says `maybe`, and then the tie-break knows better.
    let server = Server::answering(|request| {
        if request.head.starts_with("GET") {
            return (404, String::new());
        }
        let (schema, state) = (request.schema(), request.state());
        let again = state.contains("first_pass_guess");
        let content = decision(&schema, |_, name| match (state.contains("maybe"), again) {
            (true, false) if name == "card" || name == "pin" => 0.5,
            (true, true) if name == "pin" => 0.9,
            (false, _) if state.contains(&format!("only {name}")) => 0.99,
            _ => 0.0001,
        });
        (200, completion(&content.to_string()))
    });
    let case = |id: &str, text: &str, intent: &str| {
        json!({"id": id, "text": text, "expected_intent": intent, "options": ["card", "pin", "loan", "oos"]})
            .to_string()
    };
    let cases = [
        case("a", "only card", "card"),
        case("b", "maybe", "pin"),
        case("c", "only oos", "oos"),
        case("d", "only loan", "oos"),
        case("e", "only oos", "card"),
    ];
    let place = Place::new(&[("c.jsonl", &cases.join("\n"))]);
    let flags = ["bench-intents", "-c", "c.jsonl", "-o"];
    let output = place.run(&server.url, &[&flags[..], &["r.json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    for (key, value) in [
        ("pass1_correct", json!(2)),
        ("intent_correct", json!(3)),
        ("tie_breaks_triggered", json!(1)),
        ("candidate_intents", json!(4)),
        ("in_domain_correct", json!(2)),
        ("in_domain_total", json!(3)),
        ("oos_correct", json!(1)),
        ("oos_total", json!(2)),
        ("oos_recall", json!(0.5)),
        ("oos_precision", json!(0.5)),
        ("oos_f1", json!(0.5)),
    ] {
        assert_eq!(receipt[key], value, "{key}");
    }
    let b = &receipt["cases"][1];
    assert_eq!(
        (&b["pass1_intent"], &b["actual_intent"], &b["tie_break"]["finalists"]),
        (&json!("card"), &json!("pin"), &json!(["card", "pin", "loan", "oos"]))
    );
    assert!(receipt.get("domain_accuracy_pct").is_none());
    let again = place.run("http://127.0.0.1:1/v1", &["bench-intents", "--from-receipt", "r.json"]);
    assert_eq!(stdout(&again), stdout(&output));
    let output = place.run(&server.url, &[&flags[..], &["s.json", "--tie-break", "false"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(
        (&place.receipt("s.json")["intent_correct"], &place.receipt("s.json")["tie_breaks_triggered"]),
        (&json!(2), &json!(0))
    );
}

#[test]
fn a_tie_break_that_fails_leaves_the_first_answer() {
    let server = Server::answering(|request| {
        if request.head.starts_with("GET") {
            return (404, String::new());
        }
        let (schema, state) = (request.schema(), request.state());
        if state.contains("first_pass_guess") {
            return (400, r#"{"error": {"message": "not twice"}}"#.to_owned());
        }
        (200, completion(&decision(&schema, |_, name| if name == "card" { 0.5 } else { 0.25 }).to_string()))
    });
    let case =
        json!({"id": "a", "text": "maybe", "expected_intent": "card", "options": ["card", "pin", "oos"]});
    let place = Place::new(&[("c.jsonl", &case.to_string())]);
    // Without domains, which this set usually has.
    let flags = ["bench-intents", "--dataset", "clinc150", "-c", "c.jsonl", "-o", "r.json"];
    let output = place.run(&server.url, &flags);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    assert_eq!((&receipt["intent_correct"], &receipt["failed_cases"]), (&json!(1), &json!(0)));
    let case = &receipt["cases"][0];
    assert!(case["second_error"].as_str().unwrap().contains("not twice"), "{case}");
    assert!(case["template"].as_str().unwrap().contains("clinc150"), "{case}");
    for wrong in [["--entropy-threshold", "nan"], ["--entropy-threshold", "-1"], ["--tie-break-top", "26"]] {
        let output = place.run(&server.url, &["bench-intents", wrong[0], wrong[1]]);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn the_built_in_intents_run_and_a_whole_set_is_fetched_once_and_checked() {
    let server = deciding(|_, name, _| if name == "oos" { 2.0 } else { 1.0 });
    let place = Place::new(&[]);
    for (set, candidates) in [("banking77", 30), ("clinc150", 26)] {
        let file = format!("{set}.json");
        let output = place.run(&server.url, &["bench-intents", "--dataset", set, "-o", &file, "-w", "4"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let receipt = place.receipt(&file);
        assert_eq!(
            (&receipt["total_cases"], &receipt["candidate_intents"]),
            (&json!(30), &json!(candidates))
        );
    }
    let rows: Vec<String> = (0..3_080).map(|n| format!("text {n},intent_{:02}\n", n % 77)).collect();
    let rows = rows.concat();
    let body = format!("text,category\n{rows}");
    let sum: String =
        sha2::Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    let publisher = Server::new(200, body.as_str());
    let base = publisher.url.trim_end_matches("/v1").to_owned();
    let run = |file: &str, mirror: &str, more: &[&str]| {
        let flags = ["bench-intents", "--full", "--mirror", mirror, "-n", "1", "-o", file, "-u", &server.url];
        let flags = [&flags[..], more].concat();
        crate::support::dgem()
            .current_dir(place.folder.path())
            .env("XDG_CACHE_HOME", place.path("cache"))
            .args(flags)
            .output()
            .unwrap()
    };
    // The sum that it must have, where it is told: before anything is kept.
    let wrong = "0".repeat(64);
    let output = run("pinned.json", &base, &["--sha256", &wrong]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains(&sum) && stderr(&output).contains(&wrong), "{}", stderr(&output));
    assert!(!place.path("cache").exists() && publisher.all().len() == 1);
    let output = run("full.json", &base, &["--sha256", &sum.to_uppercase()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let receipt = place.receipt("full.json");
    assert_eq!((&receipt["candidate_intents"], &receipt["dataset"]["rows"]), (&json!(77), &json!(3_080)));
    assert_eq!(receipt["settings"]["download"]["sha256"], sum.as_str());
    let url = receipt["settings"]["download"]["url"].as_str().unwrap();
    assert!(url.starts_with(&base) && url.ends_with("/test.csv"), "{url}");
    assert!(publisher.request().head.starts_with("GET /PolyAI-LDN/"));
    // From the cache, also when nobody is there; and not when it was changed.
    assert_eq!(run("cached.json", "http://127.0.0.1:1", &[]).status.code(), Some(0));
    assert_eq!(place.receipt("cached.json")["settings"]["download"]["sha256"], sum.as_str());
    let output = run("pinned.json", "http://127.0.0.1:1", &["--sha256", &wrong]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let cached = place.path("cache/dgem/intents/banking77_full_test.jsonl");
    let text = fs::read_to_string(&cached).unwrap();
    fs::write(&cached, text.replacen("text 1", "text x", 1)).unwrap();
    let output = run("changed.json", &base, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("not what was fetched") && stderr(&output).contains("hint:"),
        "{}",
        stderr(&output)
    );
    // Fetched anew it must be what came the first time.
    fs::remove_file(&cached).unwrap();
    let other = Server::new(200, body.replacen("text 1,", "text one,", 1));
    let output = run("other.json", other.url.trim_end_matches("/v1"), &[]);
    assert_eq!(output.status.code(), Some(2));
    let told = stderr(&output);
    assert!(told.contains("it has changed") && told.contains(&sum), "{told}");
    assert!(told.matches("SHA-256").count() == 1 && told.contains("download.json"), "{told}");
    assert!(!cached.exists());
    assert_eq!(run("again.json", &base, &[]).status.code(), Some(0));
}
