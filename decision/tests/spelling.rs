//! Every accepted spelling of a schema means the same, and the order of the source is kept.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use decision::{Alternative, ChunkPrompt, Hole, Kind, Layout, Limits, Samples, Schema, normalise};
use serde_json::{Value, json};

fn read(text: &str) -> Schema {
    let schema = Schema::from_json(text).unwrap();
    schema.validate(&Limits::default()).unwrap();
    schema
}

fn one(question: &Value) -> Schema {
    read(&json!({ "questions": [question] }).to_string())
}

#[test]
fn the_example_of_the_contract_reads_as_written() {
    let schema = read(
        r#"{"instructions": "optional context for all questions",
            "questions": [
              {"id": "urgent", "type": "boolean", "instructions": "Immediate escalation required?",
               "criteria": {"true": "outage or data loss", "false": "anything that can wait"}},
              {"id": "team", "type": "choice", "instructions": "Owning team",
               "options": [{"name": "billing", "description": "money"}, {"name": "support"}, "engineering"]},
              {"id": "sentiment", "type": "score", "instructions": "Customer distress",
               "levels": ["calm", "frustrated", "furious"]}],
            "samples": 1, "auto_threshold": 0.1, "auto_max": 4, "steps": 1, "think": 0,
            "layout": "schema_first", "seed": 42}"#,
    );
    assert_eq!(schema.seed, Some(42));
    assert_eq!(schema.instructions.as_deref(), Some("optional context for all questions"));
    let ids: Vec<_> = schema.questions.iter().map(|question| question.id.as_str()).collect();
    assert_eq!(ids, ["urgent", "team", "sentiment"]);
    let yes = Some("outage or data loss".to_owned());
    assert_eq!(
        schema.questions[0].kind,
        Kind::Boolean { yes, no: Some("anything that can wait".to_owned()) }
    );
    assert_eq!(schema.questions[1].answer_names(), ["billing", "support", "engineering"]);
    let Kind::Choice { options } = &schema.questions[1].kind else { panic!("not a choice") };
    assert_eq!(options[0], Alternative { name: "billing".into(), description: Some("money".into()) });
    assert_eq!(schema.questions[2].labels(), ["1", "2", "3"]);
}

#[test]
fn absent_keys_have_the_defaults_of_the_contract() {
    let schema = one(&json!({"id": "a", "type": "boolean"}));
    let default = Schema { questions: schema.questions.clone(), ..Schema::default() };
    assert_eq!(schema, default);
    assert_eq!((schema.samples, schema.auto_max, schema.steps, schema.think), (Samples::Fixed(1), 4, 1, 0));
    assert!((schema.auto_threshold_nats - 0.1).abs() < 1e-15);
    assert_eq!((schema.layout, schema.hole), (Layout::SchemaFirst, Hole::Noise));
    assert_eq!((schema.isolate, schema.chunk_prompt), (false, ChunkPrompt::Own));
}

#[test]
fn every_key_is_read() {
    let schema = read(
        r#"{"questions": [{"id": "a", "type": "boolean"},
                          {"id": "b", "type": "boolean", "depends_on": ["a"], "ask_if": {"a": ["yes"]}, "alone": true}],
            "samples": "auto", "auto_threshold": 0.25, "auto_max": 8, "steps": 2, "think": 64, "layout": "document_first",
            "isolate": true, "hole": "pad", "seed": 18446744073709551615, "ask": ["a", "b"], "chunk_rows": 64,
            "chunk_prompt": "shared", "sequential": true}"#,
    );
    assert_eq!(schema.samples, Samples::Auto);
    assert_eq!((schema.auto_max, schema.steps, schema.think), (8, 2, 64));
    assert_eq!((schema.layout, schema.hole, schema.isolate), (Layout::DocumentFirst, Hole::Pad, true));
    assert_eq!(schema.seed, Some(u64::MAX));
    assert_eq!(schema.ask, Some(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(
        (schema.chunk_rows, schema.chunk_prompt, schema.sequential),
        (Some(64), ChunkPrompt::Shared, true)
    );
    assert_eq!(schema.questions[1].depends_on, ["a"]);
    assert_eq!(schema.questions[1].ask_if["a"], ["yes"]);
    assert!(schema.questions[1].alone);
    // A padded slot gives the same read every time.
    assert_eq!(schema.effective_samples(), Samples::Fixed(1));
}

#[test]
fn type_names_have_synonyms() {
    for name in ["boolean", "bool", "noul"] {
        assert_eq!(one(&json!({"id": "a", "type": name})).questions[0].kind, Kind::default());
    }
}

#[test]
fn older_key_names_are_understood() {
    let new = one(&json!({"id": "a", "type": "choice", "instructions": "Which?", "options": ["x", "y"]}));
    for text in ["question", "prompt"] {
        for options in ["choices", "criteria"] {
            assert_eq!(
                one(&json!({"name": "a", "type": "choice", text: "Which?", options: ["x", "y"]})),
                new
            );
        }
    }
    let new = one(&json!({"id": "a", "type": "score", "levels": ["low", "high"]}));
    for levels in ["items", "criteria"] {
        assert_eq!(one(&json!({"id": "a", "type": "score", levels: ["low", "high"]})), new);
    }
}

#[test]
fn questions_and_options_as_maps_keep_the_order_of_the_source() {
    let text = r#"{"questions": {"zebra": {"type": "choice", "options": {"y": "why", "x": null, "b": {"n": 1}, "a": 7}},
                                 "ant": {"id": "ant", "type": "bool"}, "mole": {"type": "score"}}}"#;
    for _ in 0..50 {
        let schema = read(text);
        let ids: Vec<_> = schema.questions.iter().map(|question| question.id.as_str()).collect();
        assert_eq!(ids, ["zebra", "ant", "mole"]);
        assert_eq!(schema.questions[0].answer_names(), ["y", "x", "b", "a"]);
    }
    let Kind::Choice { options } = &read(text).questions[0].kind else { panic!("not a choice") };
    let descriptions: Vec<_> = options.iter().map(|option| option.description.as_deref()).collect();
    assert_eq!(descriptions, [Some("why"), None, Some("{\"n\":1}"), Some("7")]);
}

