//! From a checkpoint folder to a [`Model`]: every name and shape checked, every matrix in the form it is computed in.
//!
//! A matrix is packed where this CPU has kernels and the checkpoint stores bf16, quantised where that was asked for, kept in
//! blocks where it is stored in blocks, and a plain tensor otherwise. What the formats look like is in `weights/`.

use std::path::Path;

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;

use crate::config::{Attention, Config};
use crate::cpu::{self, Isa, Matrix, PackedBf16, Precision};
use crate::error::Result;
use crate::linear::{Linear, Quant};
use crate::model::{Layer, Model, Router, SelfConditioning};
use crate::rope::Rope;
use crate::weights::{self, Checkpoint, Class, Deviation, Encoding, Report, Row, Stored};

/// How to load.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Where the weights live.
    pub device: Device,
    /// Where each layer lives instead; empty: all on `device`, which keeps embedding and head.
    pub layer_devices: Vec<Device>,
    /// Compute type, f32 or bf16. On a CPU with its own kernels bf16 means bf16 products with f32 sums.
    pub dtype: DType,
    /// Form of the layers' projections and experts; embeddings, norms, router and self-conditioning stay as stored.
    pub quant: Option<Quant>,
}

impl LoadOptions {
    /// On the CPU, not quantised.
    pub fn cpu(dtype: DType) -> Self {
        Self { device: Device::Cpu, layer_devices: Vec::new(), dtype, quant: None }
    }
}

impl Model {
    /// Loads a checkpoint folder: config.json, and safetensors or a `.dgq` pack.
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
        let mut loader = Loader {
            checkpoint: Checkpoint::open(dir)?,
            options,
            device: &options.device,
            weights: Report::default(),
            report,
        };
        let file_bytes = loader.checkpoint.file_bytes();
        let (v, h) = (config.vocab_size, config.hidden_size);
        let embed = loader.linear(&[("model.decoder.embed_tokens.weight".into(), v)], h, Role::Kept)?;
        let norm = loader.norm("model.decoder.norm.weight", h)?;
        let mut layers = Vec::with_capacity(config.layers.len());
        for i in 0..config.layers.len() {
            loader.device = options.layer_devices.get(i).unwrap_or(&options.device);
            layers.push(loader.layer(&config, i)?);
        }
        loader.device = &options.device;
        let self_conditioning = loader.self_conditioning(&config)?;
        let unused = loader.checkpoint.finish(weights::tensors::deliberately_unused)?;
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
            dtype: options.activations(),
            config,
            embed,
            layers,
            norm,
            self_conditioning,
            unused,
            file_bytes,
            weights: loader.weights,
        })
    }
}

/// Layers of a kind share one head width in every published checkpoint; a folder without such layers needs no table.
fn config_head_dim(config: &Config, kind: Attention) -> usize {
    config.layers.iter().find(|l| l.attention == kind).map_or(2, |l| l.head_dim)
}

struct Loader<'a> {
    checkpoint: Checkpoint,
    options: &'a LoadOptions,
    /// Where what is loaded next goes.
    device: &'a Device,
    weights: Report,
    report: &'a mut dyn FnMut(u64, u64),
}

/// Which weights `--quant` is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Projections and experts of a layer.
    Layer,
    /// Embedding, router, self-conditioning: never in fewer bits than they are stored in.
    Kept,
}

/// One expert in so many is decoded again to measure what its form costs.
const MEASURED: usize = 16;

