//! The table of exit codes: every code that the help lists is reached, and its name in the help is what happened.

use crate::support::{Server, dgem, stderr, stdout, support_reply};
use serde_json::json;

const POLICY: [&str; 4] = ["-t", "support_triage", "-v", "ticket=x"];

fn decide(url: &str, arguments: &[&str]) -> Option<i32> {
    let output = dgem().args(["decide", "-u", url]).args(POLICY).args(arguments).output().unwrap();
    assert!(output.status.success() || !stderr(&output).is_empty(), "a failure says why");
    output.status.code()
}

fn refusing(status: u16) -> Server {
    Server::new(status, json!({"error": {"message": "no"}}).to_string())
}

#[test]
fn every_code_of_the_help_is_one_that_a_run_ends_with() {
    let help = stdout(&dgem().arg("--help").output().unwrap());
    let listed: Vec<i32> = help
        .lines()
        .skip_while(|line| !line.starts_with("Exit codes:"))
        .filter_map(|line| line.trim_start().split("  ").next()?.parse().ok())
        .collect();
    // 130 needs a signal: `batch::an_interrupt_finishes_what_is_in_flight_and_tells_how_to_go_on`.
    assert_eq!(listed, [0, 1, 2, 3, 4, 5, 6, 130], "{help}");
}

#[test]
fn code_0_a_decision_was_made() {
    assert_eq!(decide(&Server::deciding(&support_reply()).url, &[]), Some(0));
}

#[test]
fn code_1_a_gate_failed_or_an_answer_is_missing_under_strict() {
    assert_eq!(decide(&Server::deciding(&support_reply()).url, &["--fail-if", "team=billing"]), Some(1));
    let mut reply = support_reply();
    reply["answers"].as_object_mut().unwrap().remove("team");
    assert_eq!(decide(&Server::deciding(&reply).url, &[]), Some(0));
    assert_eq!(decide(&Server::deciding(&reply).url, &["--strict"]), Some(1));
    reply["answers"]["team"] = json!({"type": "choice", "choice": "sales", "probabilities": {"sales": 1.0}});
    assert_eq!(decide(&Server::deciding(&reply).url, &[]), Some(1));
}

#[test]
fn code_2_a_mistake_in_the_command_line_the_settings_or_a_template() {
    let server = Server::deciding(&support_reply());
    for arguments in
        [&["--nosuch"][..], &["--timeout", "soon"], &["--fail-if", "team=sales"], &["-I", "absent.png"]]
    {
        assert_eq!(decide(&server.url, arguments), Some(2), "{arguments:?}");
    }
    assert!(server.got_nothing());
}

#[test]
fn code_3_a_token_is_missing_or_not_accepted() {
    for status in [401, 403, 407] {
        assert_eq!(decide(&refusing(status).url, &[]), Some(3), "{status}");
    }
    assert_eq!(decide("http://127.0.0.1:9/v1", &["--token-file", "absent"]), Some(3));
}

#[test]
fn code_4_the_server_refused_or_nothing_can_be_used() {
    for status in [400, 404, 413, 422] {
        assert_eq!(decide(&refusing(status).url, &[]), Some(4), "{status}");
    }
    assert_eq!(decide(&Server::deciding(&json!({"answers": {}})).url, &[]), Some(4));
    let mut reply = support_reply();
    reply["answers"]["team"]["choice"] = json!("sales");
    assert_eq!(decide(&Server::deciding(&reply).url, &["--strict"]), Some(4));
}

#[test]
fn code_5_trying_again_may_help() {
    for status in [408, 425, 429, 500, 502, 503, 504] {
        assert_eq!(decide(&refusing(status).url, &[]), Some(5), "{status}");
    }
    assert_eq!(decide("http://127.0.0.1:9/v1", &[]), Some(5));
    let silent = Server::writing(|_, _| std::thread::sleep(std::time::Duration::from_secs(3)));
    assert_eq!(decide(&silent.url, &["--timeout", "0.5"]), Some(5));
}

#[test]
fn code_6_some_rows_of_a_batch_failed() {
    let server = Server::answering(|request| {
        if request.state().contains("bad") {
            return (400, "{}".to_owned());
        }
        (200, crate::support::completion(&support_reply().to_string()))
    });
    let batch = |rows: &str| {
        let arguments = ["batch", "-u", &server.url, "-t", "support_triage", "-i", "-"];
        dgem().args(arguments).write_stdin(rows).output().unwrap().status.code()
    };
    let (good, bad) = ("{\"ticket\": \"x\"}\n", "{\"ticket\": \"bad\"}\n");
    assert_eq!((batch(good), batch(&format!("{good}{bad}")), batch(bad)), (Some(0), Some(6), Some(6)));
}
