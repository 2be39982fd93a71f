//! `dgem decide`: template → request → server → answers → gates.
//!
//! What can fail without a server fails before anything is sent (`prepare`, the gates, the cascade's settings). `preview` shows
//! the request instead of sending it.

mod prepare;
mod preview;

use std::io::{self, Write};
use std::sync::Arc;

use self::prepare::Prepared;
use super::{note, warn, warn_other_model};
use decision::Schema;

use crate::asking::Server;
use crate::cascade::Cascade;
use crate::cli::{Api, ConnectionFlags, DecideArgs};
use crate::client::Client;
use crate::deciding::{Decider, Whole};
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::fallback;
use crate::foreign::visible;
use crate::gates::{Failure, Gates};
use crate::output::{self, Page, Report, Style};
use crate::settings::Settings;
use crate::verdict::Verdict;

pub(super) async fn run(
    args: DecideArgs,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let settings = Settings::resolve(connection, environment)?;
    let Prepared { schema, state, calibration } = prepare::prepare(&args, settings.timeout, environment)?;
    let gates = Gates::new(&args.gates, &schema)?;
    let cascade = Cascade::new(&args.cascade, !state.images.is_empty(), environment)?;
    if args.output.dry_run || args.output.curl {
        let text = preview::text(&settings, args.read.api, &schema, &state, args.output.curl);
        writeln!(io::stdout().lock(), "{text}")?;
        if several_requests(&schema, args.read.permute) {
            note(
                "note: only one request is shown; --permute, or a choice with more options than the server takes, makes several",
            );
        }
        return Ok(Exit::Done);
    }

    let wanted = settings.model.clone();
    let client = super::connect::ready(Client::new(settings)?).await?;
    let server = Arc::new(Server::new(client, args.read.api));
    let decider = Decider { server, orders: args.read.permute, cascade };
    let Whole { mut answered, permutation, cascade: telemetry } = decider.decide(&schema, state).await?;
    let api = decider.server.api();

    let raw = gates.failures(&answered.verdict, &answered.decided.reply.diagnostics);
    let applied = calibration
        .map(|(path, calibration)| calibration.apply(&path, &schema, &mut answered))
        .transpose()?;
    let (decided, verdict) = (&answered.decided, &answered.verdict);
    if args.read.api.is_none() && api == Some(Api::Openai) {
        warn(fallback::WARNING);
    }
    decided.reply.warnings.iter().chain(&verdict.notes).for_each(|text| warn(text));
    warn_other_model(wanted.as_deref(), decided.reply.model.as_deref());
    let failures =
        if args.gates.calibrated_gates { gates.failures(verdict, &decided.reply.diagnostics) } else { raw };
    let report = Report {
        schema: &schema,
        decided,
        verdict,
        permutation: permutation.as_ref(),
        cascade: telemetry.as_ref(),
        calibration: applied.as_ref(),
        gates: args.gates.any().then_some(&failures),
        api,
    };
    let stdout = io::stdout();
    let page = Page { style: Style::for_stream(&stdout, environment), width: output::width_of(&stdout) };
    output::write(&mut stdout.lock(), &args.output, page, &report)?;
    if let Some(error) = telemetry.as_ref().and_then(|telemetry| telemetry.error.as_deref()) {
        warn(&format!("the second model did not help: {error}; the first model's answers stand"));
    }
    Ok(end(verdict, &failures, args.gates.strict))
}

/// Whether what is asked may not fit in one request. Only the server knows how many options it takes.
fn several_requests(schema: &Schema, orders: Option<usize>) -> bool {
    let most = decision::Limits::default().max_alternatives;
    orders.is_some_and(|orders| orders > 1)
        || schema.asked().iter().any(|question| question.alternatives() > most)
}

/// Says on stderr what is wrong with the answers, and how the run ended.
fn end(verdict: &Verdict<'_>, failures: &[Failure], strict: bool) -> Exit {
    let missing: Vec<String> = verdict.missing().iter().map(|id| format!("`{}`", visible(id))).collect();
    if !missing.is_empty() {
        warn(&format!("the reply has no answer for {}", missing.join(", ")));
    }
    for (id, reason) in verdict.invalid() {
        warn(&format!("the answer to `{}` is invalid: {reason}", visible(id)));
    }
    for failure in failures {
        let _ = writeln!(io::stderr(), "{failure}");
    }
    match exit(verdict, strict) {
        Exit::Done if !failures.is_empty() => Exit::ConditionNotMet,
        exit => exit,
    }
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
