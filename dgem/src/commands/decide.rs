//! `dgem decide`: template → request → server → answers.

use std::io;

use decision::{Limits, Samples};

use super::warn;
use crate::cli::{ConnectionFlags, DecideArgs};
use crate::client::Client;
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::foreign::visible;
use crate::output::{self, Style};
use crate::settings::Settings;
use crate::template::{Catalogue, Request};
use crate::variables::Variables;
use crate::verdict::Verdict;

pub(super) async fn run(
    args: DecideArgs,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let settings = Settings::resolve(connection, environment)?;
    let request = prepare(&args, environment)?;
    let decided = Client::new(settings)?.decide(&request).await?;
    let verdict = Verdict::new(&request.schema, &decided.reply);
    decided.reply.warnings.iter().chain(&verdict.notes).for_each(|text| warn(text));
    let stdout = io::stdout();
    let style = Style::for_stream(&stdout, environment);
    output::write(&mut stdout.lock(), args.format, style, &decided, &verdict, args.stats)?;

    let missing: Vec<String> = verdict.missing().iter().map(|id| format!("`{}`", visible(id))).collect();
    if !missing.is_empty() {
        warn(&format!("the reply has no answer for {}", missing.join(", ")));
    }
    for (id, reason) in verdict.invalid() {
        warn(&format!("the answer to `{}` is invalid: {reason}", visible(id)));
    }
    Ok(exit(&verdict, args.strict))
}

/// A wrong answer is worse than none: it always shows in the exit code.
fn exit(verdict: &Verdict<'_>, strict: bool) -> Exit {
    let missing = !verdict.missing().is_empty();
    let invalid = verdict.invalid().next().is_some();
    if !missing && !invalid {
        Exit::Done
    } else if !verdict.any_answered() || (invalid && strict) {
        Exit::Rejected
    } else if invalid || strict {
        Exit::ConditionNotMet
    } else {
        Exit::Done
    }
}

/// Everything that can fail without a server.
fn prepare(args: &DecideArgs, environment: &Environment) -> Result<Request, Error> {
    let variables = Variables::gather(&args.variables)?;
    let template = Catalogue::new(&args.catalogue, environment).load(&args.template)?;
    let mut request = template.request_with_state(&variables)?;
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
