//! Whole requests on the demo checkpoint: prompt ids and canvas ids in, the reference implementation's label
//! probabilities out.

use crate::common::{fixture, model};
use diffusion_gemma::{CanvasRows, Model, Prefix, Segment};
use serde_json::Value;

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

/// Label distributions of every slot of the first recorded requests.
pub(crate) fn label_probabilities(model: &Model, requests: usize) -> Vec<Vec<f64>> {
    let text = std::fs::read_to_string(fixture("demo-model").join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let mut all = Vec::new();
    for case in &expected["cases"].as_array().unwrap()[..requests] {
        let (prompt, canvas) = (ids(&case["prompt_ids"]), ids(&case["canvas_ids"]));
        let slots = case["slots"].as_array().unwrap();
        let read: Vec<usize> = slots.iter().map(|s| s["pos"].as_u64().unwrap() as usize).collect();
        let labels: Vec<Vec<u32>> = slots.iter().map(|s| ids(&s["label_ids"])).collect();
        let empty = Prefix::new();
        let canvases = vec![CanvasRows { suffix: &[], ids: &canvas, read: &read, previous: None }];
        let output =
            model.forward(&[Segment { prefix: &empty, tokens: &prompt, canvases }]).unwrap().remove(0);
        let labels: Vec<&[u32]> = labels.iter().map(Vec::as_slice).collect();
        for slot in model.read_slots(&output.hidden[0], &labels).unwrap() {
            let powers: Vec<f64> = slot.unwrap().labels.iter().map(|x| f64::from(*x).exp()).collect();
            let total: f64 = powers.iter().sum();
            all.push(powers.iter().map(|power| power / total).collect());
        }
    }
    all
}

#[test]
fn label_probabilities_of_whole_requests_agree() {
    let text = std::fs::read_to_string(fixture("demo-model").join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let model = model("demo-model");
    let mut worst = 0f64;
    let cases = expected["cases"].as_array().unwrap();
    assert!(cases.len() >= 12);
    for case in cases {
        let (prompt, canvas) = (ids(&case["prompt_ids"]), ids(&case["canvas_ids"]));
        let slots = case["slots"].as_array().unwrap();
        let read: Vec<usize> = slots.iter().map(|s| s["pos"].as_u64().unwrap() as usize).collect();
        let labels: Vec<Vec<u32>> = slots.iter().map(|s| ids(&s["label_ids"])).collect();
        let empty = Prefix::new();
        let segment = Segment {
            prefix: &empty,
            tokens: &prompt,
            canvases: vec![CanvasRows { suffix: &[], ids: &canvas, read: &read, previous: None }],
        };
        let output = model.forward(&[segment]).unwrap().remove(0);
        let labels: Vec<&[u32]> = labels.iter().map(Vec::as_slice).collect();
        let read_out = model.read_slots(&output.hidden[0], &labels).unwrap();
        assert_eq!(read_out.len(), slots.len());
        for (slot, found) in slots.iter().zip(read_out) {
            let found = found.unwrap();
            let powers: Vec<f64> = found.labels.iter().map(|x| f64::from(*x).exp()).collect();
            let total: f64 = powers.iter().sum();
            assert_eq!(powers.len(), slot["probabilities"].as_array().unwrap().len());
            for (p, wanted) in powers.iter().zip(slot["probabilities"].as_array().unwrap()) {
                worst = worst.max((p / total - wanted.as_f64().unwrap()).abs());
            }
            worst = worst.max((found.label_mass - slot["label_mass"].as_f64().unwrap()).abs());
            assert_eq!(u64::from(found.argmax), slot["argmax_id"].as_u64().unwrap());
        }
    }
    println!("demo model: max abs error of a label probability {worst:.2e}");
    assert!(worst <= 1e-4, "off by {worst:e}");
}
