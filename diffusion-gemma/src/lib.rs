//! DiffusionGemma, and nothing else: weights, encoder prefill, canvas forward, label read-out, sampler, tokenizer, chat template.
//!
//! Used by `dgemma-server`; knows neither HTTP nor decisions. Start at [`Model`] (what a checkpoint becomes), then
//! `forward.rs` (the fast path) beside `reference.rs` (the plain one it is compared with).

pub mod chat_template;
mod config;
mod cpu;
mod cuts;
mod error;
mod form;
mod forward;
mod kv;
mod linear;
mod load;
mod model;
mod ops;
mod plan;
mod readout;
pub mod reference;
mod repeated;
mod rope;
mod sampler;
mod tensor;
mod text_stream;
mod tokenizer;
pub mod weights;

pub use candle_core::{DType, Device, Tensor};
pub use chat_template::{ChatTemplate, Message, Part, RenderOptions, Rendered, ToolCall};
pub use config::{Attention, Config, LayerConfig, RopeConfig};
pub use error::{Error, Result};
pub use form::Compute;
pub use forward::{CanvasRows, Segment, SegmentOutput};
pub use kv::Prefix;
pub use linear::Quant;
pub use load::LoadOptions;
pub use model::Model;
pub use plan::{Blueprint, Demand, DevicePlan, Gib, MemoryPlan};
pub use readout::{Settled, SlotLogits};
pub use sampler::{
    Block, Finish, Generation, GenerationConfig, GenerationStats, Noise, Progress, Reply, generate,
    generate_all,
};
pub use text_stream::TextStream;
pub use tokenizer::Tokenizer;

/// The CPU kernels in use, in words.
pub fn cpu_kernels() -> &'static str {
    match cpu::isa() {
        cpu::Isa::Amx => "AMX and AVX-512 kernels",
        cpu::Isa::Avx512 => "AVX-512 kernels",
        cpu::Isa::Avx2 => "AVX2 kernels",
        cpu::Isa::Portable => "portable kernels",
    }
}

/// A matmul with a constant matrix, `[rows, inputs]` → `[rows, outputs]`, as every projection of a model runs it on this
/// CPU: the peak that a benchmark holds a forward pass against.
pub fn packed_matmul(
    inputs: usize,
    outputs: usize,
    dtype: DType,
    quant: Option<Quant>,
) -> impl Fn(&candle_core::Tensor) -> Result<candle_core::Tensor> {
    let projection = linear::Linear::constant(inputs, outputs, dtype, quant);
    move |x| projection.as_ref().map_err(|e| Error::Input(e.to_string())).and_then(|p| p.forward(x))
}
