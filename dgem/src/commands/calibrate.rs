//! `dgem calibrate`: a temperature for each type of question, fitted on labelled answers, and whether it still holds.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use decision::statistics::{FOLDS, Graded, Scores, Temperature, fold, held_out, tempered};
use indexmap::IndexMap;

use super::{bench, note, warn};
use crate::bench::labelled::{Labelled, graded_by_type};
use crate::bench::{Filter, Output, Receipt, number, sha256, timestamp};
use crate::cli::{CalibrateCommand, ConnectionFlags, FitArgs, LabelledFlags, VerifyArgs};
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::foreign::visible;
use crate::manner::Manner;
use crate::output::text_table;
use crate::temper::{Calibration, Fitted, SCHEMA_VERSION};
use crate::template::{Catalogue, Template};

pub(super) async fn run(
    command: CalibrateCommand,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    match command {
        CalibrateCommand::Fit(args) => fit(args, connection, environment).await,
        CalibrateCommand::Verify(args) => verify(args, connection, environment).await,
    }
}

/// Answers to one template by one model.
struct Answers {
    sha256: String,
    model: String,
    reading: Manner,
    /// Where they come from.
    from: String,
    /// Type of question → case id and answer; only types with enough of them.
    by_type: IndexMap<String, Vec<(String, Graded)>>,
}

async fn fit(args: FitArgs, connection: &ConnectionFlags, environment: &Environment) -> Result<Exit, Error> {
    let template = load(&args.labelled, environment)?;
    let path = match args.output {
        Some(path) => path,
        None if template.path().is_file() => Calibration::beside(template.path()),
        None => {
            let reason = "a built-in template has no folder to put it into".to_owned();
            return Err(Error::BenchOutput {
                path: args.labelled.template,
                reason,
                hint: "name the file with -o",
            });
        }
    };
    if args.force && path.exists() {
        // Only one that this command has written.
        Calibration::load(&path)?;
    } else {
        drop(Output::reserve_or(&path, "--force replaces it; or name another file with -o")?);
    }
    let answers = gather(&args.labelled, &template, None, connection, environment).await?;
    let mut temperatures = IndexMap::new();
    let mut rows = Vec::new();
    for (kind, graded) in &answers.by_type {
        let Some((fitted, row)) = fit_type(kind, graded) else { continue };
        rows.push(row);
        temperatures.insert(kind.clone(), fitted);
    }
    if temperatures.is_empty() {
        let reason = "no type of question has answers that set a temperature".to_owned();
        return Err(Error::NoCalibration { origin: answers.from, reason });
    }
    let calibration = Calibration {
        schema_version: SCHEMA_VERSION,
        template: args.labelled.template.display().to_string(),
        template_sha256: answers.sha256,
        model: answers.model,
        reading: answers.reading,
        fitted_at: timestamp(),
        fitted_on: answers.from,
        temperatures,
    };
    // Text keys and finite numbers.
    let text = serde_json::to_string_pretty(&calibration).unwrap_or_default() + "\n";
    if args.force && path.exists() {
        let failed = |cause: io::Error| Error::BenchOutput {
            path: path.clone(),
            reason: cause.to_string(),
            hint: "check the disk",
        };
        std::fs::remove_file(&path).map_err(failed)?;
    }
    Output::reserve(&path)?.write(&text)?;
    let header = [
        "TYPE",
        "ANSWERS",
        "TEMPERATURE",
        "NLL",
        "NLL AFTER",
        "NLL HELD OUT",
        "ECE",
        "ECE AFTER",
        "ECE HELD OUT",
    ];
    let mut out = io::stdout().lock();
    writeln!(out, "{}", text_table(&header, &[], &rows, None))?;
    note(&format!(
        "written to {}; held out: each answer at the temperature of the other {} of {FOLDS} parts",
        path.display(),
        FOLDS - 1
    ));
    Ok(Exit::Done)
}

