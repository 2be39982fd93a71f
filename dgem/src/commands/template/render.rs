//! `dgem template render`: the request that `decide` would send, as one JSON document.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::warn_unknown;
use crate::cli::RenderArgs;
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::template::{Catalogue, Request};
use crate::variables::Variables;

pub(super) fn run(args: &RenderArgs, environment: &Environment) -> Result<Exit, Error> {
    let template = Catalogue::new(&args.catalogue, environment).load(args.template.path())?;
    let mut variables = Variables::gather(&args.variables)?;
    if args.sample {
        variables = variables.or_else(template.samples());
    }
    let mut out = io::stdout().lock();
    if template.is_text() {
        writeln!(out, "{}", template.text(&variables)?)?;
        return Ok(Exit::Done);
    }
    if args.raw {
        write!(out, "{}", template.render(&variables)?)?;
        return Ok(Exit::Done);
    }
    let request = template.request_with_state(&variables)?;
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
