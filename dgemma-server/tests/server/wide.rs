//! Choices with more alternatives than letters: labels of the tokenizer's own, and brackets where it has too few.

use crate::common::{Server, fake, request, text};
use dgemma_server::Parts;
use dgemma_server::read::Text;
use serde_json::{Value, json};

/// A choice among so many options.
fn wide(count: usize) -> Value {
    let options: Vec<String> = (0..count).map(|n| format!("intent {n}")).collect();
    json!({"questions": [{"id": "intent", "type": "choice", "options": options}], "layout": "document_first"})
}

#[tokio::test]
async fn a_choice_among_hundreds_is_one_slot_of_one_pass() {
    let last_wins = fake().with_answer(|_, canvas, slot| {
        (0..canvas.slots[slot].label_ids.len()).map(|label| label as f32).collect()
    });
    let server = Server::start(last_wins).await;
    let decision = server.decide(&wide(151), "s").await;
    let answer = &decision["answers"]["intent"];
    assert_eq!(answer["choice"], "intent 150");
    assert_eq!(answer["probabilities"].as_object().unwrap().len(), 151);
    let passes = server.engine.log.passes();
    assert_eq!((passes.len(), passes[0][0].canvases.len()), (1, 1));
    let sheet = text().tokenizer.decode(&passes[0][0].prefill).unwrap();
    let label = answer["label"].as_str().unwrap();
    assert!(sheet.contains("\n- Z: intent 25\n"), "{sheet}");
    assert!(sheet.contains(&format!("\n- {label}: intent 150\n")), "{sheet}");
    assert_eq!(decision["diagnostics"]["questions"]["intent"]["argmax_token"].as_str().unwrap(), label);

    let limits: Value = serde_json::from_str(&server.get("/v1/models").await.text().await.unwrap()).unwrap();
    assert_eq!(limits["data"][0]["limits"]["alternatives"], 255);
    let error = server.refused(request(&wide(256), "s").to_string(), 400).await;
    assert!(error["message"].as_str().unwrap().contains("at most 255 alternatives"), "{error}");
}

#[tokio::test]
async fn an_answer_with_a_label_of_its_own_stands_in_later_prompts() {
    let server = Server::start(fake().with_answer(|_, canvas, slot| {
        (0..canvas.slots[slot].label_ids.len()).map(|label| label as f32).collect()
    }))
    .await;
    let mut schema = wide(40);
    schema["layout"] = json!("schema_first");
    schema["questions"]
        .as_array_mut()
        .unwrap()
        .push(json!({"id": "urgent", "type": "boolean", "depends_on": ["intent"]}));
    let decision = server.decide(&schema, "s").await;
    assert_eq!(decision["diagnostics"]["stages"], json!([["intent"], ["urgent"]]));
    let label = decision["answers"]["intent"]["label"].as_str().unwrap();
    let second = text().tokenizer.decode(&server.engine.log.prompts()[1]).unwrap();
    assert!(second.ends_with(&format!("intent: {label}\n")), "{second}");
    assert!(second.contains(&format!("\n- {label}: intent 39\n")), "{second}");
}

/// The text side of the demo checkpoint with a tokenizer that knows single characters only: 26 letters, and no other labels.
fn characters() -> Text {
    let dir = tempfile::tempdir().unwrap();
    for name in ["tokenizer_config.json", "chat_template.jinja"] {
        std::fs::copy(crate::common::demo_model().join(name), dir.path().join(name)).unwrap();
    }
    let whole = std::fs::read_to_string(crate::common::demo_model().join("tokenizer.json")).unwrap();
    let mut tokenizer: Value = serde_json::from_str(&whole).unwrap();
    tokenizer["model"]["merges"] = json!([]);
    std::fs::write(dir.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    Text::from_dir(dir.path()).unwrap()
}

#[tokio::test]
async fn a_choice_beyond_all_labels_is_read_in_brackets_and_a_final() {
    // The option that is named in the state wins wherever it stands; the text of a sheet is characters here.
    let text = characters();
    let find = |word: &str| text.tokenizer.encode_plain(word).unwrap();
    let winner = find(": intent 150\n");
    let label_before = move |prompt: &[u32]| {
        let at = prompt.windows(winner.len()).position(|window| window == winner)?;
        prompt.get(at - 1).copied()
    };
    let fake = fake().with_answer(move |prompt, canvas, slot| {
        let wanted = label_before(prompt);
        canvas.slots[slot].label_ids.iter().map(|id| if Some(*id) == wanted { 4.0 } else { 0.0 }).collect()
    });
    let engine = fake.controls();
    let parts = move || Ok(Parts { engine: fake, text: characters() });
    let server = Server::start_loading(crate::common::options(), engine, parts).await;
    server.wait_until_ready().await;
    server.engine.reset();
    let mut schema = wide(200);
    schema["samples"] = json!(2);
    let decision = server.decide(&schema, "s").await;
    let answer = &decision["answers"]["intent"];
    assert_eq!(answer["choice"], "intent 150", "{answer}");
    let probabilities: Vec<f64> =
        answer["probabilities"].as_object().unwrap().values().map(|p| p.as_f64().unwrap()).collect();
    assert_eq!(probabilities.len(), 200);
    assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    assert_eq!(answer["confidence"].as_f64().unwrap(), probabilities[150]);
    assert!(probabilities.iter().all(|&p| p > 0.0 && p <= probabilities[150]));
    assert_eq!(answer["agreement"], 1.0);
    // Eight brackets in one forward, the final in another.
    let passes = server.engine.log.passes();
    let canvases = |pass: &[dgemma_server::engine::fake::ItemCall]| -> usize {
        pass.iter().map(|item| item.canvases.len()).sum()
    };
    assert_eq!(passes.iter().map(|pass| canvases(pass)).sum::<usize>(), 2 * (8 + 1));
    assert_eq!(canvases(passes.last().unwrap()), 2);
    assert_eq!(decision["diagnostics"]["chunks"].as_array().unwrap().len(), 9);
    assert_eq!(decision["diagnostics"]["samples"]["n"], 2);

    // What depends on it sees the final, and its answer in it.
    let mut schema = wide(60);
    schema["layout"] = json!("schema_first");
    let last = json!({"id": "next", "type": "choice", "options": ["x", "y"], "depends_on": ["intent"]});
    schema["questions"].as_array_mut().unwrap().push(last);
    schema["questions"]
        .as_array_mut()
        .unwrap()
        .push(json!({"id": "other", "type": "choice", "options": ["x", "y"]}));
    server.engine.reset();
    let decision = server.decide(&schema, "s").await;
    assert_eq!(decision["diagnostics"]["stages"], json!([["intent", "other"], ["next"]]));
    let prompts = server.engine.log.prompts();
    let text = characters();
    let decoded = |prompt: &Vec<u32>| text.tokenizer.decode(prompt).unwrap();
    let first = decoded(&prompts[0]);
    assert!(first.contains("Question other") && !first.contains("Question intent"), "{first}");
    let next = decoded(prompts.last().unwrap());
    assert!(next.contains("Question intent") && next.ends_with("intent: A\n"), "{next}");
    assert_eq!(next.matches(": intent ").count(), 6, "the finalists of three brackets: {next}");
}