/// The temperature of one type of question, with its row of the table; `None` where the answers set none.
fn fit_type(kind: &str, graded: &[(String, Graded)]) -> Option<(Fitted, Vec<String>)> {
    let all: Vec<Graded> = graded.iter().map(|(_, graded)| graded.clone()).collect();
    // There are at least two.
    let fit = Temperature::fit(&all)?;
    if fit.at_bound {
        let sure =
            if fit.value < 1.0 { "all of them are right" } else { "they know nothing of what is right" };
        warn(&format!("the answers of type {kind} set no temperature ({sure}); the type is left out"));
        return None;
    }
    let folded: Vec<(Graded, usize)> =
        graded.iter().map(|(id, graded)| (graded.clone(), fold(number(id)))).collect();
    let held_out = held_out(&folded).and_then(|graded| Scores::of(&graded));
    if let Some(scores) = held_out.as_ref().filter(|scores| scores.nll >= fit.before.nll) {
        let (apart, before) = (scores.nll, fit.before.nll);
        warn(&format!(
            "on answers held out a temperature makes type {kind} no better (NLL {apart:.4}, {before:.4} without): more rows would tell"
        ));
    }
    let row = vec![
        kind.to_owned(),
        fit.before.count.to_string(),
        format!("{:.3}", fit.value),
        format!("{:.4}", fit.before.nll),
        format!("{:.4}", fit.after.nll),
        held_out.as_ref().map_or("-".to_owned(), |scores| format!("{:.4}", scores.nll)),
        format!("{:.4}", fit.before.ece),
        format!("{:.4}", fit.after.ece),
        held_out.as_ref().map_or("-".to_owned(), |scores| format!("{:.4}", scores.ece)),
    ];
    let fitted = Fitted {
        temperature: fit.value,
        answers: fit.before.count,
        nll_before: fit.before.nll,
        nll_after: fit.after.nll,
        ece_before: fit.before.ece,
        ece_after: fit.after.ece,
        ece_held_out: held_out.as_ref().map(|scores| scores.ece),
        nll_held_out: held_out.as_ref().map(|scores| scores.nll),
    };
    Some((fitted, row))
}

async fn verify(
    args: VerifyArgs,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let template = load(&args.labelled, environment)?;
    let calibration = Calibration::load_for(&args.calibration, &template)?;
    let stored = Some((args.calibration.clone(), calibration.clone()));
    let answers = gather(&args.labelled, &template, stored, connection, environment).await?;
    calibration.fits_reading(&args.calibration, &answers.reading)?;
    calibration.fits_model(&args.calibration, Some(&answers.model))?;
    let (mut rows, mut drifted) = (Vec::new(), Vec::new());
    for (kind, fitted) in &calibration.temperatures {
        let Some(graded) = answers.by_type.get(kind) else {
            warn(&format!("there are too few answers of type {kind} to say whether its temperature holds"));
            continue;
        };
        let all: Vec<Graded> = graded.iter().map(|(_, graded)| graded.clone()).collect();
        let stored = all.iter().filter_map(|answer| {
            Graded::new(tempered(answer.probabilities(), fitted.temperature), answer.gold())
        });
        let stored: Vec<Graded> = stored.collect();
        let (Some(best), Some(stored)) = (Temperature::fit(&all), Scores::of(&stored)) else { continue };
        let loss = stored.nll - best.after.nll;
        if loss > args.max_loss {
            drifted.push(kind.clone());
        }
        rows.push(vec![
            kind.clone(),
            stored.count.to_string(),
            format!("{:.3}", fitted.temperature),
            format!("{:.3}", best.value),
            format!("{:.4}", best.before.nll),
            format!("{:.4}", stored.nll),
            format!("{loss:.4}"),
            format!("{:.4}", stored.ece),
            if loss > args.max_loss { "DRIFT" } else { "holds" }.to_owned(),
        ]);
    }
    if rows.is_empty() {
        let reason = "no type of question in the calibration has enough answers".to_owned();
        return Err(Error::NoCalibration { origin: answers.from, reason });
    }
    let header =
        ["TYPE", "ANSWERS", "STORED T", "BEST T", "NLL RAW", "NLL STORED", "LOSS", "ECE STORED", "VERDICT"];
    let mut out = io::stdout().lock();
    writeln!(out, "{}", text_table(&header, &[], &rows, None))?;
    if drifted.is_empty() {
        return Ok(Exit::Done);
    }
    note(&format!(
        "drift: the stored temperature costs more than {} nats an answer for {}; fit it anew with `dgem calibrate fit --force`",
        args.max_loss,
        drifted.join(", ")
    ));
    Ok(Exit::ConditionNotMet)
}

fn load(flags: &LabelledFlags, environment: &Environment) -> Result<Template, Error> {
    Catalogue::new(&flags.catalogue, environment).load(&flags.template)
}

