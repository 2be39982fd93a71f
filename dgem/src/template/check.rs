//! Looks for faults of a template file without sending anything: what would fail is an error, what may surprise a warning.

use std::path::Path;

use super::{Template, quoting};
use crate::error::Error;
use crate::variables::Variables;

/// Above this the answers share one line of the canvas instead of one line each.
const COMFORTABLE_QUESTIONS: usize = 10;

/// Loads the file, compares metadata and variables, and renders it with `given` and the sample values.
/// The warnings come back; the first fault that would stop `decide` is the error.
pub fn check(path: &Path, given: &Variables) -> Result<Vec<String>, Error> {
    let template = Template::load(path)?;
    let mut warnings = documentation(&template);
    warnings.extend(quoting::faults(&template.source));
    let request = template.request(&given.clone().or_else(template.samples()))?;
    let questions = request.schema.questions.len();
    if questions > COMFORTABLE_QUESTIONS {
        warnings.push(format!(
            "{questions} questions: above {COMFORTABLE_QUESTIONS} the answers are read in a shorter form; consider two templates"
        ));
    }
    if request.lacks_state() {
        warnings.push("it renders no `state`: the variables given will be the state".to_owned());
    }
    Ok(warnings)
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
            warnings.push(format!("`{name}` is needed, but has no sample value"));
        }
    }
    warnings
}
