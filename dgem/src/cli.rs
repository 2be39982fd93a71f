//! What was typed: the clap definition of every command, and nothing about what it means.
//!
//! `commands` dispatches on [`Command`]; `settings` gives the connection flags their meaning together with the environment.

#![allow(clippy::doc_markdown, reason = "the doc comments are the help text, which is no markdown")]

mod template;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::exit;

pub use template::{CheckArgs, ListArgs, NewArgs, RenderArgs, ShowArgs, TemplateArg, TemplateCommand};

#[derive(Debug, Parser)]
#[command(
    name = "dgem",
    version,
    about,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_long_help = exit::HELP
)]
pub struct Cli {
    #[command(flatten)]
    pub connection: ConnectionFlags,
    #[command(subcommand)]
    pub command: Command,
}

/// Where the server is and how to talk to it.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionFlags {
    /// Base URL of the server, ending in /v1 [env: DGEM_URL] [default: http://127.0.0.1:8080/v1]
    #[arg(short, long, global = true, value_name = "URL")]
    pub url: Option<String>,
    /// Model to ask for; without it the server answers with its own [env: DGEM_MODEL]
    #[arg(short, long, global = true, value_name = "MODEL")]
    pub model: Option<String>,
    /// Total deadline of a request, in seconds (or 500ms, 30s, 2m) [env: DGEM_TIMEOUT] [default: 120]
    #[arg(long, global = true, value_name = "SECONDS")]
    pub timeout: Option<String>,
    /// File with the bearer token; the token itself may be in DGEM_TOKEN [env: DGEM_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Ask the questions of a template and print the answers
    ///
    /// Example: dgem decide -t templates/support_triage.json.tmpl -v 'ticket=I was billed twice!' --stats
    Decide(DecideArgs),
    /// Look at templates; no server needed
    #[command(subcommand)]
    Template(TemplateCommand),
}

#[derive(Args, Debug)]
pub struct DecideArgs {
    /// Template: a file, or a name that `dgem template list` shows
    #[arg(short, long, value_name = "TEMPLATE")]
    pub template: PathBuf,
    #[command(flatten)]
    pub catalogue: CatalogueFlags,
    #[command(flatten)]
    pub variables: VariableFlags,
    /// Form of the output on stdout
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Also show time, cache reuse and steps
    #[arg(short, long)]
    pub stats: bool,
    /// Number of noise draws, or auto; wins over the template
    #[arg(long, value_name = "N|auto")]
    pub samples: Option<String>,
    /// Seed of the noise; wins over the template
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Exit 1 when an answer is missing from the reply, 4 when one is invalid
    #[arg(long)]
    pub strict: bool,
}

/// Where templates are looked for by name.
#[derive(Args, Clone, Debug, Default)]
pub struct CatalogueFlags {
    /// Folder with templates [env: DGEM_TEMPLATES] [default: templates]
    #[arg(long, value_name = "DIR")]
    pub templates: Option<PathBuf>,
}

/// The values for a template.
#[derive(Args, Clone, Debug, Default)]
pub struct VariableFlags {
    /// A variable: key=value, key=@file, or key=- for stdin (key=@@text for a leading @); repeatable
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub var: Vec<String>,
    /// A JSON file with variables, the JSON object itself, or - for stdin; --var wins over it
    #[arg(short, long, value_name = "FILE")]
    pub data: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One row a question
    Table,
    /// One JSON document
    Json,
}
