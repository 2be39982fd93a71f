//! Looks for faults of a template file without sending anything: what would fail is an error, what may surprise a warning.

use serde_json::{Map, Value};

use super::{Request, Template, quoting, tags};
use crate::error::Error;
use crate::variables::Variables;

/// Above this the answers share one line of the canvas instead of one line each.
const COMFORTABLE_QUESTIONS: usize = 10;

/// Labels that every server has; wider choices are asked in groups where there are no more.
const COMFORTABLE_OPTIONS: usize = 26;

/// A template without a fault.
#[derive(Debug)]
pub struct Checked {
    pub warnings: Vec<String>,
    /// What it renders to with the values given, its samples, and placeholders for the rest; `None` for a text.
    pub request: Option<Request>,
}

/// Compares metadata and variables, and renders the template. The first fault that would stop `decide` is the error.
pub fn check(template: &Template, given: &Variables) -> Result<Checked, Error> {
    let mut warnings = documentation(template);
    let values = given.clone().or_else(template.samples()).or_else(&placeholders(template));
    let read = template.variables();
    let unread =
        |name: &&String| !values.contains(name) && !read.iter().any(|variable| variable.name == **name);
    if let Some(name) = template.metadata().required.iter().find(unread) {
        let source = template.source();
        return Err(Error::TemplateMetadata {
            path: template.path().to_owned(),
            line: tags::line_at(source, source.find(&format!("\"{name}\"")).unwrap_or_default()),
            reason: format!(
                "`required` names `{name}`, which the template never reads and `sample` does not have"
            ),
        });
    }
    if template.is_text() {
        if template.text(&values)?.is_empty() {
            warnings.push("it renders to an empty text".to_owned());
        }
        return Ok(Checked { warnings, request: None });
    }
    warnings.extend(quoting::faults(template.source()));
    let request = template.request(&values)?;
    let questions = request.schema.questions.len();
    if questions > COMFORTABLE_QUESTIONS {
        warnings.push(format!(
            "{questions} questions: above {COMFORTABLE_QUESTIONS} the answers are read in a shorter form; consider two templates"
        ));
    }
    for question in request.schema.questions.iter().filter(|q| q.alternatives() > COMFORTABLE_OPTIONS) {
        warnings.push(format!(
            "`{}` has {} alternatives: above {COMFORTABLE_OPTIONS} a choice may need several requests, and a score does not work everywhere",
            question.id,
            question.alternatives()
        ));
    }
    if request.lacks_state() {
        warnings.push("it renders no `state`: the variables given will be the state".to_owned());
    }
    Ok(Checked { warnings, request: Some(request) })
}

/// A stand-in for every variable that is needed, in the shape in which the template reads it.
fn placeholders(template: &Template) -> Map<String, Value> {
    let needed = template.variables().into_iter().filter(|variable| variable.required);
    needed.map(|variable| (variable.name.to_owned(), template.0.usage.placeholder(variable.name))).collect()
}

fn documentation(template: &Template) -> Vec<String> {
    let metadata = template.metadata();
    let variables = template.variables();
    let mut warnings = Vec::new();
    if metadata.description.is_empty() {
        warnings.push(
            "no description: add {# dgem: {\"description\": \"…\", \"required\": […], \"sample\": {…}} #}"
                .to_owned(),
        );
    }
    for name in metadata.required.iter().chain(metadata.sample.keys()) {
        if !variables.iter().any(|variable| variable.name == name) {
            warnings.push(format!("the metadata names `{name}`, which the template never reads"));
        }
    }
    for variable in variables.into_iter().filter(|variable| variable.required) {
        let name = variable.name;
        if !metadata.required.iter().any(|required| required == name) {
            warnings.push(format!("`{name}` is needed, but the metadata does not list it under `required`"));
        }
        if variable.sample.is_none() {
            warnings.push(format!(
                "`{name}` is needed, but has no sample value; without one a placeholder is checked"
            ));
        }
    }
    warnings
}
