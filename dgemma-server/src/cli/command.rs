//! The subcommands: what `dgemma-server` does instead of serving. Their code is in `commands/`, `download/` and `bench/`.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand, ValueEnum};

use diffusion_gemma::weights::Profile;

use super::at_least_one;
use crate::download;

/// What to do instead of serving.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Print what a checkpoint is made of: format, encodings, sizes
    ///
    /// Example: dgemma-server inspect -m model/diffgemma-26b-a4b-it-q4
    Inspect {
        /// List every tensor: name, encoding, shape, bytes
        #[arg(long)]
        tensors: bool,
    },
    /// Read a checkpoint through: digests, names, shapes, every number
    ///
    /// Example: dgemma-server verify -m model/diffgemma-26b-a4b-it-q4
    Verify,
    /// Write a checkpoint as a .dgq pack with fewer bits
    ///
    /// Example: dgemma-server quantize -m model/diffusiongemma-26B-A4B-it -o model/diffgemma-q6 --profile q6
    Quantize {
        /// Folder of the new pack
        #[arg(short, long, value_name = "DIR")]
        out: PathBuf,
        /// What is kept in how many bits
        #[arg(long, default_value = "q4")]
        profile: ProfileArgument,
    },
    /// Print what a model would take in memory; fails where it does not fit
    ///
    /// Example: dgemma-server plan --published q4 --ctx 32768 --memory-gib 32
    Plan {
        /// Sequences of full length at a time [default: what the server would let run, see --active-tokens]
        #[arg(long, value_name = "N", value_parser = at_least_one())]
        batch: Option<usize>,
        /// Plan for the published 26B model in this form, which need not be here
        #[arg(long, value_name = "FORM")]
        published: Option<Published>,
    },
    /// Make one reply on the terminal, with timing
    ///
    /// Example: dgemma-server ask -m model/diffgemma-26b-a4b-it-q4 -p "Explain discrete text diffusion in two sentences."
    Ask(Question),
    /// Measure one decision in this process: cold, and with the schema already encoded
    ///
    /// Example: dgemma-server --model fixtures/demo-model --threads 2 bench --runs 200
    Bench {
        /// Decisions measured, after a tenth as many that are not
        #[arg(long, default_value_t = 100, value_parser = at_least_one())]
        runs: usize,
        /// Instead compare the answers to the decisions of a file (`{"schema": …, "state": …}` a line) with those of the same
        /// model in f32: mean KL divergence and how often the most probable answer is the same
        #[arg(long, value_name = "FILE", conflicts_with = "runs")]
        quality: Option<PathBuf>,
    },
    /// Fetch a checkpoint or a pack from a hub, in parallel ranges, and check every file against the hub's digests
    ///
    /// What came is kept when it is interrupted, and the same command goes on; files that are already there are checked and
    /// fetched again where they differ. HF_ENDPOINT names another hub or a mirror, HF_TOKEN a token for what is not open.
    ///
    /// Example: dgemma-server download --repo google/diffusiongemma-26B-A4B-it --jobs 8 -o model/diffusiongemma
    Download {
        /// Repository on the hub
        #[arg(long, value_name = "ORG/NAME", default_value = download::DEFAULT_REPO)]
        repo: String,
        /// Branch, tag or commit
        #[arg(long, value_name = "REVISION", default_value = "main")]
        revision: String,
        /// Ranges fetched at the same time
        #[arg(long, value_name = "N", default_value_t = 8, value_parser = RangedU64ValueParser::<usize>::new().range(1..=64))]
        jobs: usize,
        /// Folder to fill [default: model/NAME]
        #[arg(short, long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// One question for `ask`.
#[derive(Debug, Clone, Args)]
pub struct Question {
    /// What to ask
    #[arg(short, long, value_name = "TEXT")]
    pub prompt: String,
    /// Most tokens of the reply
    #[arg(long, value_name = "TOKENS", default_value_t = 2048, value_parser = at_least_one())]
    pub max_new_tokens: usize,
    /// Let the model think first; thoughts go to stderr
    #[arg(long)]
    pub think: bool,
    /// The same seed gives the same reply
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
}

/// What of the weights a pack keeps in fewer bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProfileArgument {
    /// Experts in 4 bits, self-conditioning in 8
    Q4,
    /// Experts in 6 bits, self-conditioning in 8
    Q6,
    /// Experts, attention, dense layers and self-conditioning in 8 bits
    Q8,
    /// Experts, attention and dense layers in 4-bit floats, self-conditioning in 8 bits
    Nvfp4,
}

impl From<ProfileArgument> for Profile {
    fn from(profile: ProfileArgument) -> Self {
        match profile {
            ProfileArgument::Q4 => Self::Q4,
            ProfileArgument::Q6 => Self::Q6,
            ProfileArgument::Q8 => Self::Q8,
            ProfileArgument::Nvfp4 => Self::Nvfp4,
        }
    }
}

/// A form of the published 26B model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Published {
    Bf16,
    Q4,
    Q6,
    Q8,
    Nvfp4,
}

impl Published {
    /// The profile of the pack; `None`: as published.
    #[must_use]
    pub fn profile(self) -> Option<Profile> {
        match self {
            Self::Bf16 => None,
            Self::Q4 => Some(Profile::Q4),
            Self::Q6 => Some(Profile::Q6),
            Self::Q8 => Some(Profile::Q8),
            Self::Nvfp4 => Some(Profile::Nvfp4),
        }
    }
}
