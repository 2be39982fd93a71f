//! The command line of `dgem ask`; `commands::ask` runs it.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::{CatalogueFlags, VariableFlags};

#[allow(clippy::struct_excessive_bools, reason = "each is a flag that was typed")]
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("question").required(true).args(["prompt", "template"]))]
pub struct AskArgs {
    /// What to ask: words, or - for stdin
    #[arg(value_name = "PROMPT", conflicts_with_all = ["var", "data"])]
    pub prompt: Vec<String>,
    /// A text template in place of the words: a file (.txt.tmpl), or a name that `dgem template list` shows
    #[arg(short, long, value_name = "TEMPLATE")]
    pub template: Option<PathBuf>,
    #[command(flatten)]
    pub catalogue: CatalogueFlags,
    #[command(flatten)]
    pub variables: VariableFlags,
    /// An image that the question is about: a file (PNG, JPEG, WebP, GIF or SVG), a data URI or an https URL; repeatable
    #[arg(short = 'I', long = "image", value_name = "IMAGE")]
    pub images: Vec<String>,
    /// What the model is told before the question
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Let the model think first; the thought goes to stderr
    #[arg(long)]
    pub think: bool,
    /// Most tokens of the reply, the thought included; without it the server's own limit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: Option<u32>,
    /// Seed of the noise: the same question with the same seed has the same reply
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub seed: Option<u64>,
    /// Print the answer when all of it is there
    #[arg(long)]
    pub no_stream: bool,
    /// Show each block while it is being denoised; needs a terminal
    #[arg(long, conflicts_with = "no_stream")]
    pub show_diffusion: bool,
    /// Also show time, tokens and steps, on stderr
    #[arg(short, long)]
    pub stats: bool,
}
