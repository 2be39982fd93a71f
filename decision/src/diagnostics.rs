//! How a decision was made: what the server did, how long it took and what it saw at every slot.
//!
//! Written by the server, shown by the client under `--stats`. Reading is tolerant, since other servers report less or report
//! a list where we have a number; what is absent stays absent or zero, and never makes the answers unreadable.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tolerance::{first_number, largest_number, null_as_default, number_list, text_of};

/// The `diagnostics` object of a reply.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Diagnostics {
    /// `diffusion`, `autoregressive`, …
    #[serde(deserialize_with = "null_as_default")]
    pub engine: String,
    /// Denoise steps of each read.
    #[serde(deserialize_with = "null_as_default")]
    pub steps: u32,
    #[serde(deserialize_with = "null_as_default")]
    pub layout: String,
    #[serde(deserialize_with = "null_as_default")]
    pub prompt_tokens: u64,
    /// Question ids of each stage.
    #[serde(deserialize_with = "null_as_default")]
    pub stages: Vec<Vec<String>>,
    /// Question ids of each canvas.
    #[serde(deserialize_with = "null_as_default")]
    pub chunks: Vec<Vec<String>>,
    /// Questions whose condition did not hold; their answer is `null`.
    #[serde(deserialize_with = "null_as_default")]
    pub skipped: IndexMap<String, Skipped>,
    /// Text of the thought the read was conditioned on.
    #[serde(deserialize_with = "text_of")]
    pub thought: Option<String>,
    #[serde(deserialize_with = "null_as_default")]
    pub samples: SamplesTaken,
    #[serde(deserialize_with = "null_as_default")]
    pub timing: Timing,
    #[serde(deserialize_with = "null_as_default")]
    pub questions: IndexMap<String, SlotDiagnostics>,
}

/// Why a question was not asked: the answer of `because` was `was`, and one of `wanted` was needed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Skipped {
    pub because: String,
    /// `None` when that question was itself skipped or not asked.
    pub was: Option<String>,
    pub wanted: Vec<String>,
}

/// How many reads were taken and by which rule.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SamplesTaken {
    #[serde(deserialize_with = "first_number")]
    pub n: u32,
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::PolicyForm))]
    pub policy: Policy,
}

/// The rule that decided on the number of reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum Policy {
    Fixed {
        n: u32,
    },
    Auto {
        /// Nats.
        threshold: f64,
        /// Most reads in all.
        max: u32,
        /// Whether the first read was unsure enough for more.
        extended: bool,
        /// Largest entropy of a slot in the first read, in nats.
        #[serde(
            default,
            alias = "first_read_entropy",
            deserialize_with = "largest_number",
            skip_serializing_if = "Option::is_none"
        )]
        first_read_max_entropy: Option<f64>,
    },
    /// What another server wrote instead; kept as it came.
    #[serde(untagged)]
    Other(Value),
}

impl Default for Policy {
    fn default() -> Self {
        Self::Other(Value::Null)
    }
}

/// Where the time went, in milliseconds, and what it bought.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Timing {
    #[serde(deserialize_with = "null_as_default")]
    pub total_ms: f64,
    #[serde(deserialize_with = "null_as_default")]
    pub queue_ms: f64,
    #[serde(deserialize_with = "null_as_default")]
    pub prefill_ms: f64,
    #[serde(deserialize_with = "null_as_default")]
    pub denoise_ms: f64,
    /// Canvases read.
    #[serde(deserialize_with = "null_as_default")]
    pub reads: u32,
    /// Forward passes that read a canvas.
    #[serde(deserialize_with = "null_as_default")]
    pub rounds: u32,
    #[serde(deserialize_with = "null_as_default")]
    pub prompt_tokens: u64,
    /// Prompt tokens whose KV came from the prefix cache.
    #[serde(deserialize_with = "null_as_default")]
    pub reused_tokens: u64,
}

/// What the model said at one slot before and after the restriction to the labels.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SlotDiagnostics {
    /// Row of the slot on its canvas.
    #[serde(deserialize_with = "null_as_default")]
    pub pos: usize,
    /// Entropy over the labels in each read, in nats.
    #[serde(deserialize_with = "number_list")]
    pub entropy: Vec<f64>,
    /// Probability the labels had together in the full vocabulary row; absent when that row was not computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_mass: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argmax_is_label: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argmax_token: Option<String>,
}
