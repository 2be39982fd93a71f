//! The command line of `dgem calibrate`; `commands::calibrate` runs it.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use super::{CatalogueFlags, ReadFlags};

#[derive(Debug, Subcommand)]
pub enum CalibrateCommand {
    /// Fit a temperature for each type of question, for one template and one model
    ///
    /// Example: dgem calibrate fit -t support_triage -i labelled.jsonl -o support_triage.calibration.json
    Fit(FitArgs),
    /// See whether a calibration still holds; exit code 1 when it does not
    ///
    /// Example: dgem calibrate verify support_triage.calibration.json -t support_triage -i labelled.jsonl
    Verify(VerifyArgs),
}

/// Answers whose right ones are known.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("labelled").required(true).args(["input", "from_receipt"]))]
pub struct LabelledFlags {
    /// Template: a file, or a name that `dgem template list` shows
    #[arg(short, long, value_name = "TEMPLATE")]
    pub template: PathBuf,
    #[command(flatten)]
    pub catalogue: CatalogueFlags,
    /// Labelled rows to ask the server: JSONL with id, the variables, and expected_QUESTION
    #[arg(short, long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Answers that a benchmark has measured; those to this template count
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workers", "samples", "layout", "think", "seed", "permute", "api"])]
    pub from_receipt: Option<PathBuf>,
    /// Least answers of a type
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..))]
    pub min_answers: u32,
    /// Cases at the same time
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: u16,
    #[command(flatten)]
    pub read: ReadFlags,
}

#[derive(Args, Debug)]
pub struct FitArgs {
    #[command(flatten)]
    pub labelled: LabelledFlags,
    /// The calibration; without it NAME.calibration.json beside the file of the template
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an older calibration
    #[arg(long)]
    pub force: bool,
}

#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// The calibration
    #[arg(value_name = "FILE")]
    pub calibration: PathBuf,
    #[command(flatten)]
    pub labelled: LabelledFlags,
    /// Drift is when the stored temperature costs more than this over the best one, in nats an answer
    #[arg(long, value_name = "NATS", default_value_t = 0.05)]
    pub max_loss: f64,
}
