//! Questions are asked after those they wait for, and only when their conditions hold.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use decision::{Answer, Answers, Limits, Reading, Route, Schema, SchemaError, Skipped, should_ask, stages};
use serde_json::{Value, json};

/// A schema of boolean questions from (id, extra keys).
fn schema(questions: &[(&str, Value)]) -> Schema {
    let list: Vec<Value> = questions
        .iter()
        .map(|(id, extra)| {
            let mut question = json!({"id": id, "type": "boolean"});
            question.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            question
        })
        .collect();
    Schema::from_value(&json!({ "questions": list })).unwrap()
}

fn error(schema: &Schema) -> SchemaError {
    let error = schema.validate(&Limits::default()).unwrap_err();
    assert!(error.to_string().contains("hint: "), "{error}");
    error
}

fn answers(schema: &Schema, probabilities: &[(&str, [f64; 2])]) -> Answers {
    let answer = |id: &str, p: [f64; 2]| {
        let question = schema.questions.iter().find(|question| question.id == id).unwrap();
        Answer::new(question, &Reading::from_reads(&[p.to_vec()]).unwrap()).unwrap()
    };
    probabilities.iter().map(|&(id, p)| (id.to_owned(), Some(answer(id, p)))).collect()
}

#[test]
fn independent_questions_share_the_first_stage() {
    let schema = schema(&[("a", json!({})), ("b", json!({})), ("c", json!({}))]);
    assert_eq!(stages(&schema).unwrap(), [[0, 1, 2]]);
}

#[test]
fn a_question_comes_right_after_the_last_it_waits_for() {
    let schema = schema(&[
        ("a", json!({})),
        ("b", json!({"depends_on": ["a"]})),
        ("c", json!({"ask_if": {"a": ["yes"]}, "depends_on": ["a", "b"]})),
        ("d", json!({})),
        ("e", json!({"ask_if": {"d": ["no"]}})),
    ]);
    schema.validate(&Limits::default()).unwrap();
    assert_eq!(stages(&schema).unwrap(), [vec![0, 3], vec![1, 4], vec![2]]);
}

