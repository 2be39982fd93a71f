//! `response_format`: closed sets of values are read from the slots, everything else is refused.

use serde_json::{Value, json};

use crate::common::talk::{user, with};
use crate::common::{Server, fake};

fn format(properties: &Value) -> Value {
    let schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}}})
}

#[tokio::test]
async fn an_object_of_closed_sets_is_one_pass_and_valid_by_construction() {
    let mut properties = json!({
        "team": {"type": "string", "enum": ["billing", "support", "sales"], "description": "Who owns it"},
        "urgent": {"type": "boolean"},
        "stars": {"type": "integer", "minimum": 1, "maximum": 5},
        "floor": {"type": "integer", "exclusiveMinimum": -3, "maximum": 1},
        "version": {"const": 2},
        "mixed": {"enum": [null, 1, "1a", true]},
        "ref": {"$ref": "#/properties/team"},
    });
    let server = Server::start(fake().with_slots(vec![
        vec![0.0, 2.0, 0.0],
        vec![0.0, 3.0],
        vec![0.0, 0.0, 0.0, 4.0, 0.0],
        vec![5.0, 0.0, 0.0, 0.0],
        vec![9.0, 0.0, 0.0, 0.0],
        vec![0.0, 0.0, 1.0],
    ]))
    .await;
    let messages = json!({"messages": [{"role": "system", "content": "Sort tickets."}, {"role": "user", "content": "It burns"}]});
    let request = with(messages, &format(&properties));
    let reply = server.completion(&request).await;
    let content = reply["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(
        content,
        r#"{"team":"support","urgent":false,"stars":4,"floor":-2,"version":2,"mixed":null,"ref":"sales"}"#
    );
    let answers = &reply["x_decision"]["answers"];
    assert!(answers["team"]["probabilities"]["support"].as_f64().unwrap() > 0.7);
    assert_eq!(reply["x_decision"]["diagnostics"]["timing"]["rounds"], 1);
    let events = server.events(&request).await;
    assert_eq!(events[0]["choices"][0]["delta"]["content"], content);
    // An object that leaves nothing to choose needs no model.
    properties = json!({"version": {"const": 2}});
    let error = server.refused(with(user("x"), &format(&properties)).to_string(), 400).await;
    assert_eq!(error["code"], "unsupported_response_format");
}

#[tokio::test]
async fn anything_else_is_refused_with_the_property_and_what_is_supported() {
    let server = Server::start(fake()).await;
    for (property, reason) in [
        (json!({"type": "string"}), "\"string\" and no enum"),
        (json!({"type": "number", "minimum": 0, "maximum": 1}), "\"number\""),
        (json!({"type": "integer", "minimum": 0}), "without minimum and maximum"),
        (json!({"type": "integer", "minimum": 0, "maximum": 1000}), "0 to 1000"),
        (json!({"type": "integer", "minimum": i64::MIN, "maximum": i64::MAX}), "values can be read"),
        (json!({"type": "integer", "minimum": 5, "maximum": 1}), "5 to 1"),
        (json!({"type": "object", "properties": {}}), "\"object\""),
        (json!({"type": "array", "items": {"type": "boolean"}}), "\"array\""),
        (json!({"enum": []}), "no list of values"),
        (json!({"enum": [{"a": 1}]}), "an object or a list"),
        (json!({"enum": ["1", 1]}), "same text"),
        (json!({"$ref": "#/nowhere"}), "$defs"),
        (json!({"$ref": "#/properties/field"}), "$defs"),
        (json!({}), "neither an enum"),
    ] {
        let request = with(user("x"), &format(&json!({"ok": {"type": "boolean"}, "field": property})));
        let error = server.refused(request.to_string(), 400).await;
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("\"field\"") && message.contains(reason), "{message}");
        assert!(message.contains("enums, booleans or integers"), "{message}");
    }
    for format in [
        json!({"type": "json_object"}),
        json!({"type": "json_schema"}),
        json!({"type": "json_schema", "json_schema": {"schema": {"type": "array"}}}),
        json!("json"),
    ] {
        let error =
            server.refused(with(user("x"), &json!({"response_format": format})).to_string(), 400).await;
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!("unsupported_response_format"), &json!("response_format"))
        );
    }
}
