//! `dgem bench` and its sisters: gives the parts of `bench` their settings, writes what they found, and says how it ended.

mod suites;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use indexmap::IndexSet;
use serde_json::{Value, json};

pub(super) use suites::{bench, calibration, ecotone, intents, permutation};

use super::{connect, note, warn};
use crate::asking;
use crate::bench::{
    Comparison, Dataset, Filter, Origin, Output, Ran, Receipt, Report, Run, Server, Stop, Suite, Summary,
    Templates, page, text,
};
use crate::bench::{DatasetName, RECEIPT_VERSION, timestamp};
use crate::cli::{Api, BenchFlags, CatalogueFlags, ConnectionFlags, ReadFlags};
use crate::client::Client;
use crate::deciding::Decider;
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::foreign::visible;
use crate::output::{self, Style};
use crate::overrides::Overrides;
use crate::settings::{Settings, parse_duration};
use crate::template::Catalogue;

/// In the settings of a receipt: all models that answered, where there was more than one.
pub(super) const MODELS: &str = "models";

/// Who is asked what, and how.
pub(super) struct Asked<'a> {
    /// `None`: the cases of the suite.
    pub(super) dataset: Option<&'a Path>,
    pub(super) filter: Filter,
    pub(super) catalogue: &'a CatalogueFlags,
    pub(super) read: &'a ReadFlags,
    pub(super) workers: u16,
    pub(super) case_timeout: &'a str,
}

/// One suite over one dataset, from the flags to the exit code.
async fn run<S: Suite>(
    suite: S,
    dataset: Option<&Path>,
    filter: Filter,
    flags: &BenchFlags,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let older = flags.compare.as_deref().map(|path| Receipt::load_for(path, S::NAME)).transpose()?;
    let [receipt_file, page_file] =
        [&flags.output, &flags.html].map(|path| path.as_deref().map(Output::reserve).transpose());
    let (receipt_file, page_file) = (receipt_file?, page_file?);
    let (mut receipt, error) = if let Some(path) = &flags.from_receipt {
        (Receipt::load_for(path, S::NAME)?, None)
    } else {
        let asked = Asked {
            dataset,
            filter: Filter { offset: flags.offset, limit: flags.limit, ..filter },
            catalogue: &flags.catalogue,
            read: &flags.read,
            workers: flags.workers,
            case_timeout: &flags.case_timeout,
        };
        measure(&suite, &asked, connection, environment).await?
    };
    receipt.origin.settings.extend(suite.figure_settings());
    if receipt.cases.is_empty() {
        return if receipt.interrupted { Ok(Exit::Interrupted) } else { Err(no_cases(&receipt)) };
    }
    let summary = Summary::of(&receipt.cases);
    receipt.figures = suite.figures(&receipt.cases);
    receipt.summary = summary.json();
    let comparison = older.as_ref().map(|older| compare(older, &mut receipt));
    for case in &mut receipt.cases {
        let keys = suite.case_keys(case);
        case.more.extend(keys);
    }
    let written = receipt.text();
    // A file that cannot be written costs nobody the figures: they are printed all the same.
    let mut kept = receipt_file.map_or(Ok(()), |file| file.write(&written));
    let own = suite.sections(&receipt.cases);
    let report = Report::new(&receipt, &summary, own, comparison.as_ref());
    kept = kept.and(page_file.map_or(Ok(()), |file| file.write(&page(&report))));
    let stdout = io::stdout();
    let (style, width) = (Style::for_stream(&stdout, environment), output::width_of(&stdout));
    let mut out = stdout.lock();
    if flags.json {
        out.write_all(written.as_bytes())?;
    } else {
        writeln!(out, "{}", text(&report, style, width))?;
    }
    out.flush()?;
    kept?;
    if summary.second_errors > 0 {
        let cases = crate::output::counted(summary.second_errors as u64, "case");
        warn(&format!(
            "in {cases} what comes after the answer failed; the answer stands (second_error in the receipt)"
        ));
    }
    end(&receipt, error)
}

