//! The flags of the commands about the program itself: settings, authentication, the server, completions, manual.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::Shell;

/// What `dgem --version` prints.
pub(super) const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (git ",
    env!("GIT_REVISION"),
    ")\nTLS: rustls with ring, certificates of the system\ntarget: ",
    env!("BUILD_TARGET")
);

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the settings as a settings file
    ///
    /// Example: dgem config show --origin
    Show(ConfigShowArgs),
}

#[derive(Args, Debug)]
pub struct ConfigShowArgs {
    /// Also say where each value comes from
    #[arg(long)]
    pub origin: bool,
}

#[derive(Debug, Subcommand)]
pub enum AuthCommand {
    /// Get the token for a server and say what is known about it, never the token itself
    ///
    /// Example: dgem auth check https://SERVICE.run.app
    Check(AuthCheckArgs),
}

#[derive(Args, Debug)]
pub struct AuthCheckArgs {
    /// Server; without it, that of the settings
    #[arg(value_name = "URL")]
    pub server: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct ModelsArgs {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

#[derive(Args, Debug)]
pub struct ManArgs {
    /// Write one page per command into this folder, instead of the main page to stdout
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}
