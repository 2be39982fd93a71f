//! The command lines of `dgem bench` and its sisters; `commands::bench` runs them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{CascadeFlags, CatalogueFlags, ReadFlags};

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
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workers", "case_timeout", "samples", "layout", "think", "seed", "permute", "api"])]
    pub from_receipt: Option<PathBuf>,
    /// Compare case by case with an older receipt
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// Print the receipt instead of the report
    #[arg(long)]
    pub json: bool,
    /// Ask at most this many cases
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "from_receipt")]
    pub limit: Option<usize>,
    /// Leave out this many cases at the beginning
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "from_receipt")]
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
    #[arg(short, long, value_name = "FILE", conflicts_with = "from_receipt")]
    pub dataset: Option<PathBuf>,
    /// Read the answers at their slots, have them written as JSON, or both
    #[arg(short = 'M', long, value_enum, default_value_t = BenchMode::Slot, conflicts_with = "from_receipt")]
    pub mode: BenchMode,
    /// Only cases of this domain
    #[arg(long, value_name = "NAME", alias = "domain", conflicts_with = "from_receipt")]
    pub category: Option<String>,
    /// Only cases of this tier
    #[arg(short = 'T', long, value_name = "NAME", conflicts_with = "from_receipt")]
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

#[derive(Args, Debug)]
pub struct BenchCalibrationArgs {
    /// Cases: a JSONL file with id, metric, tier, category, fields and expected [default: 50 cases that are built in]
    #[arg(short, long, value_name = "FILE", conflicts_with = "from_receipt")]
    pub dataset: Option<PathBuf>,
    /// Only cases of this category
    #[arg(short, long, value_name = "NAME", conflicts_with = "from_receipt")]
    pub category: Option<String>,
    /// Only cases of this tier
    #[arg(short = 'T', long, value_name = "NAME", conflicts_with = "from_receipt")]
    pub tier: Option<String>,
    #[command(flatten)]
    pub run: BenchFlags,
    #[command(flatten)]
    pub cascade: CascadeFlags,
    /// Take the first model's answers from a receipt where it has them; live asks for all of them
    #[arg(long, value_name = "RECEIPT|live", help_heading = "Cascade")]
    pub cascade_from: Option<String>,
    /// The second look is the same model's own, after a thought of at most this many tokens
    #[arg(long, value_name = "TOKENS", help_heading = "Cascade", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(conflicts_with_all = ["cascade", "cascade_via", "cascade_url", "cascade_model", "cascade_project"])]
    pub cascade_self_think: Option<u32>,
}

#[derive(Args, Debug)]
pub struct BenchPermutationArgs {
    /// Cases: a JSONL file with id, regime, state, instructions, options and expected [default: 16 cases that are built in]
    #[arg(short, long, value_name = "FILE", conflicts_with = "from_receipt")]
    pub dataset: Option<PathBuf>,
    /// Only cases of this regime
    #[arg(long, value_name = "NAME", alias = "regime", conflicts_with = "from_receipt")]
    pub category: Option<String>,
    /// The mirror gate fires from this hesitation on [default: that of the receipt, else 16%]
    #[arg(long, value_name = "SHARE")]
    pub gate_threshold: Option<String>,
    #[command(flatten)]
    pub run: BenchFlags,
}

#[derive(Args, Debug)]
pub struct BenchIntentsArgs {
    /// Which public set the cases are like
    #[arg(short, long, value_enum, default_value_t = IntentSet::Banking77, conflicts_with = "from_receipt")]
    pub dataset: IntentSet,
    /// Cases: a JSONL file with id, text, expected_intent and options [default: 30 cases that are built in]
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["full", "from_receipt"])]
    pub corpus: Option<PathBuf>,
    /// The whole test set, fetched from its publisher once and kept in the cache of the user
    #[arg(short = 'F', long, conflicts_with = "from_receipt")]
    pub full: bool,
    /// Fetch it from here; the paths are those of GitHub
    #[arg(long, value_name = "URL", requires = "full", default_value = "https://raw.githubusercontent.com")]
    pub mirror: String,
    /// Refuse a download that has another SHA-256; without it the first one is trusted, and later ones must be the same
    #[arg(long, value_name = "HEX", requires = "full", value_parser = sha256)]
    pub sha256: Option<String>,
    /// Ask once more about the most probable intents where the first read is unsure
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", conflicts_with = "from_receipt")]
    pub tie_break: bool,
    /// Entropy in nats from which on the first read is unsure; below 92 % of confidence it always is
    #[arg(long, value_name = "NATS", default_value_t = 0.08, value_parser = nats, conflicts_with = "from_receipt")]
    pub entropy_threshold: f64,
    /// Intents in a tie-break, out of scope not counted
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u16).range(2..=25), conflicts_with = "from_receipt")]
    pub tie_break_top: u16,
    /// Only cases of this domain
    #[arg(long, value_name = "NAME", alias = "domain", conflicts_with = "from_receipt")]
    pub category: Option<String>,
    #[command(flatten)]
    pub run: BenchFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IntentSet {
    /// Customers of a bank: 77 intents
    Banking77,
    /// An assistant: 150 intents in many domains, and what is out of scope
    Clinc150,
}

impl IntentSet {
    /// The spelling on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Banking77 => "banking77",
            Self::Clinc150 => "clinc150",
        }
    }
}

#[derive(Args, Debug)]
pub struct BenchEcotoneArgs {
    /// Cases: a JSONL file with id, category, input, target_token, options and expected_spoken [default: 49 cases that are built in]
    #[arg(short, long, value_name = "FILE", conflicts_with = "from_receipt")]
    pub corpus: Option<PathBuf>,
    /// Unix socket of the normaliser; without one there it is not measured
    #[arg(long, value_name = "ADDRESS", default_value = "unix:///tmp/ecotone.sock")]
    pub ecotone_addr: String,
    /// Only cases of this category
    #[arg(long, value_name = "NAME", conflicts_with = "from_receipt")]
    pub category: Option<String>,
    #[command(flatten)]
    pub run: BenchFlags,
}

fn sha256(text: &str) -> Result<String, String> {
    let hex = text.len() == 64 && text.chars().all(|c| c.is_ascii_hexdigit());
    hex.then(|| text.to_owned()).ok_or_else(|| "a SHA-256 has 64 hexadecimal digits".to_owned())
}

fn nats(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0);
    value.ok_or_else(|| "an entropy is a number from 0 on, as in 0.08".to_owned())
}
