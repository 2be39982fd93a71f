//! `dgem doctor`: goes the way of a request step by step and says at which one it ends.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{auth, models};
use crate::cli::{ConnectionFlags, DoctorArgs};
use crate::client::Client;
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::foreign::clipped;
use crate::settings::{Layers, Settings, keys, shown_url};

/// One step.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    /// `ok`, `warning`, `failed` or `skipped`.
    status: &'static str,
    detail: String,
}

#[derive(Debug, Default)]
struct Findings {
    checks: Vec<Check>,
    /// How the program ends: by the first failure.
    exit: Option<Exit>,
}

impl Findings {
    fn add(&mut self, name: &'static str, status: &'static str, detail: impl Into<String>) {
        self.checks.push(Check { name, status, detail: detail.into() });
    }

    fn failed(&mut self, name: &'static str, error: &Error) {
        self.exit.get_or_insert(error.exit());
        self.add(name, "failed", error.to_string());
    }
}

pub(super) async fn run(
    args: &DoctorArgs,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let mut findings = Findings::default();
    let mut settings = Map::new();
    if let Some(client) = prepare(connection, environment, &mut settings, &mut findings) {
        if !token(&client, &mut findings).await {
            findings.add("server", "skipped", "it would be asked with a token");
            findings.add("model", "skipped", "the server was not asked");
        } else if server(&client, &mut findings).await {
            model(&client, &mut findings).await;
        } else {
            findings.add("model", "skipped", "the server does not answer");
        }
    }
    let Findings { checks, exit } = findings;
    let mut out = io::stdout().lock();
    if args.json {
        let version = env!("CARGO_PKG_VERSION");
        let document =
            json!({"version": version, "ok": exit.is_none(), "settings": settings, "checks": checks});
        writeln!(out, "{document:#}")?;
    } else {
        for Check { name, status, detail } in checks {
            writeln!(out, "{status:<9}{name:<10}{}", detail.replace('\n', &format!("\n{:19}", "")))?;
        }
    }
    Ok(exit.unwrap_or(Exit::Done))
}

/// Everything that needs no network.
fn prepare(
    connection: &ConnectionFlags,
    environment: &Environment,
    shown: &mut Map<String, Value>,
    findings: &mut Findings,
) -> Option<Client> {
    let folder = std::env::current_dir().unwrap_or_default();
    let client = Layers::gather(connection, environment, &folder).and_then(|layers| {
        for key in keys::ALL {
            let Some(value) = layers.get(key) else { continue };
            let text = match key {
                key if key.secret => "(hidden)".to_owned(),
                key if *key == keys::URL => shown_url(&value.text),
                _ => value.text,
            };
            shown.insert(key.name.to_owned(), json!({"value": text, "origin": value.origin.to_string()}));
        }
        let files: Vec<String> = layers.files.iter().map(|file| file.path.display().to_string()).collect();
        let files = if files.is_empty() { "no settings file".to_owned() } else { files.join(", ") };
        let settings = Settings::from_layers(&layers)?;
        let origin = layers.get(&keys::URL).map(|url| url.origin.to_string()).unwrap_or_default();
        findings.add("settings", "ok", format!("{files}; server {} ({origin})", settings.endpoint));
        Client::new(settings)
    });
    client.inspect_err(|error| findings.failed("settings", error)).ok()
}

/// Whether there is one, where one is needed.
async fn token(client: &Client, findings: &mut Findings) -> bool {
    match auth::Report::new(client).await {
        Ok(report) if report.mode == "none" => findings.add("token", "ok", "none is sent"),
        Ok(report) => {
            let status = if report.note.is_none() { "ok" } else { "warning" };
            findings.add("token", status, report.to_string().trim_end());
        }
        Err(error) => {
            findings.failed("token", &error);
            return false;
        }
    }
    true
}

/// Whether it can be asked further.
async fn server(client: &Client, findings: &mut Findings) -> bool {
    let origin = client.settings().endpoint.origin();
    match client.is_ready().await {
        Ok(None) => findings.add("server", "ok", format!("{origin} is ready")),
        Ok(Some(progress)) => {
            findings.exit.get_or_insert(Exit::Unavailable);
            let hint = "hint: wait for it with --wait-ready 10m";
            findings.add("server", "failed", format!("{origin} is not ready: {progress}\n{hint}"));
            return false;
        }
        Err(Error::Status { status: status @ (404 | 405), .. }) => {
            let detail = format!("{origin} answers, and has no /readyz (HTTP {status}): no dgemma-server");
            findings.add("server", "warning", detail);
        }
        Err(error) => {
            findings.failed("server", &error);
            return false;
        }
    }
    true
}

async fn model(client: &Client, findings: &mut Findings) {
    let models = match models::list(client).await {
        Ok(models) => models,
        Err(error) => return findings.failed("model", &error),
    };
    let names: Vec<String> = models.iter().map(|model| clipped(&model.id, 120)).collect();
    let limits = models.first().and_then(|model| model.limits.as_ref());
    let limits =
        limits.map(|limits| format!("; limits {}", clipped(&limits.to_string(), 300))).unwrap_or_default();
    match &client.settings().model {
        Some(wanted) if !models.iter().any(|model| model.id == *wanted) => {
            let wanted = clipped(wanted, 120);
            findings.add("model", "warning", format!("`{wanted}` is not among {}", names.join(", ")));
        }
        _ => findings.add("model", "ok", format!("{}{limits}", names.join(", "))),
    }
}
