//! A template from its source to the request, without files and without a server.

use serde_json::{Value, json};

use super::*;

fn template(source: &str) -> Result<Template, Error> {
    Template::parse(Path::new("dir/t.json.tmpl"), source.to_owned())
}

fn variables(value: Value) -> Variables {
    match value {
        Value::Object(map) => Variables::from_map(map),
        other => panic!("{other} is no object"),
    }
}

fn request(source: &str, values: Value) -> Result<Request, Error> {
    template(source)?.request(&variables(values))
}

/// A template around a list of questions and a state.
fn asking(questions: &str, state: &str) -> String {
    format!("{{\"schema\": {{\"questions\": {questions}}}, \"state\": {state}}}")
}

const ONE: &str = r#"[{"id":"q","type":"boolean"}]"#;

#[test]
fn case_03_quotes_newlines_backslashes_and_tabs_come_back_identical() {
    let ticket = "say \"no\"\nC:\\temp\\new\t{{ x }} \u{0} 東 \u{2028} </script>";
    let made =
        request(&asking(ONE, "{\"ticket\": {{ ticket | json_encode }}}"), json!({"ticket": ticket})).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&made.state).unwrap(), json!({"ticket": ticket}));
    let inside =
        request(&asking(ONE, "{\"ticket\": \"<{{ ticket | json_str }}>\"}"), json!({"ticket": ticket}))
            .unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&inside.state).unwrap(),
        json!({"ticket": format!("<{ticket}>")})
    );
}

#[test]
fn case_10_a_missing_variable_is_named_with_file_line_and_what_was_given() {
    let source = asking(ONE, "{\"a\": {{ given | json_encode }},\n \"b\": {{ missing | json_encode }}}");
    let message = request(&source, json!({"given": 1})).unwrap_err().to_string();
    for part in ["dir/t.json.tmpl, line 2", "`missing`", "variables given: `given`", "-v missing="] {
        assert!(message.contains(part), "{part} not in {message}");
    }
    let nothing = request("{{ deep.path | json_encode }}", json!({})).unwrap_err().to_string();
    assert!(
        nothing.contains("`deep.path`") && nothing.contains("-v deep=") && nothing.contains("given: none"),
        "{nothing}"
    );
}

#[test]
fn with_a_state_from_elsewhere_only_what_the_questions_need_is_missed() {
    let other =
        |source: &str| template(source).unwrap().request_for_other_state(&variables(json!({"given": 1})));
    let state = "{\"a\": {{ a | json_encode }}, \"b\": \"<{{ b | json_str }}>\"}";
    assert_eq!(other(&asking(ONE, state)).unwrap().schema.questions.len(), 1);
    let shown = "[{\"id\":\"q\",\"type\":\"boolean\",\"instructions\":{{ a | json_encode }}}]";
    let silent =
        format!("{{% if b == \"x\" %}}{ONE}{{% else %}}[{{\"id\":\"r\",\"type\":\"boolean\"}}]{{% endif %}}");
    let chosen = format!("{{% if b == \"x\" %}}{ONE}{{% else %}}{shown}{{% endif %}}");
    for (questions, name) in [
        (shown, "`a`"),
        (&format!("{{% if c == 1 %}}{ONE}{{% endif %}}"), "`c`"),
        (&chosen, "`b`"),
        (&silent, "`b`"),
    ] {
        let message = other(&asking(questions, state)).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains("given: `given`"), "{message}");
    }
}

#[test]
fn case_10_a_variable_the_metadata_requires_is_missed_even_where_the_template_would_get_by() {
    let source =
        format!("{{# dgem: {{\"required\": [\"x\"]}} #}}{}", asking(ONE, "{{ x | default(value=1) }}"));
    assert!(request(&source, json!({})).unwrap_err().to_string().contains("`x` is not defined"));
}