impl Loader<'_> {
    fn tensor(&mut self, name: &str, shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
        let (tensor, bytes, from) = self.checkpoint.tensor(name, shape, dtype, device)?;
        let to_bytes = (tensor.elem_count() * dtype.size_in_bytes()) as u64;
        let row = Row { tensors: 1, from_bytes: bytes, to_bytes, deviation: None };
        self.weights.add(Class::of(name), from.name(), dtype.as_str(), row);
        self.loaded(&[name]);
        Ok(tensor)
    }

    /// Counts tensors as used.
    fn loaded(&mut self, names: &[&str]) {
        self.checkpoint.count(names);
        (self.report)(self.checkpoint.loaded_bytes(), self.checkpoint.file_bytes());
    }

    /// Stacked projections of the same input.
    fn linear(&mut self, parts: &[(String, usize)], inputs: usize, role: Role) -> Result<Linear> {
        let stored = self.checkpoint.stacked(parts, inputs)?;
        let name = parts.first().map_or("", |(name, _)| name);
        let linear = linear(self.options, self.device, &stored, name, role)?;
        let deviation = deviation(&stored, &linear)?;
        let row = Row {
            tensors: parts.len(),
            from_bytes: stored.bytes() as u64,
            to_bytes: linear.bytes() as u64,
            deviation,
        };
        let from = stored.encoding().map_or("mixed", Encoding::name);
        self.weights.add(Class::of(name), from, linear.form(), row);
        let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
        self.loaded(&names);
        Ok(linear)
    }

    /// `[E, outputs, inputs]` → one projection per expert.
    fn experts(&mut self, name: &str, shape: [usize; 3]) -> Result<Vec<Linear>> {
        let stored = self.checkpoint.matrices(name, shape)?;
        // Each expert is decoded, brought into its form and let go of before the next: a stack is never held twice.
        let (options, device) = (self.options, self.device);
        let experts: Vec<(Linear, Row)> = stored
            .par_iter()
            .enumerate()
            .with_max_len(1)
            .map(|(number, stored)| {
                let linear = linear(options, device, stored, name, Role::Layer)?;
                let deviation = if number % MEASURED == 0 { deviation(stored, &linear)? } else { None };
                let (from_bytes, to_bytes) = (stored.bytes() as u64, linear.bytes() as u64);
                Ok((linear, Row { tensors: 0, from_bytes, to_bytes, deviation }))
            })
            .collect::<Result<_>>()?;
        let from = stored.first().and_then(Stored::encoding).map_or("mixed", Encoding::name);
        let mut linears = Vec::with_capacity(experts.len());
        for (number, (linear, row)) in experts.into_iter().enumerate() {
            let row = Row { tensors: usize::from(number == 0), ..row };
            self.weights.add(Class::Experts, from, linear.form(), row);
            linears.push(linear);
        }
        self.loaded(&[name]);
        Ok(linears)
    }

    fn norm(&mut self, name: &str, width: usize) -> Result<Tensor> {
        self.tensor(name, &[width], DType::F32, self.device)
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
            device: self.device.clone(),
            input_norm: self.norm(&format!("{p}.input_layernorm.weight"), h)?,
            post_attention_norm: self.norm(&format!("{p}.post_attention_layernorm.weight"), h)?,
            pre_ffn_norm: self.norm(&format!("{p}.pre_feedforward_layernorm.weight"), h)?,
            pre_ffn_norm_2: self.norm(&format!("{p}.pre_feedforward_layernorm_2.weight"), h)?,
            post_ffn_norm: self.norm(&format!("{p}.post_feedforward_layernorm.weight"), h)?,
            post_ffn_norm_1: self.norm(&format!("{p}.post_feedforward_layernorm_1.weight"), h)?,
            post_ffn_norm_2: self.norm(&format!("{p}.post_feedforward_layernorm_2.weight"), h)?,
            q_norm: self.norm(&format!("{p}.self_attn.q_norm.weight"), head_dim)?,
            k_norm: self.norm(&format!("{p}.self_attn.k_norm.weight"), head_dim)?,
            qkv: self.linear(&qkv, h, Role::Layer)?,
            o: self.linear(&[(format!("{p}.self_attn.o_proj.weight"), h)], q_width, Role::Layer)?,
            gate_up: self.linear(
                &[(format!("{p}.mlp.gate_proj.weight"), ff), (format!("{p}.mlp.up_proj.weight"), ff)],
                h,
                Role::Layer,
            )?,
            down: self.linear(&[(format!("{p}.mlp.down_proj.weight"), h)], ff, Role::Layer)?,
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
            proj: self.linear(&[(format!("{p}.router.proj.weight"), e)], h, Role::Kept)?,
            scale: (scale * (h as f64).powf(-0.5))?,
            per_expert_scale: per_expert.to_vec1()?,
        })
    }

    fn self_conditioning(&mut self, config: &Config) -> Result<SelfConditioning> {
        let (h, ff) = (config.hidden_size, config.intermediate_size);
        let p = "model.decoder.self_conditioning";
        Ok(SelfConditioning {
            pre_norm: self.norm(&format!("{p}.pre_norm.weight"), h)?,
            gate_up: self.linear(
                &[(format!("{p}.gate_proj.weight"), ff), (format!("{p}.up_proj.weight"), ff)],
                h,
                Role::Kept,
            )?,
            down: self.linear(&[(format!("{p}.down_proj.weight"), h)], ff, Role::Kept)?,
        })
    }
}

