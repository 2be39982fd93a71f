//! `POST /v1/systemone` through a real socket: what reaches the engine, the shape of answers and of errors.

use crate::common::{Server, fake, text};
use dgemma_server::engine::Canvas;
use dgemma_server::engine::fake::Call;
use reqwest::Response;
use serde_json::{Value, json};

const STATE: &str = "I was charged twice for my March invoice.";

fn questions() -> Value {
    json!({
        "refund": {"type": "noul", "instructions": "Is money asked back?"},
        "team": {"type": "choice", "instructions": "Who handles it?",
                 "criteria": {"Billing": "money", "Technical": null, "Sales": {"owns": ["prices"]}}},
        "anger": {"type": "score", "instructions": ["How angry?"], "criteria": ["Calm", "Cross", "Furious"]},
    })
}

async fn post(server: &Server, body: &Value) -> Response {
    server.client.post(format!("{}/v1/systemone", server.url)).body(body.to_string()).send().await.unwrap()
}

async fn json_of(response: Response, status: u16) -> Value {
    let found = response.status().as_u16();
    let text = response.text().await.unwrap();
    assert_eq!(found, status, "{text}");
    serde_json::from_str(&text).unwrap()
}

async fn answers(server: &Server, questions: &Value) -> Value {
    let body = json!({"state": STATE, "questions": questions});
    json_of(post(server, &body).await, 200).await["answers"].clone()
}

/// Logits that depend on every token before the slot.
fn by_prompt(prompt: &[u32], canvas: &Canvas, slot: usize) -> Vec<f32> {
    let hash = |label: u32| {
        let ids = prompt.iter().chain(&canvas.ids).chain([&label]);
        ids.fold(7_u32, |hash, id| hash.wrapping_mul(31).wrapping_add(*id))
    };
    canvas.slots[slot].label_ids.iter().map(|label| (hash(*label) % 1000) as f32 / 300.0).collect()
}

#[tokio::test]
async fn every_type_is_answered_in_its_own_shape() {
    let server = Server::start(fake().with_slots(vec![vec![2.0, 0.0, 1.0]])).await;
    let body = json!({"model": "jev-latest", "state": {"ticket": STATE}, "questions": questions()});
    // The scripted logits have three labels; a noul has two.
    let mut asked = body.clone();
    asked["questions"].as_object_mut().unwrap().shift_remove("refund");
    let reply = json_of(post(&server, &asked).await, 200).await;
    let [a, b, c] = [2.0_f64, 0.0, 1.0].map(|logit| logit.exp() / (2.0_f64.exp() + 1.0 + 1.0_f64.exp()));
    let near =
        |value: &Value, wanted: f64| assert!((value.as_f64().unwrap() - wanted).abs() < 1e-6, "{reply}");
    let team = &reply["answers"]["team"];
    assert_eq!((&team["type"], &team["choice"]), (&json!("choice"), &json!("Billing")));
    near(&team["probabilities"]["Sales"], c);
    near(&team["confidence"], (a - 1.0 / 3.0) / (2.0 / 3.0));
    let anger = &reply["answers"]["anger"];
    assert_eq!(anger["legend"], json!({"0": "Calm", "1": "Cross", "2": "Furious"}));
    near(&anger["probabilities"]["1"], b);
    near(&anger["score"], b + 2.0 * c);
    near(&anger["confidence"], (1.0 - (b + 2.0 * c) / (2.0 / 3.0)).max(0.0));
    assert_eq!(reply["model"], "demo");
    assert!(reply["usage"]["input_tokens"].as_u64().unwrap() > 50);
    assert_eq!(reply["usage"]["output_tokens"], 2);
    assert_eq!(reply["x_diagnostics"]["layout"], "document_first");

    let server = Server::start(fake().with_slots(vec![vec![0.0, 1.0]])).await;
    let asked = json!({"state": STATE, "questions": {"refund": {"type": "noul"}}});
    let reply = json_of(post(&server, &asked).await, 200).await;
    let noul = 1.0 / (1.0 + 1.0_f64.exp());
    let answer = &reply["answers"]["refund"];
    let near =
        |value: &Value, wanted: f64| assert!((value.as_f64().unwrap() - wanted).abs() < 1e-6, "{reply}");
    near(&answer["noul"], noul);
    near(&answer["x_probabilities"]["true"], noul);
    near(&answer["x_confidence"], 1.0 - 2.0 * noul);
}

#[tokio::test]
async fn ids_order_and_other_questions_change_no_answer() {
    let server = Server::start(fake().with_answer(by_prompt)).await;
    let all = answers(&server, &questions()).await;
    let passes = server.engine.log.passes();
    assert_eq!((passes.len(), passes[0].len(), passes[0][0].canvases.len()), (1, 1, 3), "one forward");
    let whole = text().tokenizer.decode(&passes[0][0].prefill).unwrap();
    assert!(whole.contains(STATE));
    for (id, question) in questions().as_object().unwrap() {
        for name in [id.as_str(), "with: colon\nand line", "🎯"] {
            let alone = answers(&server, &json!({ name: question })).await;
            assert_eq!(alone[name], all[id], "{name:?}");
        }
    }
    let reversed: Value = questions().as_object().unwrap().clone().into_iter().rev().collect();
    assert_eq!(answers(&server, &reversed).await, all);
}