/// Asks the server about every case. The figures are still missing in the receipt. The error: why the run stopped, else the first one.
pub(super) async fn measure<S: Suite>(
    suite: &S,
    asked: &Asked<'_>,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<(Receipt, Option<Error>), Error> {
    let settings = Settings::resolve(connection, environment)?;
    let deadline = parse_duration(asked.case_timeout)?;
    let overrides = Overrides::new(asked.read)?;
    let mut dataset = Dataset::open(asked.dataset, suite.built_in())?;
    let name =
        DatasetName { path: dataset.path.clone(), sha256: dataset.sha256.clone(), rows: dataset.rows.len() };
    let mut templates =
        Templates::new(Catalogue::new(asked.catalogue, environment), overrides, asked.read.permute);
    let cases = dataset
        .cases(suite, &asked.filter)?
        .into_iter()
        .map(|(label, row)| Ok((label, suite.plan(row, &mut templates)?)))
        .collect::<Result<Vec<_>, Error>>()?;
    templates.impossible().iter().for_each(|fault| warn(fault));

    let mut origin = Origin {
        schema_version: RECEIPT_VERSION,
        suite: S::NAME.to_owned(),
        dgem_version: env!("CARGO_PKG_VERSION").to_owned(),
        dgem_git_revision: env!("GIT_REVISION").to_owned(),
        dataset: name,
        templates: templates.hashes(),
        readings: templates.readings().clone(),
        seed: asked.read.seed,
        workers: usize::from(asked.workers),
        settings: settings_of(suite, asked.read),
        ..Origin::default()
    };
    suite.fits(&origin)?;

    let client = connect::ready(Client::new(settings)?).await?;
    origin.target_url = client.settings().endpoint.to_string();
    origin.server = client.health().await.unwrap_or(Value::Null);
    let wanted = client.settings().model.clone();
    let server_asked = Arc::new(asking::Server::new(client, asked.read.api));
    let decider = Server(Decider { server: server_asked, orders: asked.read.permute, cascade: None });
    let run = Run { suite, decider, cases, workers: origin.workers, deadline };
    let Ran { records, planned, elapsed, warm_up, stop, first_error } = run.run().await?;

    let models: IndexSet<String> = records.iter().filter_map(|record| record.model.clone()).collect();
    super::warn_other_model(wanted.as_deref(), models.first().map(String::as_str));
    if models.len() > 1 {
        warn(&format!("{} models answered: {}", models.len(), visible(&join(&models))));
        origin.settings.insert(MODELS.to_owned(), json!(models));
    }
    origin.target_model = models.into_iter().next().or(wanted);
    origin.timestamp = timestamp();
    origin.warm_up = warm_up;
    let receipt = Receipt {
        interrupted: matches!(stop, Some(Stop::Interrupted)),
        planned_cases: Some(planned),
        stopped: stop.as_ref().map(Stop::reason),
        total_cases: records.len(),
        failed_cases: records.iter().filter(|record| record.error.is_some()).count(),
        total_retries: records.iter().map(|record| record.retries).sum(),
        total_elapsed_sec: (elapsed.as_secs_f64() * 1e3).round() / 1e3,
        figures: serde_json::Map::new(),
        summary: Value::Null,
        cases: records,
        origin,
    };
    let error = match stop {
        Some(Stop::Hopeless(error)) => Some(error),
        _ => first_error,
    };
    Ok((receipt, error))
}

/// The suite's own, and how the answers were read.
fn settings_of<S: Suite>(suite: &S, read: &ReadFlags) -> serde_json::Map<String, Value> {
    let mut settings = suite.settings();
    for (key, value) in [
        ("samples", json!(read.samples)),
        ("layout", json!(read.layout)),
        ("think", json!(read.think)),
        ("permute", json!(read.permute)),
        ("api", json!(read.api.map(api_name))),
    ] {
        if !value.is_null() {
            settings.insert(key.to_owned(), value);
        }
    }
    settings
}

fn join(names: &IndexSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn api_name(api: Api) -> &'static str {
    match api {
        Api::Chat => "chat",
        Api::Systemone => "systemone",
        Api::Openai => "openai",
    }
}

/// Puts the older run beside the newer one, and says where they are not alike.
fn compare(older: &Receipt, receipt: &mut Receipt) -> Comparison {
    let mut notes = Vec::new();
    if older.origin.dataset.sha256 != receipt.origin.dataset.sha256 {
        notes.push("the receipts are of different datasets; cases with the same id are compared".to_owned());
    }
    for (name, receipt) in [("older", older), ("newer", &*receipt)] {
        notes.extend(receipt.unfinished().map(|text| format!("the {name} run {text}")));
    }
    let changed = older
        .origin
        .templates
        .iter()
        .filter(|(name, hash)| receipt.origin.templates.get(*name).is_some_and(|other| other != *hash));
    let changed =
        changed.map(|(name, _)| format!("the template `{}` has changed between the receipts", visible(name)));
    notes.extend(changed);
    notes.iter().for_each(|text| warn(text));
    let comparison = Comparison { notes, ..Comparison::new(&older.cases, &receipt.cases) };
    receipt.figures.insert("comparison".to_owned(), comparison.json());
    comparison
}

/// `error`: of the run; none where a receipt was looked at again.
fn end(receipt: &Receipt, error: Option<Error>) -> Result<Exit, Error> {
    let failed = receipt.cases.iter().filter(|record| record.error.is_some()).count();
    let unfinished = receipt.unfinished();
    if let Some(text) = &unfinished {
        note(&format!("the run {text}; the figures are of the cases that were measured"));
    }
    if receipt.interrupted {
        return Ok(Exit::Interrupted);
    }
    match error {
        Some(error) if unfinished.is_some() || failed == receipt.cases.len() => Err(error),
        _ if failed > 0 => {
            warn(&format!("{failed} of {} cases failed; they count as wrong", receipt.cases.len()));
            Ok(Exit::Partial)
        }
        _ => Ok(Exit::Done),
    }
}

fn no_cases(receipt: &Receipt) -> Error {
    Error::NoCases { path: (&receipt.origin.dataset.path).into(), reason: "none was measured".to_owned() }
}