/// `stored`: the calibration that shall hold; where the server is asked, what cannot fit is refused before.
async fn gather(
    flags: &LabelledFlags,
    template: &Template,
    stored: Option<(PathBuf, Calibration)>,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Answers, Error> {
    let hash = sha256(template.source().as_bytes());
    let (receipt, from) = match (&flags.from_receipt, &flags.input) {
        (Some(path), _) => {
            let receipt = Receipt::load(path)?;
            if let Some(text) = receipt.unfinished() {
                warn(&format!("the run of this receipt {text}"));
            }
            (of_template(receipt, path, &hash)?, path.clone())
        }
        (None, input) => {
            let suite = Labelled { template: flags.template.display().to_string(), calibration: stored };
            // Clap makes sure that one of the two is there.
            let input = input.as_deref().unwrap_or(Path::new(""));
            let asked = bench::Asked {
                dataset: Some(input),
                filter: Filter::default(),
                catalogue: &flags.catalogue,
                read: &flags.read,
                workers: flags.workers,
                case_timeout: "10m",
            };
            (measured(bench::measure(&suite, &asked, connection, environment).await?)?, input.to_owned())
        }
    };
    let reading = reading(&receipt, &from, &hash)?;
    let from = from.display().to_string();
    let Some(model) = receipt.origin.target_model.clone() else {
        let reason = "the model has no name, and a calibration belongs to one".to_owned();
        return Err(Error::NoCalibration { origin: from, reason });
    };
    if let Some(models) = receipt.origin.settings.get(bench::MODELS) {
        let models = visible(&models.to_string());
        let reason = format!("several models answered ({models}), and a calibration belongs to one");
        return Err(Error::NoCalibration { origin: from, reason });
    }
    let mut by_type = graded_by_type(&receipt.cases);
    by_type.retain(|kind, graded| {
        let enough = graded.len() >= flags.min_answers as usize;
        if !enough {
            warn(&format!(
                "{} answers of type {} are too few (--min-answers {}); the type is left out",
                graded.len(),
                visible(kind),
                flags.min_answers
            ));
        }
        enough
    });
    if by_type.is_empty() {
        let reason = "no type of question has enough answers".to_owned();
        return Err(Error::NoCalibration { origin: from, reason });
    }
    Ok(Answers { sha256: hash, model, reading, from, by_type })
}

/// Errors: nothing was measured, or the user ended it.
fn measured((receipt, first_error): (Receipt, Option<Error>)) -> Result<Receipt, Error> {
    let failed = receipt.cases.iter().filter(|case| case.error.is_some()).count();
    match first_error {
        _ if receipt.interrupted => Err(Error::Interrupted),
        Some(error) if receipt.stopped.is_some() || failed == receipt.cases.len() => Err(error),
        Some(_) => {
            warn(&format!("{failed} of {} rows failed; they are not counted", receipt.cases.len()));
            Ok(receipt)
        }
        None => Ok(receipt),
    }
}

/// The one manner in which the answers to the template with this hash were read. Errors: there are several, or the receipt does not say.
fn reading(receipt: &Receipt, path: &Path, hash: &str) -> Result<Manner, Error> {
    let origin = &receipt.origin;
    let names = origin.templates.iter().filter(|(_, other)| *other == hash).map(|(name, _)| name);
    let manners: Vec<&Manner> = names.filter_map(|name| origin.readings.get(name)).flatten().collect();
    let refuse = |reason: String| Err(Error::BadReceipt { path: path.to_owned(), reason });
    match manners[..] {
        [] => refuse("it does not say how the answers were read: it is of an older version".to_owned()),
        [first, ref others @ ..] => match others.iter().find_map(|other| first.difference(other)) {
            Some(difference) => {
                refuse(format!("its answers were read in more than one manner: {}", visible(&difference)))
            }
            None => Ok(first.clone()),
        },
    }
}

/// Only the cases that asked this very template.
fn of_template(mut receipt: Receipt, path: &Path, hash: &str) -> Result<Receipt, Error> {
    let same = |name: &String| receipt.origin.templates.get(name).is_some_and(|other| other == hash);
    let names: Vec<String> = receipt.origin.templates.keys().filter(|name| same(name)).cloned().collect();
    if names.is_empty() {
        let reason = "none of its cases asked this template as it is now (the hashes differ)".to_owned();
        return Err(Error::BadReceipt { path: path.to_owned(), reason });
    }
    receipt.cases.retain(|case| case.template.as_ref().is_some_and(|name| names.contains(name)));
    Ok(receipt)
}
