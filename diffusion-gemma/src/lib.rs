//! DiffusionGemma, and nothing else: weights, encoder prefill, canvas forward, label read-out, tokenizer, chat template.
//!
//! Used by `dgemma-server`; knows neither HTTP nor decisions. Start at [`Model`] (what a checkpoint becomes), then
//! `forward.rs` (the fast path) beside `reference.rs` (the plain one it is compared with).

pub mod chat_template;
mod checkpoint;
mod config;
mod cpu;
mod error;
mod forward;
mod kv;
mod linear;
mod model;
mod ops;
mod readout;
pub mod reference;
mod rope;
mod tokenizer;

pub use candle_core::{DType, Device};
pub use chat_template::{ChatTemplate, Message, Part, RenderOptions, Rendered};
pub use config::{Attention, Config, LayerConfig, RopeConfig};
pub use error::{Error, Result};
pub use forward::{CanvasRows, Segment, SegmentOutput};
pub use kv::Prefix;
pub use model::{LoadOptions, Model};
pub use readout::SlotLogits;
pub use tokenizer::Tokenizer;