#[test]
fn only_asked_questions_are_staged() {
    let mut schema = schema(&[("a", json!({})), ("b", json!({"depends_on": ["a"]})), ("c", json!({}))]);
    schema.ask = Some(vec!["b".into(), "a".into()]);
    schema.validate(&Limits::default()).unwrap();
    assert_eq!(stages(&schema).unwrap(), [[0], [1]]);
    assert_eq!(schema.asked().iter().map(|question| question.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    schema.ask = Some(vec!["c".into()]);
    assert_eq!(stages(&schema).unwrap(), [[2]]);
}

#[test]
fn an_asked_question_needs_its_dependencies_asked() {
    for extra in [json!({"depends_on": ["a"]}), json!({"ask_if": {"a": ["yes"]}})] {
        let mut schema = schema(&[("a", json!({})), ("b", extra)]);
        schema.ask = Some(vec!["b".into()]);
        let error = error(&schema);
        assert!(matches!(&error, SchemaError::NotAsked { needs, .. } if needs == "a"), "{error}");
        assert_eq!(error.question(), Some("b"));
        assert_eq!(stages(&schema).unwrap_err(), error);
    }
}

#[test]
fn unknown_ids_are_named_with_what_was_meant() {
    let message =
        error(&schema(&[("first", json!({})), ("b", json!({"depends_on": ["frist"]}))])).to_string();
    assert!(message.contains("question \"b\"") && message.contains("did you mean \"first\"?"), "{message}");
    let message =
        error(&schema(&[("first", json!({})), ("b", json!({"ask_if": {"zzz": ["yes"]}}))])).to_string();
    assert!(
        message.contains("\"zzz\"") && message.contains("the questions are \"first\", \"b\""),
        "{message}"
    );
    let mut asking = schema(&[("first", json!({}))]);
    asking.ask = Some(vec!["other".into()]);
    assert!(matches!(error(&asking), SchemaError::UnknownQuestion { key: "ask", .. }));
}

#[test]
fn ask_lists_something_and_every_id_once() {
    let mut schema = schema(&[("a", json!({})), ("b", json!({}))]);
    schema.ask = Some(vec![]);
    assert!(error(&schema).to_string().contains("nothing would be asked"));
    schema.ask = Some(vec!["a".into(), "b".into(), "a".into()]);
    assert!(error(&schema).to_string().contains("\"a\": the id is listed twice"));
}

#[test]
fn circles_are_named_from_end_to_end() {
    let schema = schema(&[
        ("start", json!({"depends_on": ["a"]})),
        ("a", json!({"depends_on": ["b"]})),
        ("b", json!({"ask_if": {"c": ["yes"]}})),
        ("c", json!({"depends_on": ["a"]})),
    ]);
    let error = error(&schema);
    let SchemaError::Cycle { ids } = &error else { panic!("{error}") };
    assert_eq!(ids, &["a", "b", "c", "a"]);
    assert!(error.to_string().contains(r#""a" → "b" → "c" → "a""#), "{error}");
}

#[test]
fn a_question_that_waits_for_itself_is_a_circle() {
    let error = error(&schema(&[("a", json!({"depends_on": ["a"]}))]));
    assert!(matches!(&error, SchemaError::Cycle { ids } if ids == &["a", "a"]), "{error}");
}

#[test]
fn references_go_backwards_where_order_has_a_meaning() {
    let schema = schema(&[("a", json!({"depends_on": ["b"]})), ("b", json!({}))]);
    let error = error(&schema);
    assert!(matches!(&error, SchemaError::ForwardReference { id, .. } if id == "b"), "{error}");
    assert_eq!(error.question(), Some("a"));
    schema.validate(&Limits { route: Route::Systemone, ..Limits::default() }).unwrap();
    assert_eq!(stages(&schema).unwrap(), [[1], [0]]);
}

#[test]
fn long_chains_do_not_recurse() {
    let list: Vec<Value> = (0..50_000)
        .map(|n: u32| {
            let before: Vec<String> = n.checked_sub(1).map(|n| format!("q{n}")).into_iter().collect();
            json!({"id": format!("q{n}"), "type": "boolean", "depends_on": before})
        })
        .collect();
    let mut schema = Schema::from_value(&json!({ "questions": list })).unwrap();
    assert_eq!(stages(&schema).unwrap().len(), 50_000);
    schema.questions[0].depends_on = vec!["q49999".into()];
    let error = stages(&schema).unwrap_err();
    assert!(error.to_string().len() < 500, "{error}");
    let SchemaError::Cycle { ids } = error else { panic!("no circle") };
    assert_eq!(ids.len(), 50_001);
}

#[test]
fn a_question_is_asked_when_all_its_conditions_hold() {
    let schema = schema(&[
        ("a", json!({})),
        ("b", json!({})),
        ("c", json!({"ask_if": {"a": ["yes"], "b": ["no", "yes"]}})),
    ]);
    let question = &schema.questions[2];
    let both = answers(&schema, &[("a", [0.9, 0.1]), ("b", [0.2, 0.8])]);
    assert_eq!(should_ask(question, &both), Ok(()));
    assert_eq!(should_ask(&schema.questions[0], &Answers::new()), Ok(()));
    let refused = answers(&schema, &[("a", [0.1, 0.9]), ("b", [0.2, 0.8])]);
    let skipped = Skipped { because: "a".into(), was: Some("no".into()), wanted: vec!["yes".into()] };
    assert_eq!(should_ask(question, &refused), Err(skipped));
}

#[test]
fn a_condition_on_a_skipped_question_does_not_hold() {
    let schema = schema(&[("a", json!({})), ("b", json!({"ask_if": {"a": ["no"]}}))]);
    let skipped = Skipped { because: "a".into(), was: None, wanted: vec!["no".into()] };
    assert_eq!(
        should_ask(&schema.questions[1], &Answers::from_iter([("a".to_owned(), None)])),
        Err(skipped.clone())
    );
    assert_eq!(should_ask(&schema.questions[1], &Answers::new()), Err(skipped));
}
