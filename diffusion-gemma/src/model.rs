//! A checkpoint in memory: every weight under the name of what it does.
//!
//! The text weights are stored once (`model.decoder.*`) and serve as encoder and as decoder; only `layer_scalar`
//! exists twice. [`Model::load`] checks every name and shape. Next: `forward.rs` (fast) and `reference.rs` (plain).

use std::path::Path;

use candle_core::{D, DType, Device, Tensor};

use crate::checkpoint::Checkpoint;
use crate::config::{Attention, Config};
use crate::cpu::{PackedBf16, Precision};
use crate::error::{Error, Result};
use crate::linear::{Linear, Quant};
use crate::rope::Rope;

/// How to load.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Where the weights live.
    pub device: Device,
    /// Compute type, f32 or bf16. On a CPU with its own kernels bf16 means bf16 products with f32 sums.
    pub dtype: DType,
    /// Form of the layers' projections and experts; embeddings, norms, router and self-conditioning stay as stored.
    pub quant: Option<Quant>,
}

impl LoadOptions {
    /// On the CPU, not quantised.
    pub fn cpu(dtype: DType) -> Self {
        Self { device: Device::Cpu, dtype, quant: None }
    }
}

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
        let embed = loader.linear(&[("model.decoder.embed_tokens.weight".into(), v)], h)?;
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
            dtype: if matches!(embed, Linear::Packed(..)) { DType::F32 } else { options.dtype },
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

    /// Soft-capped logits of the whole vocabulary, f32. `hidden: [rows, H]` after the final norm → `[rows, V]`.
    pub(crate) fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        self.soft_cap(&self.embed.forward(hidden)?)
    }

    /// c·tanh(x/c), f32.
    pub(crate) fn soft_cap(&self, raw: &Tensor) -> Result<Tensor> {
        let cap = self.config.final_logit_softcapping;
        Ok(((raw.to_dtype(DType::F32)? / cap)?.tanh()? * cap)?)
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

    /// The same for the projections of a layer, quantised where that was asked for and their width allows it.
    fn projection(&mut self, parts: &[(String, usize)], inputs: usize) -> Result<Linear> {
        let Some(quant) = self.options.quant.and_then(|q| q.for_inputs(inputs)) else {
            return self.linear(parts, inputs);
        };
        let parts: Vec<Tensor> = parts
            .iter()
            .map(|(name, outputs)| self.tensor(name, &[*outputs, inputs], DType::F32, &self.options.device))
            .collect::<Result<_>>()?;
        Linear::quantized(&Tensor::cat(&parts, 0)?, quant)
    }

    /// Stacked projections of the same input: packed where this CPU has kernels and the weights are bf16.
    fn linear(&mut self, parts: &[(String, usize)], inputs: usize) -> Result<Linear> {
        let (options, mut all_bf16) = (self.options, options_fit(self.options, inputs));
        for (name, outputs) in parts {
            all_bf16 &= self.checkpoint.stored_dtype(name, &[*outputs, inputs])? == DType::BF16;
        }
        if all_bf16 {
            let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
            let packed = PackedBf16::pack(&self.checkpoint.raw(&names), inputs);
            (self.report)(self.checkpoint.loaded_bytes(), self.checkpoint.file_bytes());
            return Ok(Linear::Packed(packed, precision(options)));
        }
        let parts: Vec<Tensor> = parts
            .iter()
            .map(|(name, outputs)| self.tensor(name, &[*outputs, inputs], options.dtype, &options.device))
            .collect::<Result<_>>()?;
        Ok(Linear::Dense(Tensor::cat(&parts, 0)?))
    }

    /// `[E, outputs, inputs]` → one projection per expert.
    fn experts(&mut self, name: &str, shape: [usize; 3]) -> Result<Vec<Linear>> {
        let [count, outputs, inputs] = shape;
        let options = self.options;
        if let Some(quant) = options.quant.and_then(|q| q.for_inputs(inputs)) {
            let stacked = self.tensor(name, &shape, DType::F32, &options.device)?;
            return (0..count).map(|e| Linear::quantized(&stacked.get(e)?, quant)).collect();
        }
        if options_fit(options, inputs) && self.checkpoint.stored_dtype(name, &shape)? == DType::BF16 {
            let experts = self.checkpoint.raw(&[name])[0]
                .chunks_exact(2 * outputs * inputs)
                .map(|one| Linear::Packed(PackedBf16::pack(&[one], inputs), precision(options)))
                .collect();
            (self.report)(self.checkpoint.loaded_bytes(), self.checkpoint.file_bytes());
            return Ok(experts);
        }
        let stacked = self.tensor(name, &shape, options.dtype, &options.device)?;
        (0..count).map(|e| Ok(Linear::Dense(stacked.get(e)?))).collect()
    }

    fn norm(&mut self, name: &str, width: usize) -> Result<Tensor> {
        self.tensor(name, &[width], DType::F32, &self.options.device)
    }

    fn scalar(&mut self, name: &str) -> Result<f64> {
        let value = self.tensor(name, &[1], DType::F32, &Device::Cpu)?;
        Ok(f64::from(value.squeeze(0)?.to_scalar::<f32>()?))
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
            qkv: self.projection(&qkv, h)?,
            o: self.projection(&[(format!("{p}.self_attn.o_proj.weight"), h)], q_width)?,
            gate_up: self.projection(
                &[(format!("{p}.mlp.gate_proj.weight"), ff), (format!("{p}.mlp.up_proj.weight"), ff)],
                h,
            )?,
            down: self.projection(&[(format!("{p}.mlp.down_proj.weight"), h)], ff)?,
            router: self.router(&p, h, e)?,
            expert_gate_up: self.experts(&format!("{p}.experts.gate_up_proj"), [e, 2 * ffe, h])?,
            expert_down: self.experts(&format!("{p}.experts.down_proj"), [e, h, ffe])?,
            encoder_scalar: self.scalar(&format!("model.encoder.language_model.layers.{i}.layer_scalar"))?,
            decoder_scalar,
        })
    }

    fn router(&mut self, p: &str, h: usize, e: usize) -> Result<Router> {
        let scale = self.norm(&format!("{p}.router.scale"), h)?;
        let per_expert =
            self.tensor(&format!("{p}.router.per_expert_scale"), &[e], DType::F32, &Device::Cpu)?;
        Ok(Router {
            proj: self.linear(&[(format!("{p}.router.proj.weight"), e)], h)?,
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
                .linear(&[(format!("{p}.gate_proj.weight"), ff), (format!("{p}.up_proj.weight"), ff)], h)?,
            down: self.linear(&[(format!("{p}.down_proj.weight"), h)], ff)?,
        })
    }
}

fn options_fit(options: &LoadOptions, inputs: usize) -> bool {
    options.device.is_cpu() && PackedBf16::supported(inputs)
}

fn precision(options: &LoadOptions) -> Precision {
    if options.dtype == DType::BF16 { Precision::Bf16 } else { Precision::F32 }
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
