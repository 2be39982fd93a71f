//! The one error type of this crate. Every message says what failed, with which value, and what to do (`hint:`).
//!
//! Errors of the tensor library are wrapped in [`Error::Tensor`]: they mean a fault of this crate or a device
//! out of memory, never bad input, which is checked before it reaches a tensor.

use std::path::PathBuf;

/// What can go wrong between a checkpoint on disk and a probability.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the checkpoint cannot be read.
    #[error(
        "cannot read {path}: {source}; hint: a checkpoint folder holds config.json, tokenizer.json and model.safetensors (or its shards and their index)"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {path}: {source}; hint: name a folder that you may write to, on a disk with room")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file of the checkpoint is there but does not say what it should.
    #[error("{path}: {reason}; hint: {hint}")]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        hint: String,
    },
    /// config.json describes a model this engine does not compute.
    #[error(
        "config.json: {0}; hint: this engine runs DiffusionGemma checkpoints (model_type \"diffusion_gemma\")"
    )]
    Config(String),
    /// generation_config.json asks for a sampler that cannot be.
    #[error(
        "generation_config.json: {0}; hint: fetch the file again, or delete it to sample with the published constants"
    )]
    GenerationConfig(String),
    /// A tensor is missing, surplus or misshapen.
    #[error("tensor {name}: {reason}; hint: the checkpoint does not match its config.json, fetch it again")]
    Weight {
        /// Name in the checkpoint.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A tensor that the model needs is stored in numbers that are not read.
    #[error(
        "tensor {name}: is stored as {dtype}; F32, F16, BF16, NVFP4 and the blocks of .dgq packs are read; hint: use the bf16 checkpoint with --quant, an NVFP4 checkpoint, or a .dgq pack"
    )]
    Numbers {
        /// Name in the checkpoint.
        name: String,
        /// As its file calls them.
        dtype: String,
    },
    /// The tokenizer refused.
    #[error("tokenizer: {0}; hint: tokenizer.json must come from the same checkpoint as the weights")]
    Tokenizer(String),
    /// The chat template refused.
    #[error("chat template: {0}; hint: check chat_template.jinja and the roles of the messages")]
    Template(String),
    /// A request the model cannot compute (empty canvas, id outside the vocabulary, …).
    #[error("{0}")]
    Input(String),
    /// A logit is NaN or infinite: no answer is ever made of it.
    #[error(
        "the model produced a non-finite logit at canvas row {row}; hint: the weights are damaged or the compute type overflowed, try --dtype f32"
    )]
    NonFinite {
        /// Row of the canvas.
        row: usize,
    },
    /// The tensor library failed.
    #[error("tensor library: {0}; hint: this is a fault of the engine or the device ran out of memory")]
    Tensor(#[from] candle_core::Error),
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn read(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Read { path, source }
    }

    pub(crate) fn write(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Write { path, source }
    }

    pub(crate) fn checkpoint(
        path: impl Into<PathBuf>,
        reason: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::Checkpoint { path: path.into(), reason: reason.into(), hint: hint.into() }
    }

    pub(crate) fn weight(name: &str, reason: impl Into<String>) -> Self {
        Self::Weight { name: name.to_owned(), reason: reason.into() }
    }
}
