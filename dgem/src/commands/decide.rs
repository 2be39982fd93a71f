//! `dgem decide`: template → request → server → answers.

use std::io;

use decision::{Limits, Samples};

use super::warn;
use crate::cli::{ConnectionFlags, DecideArgs};
use crate::client::Client;
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Outcome, Style};
use crate::settings::Settings;
use crate::template::{Request, Template};
use crate::variables::Variables;

pub(super) async fn run(
    args: DecideArgs,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let settings = Settings::resolve(connection, environment)?;
    let request = prepare(&args)?;
    let decided = Client::new(settings)?.decide(&request).await?;
    decided.reply.warnings.iter().for_each(|text| warn(text));
    let stdout = io::stdout();
    let style = Style::for_stream(&stdout, environment);
    output::write(&mut stdout.lock(), args.format, style, &request.schema, &decided, args.stats)?;

    let missing = missing(&request, &decided.reply);
    if missing.is_empty() {
        return Ok(Exit::Done);
    }
    warn(&format!("the reply has no answer for {}", missing.join(", ")));
    Ok(if args.strict { Exit::ConditionNotMet } else { Exit::Done })
}

/// Everything that can fail without a server.
fn prepare(args: &DecideArgs) -> Result<Request, Error> {
    let variables = Variables::gather(&args.variables)?;
    let template = Template::load(&args.template)?;
    let mut request = template.request(&variables)?;
    super::template::warn_unknown(&template, &variables, &request);
    if let Some(text) = &args.samples {
        request.schema.samples = samples(text)?;
    }
    if args.seed.is_some() {
        request.schema.seed = args.seed;
    }
    request.schema.validate(&Limits::default()).map_err(|cause| Error::schema(&args.template, cause))?;
    Ok(request)
}

fn samples(text: &str) -> Result<Samples, Error> {
    match text.trim() {
        "auto" => Ok(Samples::Auto),
        number => number
            .parse()
            .ok()
            .filter(|count| *count >= 1)
            .map(Samples::Fixed)
            .ok_or_else(|| Error::BadSamples { value: text.to_owned() }),
    }
}

fn missing(request: &Request, reply: &crate::client::Reply) -> Vec<String> {
    output::rows(&request.schema, reply)
        .iter()
        .filter(|row| matches!(row.outcome, Outcome::Missing))
        .map(|row| format!("`{}`", row.id))
        .collect()
}
