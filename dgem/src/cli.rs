//! What was typed: the clap definition of every command, and nothing about what it means.
//!
//! `commands` dispatches on [`Command`]; `settings` gives the connection flags their meaning together with the environment.

#![allow(clippy::doc_markdown, reason = "the doc comments are the help text, which is no markdown")]

mod ask;
mod batch;
mod bench;
mod calibrate;
mod connection;
mod decide;
mod setup;
mod template;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::exit;

pub use ask::AskArgs;
pub use batch::{BatchArgs, RowFormat};
pub use bench::{
    BenchArgs, BenchCalibrationArgs, BenchEcotoneArgs, BenchFlags, BenchIntentsArgs, BenchMode,
    BenchPermutationArgs, IntentSet,
};
pub use calibrate::{CalibrateCommand, FitArgs, LabelledFlags, VerifyArgs};
pub use connection::{AuthFlags, Color, ConnectionFlags};
pub use decide::{
    Api, CascadeFlags, CascadeMode, CascadePrior, CascadeVia, DecideArgs, Format, GateFlags, OutputFlags,
    ReadFlags,
};
pub use setup::{
    AuthCheckArgs, AuthCommand, CompletionsArgs, ConfigCommand, ConfigShowArgs, DoctorArgs, ManArgs,
    ModelsArgs,
};
pub use template::{CheckArgs, ListArgs, NewArgs, RenderArgs, ShowArgs, TemplateArg, TemplateCommand};

#[derive(Debug, Parser)]
#[command(
    name = "dgem",
    version,
    long_version = setup::LONG_VERSION,
    about,
    arg_required_else_help = true,
    after_long_help = exit::HELP
)]
pub struct Cli {
    #[command(flatten)]
    pub connection: ConnectionFlags,
    /// When to colour the output [env: DGEM_COLOR] [default: auto]
    #[arg(long, global = true, value_name = "WHEN", value_enum, hide_short_help = true)]
    pub color: Option<Color>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Ask the questions of a template and print the answers
    ///
    /// Example: dgem decide -t templates/support_triage.json.tmpl -v 'ticket=I was billed twice!' --stats
    Decide(Box<DecideArgs>),
    /// Ask in words and print the answer as it comes
    ///
    /// Example: dgem ask 'Explain the difference between autoregression and diffusion.' --stats
    Ask(Box<AskArgs>),
    /// Decide many rows with one template
    ///
    /// Example: dgem batch -t support_triage -i tickets.jsonl -o decided.jsonl -j 16
    Batch(Box<BatchArgs>),
    /// Measure decisions about tickets, code changes and alerts against known answers
    ///
    /// Example: dgem bench -d benchmarks/eval_dataset.jsonl -o results.json --html results.html
    Bench(Box<BenchArgs>),
    /// Measure how well confidence fits accuracy, and what a cascade makes of it
    ///
    /// Example: dgem bench-calibration -w 4 -o results.json --html results.html
    BenchCalibration(Box<BenchCalibrationArgs>),
    /// Measure how ambiguous words are read aloud, beside the text normaliser ecotone
    ///
    /// Example: dgem bench-ecotone --ecotone-addr unix:///tmp/ecotone.sock -o results.json
    BenchEcotone(Box<BenchEcotoneArgs>),
    /// Measure choices among many intents, and whether what is out of scope is seen
    ///
    /// Example: dgem bench-intents --dataset clinc150 -w 8 -o results.json
    BenchIntents(Box<BenchIntentsArgs>),
    /// Measure whether the order of options changes answers
    ///
    /// Example: dgem bench-permutation -o results.json
    BenchPermutation(Box<BenchPermutationArgs>),
    /// Fit temperatures to labelled answers, and see whether they still hold
    #[command(subcommand)]
    Calibrate(CalibrateCommand),
    /// Look at templates; no server needed
    ///
    /// Example: dgem template list
    #[command(subcommand)]
    Template(TemplateCommand),
    /// List the models of the server and what it decides at most
    ///
    /// Example: dgem models -u http://127.0.0.1:8080/v1
    Models(ModelsArgs),
    /// Go the way of a request step by step and say where it ends
    ///
    /// Example: dgem doctor -u https://SERVICE.run.app/v1
    Doctor(DoctorArgs),
    /// Look at the settings
    ///
    /// Example: dgem config show --origin
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look at the token that a server would get
    ///
    /// Example: dgem auth check https://SERVICE.run.app
    #[command(subcommand)]
    Auth(AuthCommand),
    /// Print a completion script for a shell
    ///
    /// Example: dgem completions bash > ~/.local/share/bash-completion/completions/dgem
    Completions(CompletionsArgs),
    /// Print the manual page, or write the page of every command
    ///
    /// Example: dgem man --dir ~/.local/share/man/man1
    Man(ManArgs),
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
