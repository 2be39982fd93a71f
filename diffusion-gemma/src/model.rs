//! A checkpoint in memory: every weight under the name of what it does.
//!
//! The text weights are stored once (`model.decoder.*`) and serve as encoder and as decoder; only `layer_scalar`
//! exists twice. [`Model::load`] checks every name and shape. Next: `forward.rs` (fast) and `reference.rs` (plain).

use std::path::Path;

use candle_core::{D, DType, Device, Tensor};

use crate::checkpoint::Checkpoint;
use crate::config::{Attention, Config};
use crate::error::{Error, Result};
use crate::linear::Linear;
use crate::rope::Rope;

/// How to load.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Where the weights live.
    pub device: Device,
    /// Type of weights and activations: f32 or bf16.
    pub dtype: DType,
}

/// A loaded model. Immutable; shared between threads behind an `Arc`.
#[derive(Debug)]
pub struct Model {
    pub(crate) config: Config,
    pub(crate) device: Device,
    pub(crate) dtype: DType,
    /// `[V, H]`: embeds, and is the head.
    pub(crate) embed: Tensor,
    /// √H rounded to the weight type, as the embeddings are scaled.
    pub(crate) embed_scale: f64,
    pub(crate) layers: Vec<Layer>,
    /// `[H]`, f32.
    pub(crate) norm: Tensor,
    pub(crate) self_conditioning: SelfConditioning,
    pub(crate) rope_sliding: Rope,
    pub(crate) rope_full: Rope,
    unused: Vec<String>,
    file_bytes: u64,
}

/// Weights of one layer. Norms are f32 `[H]` (or `[head_dim]`), projections `[out, in]` in the compute type.
#[derive(Debug)]
pub(crate) struct Layer {
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
    pub(crate) proj: Tensor,
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
    /// Loads a Hugging Face folder: config.json and safetensors.
    pub fn load(dir: &Path, options: &LoadOptions) -> Result<Self> {
        Self::load_reporting(dir, options, &mut |_, _| ())
    }

    /// The same; `report` hears after every tensor how many bytes are loaded and how many there are.
    pub fn load_reporting(
        dir: &Path,
        options: &LoadOptions,
        report: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let config = Config::from_dir(dir)?;
        let mut loader = Loader { checkpoint: Checkpoint::open(dir)?, options, report };
        let file_bytes = loader.checkpoint.file_bytes();
        let (v, h) = (config.vocab_size, config.hidden_size);
        let embed = loader.weight("model.decoder.embed_tokens.weight", &[v, h])?;
        let norm = loader.norm("model.decoder.norm.weight", h)?;
        let layers =
            (0..config.layers.len()).map(|i| loader.layer(&config, i)).collect::<Result<Vec<_>>>()?;
        let self_conditioning = loader.self_conditioning(&config)?;
        let unused = loader.checkpoint.finish(deliberately_unused)?;
        let root = (h as f64).sqrt();
        Ok(Self {
            embed_scale: if options.dtype == DType::BF16 {
                f64::from(half::bf16::from_f64(root))
            } else {
                root
            },
            rope_sliding: Rope::new(&config.rope_sliding, config_head_dim(&config, Attention::Sliding)),
            rope_full: Rope::new(&config.rope_full, config_head_dim(&config, Attention::Full)),
            device: options.device.clone(),
            dtype: options.dtype,
            config,
            embed,
            layers,
            norm,
            self_conditioning,
            unused,
            file_bytes,
        })
    }

    /// The architecture.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Tensors of the checkpoint that this model leaves alone on purpose.
    pub fn unused_tensors(&self) -> &[String] {
        &self.unused
    }

    /// Bytes of the checkpoint's weight files.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
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
        let ids = Tensor::new(ids, &self.device)?;
        Ok((self.embed.index_select(&ids, 0)? * self.embed_scale)?)
    }

    /// Soft-capped logits, f32. `hidden: [rows, H]` after the final norm; `table: [n, H]` embedding rows → `[rows, n]`.
    pub(crate) fn logits(&self, hidden: &Tensor, table: &Tensor) -> Result<Tensor> {
        let cap = self.config.final_logit_softcapping;
        let raw = hidden.matmul(&table.t()?)?.to_dtype(DType::F32)?;
        Ok(((raw / cap)?.tanh()? * cap)?)
    }
}

/// Layers of a kind share one head width in every published checkpoint; a folder without such layers needs no table.
fn config_head_dim(config: &Config, kind: Attention) -> usize {
    config.layers.iter().find(|l| l.attention == kind).map_or(2, |l| l.head_dim)
}

/// The encoder's copies of shared weights, an untied spelling of the head, and the vision tower, which reads pixels.
fn deliberately_unused(name: &str) -> bool {
    name == "lm_head.weight"
        || name.starts_with("model.encoder.language_model.")
        || name.starts_with("model.encoder.vision_tower.")
        || name.starts_with("model.encoder.embed_vision.")
}

struct Loader<'a> {
    checkpoint: Checkpoint,
    options: &'a LoadOptions,
    report: &'a mut dyn FnMut(u64, u64),
}

