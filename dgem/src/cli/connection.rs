//! The flags about the server and about proving who one is: the same for every command.
//!
//! All are texts: `settings` gives them their meaning, together with the environment and the settings files.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Where the server is and how to talk to it.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionFlags {
    /// Base URL of the server, ending in /v1 [env: DGEM_URL] [default: http://127.0.0.1:8080/v1]
    #[arg(short, long, global = true, value_name = "URL", alias = "vertex-url")]
    pub url: Option<String>,
    /// Model to ask for; without it the server answers with its own [env: DGEM_MODEL]
    #[arg(short, long, global = true, value_name = "MODEL")]
    pub model: Option<String>,
    /// Total deadline of a request, in seconds (or 500ms, 30s, 2m) [env: DGEM_TIMEOUT] [default: 120]
    #[arg(long, global = true, value_name = "SECONDS")]
    pub timeout: Option<String>,
    /// Longest wait for a connection [env: DGEM_CONNECT_TIMEOUT] [default: 10]
    #[arg(long, global = true, value_name = "SECONDS", hide_short_help = true)]
    pub connect_timeout: Option<String>,
    /// Further tries when the server is busy (429, 502, 503, 504) or the connection fails [env: DGEM_RETRIES] [default: 0; 3 for batch]
    #[arg(long, global = true, value_name = "N", alias = "http-retries")]
    pub retries: Option<String>,
    /// Wait this long for a server that is still starting [env: DGEM_WAIT_READY]
    #[arg(long, global = true, value_name = "DURATION")]
    pub wait_ready: Option<String>,
    /// PEM file with certificates to trust beside those of the system [env: DGEM_CACERT]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub cacert: Option<String>,
    /// Settings file, instead of .dgem.toml and the user's own [env: DGEM_CONFIG]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub auth: AuthFlags,
}

/// How to prove who one is.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Authentication")]
pub struct AuthFlags {
    /// Bearer token; other users of the machine can read command lines, so prefer the two below [env: DGEM_TOKEN]
    #[arg(short = 'k', long, global = true, value_name = "TOKEN", hide_short_help = true)]
    #[arg(conflicts_with_all = ["token_file", "token_command"])]
    pub token: Option<String>,
    /// File with the bearer token [env: DGEM_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "token_command")]
    pub token_file: Option<String>,
    /// Command that prints the bearer token, run by the shell [env: DGEM_TOKEN_COMMAND]
    #[arg(long, global = true, value_name = "COMMAND", hide_short_help = true)]
    pub token_command: Option<String>,
    /// Google token: by host (the default for Cloud Run and Vertex), id, access, or off [env: DGEM_GCP_AUTH]
    #[arg(long, global = true, value_name = "KIND", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "host")]
    pub gcp_auth: Option<String>,
    /// Audience of the ID token, when it is not the server's own URL [env: DGEM_AUDIENCE]
    #[arg(long, global = true, value_name = "AUDIENCE", hide_short_help = true, alias = "iap-client-id")]
    pub audience: Option<String>,
    /// Service account to act as [env: DGEM_IMPERSONATE_SERVICE_ACCOUNT]
    #[arg(long, global = true, value_name = "EMAIL", hide_short_help = true)]
    pub impersonate_service_account: Option<String>,
}

/// When to colour the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

impl Color {
    /// The spelling on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}
