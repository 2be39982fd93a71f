//! The command line of `dgemma-server`.
//!
//! Read by `main`; every option says its unit. A variable of the environment stands beside the flag it sets.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::HeaderValue;
use clap::builder::RangedU64ValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use diffusion_gemma::weights::Profile;
use diffusion_gemma::{DType, Quant};

use crate::engine::diffusion::OpenOptions;
use crate::error::Error;
use crate::http::keys::{self, Keys};
use crate::log;
use crate::scheduler::policy::Budget;
use crate::{Options, build, device, download, model_dir, threads};

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
}

/// What only a server needs.
#[derive(Debug, Clone, Args)]
pub struct ServingArguments {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8080", value_parser = address, env = "DGEMMA_ADDR")]
    pub addr: SocketAddr,

    /// Places in the queue, one per canvas; a request that finds too few free is refused with 429
    #[arg(long, value_name = "PLACES", default_value_t = 2048, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000_000), env = "DGEMMA_QUEUE")]
    pub queue: usize,

    /// Seconds a request may wait in the queue before it is refused with 503
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..), env = "DGEMMA_QUEUE_WAIT_SECONDS")]
    pub queue_wait_seconds: u32,

    /// Most rows (prompt tokens and canvas rows) of one forward pass
    #[arg(long, value_name = "ROWS", default_value_t = Budget::default().pass_rows, value_parser = at_least_one(), env = "DGEMMA_PASS_ROWS")]
    pub pass_rows: usize,

    /// Largest request body, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 8, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024), env = "DGEMMA_BODY_LIMIT_MIB")]
    pub body_limit_mib: usize,

    /// Seconds a client may take to send the head of a request, and as long again for its body; then it is refused with 408
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..), env = "DGEMMA_RECEIVE_SECONDS")]
    pub receive_seconds: u32,

    /// Seconds that running requests get after the signal to stop
    #[arg(long, value_name = "SECONDS", default_value_t = 8, env = "DGEMMA_DRAIN_SECONDS")]
    pub drain_seconds: u32,

    /// File with API keys, one a line; further keys come from DGEMMA_API_KEYS, separated by commas [default: no key is asked for]
    #[arg(long, value_name = "FILE", env = "DGEMMA_API_KEY_FILE")]
    pub api_key_file: Option<PathBuf>,

    /// Origin of web pages that may use this server, such as https://example.org; may be repeated [default: none]
    #[arg(long, value_name = "ORIGIN", value_parser = origin, value_delimiter = ',', env = "DGEMMA_CORS_ORIGIN")]
    pub cors_origin: Vec<HeaderValue>,

    /// Name under which a proxy on this machine may ask a server without keys, such as model.example.org; may be repeated [default:
    /// localhost and addresses]
    #[arg(long, value_name = "NAME", value_parser = host, value_delimiter = ',', env = "DGEMMA_ALLOW_HOST")]
    pub allow_host: Vec<String>,
}

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
        /// Sequences of full length at a time
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one())]
        batch: usize,
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

/// An address with a port. A name would have to be looked up, and might mean several.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "an address is a number and a port, as in 127.0.0.1:8080, [::1]:8080, or 0.0.0.0:8080 for every interface".into()
    })
}

/// An origin as a browser sends it: scheme, host and port, nothing after.
fn origin(text: &str) -> Result<HeaderValue, String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    if host.is_none_or(|host| host.is_empty() || host.contains(['/', '*', '?', '#', '@'])) {
        return Err(
            "an origin is http:// or https://, a host and perhaps a port, as in https://example.org:8443"
                .into(),
        );
    }
    text.parse().map_err(|_| "it has a character that no header can carry".into())
}

/// The name of a host, without a port.
fn host(text: &str) -> Result<String, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
        return Err("a name is one host without scheme, port or path, as in model.example.org".into());
    }
    Ok(text.to_owned())
}

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
        let default = Budget::default();
        Ok(Options {
            model,
            queue_places: self.serving.queue,
            body_limit_bytes: self.serving.body_limit_mib << 20,
            budget: Budget {
                pass_rows: self.serving.pass_rows,
                chunk_rows: default.chunk_rows.min(self.serving.pass_rows),
                ..default
            },
            receive_limit: Duration::from_secs(self.serving.receive_seconds.into()),
            drain: Duration::from_secs(self.serving.drain_seconds.into()),
            queue_wait: Duration::from_secs(self.serving.queue_wait_seconds.into()),
            keys: Keys::load(self.serving.api_key_file.as_deref(), std::env::var_os(keys::VARIABLE))?,
            cors_origins: self.serving.cors_origin.clone(),
            hosts: self.serving.allow_host.clone(),
            log_content: self.log_content,
        })
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
            pass_rows: self.serving.pass_rows,
            context_tokens: self.model.ctx,
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