impl Loader<'_> {
    fn tensor(&mut self, name: &str, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
        let tensor = self.checkpoint.tensor(name, shape, dtype, device)?;
        (self.report)(self.checkpoint.loaded_bytes(), self.checkpoint.file_bytes());
        Ok(tensor)
    }

    fn weight(&mut self, name: &str, shape: &[usize]) -> Result<Tensor> {
        self.tensor(name, shape, self.options.dtype, &self.options.device)
    }

    fn norm(&mut self, name: &str, width: usize) -> Result<Tensor> {
        self.tensor(name, &[width], DType::F32, &self.options.device)
    }

    fn scalar(&mut self, name: &str) -> Result<f64> {
        let value = self.tensor(name, &[1], DType::F32, &Device::Cpu)?;
        Ok(f64::from(value.squeeze(0)?.to_scalar::<f32>()?))
    }

    fn stacked(&mut self, parts: &[(String, usize)], width: usize) -> Result<Linear> {
        let parts: Vec<Tensor> =
            parts.iter().map(|(name, rows)| self.weight(name, &[*rows, width])).collect::<Result<_>>()?;
        Ok(Linear::new(Tensor::cat(&parts, 0)?))
    }

    fn layer(&mut self, config: &Config, i: usize) -> Result<Layer> {
        let (h, ff, ffe, e) =
            (config.hidden_size, config.intermediate_size, config.moe_intermediate_size, config.num_experts);
        let p = format!("model.decoder.layers.{i}");
        let (q_width, kv_width, head_dim) =
            (config.query_width(i), config.kv_width(i), config.layers[i].head_dim);
        let mut qkv = vec![
            (format!("{p}.self_attn.q_proj.weight"), q_width),
            (format!("{p}.self_attn.k_proj.weight"), kv_width),
        ];
        if config.layers[i].attention == Attention::Sliding {
            qkv.push((format!("{p}.self_attn.v_proj.weight"), kv_width));
        }
        let gate_up_experts = self.weight(&format!("{p}.experts.gate_up_proj"), &[e, 2 * ffe, h])?;
        let down_experts = self.weight(&format!("{p}.experts.down_proj"), &[e, h, ffe])?;
        let decoder_scalar = self.scalar(&format!("{p}.layer_scalar"))?;
        Ok(Layer {
            input_norm: self.norm(&format!("{p}.input_layernorm.weight"), h)?,
            post_attention_norm: self.norm(&format!("{p}.post_attention_layernorm.weight"), h)?,
            pre_ffn_norm: self.norm(&format!("{p}.pre_feedforward_layernorm.weight"), h)?,
            pre_ffn_norm_2: self.norm(&format!("{p}.pre_feedforward_layernorm_2.weight"), h)?,
            post_ffn_norm: self.norm(&format!("{p}.post_feedforward_layernorm.weight"), h)?,
            post_ffn_norm_1: self.norm(&format!("{p}.post_feedforward_layernorm_1.weight"), h)?,
            post_ffn_norm_2: self.norm(&format!("{p}.post_feedforward_layernorm_2.weight"), h)?,
            q_norm: self.norm(&format!("{p}.self_attn.q_norm.weight"), head_dim)?,
            k_norm: self.norm(&format!("{p}.self_attn.k_norm.weight"), head_dim)?,
            qkv: self.stacked(&qkv, h)?,
            o: Linear::new(self.weight(&format!("{p}.self_attn.o_proj.weight"), &[h, q_width])?),
            gate_up: self.stacked(
                &[(format!("{p}.mlp.gate_proj.weight"), ff), (format!("{p}.mlp.up_proj.weight"), ff)],
                h,
            )?,
            down: Linear::new(self.weight(&format!("{p}.mlp.down_proj.weight"), &[h, ff])?),
            router: self.router(&p, h, e)?,
            expert_gate_up: split_experts(&gate_up_experts)?,
            expert_down: split_experts(&down_experts)?,
            encoder_scalar: self.scalar(&format!("model.encoder.language_model.layers.{i}.layer_scalar"))?,
            decoder_scalar,
        })
    }

    fn router(&mut self, p: &str, h: usize, e: usize) -> Result<Router> {
        let scale = self.norm(&format!("{p}.router.scale"), h)?;
        let per_expert =
            self.tensor(&format!("{p}.router.per_expert_scale"), &[e], DType::F32, &Device::Cpu)?;
        Ok(Router {
            proj: self.weight(&format!("{p}.router.proj.weight"), &[e, h])?,
            scale: (scale * (h as f64).powf(-0.5))?,
            per_expert_scale: per_expert.to_vec1()?,
        })
    }

    fn self_conditioning(&mut self, config: &Config) -> Result<SelfConditioning> {
        let (h, ff) = (config.hidden_size, config.intermediate_size);
        let p = "model.decoder.self_conditioning";
        Ok(SelfConditioning {
            pre_norm: self.norm(&format!("{p}.pre_norm.weight"), h)?,
            gate_up: self
                .stacked(&[(format!("{p}.gate_proj.weight"), ff), (format!("{p}.up_proj.weight"), ff)], h)?,
            down: Linear::new(self.weight(&format!("{p}.down_proj.weight"), &[h, ff])?),
        })
    }
}

/// `[E, out, in]` → one view per expert.
fn split_experts(stacked: &Tensor) -> Result<Vec<Linear>> {
    (0..stacked.dim(0)?).map(|e| Ok(Linear::new(stacked.get(e)?))).collect()
}

/// x·(mean(x²)+eps)^-½ (·w) in f32, cast back to the type of `x`. `x: [.., n]`, `w: [n]` f32.
pub(crate) fn rms_norm(x: &Tensor, weight: Option<&Tensor>, eps: f64) -> Result<Tensor> {
    let wide = x.to_dtype(DType::F32)?;
    let mean = wide.sqr()?.mean_keepdim(D::Minus1)?;
    let mut normed = wide.broadcast_div(&(mean + eps)?.sqrt()?)?;
    if let Some(weight) = weight {
        normed = normed.broadcast_mul(weight)?;
    }
    Ok(normed.to_dtype(x.dtype())?)
}
