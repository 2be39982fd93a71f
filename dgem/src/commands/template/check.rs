//! `dgem template check`: every file is checked, then one exit code says whether all would run.
//!
//! With `--server` each request also goes to the server: only it knows the tokenizer, and with it whether every label is one
//! token, whether the questions fit its canvas and the prompt its context.

use std::io::{self, Write};
use std::path::Path;

use crate::cli::{CheckArgs, ConnectionFlags};
use crate::client::Client;
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::settings::Settings;
use crate::template::{Catalogue, Checked, check};
use crate::variables::Variables;

pub(super) async fn run(
    args: &CheckArgs,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let given = Variables::gather(&args.variables)?;
    let catalogue = Catalogue::new(&args.catalogue, environment);
    let client =
        if args.server { Some(Client::new(Settings::resolve(connection, environment)?)?) } else { None };
    let (mut failed, mut checked) = (0, 0);
    let mut out = io::stdout();
    for path in args.plain.iter().chain(&args.flagged) {
        checked += 1;
        match one(path, &catalogue, &given, client.as_ref()).await {
            Ok(warnings) => {
                writeln!(out, "ok     {}", path.display())?;
                warnings.iter().try_for_each(|warning| writeln!(out, "  warning: {warning}"))?;
            }
            // One line a template would hide that no template could have passed.
            Err(error @ (Error::Unreachable { .. } | Error::DeadlinePassed { .. })) => return Err(error),
            Err(error) => {
                failed += 1;
                writeln!(out, "FAILED {}\n  {}", path.display(), error.to_string().replace('\n', "\n  "))?;
            }
        }
    }
    if failed > 0 {
        return Err(Error::CheckFailed { failed, checked });
    }
    Ok(Exit::Done)
}

/// The warnings; the first fault that would stop `decide` is the error.
async fn one(
    path: &Path,
    catalogue: &Catalogue,
    given: &Variables,
    client: Option<&Client>,
) -> Result<Vec<String>, Error> {
    let template = catalogue.load_any(path)?;
    let Checked { mut warnings, request } = check(&template, given)?;
    if request.as_ref().is_none_or(|request| !request.state_holds_variables) {
        warnings.extend(template.unknown(given).into_iter().map(|name| template.does_not_use(name)));
    }
    if let (Some(client), Some(request)) = (client, &request) {
        client.decide(request).await?;
    }
    Ok(warnings)
}
