//! JSON that was meant to be a schema and has no `questions`: a misspelt key must not turn a decision into a chat.
//!
//! Called by the server for a system message that is a JSON object but no schema. What could as well be meant as the prompt of a
//! conversation is left alone.

use serde_json::Value;

use crate::error::{Place, SchemaError};
use crate::keys;
use crate::suggestion::closest;

/// What is wrong with an object without `questions` that looks like a schema all the same: its questions stand under another key, or
/// the schema stands inside. `None` for any other JSON.
pub fn mistaken_schema(value: &Value) -> Option<SchemaError> {
    let object = value.as_object().filter(|object| !object.contains_key("questions"))?;
    object.iter().find_map(|(key, value)| {
        let misspelt = closest(key, ["questions"]).is_some() && holds_objects(value);
        let hint = if misspelt || holds_questions(value) {
            "did you mean \"questions\"?"
        } else if value.get("questions").is_some_and(holds_questions) {
            "send the schema itself, without the key around it"
        } else {
            return None;
        };
        Some(SchemaError::UnknownKey { place: Place::Schema, key: key.clone(), hint: hint.to_owned() })
    })
}

/// Questions in a list, by their ids, or one by itself.
fn holds_questions(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.is_empty() && items.iter().all(is_question),
        Value::Object(map) => is_question(value) || (!map.is_empty() && map.values().all(is_question)),
        _ => false,
    }
}

fn is_question(value: &Value) -> bool {
    value.get("type").and_then(Value::as_str).is_some_and(|name| keys::canonical_type(name).is_some())
}

fn holds_objects(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(Value::is_object),
        Value::Object(map) => is_question(value) || map.values().any(Value::is_object),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_under_a_wrong_key_is_told_from_the_prompt_of_a_conversation() {
        let question = json!({"id": "a", "type": "boolean"});
        for (value, key, hint) in [
            (json!({"question": [question]}), "question", "did you mean"),
            (json!({"Questions": {"a": {"type": "noul"}}}), "Questions", "did you mean"),
            (json!({"qestions": [{"id": "a"}], "samples": 2}), "qestions", "did you mean"),
            (json!({"question": question}), "question", "did you mean"),
            (json!({"instructions": "x", "items": [question]}), "items", "did you mean"),
            (json!({"schema": {"questions": [question]}, "state": "s"}), "schema", "itself"),
        ] {
            let error = mistaken_schema(&value).unwrap_or_else(|| panic!("{value}")).to_string();
            assert!(error.contains(&format!("{key:?}")) && error.contains(hint), "{error}");
        }
        for value in [
            json!({}),
            json!([question]),
            json!({"a": 1}),
            json!({"question": "What is the weather?"}),
            json!({"question": ["one", "two"]}),
            json!({"instructions": "Be kind.", "seed": 1}),
            json!({"tools": [{"type": "function"}]}),
            json!({"suggestions": ["a"]}),
            json!({"questions": []}),
        ] {
            assert_eq!(mistaken_schema(&value), None, "{value}");
        }
    }
}
