//! `--permute`: rotations of the options, averaged by option, and how often the answer changes with the order.

use crate::support::{Server, completion, decision, dgem, stderr, stdout, template};
use serde_json::{Value, json};

const TEMPLATE: &str = r#"{"schema": {"questions": [
    {"id": "team", "type": "choice", "options": ["billing", "support", "sales", "legal"]},
    {"id": "mood", "type": "score", "levels": ["low", "high"]},
    {"id": "why", "type": "boolean", "ask_if": {"team": ["support"]}}]}, "state": "x"}"#;

fn options(schema: &Value) -> Vec<String> {
    let list = schema["questions"][0]["options"].as_array().unwrap();
    list.iter().map(|option| option["name"].as_str().unwrap().to_owned()).collect()
}

/// A server that likes `support`, but likes the first place of a list more, by the factor.
fn biased(factor: f64) -> Server {
    Server::answering(move |request| {
        let schema = request.schema();
        let first = options(&schema)[0].clone();
        let reply = decision(&schema, |id, name| match (id, name) {
            ("team", name) => {
                (if name == "support" { 3.0 } else { 1.0 }) * if name == first { factor } else { 1.0 }
            }
            _ => 1.0 + f64::from(u8::from(name == "high")),
        });
        (200, completion(&reply.to_string()))
    })
}

fn decide(server: &Server, arguments: &[&str]) -> std::process::Output {
    let (path, _folder) = template(TEMPLATE);
    dgem().args(["decide", "-u", &server.url, "-t"]).arg(path).args(arguments).output().unwrap()
}

#[test]
fn the_mean_of_all_orders_has_no_favourite_place() {
    let server = biased(5.0);
    // In its own order the first place wins.
    let plain: Value = serde_json::from_str(&stdout(&decide(&server, &["-f", "json"]))).unwrap();
    assert_eq!(plain["answers"]["team"]["choice"], "billing");
    assert_eq!(server.all().len(), 1);

    let output = decide(&server, &["-f", "json", "--permute", "4"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    let orders: Vec<String> =
        server.all().iter().map(|request| options(&request.schema()).concat()).collect();
    assert_eq!(orders.len(), 4);
    assert!(orders.contains(&"billingsupportsaleslegal".to_owned()), "{orders:?}");
    let firsts: std::collections::BTreeSet<char> =
        orders.iter().map(|order| order.chars().nth(1).unwrap()).collect();
    assert_eq!(firsts.len(), 4, "{orders:?}");
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let team = &document["answers"]["team"];
    assert_eq!((&team["choice"], &team["label"]), (&json!("support"), &json!("B")));
    let p: Vec<f64> =
        team["probabilities"].as_object().unwrap().values().map(|p| p.as_f64().unwrap()).collect();
    assert_eq!(
        team["probabilities"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["billing", "support", "sales", "legal"]
    );
    assert!((p[0] - p[2]).abs() < 1e-12 && (p[0] - p[3]).abs() < 1e-12, "{p:?}");
    assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    // Three orders begin with another option, and that one wins there.
    assert_eq!(document["permutation"], json!({"orders": 4, "flip_rates": {"team": 0.75}}));
    assert_eq!(team["agreement"], 0.25);
    // The condition holds on the mean, though it held in one order only.
    assert!(document["answers"]["why"].is_object(), "{document}");
}

#[test]
fn a_table_shows_the_flip_rate_of_choices() {
    let table = stdout(&decide(&biased(5.0), &["--permute", "4"]));
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].contains("| FLIPS"), "{table}");
    assert!(lines[2].contains("75.0%") && lines[3].trim_end().ends_with("| -"), "{table}");
}

#[test]
fn more_orders_than_options_repeat_none_and_a_schema_without_choices_is_asked_once() {
    let server = biased(1.0);
    decide(&server, &["--permute", "9"]);
    assert_eq!(server.all().len(), 4);
    let (path, _folder) =
        template(r#"{"schema": {"questions": [{"id": "a", "type": "boolean"}]}, "state": "x"}"#);
    let server = Server::deciding(&json!({"answers": {"a": {"type": "boolean", "noul": 0.9}}}));
    let output =
        dgem().args(["decide", "-u", &server.url, "--permute", "3", "-t"]).arg(path).output().unwrap();
    assert_eq!((output.status.code(), server.all().len()), (Some(0), 1));
    assert!(stderr(&output).contains("there is no choice"), "{}", stderr(&output));
}

#[test]
fn a_question_with_fewer_options_than_orders_counts_each_order_once() {
    let (path, _folder) = template(
        r#"{"schema": {"questions": [{"id": "wide", "type": "choice", "options": ["1", "2", "3"]},
            {"id": "pair", "type": "choice", "options": ["x", "y"]}]}, "state": "x"}"#,
    );
    // Whatever comes first gets 0.9: the mean of both orders is a tie.
    let server = Server::answering(|request| {
        let schema = request.schema();
        let first = schema["questions"][1]["options"][0]["name"].as_str().unwrap().to_owned();
        let reply = decision(&schema, |id, name| if id == "pair" && name == first { 9.0 } else { 1.0 });
        (200, completion(&reply.to_string()))
    });
    let output = dgem()
        .args(["decide", "-f", "json", "--permute", "3", "-u", &server.url, "-t"])
        .arg(path)
        .output()
        .unwrap();
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let pair = &document["answers"]["pair"];
    assert!((pair["probabilities"]["x"].as_f64().unwrap() - 0.5).abs() < 1e-9, "{pair}");
    assert_eq!((server.all().len(), pair.get("stderr")), (3, None), "{pair}");
}

#[test]
fn the_gate_on_the_label_mass_looks_at_every_order() {
    let server = Server::answering(|request| {
        let schema = request.schema();
        let mass = if options(&schema)[0] == "sales" { 0.2 } else { 0.9 };
        let mut reply = decision(&schema, |_, name| 1.0 + f64::from(u8::from(name == "billing")));
        let slot = json!({ "label_mass": mass });
        reply["diagnostics"] =
            json!({"questions": {"team": slot, "mood": {"label_mass": 0.9}, "why": {"label_mass": 0.9}}});
        (200, completion(&reply.to_string()))
    });
    let output = decide(&server, &["--permute", "4", "--min-label-mass", "50%", "-f", "json"]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("gate --min-label-mass: `team`: a label mass of 20.0% is below 50"),
        "{message}"
    );
    assert_eq!(message.lines().count(), 1, "{message}");
    assert_eq!(decide(&server, &["--min-label-mass", "50%"]).status.code(), Some(0));
}

#[test]
fn one_order_without_a_usable_answer_makes_the_answer_unusable() {
    let server = Server::answering(|request| {
        let schema = request.schema();
        let mut reply = decision(&schema, |_, _| 1.0);
        if options(&schema)[0] == "sales" {
            reply["answers"]["team"]["choice"] = json!("nobody");
        }
        (200, completion(&reply.to_string()))
    });
    let output = decide(&server, &["--permute", "4"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("`team` is invalid") && stderr(&output).contains("nobody"),
        "{}",
        stderr(&output)
    );
}