#[test]
fn case_12_maps_keep_their_order_in_every_render() {
    let questions = r#"{"zeta": {"type": "choice", "options": {"z": "last", "a": "first", "m": "middle"}}, "alpha": {"type": "boolean"}, "mid": {"type": "score", "levels": [3, 1, 2]}}"#;
    let source = asking(questions, "{{ v | json_encode }}");
    let values = json!({"v": {"zulu": 1, "alpha": {"y": 2, "b": 3}}});
    let first = request(&source, values.clone()).unwrap();
    let ids: Vec<&str> = first.schema.questions.iter().map(|question| question.id.as_str()).collect();
    assert_eq!(ids, ["zeta", "alpha", "mid"]);
    assert_eq!(first.schema.questions[0].answer_names(), ["z", "a", "m"]);
    assert_eq!(first.schema.questions[2].answer_names(), ["3", "1", "2"]);
    assert_eq!(first.state, r#"{"zulu":1,"alpha":{"y":2,"b":3}}"#);
    for _ in 0..50 {
        let again = request(&source, values.clone()).unwrap();
        assert_eq!((again.system_text(), again.state), (first.system_text(), first.state.clone()));
    }
}

#[test]
fn case_15_too_many_options_or_only_one_is_an_error_that_names_the_question() {
    for count in [1, 1025] {
        let options: Vec<String> = (0..count).map(|index| format!("\"o{index}\"")).collect();
        let questions =
            format!("[{{\"id\": \"wide\", \"type\": \"choice\", \"options\": [{}]}}]", options.join(","));
        let message = request(&asking(&questions, "\"x\""), json!({})).unwrap_err().to_string();
        assert!(message.contains("wide") && message.contains("hint:"), "{message}");
    }
}

#[test]
fn case_16_double_ids_and_json_true_in_ask_if_are_explained() {
    let twice =
        request(&asking(r#"[{"id":"a","type":"boolean"},{"id":"a","type":"boolean"}]"#, "\"x\""), json!({}))
            .unwrap_err()
            .to_string();
    assert!(twice.contains("\"a\"") && twice.contains("hint:"), "{twice}");
    let condition = request(
        &asking(
            r#"[{"id":"a","type":"boolean"},{"id":"b","type":"boolean","ask_if":{"a":[true]}}]"#,
            "\"x\"",
        ),
        json!({}),
    )
    .unwrap_err()
    .to_string();
    assert!(condition.contains("yes") && condition.contains("\nhint:"), "{condition}");
}

#[test]
fn case_17_a_default_stands_in_for_undefined_and_blank_but_not_for_false_or_zero() {
    let source = asking(ONE, "{\"v\": {{ v | or_default(value=\"d\") | json_encode }}}");
    for (values, expected) in [
        (json!({}), json!("d")),
        (json!({"v": " "}), json!("d")),
        (json!({"v": null}), json!("d")),
        (json!({"v": false}), json!(false)),
        (json!({"v": 0}), json!(0)),
    ] {
        let made = request(&source, values.clone()).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&made.state).unwrap()["v"], expected, "{values}");
    }
}

#[test]
fn the_state_is_the_authors_text_and_without_one_it_is_all_variables() {
    let literal =
        request(&asking(ONE, "{ \"b\" : 1.0,\n \"a\":10000000000000000000001 }"), json!({})).unwrap();
    assert_eq!(literal.state, "{ \"b\" : 1.0,\n \"a\":10000000000000000000001 }");
    let escaped = request(&asking(ONE, "{\"a\": \"\\u6771 \\u0041\"}"), json!({})).unwrap();
    assert_eq!(escaped.state, "{\"a\": \"東 \\u0041\"}");
    let text = request(&asking(ONE, "{{ doc | json_encode }}"), json!({"doc": "line\n東"})).unwrap();
    assert_eq!(text.state, "line\n東");
    let none =
        request(&format!("{{\"schema\": {{\"questions\": {ONE}}}}}"), json!({"z": "é", "a": true})).unwrap();
    assert_eq!((none.state.as_str(), none.state_holds_variables), (r#"{"z":"é","a":true}"#, true));
}

#[test]
fn a_flat_object_is_a_schema_whose_state_keys_move_out() {
    let made = request(&format!("{{\"questions\": {ONE}, \"samples\": 2, \"input\": {{{{ alert | json_encode }}}}, \"context\": null}}"), json!({"alert": "fire"})).unwrap();
    assert_eq!(made.state, r#"{"alert":"fire","input":"fire"}"#);
    assert_eq!(made.schema.samples, decision::Samples::Fixed(2));
    let merged =
        request(&format!("{{\"questions\": {ONE}, \"state\": {{\"k\": 1}}}}"), json!({"a": "b"})).unwrap();
    assert_eq!(merged.state, r#"{"a":"b","k":1}"#);
}

#[test]
fn what_is_no_decision_is_refused() {
    for (source, part) in [
        ("[1]", "no object"),
        ("plain text", "invalid JSON"),
        (r#"{"schema": {"questions": [{"id":"q","type":"boolean"}]}, "stat": 1}"#, "`stat`"),
        (r#"{"schema": {"questions": [{"id":"q","type":"boolean"}], "sample": 2}}"#, "sample"),
        (r#"{"schema": {"questions": []}, "state": 1, "state": 2}"#, "state"),
        ("{{ x", "invalid template"),
        ("{{ .x }}", "Go template"),
        ("{{ get_env(name=\"HOME\") }}", "cannot read the environment"),
        ("{{ 0 | int_or_auto }}", "at least 1"),
    ] {
        let message = request(source, json!({})).unwrap_err().to_string();
        assert!(message.contains(part), "{source}: {message}");
    }
}

#[test]
fn nothing_is_escaped_behind_the_authors_back() {
    let mut plain = template(&asking(ONE, "{{ x | json_encode }}")).unwrap();
    let made = plain.request(&variables(json!({"x": "a < b && c > d"}))).unwrap();
    assert_eq!(made.state, "a < b && c > d");
    // Tera escapes by file name; ours must not even for this one.
    plain = Template::parse(Path::new("t.html"), asking(ONE, "{{ x | json_encode }}")).unwrap();
    assert_eq!(plain.request(&variables(json!({"x": "\"<&>'"}))).unwrap().state, "\"<&>'");
}
