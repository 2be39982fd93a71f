//! `dgem auth check`: which token a request to a server would carry. Never the token itself.

use std::io::{self, Write};

use serde::Serialize;

use crate::auth::Minted;
use crate::cli::{AuthCheckArgs, AuthCommand, ConnectionFlags};
use crate::client::Client;
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::settings::{Credential, Kind, Settings};

/// What is known about the token for a server.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    server: String,
    pub(super) mode: &'static str,
    pub(super) source: Option<String>,
    audience: Option<String>,
    email: Option<String>,
    seconds_left: Option<u64>,
    pub(super) note: Option<String>,
}

pub(super) async fn run(
    command: &AuthCommand,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let AuthCommand::Check(AuthCheckArgs { server, json }) = command;
    let mut connection = connection.clone();
    if server.is_some() {
        connection.url.clone_from(server);
    }
    let client = Client::new(Settings::resolve(&connection, environment)?)?;
    let report = Report::new(&client).await?;
    let mut out = io::stdout().lock();
    if *json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report).unwrap_or_default())?;
    } else {
        write!(out, "{report}")?;
    }
    Ok(Exit::Done)
}

impl Report {
    /// Gets the token, within the deadline of a request.
    pub(super) async fn new(client: &Client) -> Result<Self, Error> {
        let settings = client.settings();
        let server = settings.endpoint.to_string();
        let late = || Error::DeadlinePassed { url: server.clone(), seconds: settings.timeout.as_secs_f64() };
        let minted = tokio::time::timeout(settings.timeout, client.token()).await.map_err(|_| late())??;
        let mode = match &settings.credential {
            Credential::None => "none",
            Credential::Given(..) | Credential::File(_) | Credential::Command(_) => "bearer token",
            Credential::Google(google) => match google.kind {
                Kind::Id => "Google ID token",
                Kind::Access => "Google access token",
            },
        };
        let wanted = match &settings.credential {
            Credential::Google(google) if google.kind == Kind::Id => Some(&google.audience),
            _ => None,
        };
        let note = note(settings, minted.as_deref(), wanted);
        let claims = minted.as_ref().map(|minted| minted.claims.clone()).unwrap_or_default();
        Ok(Self {
            mode,
            source: minted.as_ref().map(|minted| minted.provider.clone()),
            audience: claims.audience,
            email: claims.email,
            seconds_left: minted.as_ref().and_then(|minted| minted.seconds_left()),
            note,
            server,
        })
    }
}

fn note(settings: &Settings, minted: Option<&Minted>, wanted: Option<&String>) -> Option<String> {
    let Some(minted) = minted else {
        return settings.sends_a_token().then(|| {
            "no credentials were found, so that requests go without; --gcp-auth makes that an error"
                .to_owned()
        });
    };
    let got = minted.claims.audience.as_ref();
    match (minted.caveat, wanted, got) {
        (Some(caveat), ..) => Some(caveat.to_owned()),
        (None, Some(wanted), Some(got)) if wanted != got => Some(format!("{wanted} was wanted as audience")),
        _ if minted.seconds_left() == Some(0) => Some("it has expired".to_owned()),
        _ => None,
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let expires = self.seconds_left.map(|seconds| format!("in {seconds} s"));
        let rows = [
            ("server", Some(self.server.clone())),
            ("mode", Some(self.mode.to_owned())),
            ("source", self.source.clone()),
            ("audience", self.audience.clone()),
            ("email", self.email.clone()),
            ("expires", expires),
            ("note", self.note.clone()),
        ];
        for (name, value) in rows {
            if let Some(value) = value {
                writeln!(f, "{name:<10}{value}")?;
            }
        }
        Ok(())
    }
}
