//! Any text as a schema: read or refused with a hint, and what was read is written and read back as the same.
#![no_main]

use decision::{Limits, Schema, question_sheet, stages};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let schema = match Schema::from_json(text) {
        Ok(schema) => schema,
        Err(error) => return check(&error.to_string()),
    };
    let again = Schema::from_value(&schema.to_value()).expect("the canonical form is accepted");
    assert_eq!(schema, again);
    match schema.validate(&Limits::default()) {
        Err(error) => check(&error.to_string()),
        Ok(()) => {
            let asked: usize = stages(&schema).expect("a valid schema has stages").iter().map(Vec::len).sum();
            assert_eq!(asked, schema.asked().len());
            question_sheet(&schema, &schema.asked(), false);
        }
    }
});

fn check(message: &str) {
    assert!(message.contains("hint:"), "{message}");
    // A refusal may quote what is wrong, but does not send it all back.
    assert!(message.len() < 4096, "{} bytes: {message}", message.len());
}
