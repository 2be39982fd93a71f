//! Every environment variable the client reads, and the one place that reads them.
//!
//! `settings` and `output::style` take an [`Environment`] instead of looking at the process, so that their rules can be
//! tested without touching global state. An empty variable counts as unset.

use std::collections::HashMap;

use decision::closest;

/// Base URL of the server, up to and including `/v1`.
pub const URL: &str = "DGEM_URL";
/// Model name sent with every request.
pub const MODEL: &str = "DGEM_MODEL";
/// Total deadline of one request: seconds, or a number with `ms`, `s` or `m`.
pub const TIMEOUT: &str = "DGEM_TIMEOUT";
/// Longest wait for a connection, written like the deadline.
pub const CONNECT_TIMEOUT: &str = "DGEM_CONNECT_TIMEOUT";
/// Further tries after the first.
pub const RETRIES: &str = "DGEM_RETRIES";
/// How long to wait for a server that is starting.
pub const WAIT_READY: &str = "DGEM_WAIT_READY";
/// PEM file with certificates to trust beside those of the system.
pub const CACERT: &str = "DGEM_CACERT";
/// Settings file in place of the project's and the user's.
pub const CONFIG: &str = "DGEM_CONFIG";
/// URL of a Vertex endpoint, as the public tool calls it; `DGEM_URL` wins.
pub const VERTEX_URL: &str = "DGEM_VERTEX_URL";
/// Bearer token.
pub const TOKEN: &str = "DGEM_TOKEN";
/// File that holds the bearer token.
pub const TOKEN_FILE: &str = "DGEM_TOKEN_FILE";
/// Command that prints the bearer token.
pub const TOKEN_COMMAND: &str = "DGEM_TOKEN_COMMAND";
/// Which Google token to send: `host`, `id`, `access` or `off`.
pub const GCP_AUTH: &str = "DGEM_GCP_AUTH";
/// Audience of an ID token.
pub const AUDIENCE: &str = "DGEM_AUDIENCE";
/// Service account to act as.
pub const IMPERSONATE_SERVICE_ACCOUNT: &str = "DGEM_IMPERSONATE_SERVICE_ACCOUNT";
/// When to colour: `auto`, `always` or `never`.
pub const COLOR: &str = "DGEM_COLOR";
/// Folder with templates.
pub const TEMPLATES: &str = "DGEM_TEMPLATES";
/// Base URL, model and token of the second model of a cascade.
pub const CASCADE_URL: &str = "DGEM_CASCADE_URL";
pub const CASCADE_MODEL: &str = "DGEM_CASCADE_MODEL";
pub const CASCADE_TOKEN: &str = "DGEM_CASCADE_TOKEN";
/// Key of the Gemini API.
pub const GEMINI_API_KEY: &str = "GEMINI_API_KEY";
/// Google Cloud project that pays for Vertex AI.
pub const GOOGLE_CLOUD_PROJECT: &str = "GOOGLE_CLOUD_PROJECT";
/// Set by Cloud Run Jobs for every task: its number, counted from 0, and how many there are.
pub const TASK_INDEX: &str = "CLOUD_RUN_TASK_INDEX";
pub const TASK_COUNT: &str = "CLOUD_RUN_TASK_COUNT";
/// Any value switches colour off (<https://no-color.org>).
pub const NO_COLOR: &str = "NO_COLOR";
/// Any value but 0 switches colour on, also without a terminal (<https://bixense.com/clicolors/>).
pub const CLICOLOR_FORCE: &str = "CLICOLOR_FORCE";
/// The user's folder.
pub const HOME: &str = "HOME";
/// The user's folder for what can be fetched again.
pub const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
/// The user's folder for settings.
pub const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// Where programs are.
pub const PATH: &str = "PATH";

