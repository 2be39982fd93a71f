//! The text a decision puts to the model: the question sheet and the messages around it.
//!
//! A checkpoint tuned for reads is tuned on exactly this wording, so the strings here are part of the contract and the tests
//! hold them as literals. Called by the server; the client shows the same text when it explains a template.
//! Next: `answer_template`.

use crate::answer_template::AnswerForm;
use crate::question::{Kind, Question};
use crate::schema::Schema;

const OPENING: &str = "Decide each question below from the state given by the user. \
    Every question lists its labels; choose one label for each question.";
const CLOSING_LINES: &str =
    "Write one line per question, in the order above: the id, a colon, a space, the label.";
const CLOSING_ONE_LINE: &str =
    "Write all answers on one line, separated by single spaces: each id followed at once by its label.";
const CLOSING_PARTIAL: &str = " Answer only the lines that are present.";

/// The sheet of `asked` with plain labels. `partial` says that the read covers only some of these questions.
///
/// No newline at the end: the chat template closes the turn.
pub fn question_sheet(schema: &Schema, asked: &[&Question], partial: bool) -> String {
    let labels: Vec<Vec<String>> = asked.iter().map(|question| question.labels()).collect();
    question_sheet_with_labels(schema, asked, &labels, AnswerForm::of(asked.len()), partial)
}

/// The sheet with labels and a form chosen by the engine: the usual form of so many questions is not one every tokenizer can
/// read. `labels: [asked][alternatives]`; an answer without a label is not listed.
pub fn question_sheet_with_labels(
    schema: &Schema,
    asked: &[&Question],
    labels: &[Vec<String>],
    form: AnswerForm,
    partial: bool,
) -> String {
    let mut sheet = String::from(OPENING);
    if let Some(instructions) = trimmed(schema.instructions.as_deref()) {
        sheet.push_str("\n\n");
        sheet.push_str(instructions);
    }
    for (question, labels) in asked.iter().zip(labels) {
        sheet.push_str("\n\n");
        push_question(&mut sheet, question, labels);
    }
    sheet.push_str("\n\n");
    sheet.push_str(match form {
        AnswerForm::Lines => CLOSING_LINES,
        AnswerForm::OneLine => CLOSING_ONE_LINE,
    });
    if partial {
        sheet.push_str(CLOSING_PARTIAL);
    }
    sheet
}

/// The system message of the schema-first layout; the state is the user message, as given.
pub fn system_text(sheet: &str) -> String {
    sheet.to_owned()
}

/// The only user message of the document-first layout. The state goes in byte for byte.
pub fn document_first_text(state: &str, sheet: &str) -> String {
    format!("State:\n{state}\n\n{sheet}")
}

fn push_question(sheet: &mut String, question: &Question, labels: &[String]) {
    sheet.push_str("Question ");
    sheet.push_str(&question.id);
    sheet.push(':');
    if let Some(instructions) = trimmed(question.instructions.as_deref()) {
        sheet.push(' ');
        sheet.push_str(instructions);
    }
    match &question.kind {
        Kind::Boolean { yes, no } => {
            for (label, criterion) in labels.iter().zip([yes, no]) {
                push_alternative(sheet, label, [criterion.as_deref(), None]);
            }
        }
        Kind::Choice { options } => {
            for (label, option) in labels.iter().zip(options) {
                push_alternative(sheet, label, [Some(&option.name), option.description.as_deref()]);
            }
        }
        Kind::Score { levels } => {
            for (label, level) in labels.iter().zip(levels) {
                push_alternative(sheet, label, [Some(level), None]);
            }
        }
    }
}

/// `- label`, `- label: meaning` or `- label: meaning, description`; an empty part is left out.
fn push_alternative(sheet: &mut String, label: &str, parts: [Option<&str>; 2]) {
    sheet.push_str("\n- ");
    sheet.push_str(label);
    for (separator, part) in [": ", ", "].into_iter().zip(parts) {
        if let Some(part) = part.filter(|part| !part.trim().is_empty()) {
            sheet.push_str(separator);
            sheet.push_str(part);
        }
    }
}

fn trimmed(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}
