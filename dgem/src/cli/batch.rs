//! The command line of `dgem batch`; `commands::batch` runs it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{CascadeFlags, CatalogueFlags, ReadFlags, VariableFlags};

#[derive(Args, Debug)]
pub struct BatchArgs {
    /// Template: a file, or a name that `dgem template list` shows
    #[arg(short, long, value_name = "TEMPLATE")]
    pub template: PathBuf,
    #[command(flatten)]
    pub catalogue: CatalogueFlags,
    #[command(flatten)]
    pub variables: VariableFlags,
    /// Rows of variables, with id and expected_QUESTION: a JSONL or CSV file, or - for stdin
    #[arg(short, long, value_name = "FILE")]
    pub input: PathBuf,
    /// An image that belongs to every row, as for `dgem decide`; a row's own stand in its column `image`; repeatable
    #[arg(short = 'I', long = "image", value_name = "IMAGE")]
    pub images: Vec<String>,
    /// Form of the rows; by default CSV for a name that ends in .csv, else JSONL
    #[arg(long, value_enum)]
    pub input_format: Option<RowFormat>,
    /// One JSON line a row: a file, or - for stdout; {shard} stands for the number of the shard
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    /// Most rows at the same time; fewer while the server is busy
    #[arg(short, long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: u16,
    /// Write the results in the order of the rows
    #[arg(long)]
    pub keep_order: bool,
    /// Go on with an output file: rows that are done in it are left out
    #[arg(long)]
    pub resume: bool,
    /// Take every Nth row from row I, counted from 0 [env: CLOUD_RUN_TASK_INDEX, CLOUD_RUN_TASK_COUNT]
    #[arg(long, value_name = "I/N")]
    pub shard: Option<String>,
    /// Stop after this many rows that failed
    #[arg(long, value_name = "N")]
    pub max_errors: Option<u64>,
    #[command(flatten)]
    pub read: ReadFlags,
    /// Bring answers to the temperatures of a calibration (dgem calibrate fit), as the last step of each row
    #[arg(long, value_name = "FILE")]
    pub calibration: Option<PathBuf>,
    #[command(flatten)]
    pub cascade: CascadeFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RowFormat {
    /// One JSON object a line
    Jsonl,
    /// A header with names, then one row a line
    Csv,
}
