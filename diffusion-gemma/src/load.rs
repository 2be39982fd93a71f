//! From a checkpoint folder to a [`Model`]: every name and shape checked, every matrix in the form it is computed in.
//!
//! A matrix is packed where this CPU has kernels and the checkpoint stores bf16, quantised where that was asked for, and a
//! plain tensor otherwise.

use std::path::Path;

use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;

use crate::checkpoint::Checkpoint;
use crate::config::{Attention, Config};
use crate::cpu::{self, Isa, Matrix, PackedBf16, Precision};
use crate::error::Result;
use crate::linear::{Linear, Quant};
use crate::model::{Layer, Model, Router, SelfConditioning};
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
        cpu::check_choice()?;
        // The kernels of this CPU take and give f32; without them activations have the type that was asked for.
        let kernels = options.device.is_cpu() && cpu::isa() != Isa::Portable;
        let dtype = if kernels { DType::F32 } else { options.dtype };
        let mut loader = Loader { checkpoint: Checkpoint::open(dir)?, options, dtype, report };
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
            dtype,
            config,
            embed,
            layers,
            norm,
            self_conditioning,
            unused,
            file_bytes,
        })
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
    /// Type of the activations, and so of every matrix that is not packed.
    dtype: DType,
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
            return Ok(Linear::Packed(Matrix::Bf16(packed, precision(options))));
        }
        let parts: Vec<Tensor> = parts
            .iter()
            .map(|(name, outputs)| self.tensor(name, &[*outputs, inputs], self.dtype, &options.device))
            .collect::<Result<_>>()?;
        Ok(Linear::Dense(Tensor::cat(&parts, 0)?))
    }

    /// `[E, outputs, inputs]` → one projection per expert.
    fn experts(&mut self, name: &str, shape: [usize; 3]) -> Result<Vec<Linear>> {
        let [count, outputs, inputs] = shape;
        let options = self.options;
        if let Some(quant) = options.quant.and_then(|q| q.for_inputs(inputs)) {
            let stacked = self.tensor(name, &shape, DType::F32, &options.device)?;
            // The tensor library quantises the storage behind a view, so each expert needs one of its own.
            return (0..count)
                .into_par_iter()
                .map(|e| Linear::quantized(&stacked.get(e)?.force_contiguous()?, quant))
                .collect();
        }
        if options_fit(options, inputs) && self.checkpoint.stored_dtype(name, &shape)? == DType::BF16 {
            let experts = self.checkpoint.raw(&[name])[0]
                .chunks_exact(2 * outputs * inputs)
                .map(|one| Linear::Packed(Matrix::Bf16(PackedBf16::pack(&[one], inputs), precision(options))))
                .collect();
            (self.report)(self.checkpoint.loaded_bytes(), self.checkpoint.file_bytes());
            return Ok(experts);
        }
        let stacked = self.tensor(name, &shape, self.dtype, &options.device)?;
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
