//! Faults that decision tools really had, each with what must happen instead. The number in a name is that of the case.

use std::net::TcpListener;

use crate::common::{Server, fake, request, text, triage};
use serde_json::{Value, json};

fn prompt(server: &Server) -> String {
    text().tokenizer.decode(&server.engine.log.prompts()[0]).unwrap()
}

#[tokio::test]
async fn case_03_quotes_newlines_backslashes_and_tabs_stay_what_they_are() {
    let server = Server::start(fake()).await;
    let state = json!({"ticket": "a \"quoted\" word\n\tC:\\temp\r\nend"}).to_string();
    server.decide(&triage(), &state).await;
    let prompt = prompt(&server);
    assert!(prompt.contains(&state), "{prompt}");
}

#[tokio::test]
async fn case_04_angle_brackets_and_ampersands_are_sent_literally() {
    let server = Server::start(fake()).await;
    server.decide(&triage(), "if a < b && c > d").await;
    let prompt = prompt(&server);
    assert!(prompt.contains("if a < b && c > d") && !prompt.contains("u003c"), "{prompt}");
}

#[tokio::test]
async fn case_06_samples_may_be_a_number_a_digit_string_or_auto_and_nothing_else() {
    let server = Server::start(fake()).await;
    let mut schema = triage();
    for (samples, mode) in [(json!(4), "fixed"), (json!("4"), "fixed"), (json!("auto"), "auto")] {
        schema["samples"] = samples.clone();
        let taken = server.decide(&schema, "s").await["diagnostics"]["samples"].clone();
        assert_eq!((&taken["policy"]["mode"], &taken["n"]), (&json!(mode), &json!(4)), "{samples}");
    }
    for samples in [json!(0), json!("x"), json!("0"), json!(-1), json!(1.5), json!(true)] {
        schema["samples"] = samples.clone();
        let error = server.refused(request(&schema, "s").to_string(), 400).await;
        assert!(error["message"].as_str().unwrap().contains("samples"), "{samples}: {error}");
    }
}

#[tokio::test]
async fn case_12_questions_and_options_given_as_maps_keep_their_order_every_time() {
    let server = Server::start(fake()).await;
    let schema = json!({"questions": {
        "zeta": {"type": "choice", "options": {"zulu": "last", "alpha": "first", "mike": "middle"}},
        "alpha": {"type": "bool"}, "mid": {"type": "score", "levels": [3, 1, 2]},
    }});
    let answers = |decision: &Value| decision["answers"].to_string();
    let first = answers(&server.decide(&schema, "s").await);
    assert!(first.starts_with("{\"zeta\":") && first.contains("{\"zulu\":"), "{first}");
    for _ in 0..50 {
        assert_eq!(answers(&server.decide(&schema, "s").await), first);
    }
}

