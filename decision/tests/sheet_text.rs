//! The exact wording of the question sheet and of the messages around it. A tuned checkpoint depends on every character.
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use decision::{
    AnswerForm, AnswerTemplate, Question, Schema, document_first_text, question_sheet,
    question_sheet_with_labels, system_text,
};
use serde_json::json;

fn sheet(text: &str) -> String {
    let schema = Schema::from_json(text).unwrap();
    question_sheet(&schema, &schema.asked(), false)
}

fn numbered(count: usize) -> Schema {
    let questions: Vec<_> = (1..=count).map(|n| json!({"id": format!("q{n}"), "type": "boolean"})).collect();
    Schema::from_value(&json!({ "questions": questions })).unwrap()
}

const TRIAGE: &str = r#"{"instructions": "  Tickets of a shop.\n",
  "questions": [
    {"id": "urgent", "type": "boolean", "instructions": " Immediate escalation required? ",
     "criteria": {"true": "outage or data loss", "false": "anything that can wait"}},
    {"id": "team", "type": "choice", "instructions": "Owning team",
     "options": [{"name": "billing", "description": "money"}, {"name": "support"}, "engineering"]},
    {"id": "sentiment", "type": "score", "instructions": "Customer distress",
     "levels": ["calm", "frustrated", "furious"]}]}"#;

const TRIAGE_SHEET: &str = "\
Decide each question below from the state given by the user. Every question lists its labels; choose one label for each question.

Tickets of a shop.

Question urgent: Immediate escalation required?
- yes: outage or data loss
- no: anything that can wait

Question team: Owning team
- A: billing, money
- B: support
- C: engineering

Question sentiment: Customer distress
- 1: calm
- 2: frustrated
- 3: furious

Write one line per question, in the order above: the id, a colon, a space, the label.";

#[test]
fn a_full_sheet() {
    assert_eq!(sheet(TRIAGE), TRIAGE_SHEET);
}

#[test]
fn a_sheet_without_instructions_criteria_and_descriptions() {
    for instructions in ["", r#""instructions": " \n ", "#, r#""instructions": null, "#] {
        let text = format!(
            r#"{{{instructions}"questions": [{{"id": "a", "type": "boolean"}},
                {{"id": "b", "type": "choice", "options": ["x", {{"name": "y", "description": ""}}]}}]}}"#
        );
        assert_eq!(
            sheet(&text),
            "\
Decide each question below from the state given by the user. Every question lists its labels; choose one label for each question.

Question a:
- yes
- no

Question b:
- A: x
- B: y

Write one line per question, in the order above: the id, a colon, a space, the label."
        );
    }
}

#[test]
fn one_side_of_a_boolean_may_have_a_criterion() {
    let text = r#"{"questions": [{"id": "a", "type": "boolean", "instructions": "Is it?", "criteria": {"false": "it is not"}}]}"#;
    assert!(sheet(text).contains("\n\nQuestion a: Is it?\n- yes\n- no: it is not\n\n"));
}

#[test]
fn a_score_of_more_than_nine_levels_has_letters() {
    let text =
        r#"{"questions": [{"id": "a", "type": "score", "levels": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}]}"#;
    assert!(sheet(text).contains("\n- A: 1\n- B: 2\n") && sheet(text).contains("\n- K: 11\n\n"));
}

#[test]
fn more_than_ten_questions_are_answered_on_one_line() {
    let ten = numbered(10);
    assert!(question_sheet(&ten, &ten.asked(), false).ends_with(
        "\n- no\n\nWrite one line per question, in the order above: the id, a colon, a space, the label."
    ));
    let eleven = numbered(11);
    assert!(question_sheet(&eleven, &eleven.asked(), false).ends_with(
        "\n- no\n\nWrite all answers on one line, separated by single spaces: each id followed at once by its label."
    ));
}

#[test]
fn a_partial_read_says_so() {
    let two = numbered(2);
    assert!(question_sheet(&two, &two.asked(), true).ends_with(
        "\n\nWrite one line per question, in the order above: the id, a colon, a space, the label. Answer only the lines that are present."
    ));
    let eleven = numbered(11);
    assert!(question_sheet(&eleven, &eleven.asked(), true).ends_with(
        "\n\nWrite all answers on one line, separated by single spaces: each id followed at once by its label. Answer only the lines that are present."
    ));
}

#[test]
fn only_the_asked_questions_are_on_the_sheet() {
    let schema = Schema::from_json(TRIAGE).unwrap();
    let sheet = question_sheet(&schema, &[&schema.questions[2]], false);
    assert!(sheet.contains("Question sentiment") && !sheet.contains("Question team"));
    assert!(sheet.contains("\n\nTickets of a shop.\n\n"));
}

#[test]
fn an_engine_may_bring_its_own_labels() {
    let schema = Schema::from_json(TRIAGE).unwrap();
    let labels = vec![vec!["red".to_owned(), "blue".to_owned(), "green".to_owned()]];
    let sheet =
        question_sheet_with_labels(&schema, &[&schema.questions[1]], &labels, AnswerForm::Lines, false);
    assert!(sheet.contains("\n- red: billing, money\n- blue: support\n- green: engineering\n\n"));
}

#[test]
fn the_messages_of_both_layouts() {
    assert_eq!(system_text(TRIAGE_SHEET), TRIAGE_SHEET);
    let state = "{\"ticket\": \"a < b && c > é\\n\"}";
    let text = document_first_text(state, "SHEET");
    assert_eq!(text, "State:\n{\"ticket\": \"a < b && c > é\\n\"}\n\nSHEET");
}

#[test]
fn the_answer_template_of_the_contract() {
    let schema = Schema::from_json(TRIAGE).unwrap();
    let asked: Vec<&Question> = schema.asked();
    let template = AnswerTemplate::new(&asked);
    assert_eq!(template.text_with(&["yes", "A", "2"]), "urgent: yes\nteam: A\nsentiment: 2");
}
