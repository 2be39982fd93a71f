//! The command lines of `dgem bench` and its sisters; `commands::bench` runs them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{CatalogueFlags, ReadFlags};

/// What all benchmarks have in common.
#[derive(Args, Debug)]
#[command(next_help_heading = "Run")]
pub struct BenchFlags {
    /// Receipt with every case and all figures; a new file, nothing is overwritten
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The report as one page with pictures; a new file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Compute the report from the cases of a receipt, without a server
    #[arg(long, value_name = "FILE")]
    pub from_receipt: Option<PathBuf>,
    /// Compare case by case with an older receipt
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// Print the receipt instead of the report
    #[arg(long)]
    pub json: bool,
    /// Ask at most this many cases
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,
    /// Leave out this many cases at the beginning
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub offset: usize,
    /// Cases at the same time; with more than one, times hold the wait for the others too
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: u16,
    /// Longest time of one case, with all its requests
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub case_timeout: String,
    #[command(flatten)]
    pub catalogue: CatalogueFlags,
    #[command(flatten)]
    pub read: ReadFlags,
}

#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Cases: a JSONL file with id, domain, template, variables, expected and tier [default: 30 cases that are built in]
    #[arg(short, long, value_name = "FILE")]
    pub dataset: Option<PathBuf>,
    /// Read the answers at their slots, have them written as JSON, or both
    #[arg(short = 'M', long, value_enum, default_value_t = BenchMode::Slot)]
    pub mode: BenchMode,
    /// Only cases of this domain
    #[arg(long, value_name = "NAME", alias = "domain")]
    pub category: Option<String>,
    /// Only cases of this tier
    #[arg(short = 'T', long, value_name = "NAME")]
    pub tier: Option<String>,
    #[command(flatten)]
    pub run: BenchFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchMode {
    /// One decision a case
    Slot,
    /// One reply in words a case
    Generative,
    Both,
}
