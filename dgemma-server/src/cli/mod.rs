//! The command line of `dgemma-server`: the options of a model, which every command has, and how they are read.
//!
//! Read by `main`; every option says its unit. A variable of the environment stands beside the flag it sets. `serving` has the
//! options of a server, `command` the subcommands.

mod command;
mod serving;

use std::path::{Path, PathBuf};

use clap::builder::RangedU64ValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, ValueEnum};

use diffusion_gemma::{DType, Quant};

pub use command::{Command, ProfileArgument, Published, Question};
pub use serving::ServingArguments;

use crate::commands::memory::{Concurrency, Workload};
use crate::engine::diffusion::OpenOptions;
use crate::error::Error;
use crate::{Options, build, device, log, model_dir, threads};

/// Serves a `DiffusionGemma` checkpoint over an OpenAI-compatible HTTP API with typed decisions.
///
/// Example: dgemma-server --model model/diffusiongemma --ctx 32768
#[derive(Debug, Clone, Parser)]
#[command(name = "dgemma-server", version = build::LONG)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub model: ModelArguments,

    #[command(flatten)]
    pub serving: ServingArguments,

    /// How the log is written
    #[arg(global = true, long, value_name = "FORMAT", default_value = "text", env = "DGEMMA_LOG_FORMAT")]
    pub log_format: log::Format,

    /// Write requests and replies to the log; without it the log has no content of a request
    #[arg(global = true, long, env = "DGEMMA_LOG_CONTENT")]
    pub log_content: bool,
}

/// What a model needs, whatever is done with it.
#[derive(Debug, Clone, Args)]
pub struct ModelArguments {
    /// Checkpoint folder [env: DGEMMA_MODEL] [default: the only checkpoint in ./model]
    // The variable is read in `model_dir`, which says where a model was looked for.
    #[arg(global = true, short = 'm', long = "model", id = "model", value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Most tokens of a prompt and its canvas together [default: what the model allows, at most 32768]
    #[arg(global = true, long, value_name = "TOKENS", env = "DGEMMA_CTX")]
    pub ctx: Option<usize>,

    /// Threads the model computes with [default: all cores]
    #[arg(global = true, long, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024), env = "DGEMMA_THREADS")]
    pub threads: Option<usize>,

    /// Number format the model computes in
    #[arg(global = true, long, default_value = "f32", env = "DGEMMA_DTYPE")]
    pub dtype: Dtype,

    /// Quantise the layers' weights on load; embeddings, norms and router stay as stored
    #[arg(global = true, long, default_value = "none", env = "DGEMMA_QUANT")]
    pub quant: QuantArgument,

    /// Where to compute: auto, cpu, metal, cuda or cuda:N; GPUs need a build for them
    #[arg(global = true, long, value_name = "DEVICE", default_value = "auto", env = "DGEMMA_DEVICE")]
    pub device: device::Choice,

    /// Split the layers over devices, as in cuda:0=0-14,cuda:1=15-29; embedding and head go with the first
    #[arg(global = true, long, value_name = "MAP", env = "DGEMMA_DEVICE_MAP")]
    pub device_map: Option<device::Map>,

    /// Memory to plan for [default: what the system says is available]
    #[arg(global = true, long, value_name = "GIB", value_parser = gib, env = "DGEMMA_MEMORY_GIB")]
    pub memory_gib: Option<f64>,

    /// Memory for encoded prompt beginnings that later prompts reuse, in MiB; 0 keeps none
    #[arg(global = true, long, value_name = "MIB", default_value_t = 512, env = "DGEMMA_PREFIX_CACHE_MIB")]
    pub prefix_cache_mib: usize,

    /// Tokens of running requests together from which on no further one is begun; each holds keys and values [default: as many as
    /// fit into memory, at most 16384]
    #[arg(global = true, long, value_name = "TOKENS", value_parser = at_least_one(), env = "DGEMMA_ACTIVE_TOKENS")]
    pub active_tokens: Option<usize>,
}

/// Form of the weights of the layers in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum QuantArgument {
    /// As the checkpoint stores them
    None,
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q6k")]
    Q6K,
    #[value(name = "q4k")]
    Q4K,
}

impl QuantArgument {
    /// `None` keeps the weights as stored.
    fn form(self) -> Option<Quant> {
        match self {
            Self::None => None,
            Self::Q8_0 => Some(Quant::Q8_0),
            Self::Q6K => Some(Quant::Q6K),
            Self::Q4K => Some(Quant::Q4K),
        }
    }
}

/// A number format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    F32,
    Bf16,
}

/// A number of GiB.
fn gib(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number
        .filter(|gib| gib.is_finite() && *gib > 0.0)
        .ok_or_else(|| "a number of GiB, as in 24 or 0.5".into())
}

/// A number of things without which there is nothing to do.
fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

