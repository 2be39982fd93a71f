//! A checkpoint in memory: every weight under the name of what it does.
//!
//! The text weights are stored once (`model.decoder.*`) and serve as encoder and as decoder; only `layer_scalar`
//! exists twice. Made by `load.rs`. Next: `forward.rs` (fast) and `reference.rs` (plain).

use candle_core::{DType, Device, Tensor};

use crate::config::{Attention, Config};
use crate::error::{Error, Result};
use crate::linear::Linear;
use crate::rope::Rope;
use crate::weights::Report;

/// A loaded model. Immutable; shared between threads behind an `Arc`.
#[derive(Debug)]
pub struct Model {
    pub(crate) config: Config,
    pub(crate) device: Device,
    /// Type of the activations between operations.
    pub(crate) dtype: DType,
    /// `[V, H]`: embeds, and is the head.
    pub(crate) embed: Linear,
    /// √H rounded to the weight type, as the embeddings are scaled.
    pub(crate) embed_scale: f64,
    pub(crate) layers: Vec<Layer>,
    /// `[H]`, f32.
    pub(crate) norm: Tensor,
    pub(crate) self_conditioning: SelfConditioning,
    pub(crate) rope_sliding: Rope,
    pub(crate) rope_full: Rope,
    pub(crate) unused: Vec<String>,
    pub(crate) file_bytes: u64,
    pub(crate) weights: Report,
}

/// Weights of one layer. Norms are f32 `[H]` (or `[head_dim]`), projections `[out, in]` in the compute type.
#[derive(Debug)]
pub(crate) struct Layer {
    /// Number of its device: what is handed to it has to be there.
    pub(crate) place: usize,
    /// Where its weights are, and so its keys and values.
    pub(crate) device: Device,
    pub(crate) input_norm: Tensor,
    pub(crate) post_attention_norm: Tensor,
    pub(crate) pre_ffn_norm: Tensor,
    pub(crate) pre_ffn_norm_2: Tensor,
    pub(crate) post_ffn_norm: Tensor,
    pub(crate) post_ffn_norm_1: Tensor,
    pub(crate) post_ffn_norm_2: Tensor,
    pub(crate) q_norm: Tensor,
    pub(crate) k_norm: Tensor,
    /// q, k and (on sliding layers) v, stacked by rows.
    pub(crate) qkv: Linear,
    pub(crate) o: Linear,
    /// gate and up, stacked by rows.
    pub(crate) gate_up: Linear,
    pub(crate) down: Linear,
    pub(crate) router: Router,
    /// One `[2·FFe, H]` (gate rows, then up rows) per expert.
    pub(crate) expert_gate_up: Vec<Linear>,
    /// One `[H, FFe]` per expert.
    pub(crate) expert_down: Vec<Linear>,
    pub(crate) encoder_scalar: f64,
    pub(crate) decoder_scalar: f64,
}

/// Chooses the experts of a row. Kept dense and f32 outside the projection: a wrong choice is not a small error.
#[derive(Debug)]
pub(crate) struct Router {
    /// `[E, H]`.
    pub(crate) proj: Linear,
    /// `[H]`, f32, with H^-½ multiplied in.
    pub(crate) scale: Tensor,
    /// `[E]`.
    pub(crate) per_expert_scale: Vec<f32>,
}

/// Feeds the previous step's distribution into the next canvas embedding.
#[derive(Debug)]
pub(crate) struct SelfConditioning {
    pub(crate) pre_norm: Tensor,
    pub(crate) gate_up: Linear,
    pub(crate) down: Linear,
}

impl Model {
    /// The architecture.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Tensors of the checkpoint that this model leaves alone on purpose.
    pub fn unused_tensors(&self) -> &[String] {
        &self.unused
    }

    /// What loading made of the weights, and what that cost.
    pub fn weights(&self) -> &Report {
        &self.weights
    }

    /// Bytes of the checkpoint's weight files.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Bytes of all matrices in the form they are kept in memory.
    pub fn weight_bytes(&self) -> usize {
        let of_layer = |layer: &Layer| {
            let fixed = [&layer.qkv, &layer.o, &layer.gate_up, &layer.down, &layer.router.proj];
            let experts = layer.expert_gate_up.iter().chain(&layer.expert_down);
            fixed.into_iter().chain(experts).map(Linear::bytes).sum::<usize>()
        };
        let shared = [&self.embed, &self.self_conditioning.gate_up, &self.self_conditioning.down];
        shared.into_iter().map(Linear::bytes).sum::<usize>() + self.layers.iter().map(of_layer).sum::<usize>()
    }

    /// The rotary embedding of a layer.
    pub(crate) fn rope(&self, layer: usize) -> &Rope {
        match self.config.layers[layer].attention {
            Attention::Sliding => &self.rope_sliding,
            Attention::Full => &self.rope_full,
        }
    }

    /// Scaled embeddings of ids, `[ids, H]`.
    pub(crate) fn embed(&self, ids: &[u32]) -> Result<Tensor> {
        let vocab = self.config.vocab_size;
        if let Some(id) = ids.iter().find(|id| **id as usize >= vocab) {
            return Err(Error::Input(format!(
                "token id {id} is outside the vocabulary of {vocab}; hint: the tokenizer belongs to another checkpoint"
            )));
        }
        Ok((self.embed.select(ids)? * self.embed_scale)?)
    }

    /// c·tanh(x/c), f32.
    pub(crate) fn soft_cap(&self, raw: &Tensor) -> Result<Tensor> {
        let cap = self.config.final_logit_softcapping;
        Ok(((raw.to_dtype(DType::F32)? / cap)?.tanh()? * cap)?)
    }
}
