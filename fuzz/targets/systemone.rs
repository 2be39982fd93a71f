//! Any bytes as the body of `POST /v1/systemone`: as a form when they begin with its boundary, else as JSON.
#![no_main]

use dgem_fuzz::{check_distribution, post};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|body: &[u8]| {
    let content_type =
        if body.starts_with(b"--b") { "multipart/form-data; boundary=b" } else { "application/json" };
    let Some(reply) = post("/v1/systemone", content_type, body) else { return };
    let reply: Value = serde_json::from_slice(&reply).expect("a reply is JSON");
    for (id, answer) in reply["answers"].as_object().expect("it has answers") {
        let probabilities = answer.get("probabilities").or_else(|| answer.get("x_probabilities"));
        if let Some(Value::Object(probabilities)) = probabilities {
            let values = probabilities.values().map(|p| p.as_f64().expect("a probability is a number"));
            check_distribution(id, values);
        }
    }
});
