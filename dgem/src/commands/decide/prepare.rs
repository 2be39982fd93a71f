//! From the flags to a validated schema and a state: everything that can fail without a server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use decision::{Schema, closest};

use super::super::warn;
use crate::capped;
use crate::cli::{DecideArgs, VariableFlags};
use crate::env::Environment;
use crate::error::Error;
use crate::image::Image;
use crate::manner::Manner;
use crate::overrides::Overrides;
use crate::state::State;
use crate::temper::Calibration;
use crate::template::{Catalogue, client_limits};
use crate::variables::Variables;

pub(super) struct Prepared {
    pub(super) schema: Schema,
    pub(super) state: State,
    /// With its file.
    pub(super) calibration: Option<(PathBuf, Calibration)>,
}

/// `timeout`: no picture takes longer to draw.
pub(super) fn prepare(
    args: &DecideArgs,
    timeout: Duration,
    environment: &Environment,
) -> Result<Prepared, Error> {
    let overrides = Overrides::new(&args.read)?;
    if args.state.as_deref() == Some("-") && reads_stdin(&args.variables) {
        return Err(Error::StdinTwice { flag: "--state -".to_owned() });
    }
    let variables = Variables::gather(&args.variables)?;
    let given = args.state.as_deref().map(read_state).transpose()?;
    // Clap makes sure that one of the two is there.
    let origin = match &args.schema {
        Some(schema) if inline(schema).is_some() => Path::new("the JSON given to --schema"),
        Some(schema) => schema,
        None => args.template.as_deref().unwrap_or(Path::new("")),
    };
    let (mut schema, text) = match &args.schema {
        Some(path) => from_schema(path, origin, given, &variables, args.images.is_empty())?,
        None => from_template(args, origin, given, &variables, environment)?,
    };
    overrides.apply(&mut schema);
    schema.validate(&client_limits()).map_err(|cause| Error::schema(origin, cause))?;
    check_fields(&args.output.fields, &schema)?;
    let images = Image::load_all(&args.images, timeout)?;
    let calibration = args
        .calibration
        .as_deref()
        .map(|path| calibration(path, origin, args, &schema, environment))
        .transpose()?;
    Ok(Prepared { calibration, schema, state: State { text, images } })
}

/// The calibration, if it was fitted on this very template, read in this manner.
fn calibration(
    path: &Path,
    template: &Path,
    args: &DecideArgs,
    schema: &Schema,
    environment: &Environment,
) -> Result<(PathBuf, Calibration), Error> {
    let template = Catalogue::new(&args.catalogue, environment).load(template)?;
    let calibration = Calibration::load_for(path, &template)?;
    calibration.fits_reading(path, &Manner::of(schema, args.read.permute))?;
    Ok((path.to_owned(), calibration))
}

fn from_template(
    args: &DecideArgs,
    origin: &Path,
    given: Option<String>,
    variables: &Variables,
    environment: &Environment,
) -> Result<(Schema, String), Error> {
    let template = Catalogue::new(&args.catalogue, environment).load(origin)?;
    let request = match (&given, args.images.is_empty()) {
        (None, true) => template.request_with_state(variables)?,
        (None, false) => template.request(variables)?,
        (Some(_), _) => template.request_for_other_state(variables)?,
    };
    super::super::template::warn_unknown(&template, variables, &request);
    if args.images.is_empty() && template.metadata().image {
        warn(&format!("{} expects an image, and there is none (-I IMAGE)", origin.display()));
    }
    Ok((request.schema, given.unwrap_or(request.state)))
}

/// The variables are the state when none is given.
fn from_schema(
    schema: &Path,
    path: &Path,
    given: Option<String>,
    variables: &Variables,
    no_images: bool,
) -> Result<(Schema, String), Error> {
    let text = match inline(schema) {
        Some(json) => json.to_owned(),
        None => capped::read_file(path, capped::TEMPLATE_BYTES)
            .and_then(capped::text)
            .map_err(|cause| Error::SchemaFile { path: path.to_owned(), cause })?,
    };
    let schema = Schema::from_json(&text).map_err(|cause| Error::schema(path, cause))?;
    let names = variables.names().count();
    match given {
        Some(state) => Ok((schema, state)),
        None if names == 0 && no_images => Err(Error::NoState { path: path.to_owned() }),
        None if names == 0 => Ok((schema, String::new())),
        None => Ok((schema, serde_json::Value::Object(variables.as_map().clone()).to_string())),
    }
}

/// What begins with a brace is the JSON itself, not the name of a file.
fn inline(schema: &Path) -> Option<&str> {
    schema.to_str().filter(|text| text.trim_start().starts_with('{'))
}

fn reads_stdin(flags: &VariableFlags) -> bool {
    let value_is_stdin = |pair: &String| pair.split_once('=').is_some_and(|(_, value)| value == "-");
    flags.data.as_deref() == Some("-") || flags.var.iter().any(value_is_stdin)
}

/// `-` is stdin, what begins with a brace or a bracket is JSON itself, anything else a file. Nothing in it is changed.
fn read_state(text: &str) -> Result<String, Error> {
    let refuse = |name: &str, reason: String| Error::BadState { name: name.to_owned(), reason };
    match text.trim_start() {
        "-" => capped::read(std::io::stdin().lock(), capped::VARIABLES_BYTES)
            .and_then(capped::text)
            .map_err(|cause| refuse("stdin", cause.to_string())),
        json if json.starts_with(['{', '[']) => {
            serde_json::from_str::<serde::de::IgnoredAny>(json)
                .map_err(|cause| refuse("the JSON given to --state", cause.to_string()))?;
            Ok(text.to_owned())
        }
        _ => capped::read_file(Path::new(text), capped::VARIABLES_BYTES)
            .and_then(capped::text)
            .map_err(|cause| refuse(text, cause.to_string())),
    }
}

fn check_fields(fields: &[String], schema: &Schema) -> Result<(), Error> {
    let ids: Vec<&str> = schema.asked().iter().map(|question| question.id.as_str()).collect();
    match fields.iter().find(|field| !ids.contains(&field.as_str())) {
        None => Ok(()),
        Some(field) => {
            let hint = match closest(field, ids.iter().copied()) {
                Some(id) => format!("did you mean `{id}`?"),
                None => format!("the questions are: {}", ids.join(", ")),
            };
            Err(Error::UnknownField { field: field.clone(), hint })
        }
    }
}
