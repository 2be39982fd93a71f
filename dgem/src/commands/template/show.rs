//! `dgem template show`: what a template wants to know and what it asks.

use std::io::{self, Write};

use decision::{Kind, Question};
use serde_json::Value;

use crate::cli::ShowArgs;
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::foreign::visible;
use crate::output::{text_table, width_of};
use crate::template::{Catalogue, Variable};
use crate::variables::Variables;

/// Characters of a sample value that are shown.
const SAMPLE_CHARS: usize = 60;

pub(super) fn run(args: &ShowArgs, environment: &Environment) -> Result<Exit, Error> {
    let template = Catalogue::new(&args.catalogue, environment).load_any(args.template.path())?;
    let mut out = io::stdout().lock();
    if args.source {
        write!(out, "{}", template.source())?;
        return Ok(Exit::Done);
    }
    writeln!(out, "{}\n", template.path().display())?;
    if !template.metadata().description.is_empty() {
        writeln!(out, "{}\n", visible(&template.metadata().description))?;
    }
    if template.metadata().image {
        writeln!(out, "It is about images: give them with -I.\n")?;
    }
    let width = width_of(&io::stdout());
    let variables: Vec<Vec<String>> = template.variables().iter().map(variable_row).collect();
    if !variables.is_empty() {
        writeln!(out, "{}\n", text_table(&["VARIABLE", "NEED", "SAMPLE"], &[16, 10, 20], &variables, width))?;
    }
    if template.is_text() {
        return Ok(Exit::Done);
    }
    let request = template.request(&Variables::default().or_else(template.samples()))?;
    let questions: Vec<Vec<String>> = request.schema.questions.iter().map(question_row).collect();
    let header = ["QUESTION", "TYPE", "ANSWERS", "INSTRUCTIONS"];
    writeln!(out, "{}", text_table(&header, &[16, 10, 20, 20], &questions, width))?;
    Ok(Exit::Done)
}

fn variable_row(variable: &Variable<'_>) -> Vec<String> {
    let need = if variable.required { "required" } else { "optional" };
    vec![variable.name.to_owned(), need.to_owned(), variable.sample.map_or("-".to_owned(), short)]
}

/// A sample on one line, cut where it gets long.
fn short(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = visible(&words.join(" "));
    match line.char_indices().nth(SAMPLE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn question_row(question: &Question) -> Vec<String> {
    let separator = if matches!(question.kind, Kind::Score { .. }) { " < " } else { ", " };
    vec![
        visible(&question.id),
        question.kind.type_name().to_owned(),
        visible(&question.answer_names().join(separator)),
        visible(question.instructions.as_deref().unwrap_or("-")),
    ]
}
