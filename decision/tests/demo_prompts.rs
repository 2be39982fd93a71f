//! The sheets written here are, character for character, the prompts of the demo checkpoint's reference outputs.
//!
//! Its vocabulary spells every token of these prompts as plain text, so decoding needs no tokenizer.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::collections::HashMap;
use std::path::Path;

use decision::{AnswerTemplate, Layout, Limits, Schema, document_first_text, question_sheet, system_text};
use serde_json::Value;

fn fixture(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/demo-model").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Token id → text, from the vocabulary and the added tokens.
fn spellings() -> HashMap<u64, String> {
    let tokenizer = fixture("tokenizer.json");
    let vocabulary = tokenizer["model"]["vocab"].as_object().unwrap();
    let plain = vocabulary.iter().map(|(text, id)| (id.as_u64().unwrap(), text.replace('▁', " ")));
    let added = tokenizer["added_tokens"].as_array().unwrap();
    let added = added
        .iter()
        .map(|token| (token["id"].as_u64().unwrap(), token["content"].as_str().unwrap().to_owned()));
    plain.chain(added).collect()
}

fn decode(ids: &[Value], spellings: &HashMap<u64, String>) -> String {
    ids.iter().map(|id| spellings[&id.as_u64().unwrap()].as_str()).collect()
}

#[test]
fn prompts_of_the_reference_cases_are_reproduced() {
    let (expected, spellings) = (fixture("expected.json"), spellings());
    let cases = expected["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 12);
    let mut document_first = 0;
    for case in cases {
        let schema = Schema::from_value(&case["schema"]).unwrap();
        schema.validate(&Limits::default()).unwrap();
        let sheet = question_sheet(&schema, &schema.asked(), false);
        let state = case["state"].as_str().unwrap();
        let turns = match schema.layout {
            Layout::SchemaFirst => {
                format!("<|turn>system\n{}<turn|>\n<|turn>user\n{state}<turn|>\n", system_text(&sheet))
            }
            Layout::DocumentFirst => {
                document_first += 1;
                format!("<|turn>user\n{}<turn|>\n", document_first_text(state, &sheet))
            }
        };
        let prompt = decode(case["prompt_ids"].as_array().unwrap(), &spellings);
        assert_eq!(prompt, format!("<bos>{turns}<|turn>model\n"));
    }
    assert_eq!(document_first, 1);
}

#[test]
fn canvases_of_the_reference_cases_are_the_answer_template() {
    let (expected, spellings) = (fixture("expected.json"), spellings());
    for case in expected["cases"].as_array().unwrap() {
        let schema = Schema::from_value(&case["schema"]).unwrap();
        let slots = case["slots"].as_array().unwrap();
        let mut canvas = case["canvas_ids"].as_array().unwrap().clone();
        // With the first label of every question in its slot, the canvas is the template, a turn end, and padding.
        let mut first_labels = Vec::new();
        for (slot, question) in slots.iter().zip(schema.asked()) {
            assert_eq!(slot["id"], *question.id);
            assert_eq!(serde_json::to_value(question.labels()).unwrap(), slot["labels"]);
            canvas[slot["pos"].as_u64().unwrap() as usize] = slot["label_ids"][0].clone();
            first_labels.push(slot["labels"][0].as_str().unwrap());
        }
        let text = AnswerTemplate::new(&schema.asked()).text_with(&first_labels);
        let decoded = decode(&canvas, &spellings);
        assert_eq!(decoded.trim_end_matches("<pad>"), format!("{text}<turn|>"));
    }
}

#[test]
fn reference_probabilities_follow_from_the_logits() {
    for case in fixture("expected.json")["cases"].as_array().unwrap() {
        for slot in case["slots"].as_array().unwrap() {
            let numbers = |key: &str| -> Vec<f64> {
                slot[key].as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
            };
            let logits: Vec<f32> = numbers("label_logits").iter().map(|&logit| logit as f32).collect();
            for (ours, theirs) in decision::softmax(&logits).unwrap().iter().zip(numbers("probabilities")) {
                assert!((ours - theirs).abs() < 5e-6, "{ours} is not {theirs}");
            }
        }
    }
}
