//! Any schema and any state through the chat route. The state stands before the first NUL of the input, or is fixed.
#![no_main]

use dgem_fuzz::{check_completion, post};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|text: &str| {
    let (state, schema) = text.split_once('\0').unwrap_or(("The database is down.", text));
    let body = json!({
        "messages": [{"role": "system", "content": schema}, {"role": "user", "content": state}],
    });
    if let Some(reply) = post("/v1/chat/completions", "application/json", body.to_string().as_bytes()) {
        check_completion(&reply);
    }
});
