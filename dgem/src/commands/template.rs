//! `dgem template …`: everything about templates that needs no server.

use std::io::{self, Write};
use std::path::Path;

use decision::{Kind, Question};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::warn;
use crate::cli::{CheckArgs, ListArgs, RenderArgs, ShowArgs, TemplateCommand};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{text_table, visible};
use crate::template::{Request, Template, Use, check, find_templates, template_id};
use crate::variables::Variables;

pub(super) fn run(command: TemplateCommand) -> Result<Exit, Error> {
    match command {
        TemplateCommand::Render(args) => render(args),
        TemplateCommand::List(args) => list(&args),
        TemplateCommand::Show(args) => show(&args),
        TemplateCommand::Check(args) => check_all(&args),
    }
}

/// A misspelt `-v` name would silently leave the default in place.
pub(super) fn warn_unknown(template: &Template, variables: &Variables, request: &Request) {
    if request.state_holds_variables {
        return;
    }
    for name in template.unknown(variables) {
        let known = template.known();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        warn(&format!("{} does not use the variable `{name}`; it knows: {known}", template.path().display()));
    }
}

fn render(args: RenderArgs) -> Result<Exit, Error> {
    let template = Template::load(&args.template)?;
    let mut variables = Variables::gather(&args.variables)?;
    if args.sample {
        variables = variables.or_else(template.samples());
    }
    let mut out = io::stdout().lock();
    if args.raw {
        write!(out, "{}", template.render(&variables)?)?;
        return Ok(Exit::Done);
    }
    let request = template.request(&variables)?;
    warn_unknown(&template, &variables, &request);
    writeln!(out, "{}", document(&request))?;
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct Rendered<'a> {
    schema: Value,
    state: State<'a>,
}

/// A state that is JSON is shown as the JSON it is, byte for byte; any other text as a string.
#[derive(Serialize)]
#[serde(untagged)]
enum State<'a> {
    Json(Box<RawValue>),
    Text(&'a str),
}

fn document(request: &Request) -> String {
    let is_structured = request.state.trim_start().starts_with(['{', '[']);
    let state = match RawValue::from_string(request.state.clone()) {
        Ok(raw) if is_structured => State::Json(raw),
        _ => State::Text(&request.state),
    };
    // Maps with text keys cannot fail to serialise.
    serde_json::to_string_pretty(&Rendered { schema: request.schema.to_value(), state }).unwrap_or_default()
}

fn list(args: &ListArgs) -> Result<Exit, Error> {
    let mut rows = Vec::new();
    for path in find_templates(&args.folder)? {
        let id = template_id(&args.folder, &path);
        match Template::load(&path) {
            Ok(template) => {
                rows.push(vec![id, variables_of(&template), visible(&template.metadata().description)])
            }
            Err(error) => {
                warn(&error.to_string());
                rows.push(vec![id, "-".to_owned(), "(cannot be loaded)".to_owned()]);
            }
        }
    }
    let mut out = io::stdout().lock();
    if rows.is_empty() {
        warn(&format!("there are no *.json.tmpl files below {}", args.folder.display()));
    } else {
        writeln!(out, "{}", text_table(&["TEMPLATE", "VARIABLES", "DESCRIPTION"], &[16, 10, 20], &rows))?;
    }
    Ok(Exit::Done)
}

/// Names in order, those that can be left out in brackets.
fn variables_of(template: &Template) -> String {
    let names: Vec<String> = template
        .usage()
        .iter()
        .map(
            |(name, usage)| {
                if is_required(template, name, usage) { name.to_owned() } else { format!("[{name}]") }
            },
        )
        .collect();
    names.join(" ")
}

fn is_required(template: &Template, name: &str, usage: Use) -> bool {
    usage == Use::Required || template.metadata().required.iter().any(|required| required == name)
}

fn show(args: &ShowArgs) -> Result<Exit, Error> {
    let template = Template::load(&args.template)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{}\n", args.template.display())?;
    if !template.metadata().description.is_empty() {
        writeln!(out, "{}\n", visible(&template.metadata().description))?;
    }
    let variables: Vec<Vec<String>> = template
        .usage()
        .iter()
        .map(|(name, usage)| {
            let need = if is_required(&template, name, usage) { "required" } else { "optional" };
            vec![name.to_owned(), need.to_owned(), template.samples().get(name).map_or("-".to_owned(), short)]
        })
        .collect();
    if !variables.is_empty() {
        writeln!(out, "{}\n", text_table(&["VARIABLE", "NEED", "SAMPLE"], &[16, 10, 20], &variables))?;
    }
    let request = template.request(&Variables::default().or_else(template.samples()))?;
    let questions: Vec<Vec<String>> = request.schema.questions.iter().map(question_row).collect();
    writeln!(
        out,
        "{}",
        text_table(&["QUESTION", "TYPE", "ANSWERS", "INSTRUCTIONS"], &[16, 10, 20, 20], &questions)
    )?;
    Ok(Exit::Done)
}

/// A sample on one line, cut where it gets long.
fn short(value: &Value) -> String {
    const CHARS: usize = 60;
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let cut: String = text.chars().take(CHARS).collect();
    visible(if text.chars().count() > CHARS { cut + "…" } else { cut }.as_str())
}

fn question_row(question: &Question) -> Vec<String> {
    let separator = if matches!(question.kind, Kind::Score { .. }) { " < " } else { ", " };
    let answers = question.answer_names().join(separator);
    vec![
        visible(&question.id),
        question.kind.type_name().to_owned(),
        visible(&answers),
        visible(question.instructions.as_deref().unwrap_or("-")),
    ]
}

fn check_all(args: &CheckArgs) -> Result<Exit, Error> {
    let given = Variables::gather(&args.variables)?;
    let mut failed = 0;
    let mut out = io::stdout().lock();
    for path in &args.templates {
        match check(path, &given) {
            Ok(warnings) => report(&mut out, path, &warnings)?,
            Err(error) => {
                failed += 1;
                writeln!(out, "FAILED {}\n  {}", path.display(), error.to_string().replace('\n', "\n  "))?;
            }
        }
    }
    if failed > 0 {
        return Err(Error::CheckFailed { failed, checked: args.templates.len() });
    }
    Ok(Exit::Done)
}

fn report(out: &mut impl Write, path: &Path, warnings: &[String]) -> io::Result<()> {
    writeln!(out, "ok     {}", path.display())?;
    warnings.iter().try_for_each(|warning| writeln!(out, "  warning: {warning}"))
}