#[test]
fn levels_may_be_numbers_or_absent() {
    let numbers = one(&json!({"id": "a", "type": "score", "levels": [0, 1, 2.5]}));
    assert_eq!(numbers.questions[0].answer_names(), ["0", "1", "2.5"]);
    let absent = one(&json!({"id": "a", "type": "score"}));
    assert_eq!(absent.questions[0].answer_names(), ["1", "2", "3", "4", "5"]);
    assert_eq!(one(&json!({"id": "a", "type": "score", "levels": null})), absent);
}

#[test]
fn conditions_on_numeric_levels_may_be_numbers() {
    let schema = read(
        r#"{"questions": [{"id": "grade", "type": "score", "levels": [1, 2, 3]},
                          {"id": "why", "type": "boolean", "ask_if": {"grade": [2, "3"]}}]}"#,
    );
    assert_eq!(schema.questions[1].ask_if["grade"], ["2", "3"]);
}

#[test]
fn boolean_criteria_are_keyed_by_either_pair_of_words() {
    let new = one(&json!({"id": "a", "type": "boolean", "criteria": {"true": "T", "false": "F"}}));
    assert_eq!(one(&json!({"id": "a", "type": "noul", "criteria": {"yes": "T", "no": "F"}})), new);
    let half = one(&json!({"id": "a", "type": "boolean", "criteria": {"true": null, "false": "F"}}));
    assert_eq!(half.questions[0].kind, Kind::Boolean { yes: None, no: Some("F".into()) });
    for empty in [json!(null), json!({})] {
        let schema = one(&json!({"id": "a", "type": "boolean", "criteria": empty}));
        assert_eq!(schema.questions[0].kind, Kind::default());
    }
}

#[test]
fn instructions_that_are_no_text_become_compact_json() {
    let schema = read(
        r#"{"instructions": {"b": 1, "a": ["é"]}, "questions": [{"id": "q", "type": "boolean", "instructions": ["x", 2]}]}"#,
    );
    assert_eq!(schema.instructions.as_deref(), Some("{\"b\":1,\"a\":[\"é\"]}"));
    assert_eq!(schema.questions[0].instructions.as_deref(), Some("[\"x\",2]"));
}

#[test]
fn samples_are_a_whole_number_a_digit_string_or_auto() {
    for (value, samples) in [
        (json!(4), Samples::Fixed(4)),
        (json!("4"), Samples::Fixed(4)),
        (json!(1.0), Samples::Fixed(1)),
        (json!("auto"), Samples::Auto),
        (json!(null), Samples::Fixed(1)),
    ] {
        let text = json!({"questions": [{"id": "a", "type": "bool"}], "samples": value}).to_string();
        assert_eq!(read(&text).samples, samples, "{text}");
    }
}

#[test]
fn the_canonical_form_is_canonical() {
    let value = json!({"questions": {"a": {"type": "noul", "question": "Is it?", "criteria": {"yes": "Y"}},
                                     "b": {"type": "choice", "choices": {"x": "ex", "y": null}, "alone": true}},
                       "samples": "2"});
    let canonical = Schema::from_value(&value).unwrap().to_value();
    let expected = r#"{"questions":[{"id":"a","type":"boolean","instructions":"Is it?","criteria":{"true":"Y"}},{"id":"b","type":"choice","options":[{"name":"x","description":"ex"},{"name":"y"}],"alone":true}],"samples":2}"#;
    assert_eq!(canonical.to_string(), expected);
    assert_eq!(normalise(&canonical).unwrap(), canonical);
}
