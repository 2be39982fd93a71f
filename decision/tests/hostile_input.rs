//! Input made to hurt: very deep, very long, very many. It is refused in linear time, with a short message, without a crash.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use decision::{Limits, Schema, SchemaError};
use serde_json::{Value, json};

fn error_with(text: &str) -> SchemaError {
    let result = Schema::from_json(text).and_then(|schema| schema.validate(&Limits::default()));
    let Err(error) = result else { panic!("accepted: {text}") };
    error
}

fn with(extra: &str) -> String {
    format!(r#"{{"questions": [{{"id": "a", "type": "boolean"}}], {extra}}}"#)
}

fn one(question: &str) -> String {
    format!(r#"{{"questions": [{question}]}}"#)
}

#[test]
fn deep_nesting_is_an_error_and_not_an_overflow() {
    for open in ["[", "{\"a\":"] {
        let error = error_with(&open.repeat(200_000));
        assert!(error.to_string().contains("nest less deeply"), "{error}");
    }
}

#[test]
fn large_inputs_take_linear_time() {
    let started = std::time::Instant::now();
    let many: Vec<Value> = (0..40_000)
        .map(|n| json!({"id": format!("q{n}"), "type": "boolean", "depends_on": [format!("q{}", n + 1)]}))
        .collect();
    let schema = Schema::from_json(&json!({ "questions": many }).to_string()).unwrap();
    // Every question but the last names a later one: nothing may recurse or compare all with all.
    let limits = Limits { max_questions: usize::MAX, ..Limits::default() };
    assert!(matches!(schema.validate(&limits), Err(SchemaError::UnknownQuestion { .. })));
    let options: Vec<String> = (0..100_000).map(|n| format!("option {n}")).collect();
    let wide = json!({"questions": [{"id": "a", "type": "choice", "options": options}]});
    let limits = Limits { max_alternatives: usize::MAX, ..Limits::default() };
    Schema::from_value(&wide).unwrap().validate(&limits).unwrap();
    let long = format!("x{}", "y".repeat(2_000_000));
    assert!(error_with(&with(&format!("{long:?}: 1"))).to_string().contains("unknown key"));
    assert!(started.elapsed().as_secs() < 20, "took {:?}", started.elapsed());
}

#[test]
fn messages_stay_short_whatever_the_input() {
    let long = "x".repeat(100_000);
    for text in [
        with(&format!(r#""{long}": 1"#)),
        with(&format!(r#""samples": "{long}""#)),
        one(&format!(r#"{{"id": "a", "type": "{long}"}}"#)),
        one(&format!(r#"{{"id": "a", "type": "boolean", "depends_on": ["{long}"]}}"#)),
        one(&format!(r#"{{"id": "{long}", "type": "choice"}}"#)),
        one(&format!(r#"{{"id": "{long}:", "type": "boolean"}}"#)),
        format!(r#"{{"{long}": 1, "{long}": 2}}"#),
        format!(r#"{{"a": "{long}" x"#),
    ] {
        let length = error_with(&text).to_string().len();
        assert!(length < 1500, "{length} bytes");
    }
}
