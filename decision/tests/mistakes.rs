//! Every mistake in a schema is named: which question, which key, which value, why, and what to do.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use decision::{Limits, Route, Schema, SchemaError};
use serde_json::{Value, json};

fn error_with(text: &str, limits: &Limits) -> SchemaError {
    let result = Schema::from_json(text).and_then(|schema| schema.validate(limits));
    let Err(error) = result else { panic!("accepted: {text}") };
    assert!(error.to_string().contains("hint: "), "no hint: {error}");
    error
}

/// The message of the error, which must hold all of `parts`.
fn message(text: &str, parts: &[&str]) -> String {
    let message = error_with(text, &Limits::default()).to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
    message
}

fn with(extra: &str) -> String {
    format!(r#"{{"questions": [{{"id": "a", "type": "boolean"}}], {extra}}}"#)
}

fn one(question: &str) -> String {
    format!(r#"{{"questions": [{question}]}}"#)
}

fn choice(count: usize) -> String {
    let options: Vec<String> = (0..count).map(|n| format!("o{n}")).collect();
    one(&json!({"id": "team", "type": "choice", "options": options}).to_string())
}

#[test]
fn syntax_errors_have_line_column_and_surroundings() {
    let message = message(
        "{\"questions\": [\n  {\"id\": \"a\", \"type\": \"boolean\",}\n]}",
        &["line 2", "column", "trailing comma", "\"boolean\",}", "remove the comma"],
    );
    assert!(message.len() < 300, "{message}");
    for (text, hint) in [
        ("", "ends too early"),
        ("{\"questions\": [", "ends too early"),
        ("{questions: []}", "double quotes"),
        ("{} x", "nothing after it"),
        ("{\"a\" 1}", "missing comma, quote or bracket"),
        ("{\"a\": 1e999}", "smaller number"),
    ] {
        let error = error_with(text, &Limits::default());
        assert!(matches!(error, SchemaError::Json { .. }), "{error}");
        assert!(error.to_string().contains(hint), "{error}");
    }
}

#[test]
fn keys_written_twice_are_refused_wherever_they_stand() {
    let place = |text: &str, parts: &[&str]| {
        assert!(matches!(error_with(text, &Limits::default()), SchemaError::DuplicateKey { .. }));
        message(text, parts)
    };
    place(
        r#"{"questions": {"a": {"type": "boolean"}, "a": {"type": "boolean"}}}"#,
        &["schema", "\"a\" is written twice in \"questions\"", "line 1", "rename"],
    );
    place(
        r#"{"questions": {"team": {"type": "choice", "options": {"x": "1", "y": "2", "x": "3"}}}}"#,
        &["question \"team\"", "\"x\" is written twice in \"options\""],
    );
    place(
        r#"{"questions": [{"type": "choice", "options": {"x": "1", "x": "3"}, "id": "team"}]}"#,
        &["question \"team\"", "\"x\" is written twice in \"options\""],
    );
    place(&with(r#""samples": 1, "samples": 4"#), &["schema", "\"samples\" is written twice ("]);
    place(r#"{"questions": [{"type": "boolean", "type": "score"}"#, &["question number 1", "\"type\""]);
}

#[test]
fn unknown_keys_are_named_with_what_was_meant() {
    message(&with(r#""sample": 4"#), &["schema", "\"sample\"", "did you mean \"samples\"?"]);
    message(
        &with(r#""colour": 4"#),
        &["schema", "\"colour\"", "the keys here are \"instructions\", \"questions\""],
    );
    message(&with(r#""alone": true"#), &["\"alone\"", "belongs into a question"]);
    message(
        &one(r#"{"id": "a", "type": "boolean", "instruction": "x"}"#),
        &["question \"a\"", "\"instruction\"", "did you mean \"instructions\"?"],
    );
    message(
        &one(r#"{"id": "a", "type": "boolean", "samples": 2}"#),
        &["question \"a\"", "beside \"questions\""],
    );
    message(
        &one(r#"{"id": "a", "type": "choice", "options": ["x", {"name": "y", "descripton": "z"}]}"#),
        &["question \"a\", option 2", "\"descripton\"", "did you mean \"description\"?"],
    );
    message(
        &one(r#"{"id": "a", "type": "boolean", "criteria": {"maybe": "x"}}"#),
        &["question \"a\"", "\"maybe\"", "\"true\" and \"false\""],
    );
}

#[test]
fn an_unknown_key_is_refused_even_with_null() {
    message(&with(r#""sample": null"#), &["\"sample\""]);
    message(&one(r#"{"id": "a", "type": "boolean", "instruction": null}"#), &["\"instruction\""]);
}

#[test]
fn alternatives_under_the_key_of_another_type_are_refused() {
    message(
        &one(r#"{"id": "a", "type": "boolean", "options": ["yes", "no"]}"#),
        &["question \"a\"", "\"criteria\""],
    );
    message(
        &one(r#"{"id": "a", "type": "boolean", "choices": ["yes", "no"]}"#),
        &["question \"a\"", "\"criteria\""],
    );
    message(&one(r#"{"id": "a", "type": "score", "options": ["x", "y"]}"#), &["a score go into \"levels\""]);
    message(
        &one(r#"{"id": "a", "type": "choice", "levels": ["x", "y"]}"#),
        &["a choice go into \"options\""],
    );
}

#[test]
fn a_key_beside_its_older_spelling_is_refused() {
    message(
        &one(r#"{"id": "a", "type": "choice", "options": ["x", "y"], "choices": ["x", "y"]}"#),
        &["question \"a\"", "\"options\" and \"choices\" are both given", "remove \"choices\""],
    );
    message(&one(r#"{"id": "a", "name": "b", "type": "boolean"}"#), &["\"id\" and \"name\""]);
    message(
        &one(r#"{"id": "a", "type": "boolean", "criteria": {"true": "x", "yes": "y"}}"#),
        &["\"true\" and \"yes\""],
    );
    message(
        r#"{"questions": {"a": {"id": "b", "type": "boolean"}}}"#,
        &["question \"a\"", "\"id\" is \"b\""],
    );
}

#[test]
fn type_errors_say_what_was_found() {
    for (text, parts) in [
        ("[]".to_owned(), ["must be a JSON object", "an array of 0 items"]),
        ("\"x\"".to_owned(), ["must be a JSON object", "the string \"x\""]),
        (r#"{"questions": 3}"#.to_owned(), ["\"questions\" must be an array", "the number 3"]),
        (r#"{"questions": [7]}"#.to_owned(), ["question number 1", "the number 7"]),
        (
            r#"{"questions": {"a": "boolean"}}"#.to_owned(),
            ["\"a\" must be a question", "the string \"boolean\""],
        ),
        (with(r#""steps": "2""#), ["\"steps\" must be a whole number", "the string \"2\""]),
        (with(r#""steps": 1.5"#), ["\"steps\" must be a whole number", "the number 1.5"]),
        (with(r#""seed": -1"#), ["\"seed\" must be a whole number", "the number -1"]),
        (with(r#""think": true"#), ["\"think\" must be a whole number", "the boolean true"]),
        (with(r#""isolate": "true""#), ["\"isolate\" must be true or false", "the string \"true\""]),
        (with(r#""ask": "a""#), ["\"ask\" must be an array of strings", "the string \"a\""]),
        (with(r#""auto_threshold": "x""#), ["\"auto_threshold\" must be a number", "the string \"x\""]),
        (with(r#""instructions": 5"#), ["\"instructions\" must be a string", "the number 5"]),
        (one(r#"{"id": 5, "type": "boolean"}"#), ["\"id\" must be a string", "the number 5"]),
        (one(r#"{"id": "a", "type": "choice", "options": "x"}"#), ["question \"a\"", "the string \"x\""]),
        (
            one(r#"{"id": "a", "type": "choice", "options": ["x", 5]}"#),
            ["question \"a\", option 2", "the number 5"],
        ),
        (
            one(r#"{"id": "a", "type": "choice", "options": [{"name": 5}]}"#),
            ["\"name\" must be", "put it in quotes: \"5\""],
        ),
        (
            one(r#"{"id": "a", "type": "score", "levels": {"x": 1}}"#),
            ["question \"a\"", "an object with 1 keys"],
        ),
        (
            one(r#"{"id": "a", "type": "score", "levels": ["x", true]}"#),
            ["question \"a\"", "the boolean true"],
        ),
        (
            one(r#"{"id": "a", "type": "boolean", "criteria": ["x"]}"#),
            ["question \"a\"", "an array of 1 items"],
        ),
        (one(r#"{"id": "a", "type": "boolean", "depends_on": "b"}"#), ["question \"a\"", "the string \"b\""]),
        (
            one(r#"{"id": "a", "type": "boolean", "ask_if": ["b"]}"#),
            ["question \"a\"", "an array of 1 items"],
        ),
    ] {
        message(&text, &parts);
    }
}

#[test]
fn missing_parts_are_named() {
    message("{}", &["\"questions\" is missing"]);
    message(r#"{"questions": []}"#, &["nothing to decide"]);
    message(&one(r#"{"type": "boolean"}"#), &["question number 1", "\"id\" is missing"]);
    message(&one(r#"{"id": "a"}"#), &["question \"a\"", "\"type\" is missing"]);
    message(&one(r#"{"id": "a", "type": "choice"}"#), &["question \"a\"", "\"options\" is missing"]);
    message(
        &one(r#"{"id": "a", "type": "choice", "options": [{"description": "x"}]}"#),
        &["question \"a\", option 1", "\"name\" is missing"],
    );
}

#[test]
fn words_are_checked() {
    message(&one(r#"{"id": "a", "type": "booleen"}"#), &["question \"a\"", "did you mean \"boolean\"?"]);
    message(
        &one(r#"{"id": "a", "type": "text"}"#),
        &["\"text\"", "use one of \"boolean\", \"choice\", \"score\""],
    );
    message(&with(r#""layout": "document-first""#), &["\"layout\"", "did you mean \"document_first\"?"]);
    message(&with(r#""hole": "zero""#), &["\"hole\"", "\"noise\", \"pad\""]);
    message(&with(r#""chunk_prompt": "both""#), &["\"chunk_prompt\"", "\"own\", \"shared\""]);
}

#[test]
fn samples_that_make_no_sense_are_refused() {
    for value in ["0", "\"0\"", "33", "\"33\""] {
        message(&with(&format!("\"samples\": {value}")), &["\"samples\" is"]);
    }
    for value in [
        "-1",
        "1.5",
        "\"x\"",
        "\"\"",
        "\" 4\"",
        "\"-4\"",
        "\"1.0\"",
        "\"99999999999\"",
        "true",
        "[1]",
        "4294967296",
    ] {
        message(
            &with(&format!("\"samples\": {value}")),
            &["\"samples\" must be a whole number of at least 1, or \"auto\""],
        );
    }
}

#[test]
fn settings_out_of_range_are_refused_with_the_limit() {
    for (extra, limit) in [
        (r#""auto_max": 0"#, "the least is 1"),
        (r#""auto_max": 33"#, "the most is 32"),
        (r#""steps": 0"#, "the least is 1"),
        (r#""steps": 9"#, "the most is 8"),
        (r#""think": 4097"#, "the most is 4096"),
        (r#""chunk_rows": 0"#, "the least is 1"),
        (r#""steps": 5000000000"#, "far more than any limit"),
        (r#""auto_threshold": -0.1"#, "never below 0"),
    ] {
        message(&with(extra), &[limit]);
    }
}

#[test]
fn ids_must_be_usable_on_the_sheet() {
    for (id, parts) in [
        ("", ["question number 1", "cannot be empty"]),
        ("  ", ["question number 1", "cannot be empty"]),
        ("a:b", ["question \"a:b\"", "write \"a_b\""]),
        ("a\nb", ["question \"a\\nb\"", "write \"a_b\""]),
    ] {
        message(&one(&json!({"id": id, "type": "boolean"}).to_string()), &parts);
    }
    message(
        r#"{"questions": [{"id": "a", "type": "boolean"}, {"id": "b", "type": "boolean"}, {"id": "a", "type": "score"}]}"#,
        &["question \"a\"", "questions number 1 and 3"],
    );
}

#[test]
fn the_length_of_an_id_is_limited_on_every_route() {
    for route in [Route::Chat, Route::Systemone] {
        let limits = Limits { route, max_id_bytes: 8, ..Limits::default() };
        let asked = |id: &str| one(&json!({"id": id, "type": "boolean"}).to_string());
        Schema::from_json(&asked("12345678")).unwrap().validate(&limits).unwrap();
        let error = error_with(&asked("1234567é"), &limits).to_string();
        assert!(
            error.contains("9 bytes") && error.contains("at most 8") && error.contains("hint:"),
            "{error}"
        );
    }
}

#[test]
fn the_systemone_route_takes_any_id_but_the_empty_one() {
    let limits = Limits { route: Route::Systemone, ..Limits::default() };
    let schema = Schema::from_json(
        r#"{"questions": {"a:b\nc": {"type": "noul", "ask_if": {" ": ["yes"]}}, " ": {"type": "noul"}}}"#,
    )
    .unwrap();
    schema.validate(&limits).unwrap();
    assert!(schema.validate(&Limits::default()).is_err());
    assert!(
        error_with(r#"{"questions": {"": {"type": "noul"}}}"#, &limits)
            .to_string()
            .contains("cannot be empty")
    );
}

#[test]
fn the_number_of_questions_is_limited() {
    let questions = |count: usize| -> String {
        let list: Vec<Value> =
            (0..count).map(|n| json!({"id": format!("q{n}"), "type": "boolean"})).collect();
        json!({ "questions": list }).to_string()
    };
    Schema::from_json(&questions(64)).unwrap().validate(&Limits::default()).unwrap();
    message(&questions(65), &["a list of 65", "at most 64 questions"]);
}

#[test]
fn the_number_of_alternatives_is_limited_by_the_engine() {
    message(&choice(0), &["question \"team\"", "at least two alternatives"]);
    message(&choice(1), &["question \"team\"", "\"options\" is a list of 1", "at least two alternatives"]);
    message(&choice(27), &["question \"team\"", "\"options\" is a list of 27", "at most 26 alternatives"]);
    message(&one(r#"{"id": "s", "type": "score", "levels": ["x"]}"#), &["question \"s\"", "\"levels\""]);
    Schema::from_json(&choice(26)).unwrap().validate(&Limits::default()).unwrap();
    let limits = Limits { max_alternatives: 151, ..Limits::default() };
    Schema::from_json(&choice(151)).unwrap().validate(&limits).unwrap();
}

#[test]
fn names_of_alternatives_are_unique_and_not_empty() {
    message(
        &one(r#"{"id": "team", "type": "choice", "options": ["x", "y", {"name": "x"}]}"#),
        &["question \"team\"", "options number 1 and 3", "\"x\""],
    );
    message(
        &one(r#"{"id": "s", "type": "score", "levels": [1, "1"]}"#),
        &["question \"s\"", "levels number 1 and 2"],
    );
    message(
        &one(r#"{"id": "s", "type": "choice", "options": ["x", " "]}"#),
        &["option number 2 has no name"],
    );
}

#[test]
fn conditions_must_name_possible_answers() {
    let schema = |condition: &str| {
        format!(
            r#"{{"questions": [{{"id": "x", "type": "boolean"}}, {{"id": "c", "type": "choice", "options": ["red", "green"]}},
                {{"id": "y", "type": "boolean", "ask_if": {condition}}}]}}"#
        )
    };
    message(
        &schema(r#"{"x": [true]}"#),
        &["question \"y\"", "\"ask_if\"", "the boolean true", "written \"yes\""],
    );
    message(&schema(r#"{"x": [false]}"#), &["question \"y\"", "written \"no\""]);
    message(&schema(r#"{"x": ["true"]}"#), &["question \"y\"", "\"true\"", "write \"yes\""]);
    message(&schema(r#"{"x": "yes"}"#), &["question \"y\"", "an array of strings"]);
    message(&schema(r#"{"c": ["gren"]}"#), &["question \"y\"", "write \"green\""]);
    message(&schema(r#"{"c": ["A"]}"#), &["question \"y\"", "its answers are \"red\", \"green\""]);
    message(&schema(r#"{"c": []}"#), &["question \"y\"", "would never be asked"]);
}

#[test]
fn errors_point_to_their_question() {
    let error = error_with(&choice(1), &Limits::default());
    assert_eq!(error.question(), Some("team"));
    assert_eq!(error_with(&with(r#""sample": 4"#), &Limits::default()).question(), None);
}
