//! `--explain`: every probability as a bar, what the slots looked like, and the text that the model was given.

use decision::{AnswerTemplate, Layout, Question, question_sheet};
use serde_json::{Value, json};

use super::Report;
use super::style::Style;
use crate::cli::Api;
use crate::fallback;
use crate::foreign::visible;
use crate::share::percent;
use crate::verdict::Row;

const BAR_CHARS: usize = 32;
/// What a slot holds before the read.
const SLOT: &str = "▢";

/// For people.
pub(super) fn text(rows: &[&Row<'_>], report: &Report<'_>, style: Style) -> String {
    let asked = report.schema.asked();
    let mut blocks = Vec::new();
    for row in rows {
        if let (Some(answer), Some(question)) =
            (row.answer(), asked.iter().find(|question| question.id == row.id))
        {
            let mut lines = vec![style.bold(&format!("{}: {}", visible(row.id), visible(answer.name())))];
            lines.extend(bars(question, &answer.probabilities));
            lines.extend(slot(row, report).map(|line| style.dim(&line)));
            blocks.push(lines.join("\n"));
        }
    }
    if let Some(thought) = &report.decided.reply.diagnostics.thought {
        blocks.push(format!("{}\n{}", style.bold("THOUGHT"), indented(thought)));
    }
    let sheet = sheet(report);
    let title = format!("SHEET ({})", sheet.layout);
    blocks.push(format!("{}\n{}", style.bold(&title), indented(&sheet.text)));
    if let Some(answers) = sheet.answers {
        blocks.push(format!("{}\n{}", style.bold("ANSWERS (read at ▢)"), indented(&answers)));
    }
    blocks.join("\n\n")
}

/// For programs: what the table form shows below the bars.
pub(super) fn json(report: &Report<'_>) -> Value {
    let sheet = sheet(report);
    json!({"layout": sheet.layout, "sheet": sheet.text, "answer_template": sheet.answers})
}

/// `A  billing  97.1%  ████`, one line for each allowed answer.
fn bars(question: &Question, probabilities: &indexmap::IndexMap<String, f64>) -> Vec<String> {
    let labels = question.labels();
    let names: Vec<String> = question.answer_names().into_iter().map(visible).collect();
    let widest = |texts: &[String]| texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
    let (label_width, name_width) = (widest(&labels), widest(&names));
    question
        .answer_names()
        .iter()
        .enumerate()
        .map(|(index, key)| {
            let (label, name) = (&labels[index], &names[index]);
            let head = if label == name {
                format!("{name:<name_width$}")
            } else {
                format!("{label:<label_width$}  {name:<name_width$}")
            };
            match probabilities.get(*key) {
                Some(p) => format!("  {head}  {:>6}  {}", percent(*p), bar(*p)).trim_end().to_owned(),
                None => format!("  {head}  not in the reply"),
            }
        })
        .collect()
}

/// In eighths of a character.
fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (BAR_CHARS * 8) as f64).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// What the server says about the place at which the answer was read.
fn slot(row: &Row<'_>, report: &Report<'_>) -> Option<String> {
    let slot = report.decided.reply.diagnostics.questions.get(row.id)?;
    let parts = [
        slot.label_mass.map(|mass| format!("label mass {}", percent(mass))),
        Some(format!("slot at canvas row {}", slot.pos)).filter(|_| slot.pos > 0),
        match (slot.argmax_is_label, &slot.argmax_token) {
            (Some(false), Some(token)) => {
                Some(format!("the most probable token is no label: `{}`", visible(token)))
            }
            (Some(false), None) => Some("the most probable token is no label".to_owned()),
            _ => None,
        },
    ];
    let text = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    Some(format!("  {text}")).filter(|_| !text.is_empty())
}

struct Sheet {
    layout: &'static str,
    text: String,
    /// `None` where the model writes JSON instead.
    answers: Option<String>,
}

/// What one read of all questions is given, by the contract. A server may split it, and tells in `diagnostics.chunks`.
fn sheet(report: &Report<'_>) -> Sheet {
    let schema = report.schema;
    let asked = schema.asked();
    if report.api == Some(Api::Openai) {
        return Sheet { layout: schema.layout.as_str(), text: fallback::sheet(schema), answers: None };
    }
    let layout = if report.api == Some(Api::Systemone) { Layout::DocumentFirst } else { schema.layout };
    let slots = vec![SLOT; asked.len()];
    Sheet {
        layout: layout.as_str(),
        text: question_sheet(schema, &asked, false),
        answers: Some(AnswerTemplate::new(&asked).text_with(&slots)),
    }
}

fn indented(text: &str) -> String {
    text.lines()
        .map(|line| format!("  {}", visible(line)).trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}