#[tokio::test]
async fn case_15_any_number_of_options_from_two_is_one_choice_and_one_is_an_error() {
    let server = Server::start(fake()).await;
    let choice = |count: usize| {
        let options: Vec<String> = (0..count).map(|n| format!("o{n}")).collect();
        json!({"layout": "document_first", "questions": [{"id": "pick", "type": "choice", "options": options}]})
    };
    for count in [2, 26, 27, 41, 61, 151, 255] {
        let decision = server.decide(&choice(count), "s").await;
        let probabilities = decision["answers"]["pick"]["probabilities"].as_object().unwrap();
        assert_eq!(probabilities.len(), count);
        let sum: f64 = probabilities.values().map(|p| p.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }
    let error = server.refused(request(&choice(1), "s").to_string(), 400).await;
    assert!(error["message"].as_str().unwrap().contains("at least two"), "{error}");
}

#[tokio::test]
async fn case_16_equal_ids_and_a_boolean_written_as_true_are_refused_with_the_right_spelling() {
    let server = Server::start(fake()).await;
    let boolean = |id: &str| json!({"id": id, "type": "boolean"});
    let twice = json!({"questions": [boolean("a"), boolean("a")]});
    let error = server.refused(request(&twice, "s").to_string(), 400).await;
    assert!(error["message"].as_str().unwrap().contains("questions number 1 and 2"), "{error}");
    let mut asks = boolean("b");
    asks["ask_if"] = json!({"a": [true]});
    let error =
        server.refused(request(&json!({"questions": [boolean("a"), asks]}), "s").to_string(), 400).await;
    assert!(error["message"].as_str().unwrap().contains("yes"), "{error}");
}

/// Logits so far apart that the loser has exactly no probability.
fn certain() -> dgemma_server::engine::fake::Fake {
    fake().with_answer(|_, canvas, slot| {
        let labels = canvas.slots[slot].label_ids.len();
        (0..labels).map(|label| if label + 1 == labels { 0.0 } else { -3000.0 }).collect()
    })
}

#[tokio::test]
async fn case_20_a_probability_of_zero_is_present() {
    let server = Server::start(certain()).await;
    let decision = server.decide(&triage(), "s").await;
    let urgent = &decision["answers"]["urgent"];
    assert_eq!((urgent["noul"].as_f64(), urgent["probabilities"]["yes"].as_f64()), (Some(0.0), Some(0.0)));
    assert_eq!(decision["answers"]["team"]["probabilities"]["billing"].as_f64(), Some(0.0));
    let questions = json!({"n": {"type": "noul"}, "s": {"type": "score", "criteria": ["low", "high"]}});
    let body = json!({"state": "s", "questions": questions}).to_string();
    let reply = server.client.post(format!("{}/v1/systemone", server.url)).body(body).send().await.unwrap();
    let reply: Value = serde_json::from_str(&reply.text().await.unwrap()).unwrap();
    assert_eq!(reply["answers"]["n"]["noul"].as_f64(), Some(0.0), "{reply}");
    assert_eq!(reply["answers"]["s"]["probabilities"]["0"].as_f64(), Some(0.0), "{reply}");
}

#[tokio::test]
async fn case_24_a_certain_answer_has_no_entropy_and_no_odd_number() {
    let server = Server::start(certain()).await;
    let reply = server.chat(&triage(), "s").await.text().await.unwrap();
    for odd in ["NaN", "-0.0", "Infinity", "inf"] {
        assert!(!reply.contains(odd), "{odd} in {reply}");
    }
    let decision = server.decide(&triage(), "s").await;
    for id in ["urgent", "team", "sentiment"] {
        let answer = &decision["answers"][id];
        assert_eq!((answer["entropy"].as_f64(), answer["hesitation"].as_f64()), (Some(0.0), Some(0.0)));
        assert_eq!(answer["confidence"].as_f64(), Some(1.0));
    }
}

#[tokio::test]
async fn case_25_options_named_like_labels_are_reported_by_their_names() {
    let server = Server::start(fake()).await;
    let schema = json!({"questions": [{"id": "pick", "type": "choice", "options": ["B", "A"]}]});
    let answer = server.decide(&schema, "s").await["answers"]["pick"].clone();
    assert_eq!((&answer["label"], &answer["choice"]), (&json!("A"), &json!("B")));
    assert_eq!(answer["confidence"], answer["probabilities"]["B"]);
    assert!(answer["probabilities"]["B"].as_f64() > answer["probabilities"]["A"].as_f64());
}

#[tokio::test]
async fn case_28_a_question_that_was_skipped_says_why() {
    let server = Server::start(fake()).await;
    let schema = json!({"questions": [
        {"id": "a", "type": "boolean"}, {"id": "b", "type": "boolean", "ask_if": {"a": ["no"]}},
        {"id": "c", "type": "boolean", "ask_if": {"b": ["yes"]}},
    ]});
    let decision = server.decide(&schema, "s").await;
    assert_eq!((&decision["answers"]["b"], &decision["answers"]["c"]), (&Value::Null, &Value::Null));
    let skipped = &decision["diagnostics"]["skipped"];
    assert_eq!(skipped["b"], json!({"because": "a", "was": "yes", "wanted": ["no"]}));
    assert_eq!(skipped["c"], json!({"because": "b", "was": null, "wanted": ["yes"]}));
}

#[tokio::test]
async fn case_41_text_parts_keep_their_order_and_an_image_part_is_named_as_unread() {
    let server = Server::start(fake()).await;
    let mut body = request(&triage(), "");
    body["messages"][1]["content"] =
        json!([{"type": "text", "text": "first, "}, {"type": "text", "text": "second"}]);
    assert_eq!(server.post(body.to_string()).await.status(), 200);
    assert!(prompt(&server).contains("first, second"));
    // A URL is never fetched: not for an image, and not to find out whether it is one.
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let url = format!("http://{}/a.png", elsewhere.local_addr().unwrap());
    body["messages"][1]["content"] = json!([{"type": "image_url", "image_url": {"url": url}}]);
    let error = server.refused(body.to_string(), 400).await;
    assert_eq!(error["param"], "messages[1].content[0].type");
    let questions = json!({"q": {"type": "noul"}});
    let body = json!({"state": "s", "questions": questions, "images": [url]}).to_string();
    let sent = server.client.post(format!("{}/v1/systemone", server.url)).body(body).send().await.unwrap();
    assert_eq!(sent.status(), 422);
    assert!(elsewhere.accept().is_err(), "nobody came for the image");
}