/// What a matrix is computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Quantised on load.
    Quantised(Quant),
    /// bf16 in the order of the CPU's kernels.
    Packed,
    /// Blocks of the tensor library, made of the checkpoint's own.
    Blocks(GgmlDType),
    /// Plain numbers.
    Plain(DType),
}

impl LoadOptions {
    /// Whether the kernels of `cpu/` compute.
    pub(crate) fn on_kernels(&self) -> bool {
        let devices = std::iter::once(&self.device).chain(&self.layer_devices);
        cpu::isa() != Isa::Portable && devices.into_iter().all(Device::is_cpu)
    }

    /// Type of the activations, and of every matrix that is kept as plain numbers: the kernels of a CPU take and give f32.
    pub(crate) fn activations(&self) -> DType {
        if self.on_kernels() { DType::F32 } else { self.dtype }
    }

    /// Quantised where that was asked for, packed where this CPU has kernels and the weights are bf16, in the nearest blocks of
    /// the tensor library where they are stored in blocks, else plain. `encoding`: `None` where pieces differ.
    pub(crate) fn form(&self, encoding: Option<Encoding>, inputs: usize, role: Role) -> Form {
        let quant = self.quant.filter(|_| role == Role::Layer).and_then(|q| q.for_inputs(inputs));
        if let Some(quant) = quant {
            return Form::Quantised(quant);
        }
        if self.on_kernels() && encoding == Some(Encoding::Bf16) && PackedBf16::supported(inputs) {
            return Form::Packed;
        }
        match encoding.and_then(|encoding| weights::nearest(encoding, inputs)) {
            Some(blocks) => Form::Blocks(blocks),
            None => Form::Plain(self.activations()),
        }
    }
}

fn linear(
    options: &LoadOptions,
    device: &Device,
    stored: &Stored<'_>,
    name: &str,
    role: Role,
) -> Result<Linear> {
    stored.check_scales(name)?;
    match options.form(stored.encoding(), stored.inputs, role) {
        Form::Quantised(quant) => Linear::quantized(&stored.tensor(DType::F32, device)?, quant),
        Form::Packed => Ok(Linear::Packed(Matrix::Bf16(
            PackedBf16::pack(&stored.raw(), stored.inputs),
            precision(options),
        ))),
        Form::Blocks(blocks) => Linear::from_blocks(weights::repack(stored, blocks, device)?),
        Form::Plain(dtype) => Ok(Linear::Dense(stored.tensor(dtype, device)?)),
    }
}

/// What a matrix lost on the way; `None` where nothing was rounded to fewer bits.
fn deviation(stored: &Stored<'_>, linear: &Linear) -> Result<Option<Deviation>> {
    if !linear.is_blocks() {
        return Ok(None);
    }
    let mut deviation = Deviation::default();
    deviation.add(&stored.decode(), &linear.dense()?.flatten_all()?.to_vec1()?);
    Ok(Some(deviation))
}

fn precision(options: &LoadOptions) -> Precision {
    if options.dtype == DType::BF16 { Precision::Bf16 } else { Precision::F32 }
}