#[tokio::test]
async fn a_question_that_depends_on_others_gets_their_answers_wherever_they_stand() {
    let server = Server::start(fake().with_answer(by_prompt)).await;
    let mut schema = questions();
    schema["anger"]["depends_on"] = json!(["team", "refund"]);
    schema["never"] = json!({"type": "noul", "ask_if": {"team": ["Nobody"]}});
    let refused = json_of(post(&server, &json!({"state": STATE, "questions": schema})).await, 422).await;
    assert_eq!(refused["detail"][0]["loc"], json!(["body", "questions", "never"]));
    schema.as_object_mut().unwrap().shift_remove("never");
    let first = answers(&server, &schema).await;
    let reversed: Value = schema.as_object().unwrap().clone().into_iter().rev().collect();
    assert_eq!(answers(&server, &reversed).await, first);
    let calls = server.engine.log.calls();
    let mut begun = calls.iter().filter_map(|call| match call {
        Call::Begin { prompt, reused } => Some((prompt, *reused)),
        _ => None,
    });
    let state_tokens = begun.next().unwrap().0.len();
    let (prompt, reused) = begun.next().unwrap();
    assert!(reused >= state_tokens, "the state is not encoded again");
    let prompt = text().tokenizer.decode(prompt).unwrap();
    assert!(prompt.contains("Question q1: Who handles it?") && prompt.contains("Question q3: "), "{prompt}");

    let chosen = first["team"]["choice"].as_str().unwrap();
    let other = ["Billing", "Technical", "Sales"].into_iter().find(|name| *name != chosen).unwrap();
    schema["anger"] = json!({"type": "noul", "ask_if": {"team": [other]}});
    assert_eq!(answers(&server, &schema).await["anger"], Value::Null);
}

#[tokio::test]
async fn errors_have_both_shapes() {
    let server = Server::start(fake()).await;
    for (body, loc) in [
        (json!({"state": STATE}), json!(["body", "questions"])),
        (json!({"questions": questions()}), json!(["body", "state"])),
        (
            json!({"state": STATE, "questions": {"q": {"type": "boolean"}}}),
            json!(["body", "questions", "q", "type"]),
        ),
        (
            json!({"state": STATE, "questions": {"q": {"type": "choice", "criteria": {"one": null}}}}),
            json!(["body", "questions", "q"]),
        ),
        (json!({"state": STATE, "questions": questions(), "samples": 0}), json!(["body"])),
        (json!({"state": STATE, "questions": questions(), "images": ["data:,"]}), json!(["body", "images"])),
    ] {
        let refused = json_of(post(&server, &body).await, 422).await;
        let detail = &refused["detail"][0];
        assert_eq!(detail["loc"], loc, "{refused}");
        assert!(detail["msg"].as_str().unwrap().contains("hint:") && detail["type"].is_string(), "{refused}");
        assert_eq!(refused["error"]["message"], detail["msg"]);
        assert!(refused["request_id"].is_string());
    }
    let get = server.get("/v1/systemone").await;
    let refused = json_of(get, 405).await;
    assert!(
        refused["detail"]["error_type"].is_string() && refused["detail"]["message"].is_string(),
        "{refused}"
    );
    assert!(server.engine.log.calls().is_empty());
}

#[tokio::test]
async fn a_form_is_read_and_its_images_are_refused() {
    let server = Server::start(fake()).await;
    let request = json!({"state": STATE, "questions": {"q": {"type": "noul"}}}).to_string();
    let part =
        |head: &str, body: &str| format!("--XX\r\nContent-Disposition: form-data; {head}\r\n\r\n{body}\r\n");
    let json = part("name=\"request\"", &request);
    let image = part("name=\"image\"; filename=\"a.png\"\r\nContent-Type: image/png", "PNG");
    let send = async |body: String| {
        let post = server.client.post(format!("{}/v1/systemone", server.url));
        post.header("content-type", "multipart/form-data; boundary=XX").body(body).send().await.unwrap()
    };
    let answered = json_of(send(format!("{json}--XX--\r\n")).await, 200).await;
    assert_eq!(answered["answers"]["q"]["type"], "noul");
    // No limit but that of the server, 8 MiB here.
    let padded = request.replacen('{', &format!("{{{}", " ".repeat(3 << 20)), 1);
    let large = format!("{}--XX--\r\n", part("name=\"request\"", &padded));
    assert_eq!(json_of(send(large).await, 200).await["answers"], answered["answers"]);
    let refused = json_of(send(format!("{json}{image}--XX--\r\n")).await, 422).await;
    assert!(refused["detail"][0]["msg"].as_str().unwrap().contains("does not read pixels yet"), "{refused}");
    assert_eq!(refused["detail"][0]["loc"], json!(["body", "images"]));
    for broken in [format!("{image}--XX--\r\n"), "no form".into()] {
        assert_eq!(json_of(send(broken).await, 422).await["detail"][0]["loc"], json!(["body"]));
    }
}