// Google's own names.
/// File with credentials of a program.
pub const GOOGLE_APPLICATION_CREDENTIALS: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// Folder of the settings of `gcloud`.
pub const CLOUDSDK_CONFIG: &str = "CLOUDSDK_CONFIG";
/// Host, or host and port, of the metadata server.
pub const GCE_METADATA_HOST: &str = "GCE_METADATA_HOST";
/// Where user credentials are exchanged, in place of Google's public address.
pub const CLOUDSDK_AUTH_TOKEN_HOST: &str = "CLOUDSDK_AUTH_TOKEN_HOST";
/// Where IAM credentials are made, in place of Google's public address.
pub const IAM_ENDPOINT: &str = "CLOUDSDK_API_ENDPOINT_OVERRIDES_IAMCREDENTIALS";

const ALL: &[&str] = &[
    URL,
    MODEL,
    TIMEOUT,
    TOKEN,
    TOKEN_FILE,
    TEMPLATES,
    CASCADE_URL,
    CASCADE_MODEL,
    CASCADE_TOKEN,
    GEMINI_API_KEY,
    GOOGLE_CLOUD_PROJECT,
    TASK_INDEX,
    TASK_COUNT,
    NO_COLOR,
    CONNECT_TIMEOUT,
    RETRIES,
    WAIT_READY,
    CACERT,
    CONFIG,
    VERTEX_URL,
    TOKEN_COMMAND,
    GCP_AUTH,
    AUDIENCE,
    IMPERSONATE_SERVICE_ACCOUNT,
    COLOR,
    CLICOLOR_FORCE,
    HOME,
    XDG_CACHE_HOME,
    XDG_CONFIG_HOME,
    PATH,
    GOOGLE_APPLICATION_CREDENTIALS,
    CLOUDSDK_CONFIG,
    GCE_METADATA_HOST,
    CLOUDSDK_AUTH_TOKEN_HOST,
    IAM_ENDPOINT,
];

const PREFIX: &str = "DGEM_";

fn misspelt(set: impl Iterator<Item = String>) -> Vec<(String, &'static str)> {
    let known = || ALL.iter().filter_map(|name| name.strip_prefix(PREFIX));
    let meant = |name: String| {
        let own = name.strip_prefix(PREFIX).filter(|_| !ALL.contains(&name.as_str()))?;
        let close = closest(own, known())?;
        let full = ALL.iter().find(|full| full.strip_prefix(PREFIX) == Some(close))?;
        Some((name, *full))
    };
    set.filter_map(meant).collect()
}

/// A snapshot of the variables above.
#[derive(Clone, Default)]
pub struct Environment {
    values: HashMap<&'static str, String>,
    /// Variables that are set and look like one of ours, with its name.
    misspelt: Vec<(String, &'static str)>,
    /// Ours that are set to something else than text.
    unreadable: Vec<&'static str>,
}

impl Environment {
    /// Reads the process environment. Of other programs' variables one that is not UTF-8 is treated as unset.
    pub fn from_process() -> Self {
        let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let no_text = |name: &&&str| std::env::var_os(name).is_some_and(|value| value.to_str().is_none());
        Self {
            misspelt: misspelt(set),
            unreadable: ALL.iter().filter(|name| name.starts_with(PREFIX)).filter(no_text).copied().collect(),
            ..Self::from_lookup(|name| std::env::var(name).ok())
        }
    }

    /// Builds a snapshot from any lookup.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let values = ALL
            .iter()
            .filter_map(|&name| lookup(name).filter(|value| !value.is_empty()).map(|value| (name, value)))
            .collect();
        Self { values, misspelt: Vec::new(), unreadable: Vec::new() }
    }

    /// Variables that are set and look like one of ours, with its name.
    pub fn misspelt(&self) -> &[(String, &'static str)] {
        &self.misspelt
    }

    /// Ours that are set to something else than text.
    pub fn unreadable(&self) -> &[&'static str] {
        &self.unreadable
    }

    /// The same with one variable set.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.values.insert(name, value.to_owned());
        self
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }
}

// Written by hand because a derived one would print the token.
impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}
