//! The command line of `dgem decide`; `commands::decide` runs it.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};

use super::{CatalogueFlags, VariableFlags};

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("questions").required(true).args(["template", "schema"]))]
pub struct DecideArgs {
    /// Template: a file, or a name that `dgem template list` shows
    #[arg(short, long, value_name = "TEMPLATE")]
    pub template: Option<PathBuf>,
    /// The questions as JSON instead of a template: a file, or the JSON itself
    #[arg(long, value_name = "FILE|JSON")]
    pub schema: Option<PathBuf>,
    /// What to decide about: a file, the JSON itself, or - for stdin; wins over the state of the template
    #[arg(long, value_name = "FILE|JSON|-")]
    pub state: Option<String>,
    /// An image that belongs to the state: a file (PNG, JPEG, WebP, GIF or SVG), a data URI or an https URL; repeatable
    #[arg(short = 'I', long = "image", value_name = "IMAGE")]
    pub images: Vec<String>,
    #[command(flatten)]
    pub catalogue: CatalogueFlags,
    #[command(flatten)]
    pub variables: VariableFlags,
    #[command(flatten)]
    pub read: ReadFlags,
    #[command(flatten)]
    pub output: OutputFlags,
    /// Bring answers to the temperatures of a calibration (dgem calibrate fit), as the last step
    #[arg(long, value_name = "FILE", requires = "template")]
    pub calibration: Option<PathBuf>,
    #[command(flatten)]
    pub gates: GateFlags,
    #[command(flatten)]
    pub cascade: CascadeFlags,
}

/// How the questions are read. These win over the template.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Reading")]
pub struct ReadFlags {
    /// Number of noise draws, or auto
    #[arg(long, value_name = "N|auto")]
    pub samples: Option<String>,
    /// What comes first in the prompt: schema_first or document_first
    #[arg(long, value_name = "LAYOUT")]
    pub layout: Option<String>,
    /// Most tokens of a thought that is written before the read; 0 for none
    #[arg(long, value_name = "TOKENS")]
    pub think: Option<u32>,
    /// Seed of the noise
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Ask with N orders of the options of every choice and average, against the habit of preferring a place
    #[arg(long, value_name = "N")]
    pub permute: Option<usize>,
    /// What the server speaks; without it chat is tried first, then openai
    #[arg(long, value_enum)]
    pub api: Option<Api>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Api {
    /// Decisions on /chat/completions
    Chat,
    /// Independent questions on /systemone
    Systemone,
    /// No decisions, but JSON by a schema with logprobs: any OpenAI-compatible server
    Openai,
}

/// What is printed.
#[allow(clippy::struct_excessive_bools, reason = "each is a flag that was typed")]
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputFlags {
    /// Form of the output on stdout
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Print only the answers, one a line
    #[arg(short, long, conflicts_with_all = ["format", "stats", "explain"])]
    pub quiet: bool,
    /// Show only these questions; all are asked
    #[arg(long, value_name = "ID,…", value_delimiter = ',')]
    pub fields: Vec<String>,
    /// Also show time, cache reuse and steps
    #[arg(short, long)]
    pub stats: bool,
    /// Also show every probability, and what the model is given to read
    #[arg(long)]
    pub explain: bool,
    /// Print the request as JSON instead of sending it; secrets are masked, and of several requests it is the first
    #[arg(long, conflicts_with = "curl")]
    pub dry_run: bool,
    /// Print the request as a curl command instead of sending it; the token stays a variable
    #[arg(long)]
    pub curl: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One row a question
    Table,
    /// One JSON document
    Json,
    /// The same on one line
    Jsonl,
    /// One row a question, with a header
    Csv,
}

/// When an answer is not good enough: exit code 1, with a line on stderr for each.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Gates (exit code 1)")]
pub struct GateFlags {
    /// Fail when the question has this answer (or one of several: a|b); repeatable
    #[arg(long, value_name = "ID=ANSWER")]
    pub fail_if: Vec<String>,
    /// Fail when an answer has more entropy than this share of the most it could have, such as 16% or 0.16
    #[arg(long, value_name = "SHARE")]
    pub max_hesitation: Option<String>,
    /// Fail when an answer has less probability than this
    #[arg(long, value_name = "SHARE")]
    pub min_confidence: Option<String>,
    /// Fail when the labels of a question had less probability than this together, before the choice between them
    #[arg(long, value_name = "SHARE")]
    pub min_label_mass: Option<String>,
    /// Gates look at the figures after --calibration, not at those that the model gave
    #[arg(long, requires = "calibration")]
    pub calibrated_gates: bool,
    /// Fail when an answer is missing from the reply; exit 4 when one is invalid
    #[arg(long)]
    pub strict: bool,
}

impl GateFlags {
    /// Whether there is any gate but `--strict`.
    pub(crate) fn any(&self) -> bool {
        let numeric = [&self.max_hesitation, &self.min_confidence, &self.min_label_mass];
        !self.fail_if.is_empty() || numeric.iter().any(|limit| limit.is_some())
    }
}

/// A second model for the questions that the first is unsure about.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cascade")]
pub struct CascadeFlags {
    /// Which questions go to the second model
    #[arg(long, value_enum, default_value_t = CascadeMode::Off)]
    pub cascade: CascadeMode,
    /// From which entropy on: nats (0.35nats) or a share of the most possible (16%) [default: 16%]
    #[arg(long, value_name = "ENTROPY")]
    pub cascade_threshold: Option<String>,
    /// Who serves the second model; without it openai when there is a URL, gemini when there is GEMINI_API_KEY, else vertex
    #[arg(long, value_enum)]
    pub cascade_via: Option<CascadeVia>,
    /// Base URL of the second model's server (its token: DGEM_CASCADE_TOKEN) [env: DGEM_CASCADE_URL]
    #[arg(long, value_name = "URL")]
    pub cascade_url: Option<String>,
    /// Second model [env: DGEM_CASCADE_MODEL]
    #[arg(long, value_name = "MODEL")]
    pub cascade_model: Option<String>,
    /// Project that pays for Vertex [env: GOOGLE_CLOUD_PROJECT]
    #[arg(long, value_name = "PROJECT")]
    pub cascade_project: Option<String>,
    /// What the second model is told of the first one's answer
    #[arg(long, value_enum, default_value_t = CascadePrior::Soft)]
    pub cascade_prior: CascadePrior,
    /// Deadline of the second model [default: 25, with images 90]
    #[arg(long, value_name = "SECONDS")]
    pub cascade_timeout: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CascadeMode {
    /// None
    Off,
    /// Those with an entropy at or above the threshold, and those without a usable answer
    Entropy,
    /// Those without a usable answer
    OnMiss,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CascadeVia {
    /// An OpenAI-compatible server
    Openai,
    /// The Gemini API with a key (GEMINI_API_KEY)
    Gemini,
    /// Gemini on Vertex AI with a Google access token
    Vertex,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CascadePrior {
    /// Its answer, and that it may be wrong
    Soft,
    /// Its answer with all probabilities
    Full,
    /// Nothing
    None,
}
