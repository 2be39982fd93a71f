//! Choices wider than the server's limit: groups first, a final between their best, one distribution over all options.

use crate::support::{Recorded, Server, completion, decision, dgem, stderr, stdout, template};
use serde_json::{Value, json};

/// A policy with this many options `o0`, `o1`, … and a boolean that depends on the answer.
fn policy(count: usize) -> String {
    let options: Vec<String> = (0..count).map(|index| format!("o{index}")).collect();
    let schema = json!({"questions": [{"id": "wide", "type": "choice", "options": options},
        {"id": "sure", "type": "boolean", "depends_on": ["wide"]}]});
    json!({"schema": schema, "state": "x"}).to_string()
}

/// Counts how many options every question of the request has.
fn widths(request: &Recorded) -> Vec<usize> {
    let schema = request.schema();
    let questions = schema["questions"].as_array().unwrap().iter();
    questions.filter_map(|question| question["options"].as_array()).map(Vec::len).collect()
}

/// A server with so many labels that finds `o{best}` right.
fn server(limit: Option<usize>, best: usize) -> Server {
    Server::answering(move |request| {
        if request.head.starts_with("GET /v1/models ") {
            let limits = limit.map(|limit| json!({ "alternatives": limit }));
            return (200, json!({"object": "list", "data": [{"id": "m", "limits": limits}]}).to_string());
        }
        if widths(request).iter().any(|width| *width > limit.unwrap_or(26)) {
            return (400, json!({"error": {"message": "too many options"}}).to_string());
        }
        let best = format!("o{best}");
        let reply = decision(&request.schema(), |_, name| if name == best { 20.0 } else { 1.0 });
        (200, completion(&reply.to_string()))
    })
}

fn decide(server: &Server, count: usize) -> std::process::Output {
    let (path, _folder) = template(&policy(count));
    dgem().args(["decide", "-u", &server.url, "-f", "json", "-t"]).arg(path).output().unwrap()
}

#[test]
fn case_15_wide_choices_are_asked_in_groups_and_give_one_distribution() {
    for (count, best) in [(27, 26), (41, 0), (61, 30), (77, 76), (151, 75), (255, 254)] {
        let server = server(None, best);
        let output = decide(&server, count);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{count}");
        let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let wide = &document["answers"]["wide"];
        assert_eq!(wide["choice"], format!("o{best}"));
        let probabilities = wide["probabilities"].as_object().unwrap();
        assert_eq!(probabilities.len(), count);
        let p: Vec<f64> = probabilities.values().map(|p| p.as_f64().unwrap()).collect();
        assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-9 && p.iter().all(|p| *p > 0.0));
        assert!(p.iter().all(|other| *other <= p[best]));
        assert!(document["answers"]["sure"].is_object());

        let mut requests = server.all();
        assert!(requests[0].head.starts_with("GET /v1/models "));
        let last = requests.pop().unwrap();
        // The final is the whole decision.
        assert_eq!(last.schema()["questions"].as_array().unwrap().len(), 2);
        let groups: Vec<usize> = requests[1..].iter().flat_map(widths).collect();
        assert_eq!(groups.iter().sum::<usize>(), count);
        let (least, most) = (groups.iter().min().unwrap(), groups.iter().max().unwrap());
        assert!(*least >= 2 && most - least <= 1 && *most <= 26, "{groups:?}");
        assert!(requests[1..].iter().all(|request| widths(request).len() <= 8));
    }
}

#[test]
fn a_server_with_enough_labels_is_asked_at_once() {
    let server = server(Some(255), 3);
    let output = decide(&server, 100);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(
        server.all().iter().map(|request| request.head[..4].to_owned()).collect::<Vec<_>>(),
        ["GET ", "POST"]
    );
}

#[test]
fn no_more_than_26_options_need_no_look_at_the_limit() {
    let server = server(Some(255), 3);
    decide(&server, 26);
    assert_eq!(server.all().len(), 1);
}

#[test]
fn a_group_without_an_answer_is_an_error_that_names_the_question() {
    let server = Server::new(200, completion("{\"answers\": {}}"));
    let output = decide(&server, 60);
    assert_eq!(output.status.code(), Some(4));
    assert!(stderr(&output).contains("`wide`") && stderr(&output).contains("hint: "), "{}", stderr(&output));
}

#[test]
fn a_scale_that_is_too_long_cannot_be_split() {
    let levels: Vec<String> = (0..40).map(|level| format!("l{level}")).collect();
    let (path, _folder) = template(
        &json!({"schema": {"questions": [{"id": "s", "type": "score", "levels": levels}]}, "state": "x"})
            .to_string(),
    );
    let server = server(None, 0);
    let output = dgem().args(["decide", "-u", &server.url, "-t"]).arg(path).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(stderr(&output).contains("`s` has 40 levels"), "{}", stderr(&output));
}

#[test]
fn the_gate_on_the_label_mass_looks_at_every_group() {
    let server = Server::answering(|request| {
        if request.head.starts_with("GET ") {
            return (404, "{}".to_owned());
        }
        let schema = request.schema();
        let mut reply = decision(&schema, |_, name| if name == "o0" { 20.0 } else { 1.0 });
        let questions = schema["questions"].as_array().unwrap().iter();
        // Only the last group is not about its labels.
        let slot = |id: &str| json!({ "label_mass": if id == "wide_3" { 0.1 } else { 0.9 } });
        let slots = questions.map(|question| question["id"].as_str().unwrap());
        let slots: serde_json::Map<String, Value> = slots.map(|id| (id.to_owned(), slot(id))).collect();
        reply["diagnostics"] = json!({ "questions": slots });
        (200, completion(&reply.to_string()))
    });
    let gated = |count: usize| {
        let (path, _folder) = template(&policy(count));
        let mut command = dgem();
        command.args(["decide", "-u", &server.url, "--min-label-mass", "50%", "-t"]).arg(path);
        command.output().unwrap()
    };
    let (three, two) = (gated(70), gated(50));
    assert_eq!(three.status.code(), Some(1), "{}", stderr(&three));
    assert!(stderr(&three).contains("`wide`: a label mass of 10.0% is below 50"), "{}", stderr(&three));
    assert_eq!((two.status.code(), stderr(&two)), (Some(0), String::new()));
}