impl Arguments {
    /// The arguments of this process; a mistake ends it.
    #[must_use]
    pub fn of_command_line() -> Self {
        Self::of_matches(&Self::command().get_matches()).unwrap_or_else(|error| error.exit())
    }

    fn of_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let Some((subcommand, _)) = matches.subcommand() else { return Self::from_arg_matches(matches) };
        // Written after it they are unknown; written before it they would be passed over in silence.
        let mut command = Self::command();
        let stray = command
            .get_arguments()
            .filter(|argument| !argument.is_global_set())
            .find(|argument| {
                matches.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine)
            })
            .and_then(clap::Arg::get_long);
        match stray {
            None => Self::from_arg_matches(matches),
            Some(flag) => {
                let message =
                    format!("--{flag} is for serving, and {subcommand:?} does not serve; leave it out");
                Err(command.error(ErrorKind::ArgumentConflict, message))
            }
        }
    }

    /// What `serve` needs to know, for a model of that name.
    pub fn options(&self, model: String) -> Result<Options, Error> {
        let mut options = self.serving.options(model, self.log_content)?;
        if let Some(tokens) = self.model.active_tokens {
            options.budget.active_tokens = tokens;
        }
        Ok(options)
    }

    /// What the memory plan has to hold.
    #[must_use]
    pub fn workload(&self, concurrency: Concurrency) -> Workload {
        Workload { concurrency, pass_rows: self.serving.pass_rows, memory_gib: self.model.memory_gib }
    }

    /// The checkpoint folder to open.
    pub fn checkpoint(&self) -> Result<PathBuf, Error> {
        model_dir::find(self.model.dir.clone(), std::env::var_os(model_dir::VARIABLE), Path::new("."))
    }

    /// How to open it.
    #[must_use]
    pub fn open_options(&self, dir: PathBuf) -> OpenOptions {
        OpenOptions {
            dir,
            dtype: match self.model.dtype {
                Dtype::F32 => DType::F32,
                Dtype::Bf16 => DType::BF16,
            },
            quant: self.model.quant.form(),
            device: self.model.device,
            device_map: self.model.device_map.clone().unwrap_or_default(),
            context_tokens: self.model.ctx,
            active_tokens: self.model.active_tokens.unwrap_or(usize::MAX),
            prefix_cache_bytes: self.model.prefix_cache_mib << 20,
            threads: threads::in_use(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn nothing_is_exposed_beyond_this_machine_unless_asked_for() {
        let arguments = Arguments::try_parse_from(["dgemma-server"]).unwrap();
        assert!(arguments.serving.addr.ip().is_loopback());
    }

    fn parse(arguments: &[&str]) -> Result<Arguments, String> {
        let arguments = ["dgemma-server"].iter().chain(arguments);
        let matches = Arguments::command().try_get_matches_from(arguments);
        matches.and_then(|matches| Arguments::of_matches(&matches)).map_err(|error| error.to_string())
    }

    #[test]
    fn bench_takes_the_options_of_the_model_on_either_side_and_no_others() {
        for place in [["--quant", "q8_0", "bench"], ["bench", "--quant", "q8_0"]] {
            assert_eq!(parse(&place).unwrap().model.quant, QuantArgument::Q8_0);
        }
        for flag in [["--addr", "127.0.0.1:1"], ["--queue", "5"], ["--cors-origin", "https://a.example"]] {
            let before = parse(&[flag[0], flag[1], "bench"]).unwrap_err();
            assert!(before.contains(flag[0]) && before.contains("bench"), "{before}");
            let after = parse(&["bench", flag[0], flag[1]]).unwrap_err();
            assert!(after.contains(flag[0]), "{after}");
            assert!(parse(&flag).is_ok());
        }
    }

    #[test]
    fn a_wrong_address_is_answered_with_examples() {
        for wrong in ["8080", "localhost:8080", "127.0.0.1", ":8080", "[::1]"] {
            let error = parse(&["--addr", wrong]).unwrap_err();
            assert!(error.contains("127.0.0.1:8080") && error.contains("0.0.0.0:8080"), "{error}");
        }
    }

    #[test]
    fn values_without_meaning_are_refused() {
        for wrong in [
            ["--queue", "0"],
            ["--queue-wait-seconds", "0"],
            ["--receive-seconds", "0"],
            ["--log-format", "xml"],
            ["--cors-origin", "*"],
            ["--cors-origin", "example.org"],
            ["--cors-origin", "https://example.org/"],
            ["--allow-host", "https://model.example"],
            ["--allow-host", "model.example:80"],
            ["--allow-host", "*"],
            ["--threads", "0"],
            ["--dtype", "f17"],
            ["--ctx", "many"],
            ["--addr", "8080"],
        ] {
            assert!(parse(&wrong).is_err(), "{wrong:?}");
        }
    }
}
