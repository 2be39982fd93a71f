//! Any bytes as the body of `POST /v1/chat/completions`.
#![no_main]

use dgem_fuzz::{check_completion, post};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    if let Some(reply) = post("/v1/chat/completions", "application/json", body) {
        check_completion(&reply);
    }
});
