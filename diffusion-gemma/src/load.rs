//! From a checkpoint folder to a [`Model`]: every name and shape checked, every matrix in the form it is computed in.
//!
//! `form.rs` says which form that is. What the formats look like is in `weights/`, what a form computes in `linear.rs`.

use std::path::Path;

use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;

use crate::config::{Attention, Config};
use crate::cpu::{self, Matrix, PackedBf16, Precision};
use crate::error::{Error, Result};
use crate::form::{Compute, Form, Role};
use crate::linear::{Linear, Quant};
use crate::model::{Layer, Model, Router, SelfConditioning};
use crate::rope::Rope;
use crate::weights::{self, Checkpoint, Class, Deviation, Encoding, Fault, Report, Row, Stored, tensors};

/// How to load.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Where the weights live. The first has embedding and head.
    pub devices: Vec<Device>,
    /// Of each layer, the number of its device; empty: all on the first.
    pub places: Vec<usize>,
    /// See [`Compute`].
    pub dtype: DType,
    /// See [`Compute`].
    pub quant: Option<Quant>,
}

impl LoadOptions {
    /// On the CPU, not quantised.
    pub fn cpu(dtype: DType) -> Self {
        Self { devices: vec![Device::Cpu], places: Vec::new(), dtype, quant: None }
    }

    /// What the forms of the weights follow from.
    pub fn compute(&self) -> Compute {
        let on_cpu = self.devices.iter().all(Device::is_cpu);
        Compute { dtype: self.dtype, quant: self.quant, on_cpu }
    }

    fn device(&self, place: usize) -> Result<&Device> {
        let missing =
            || Error::Input(format!("device {place} is asked for, and there are {}", self.devices.len()));
        self.devices.get(place).ok_or_else(missing)
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
            compute: options.compute(),
            device: options.device(0)?,
            weights: Report::default(),
            report,
        };
        let file_bytes = loader.checkpoint.file_bytes();
        let (v, h) = (config.vocab_size, config.hidden_size);
        let embed = loader.linear(&[("model.decoder.embed_tokens.weight".into(), v)], h, Role::Kept)?;
        let norm = loader.norm("model.decoder.norm.weight", h)?;
        let mut layers = Vec::with_capacity(config.layers.len());
        for i in 0..config.layers.len() {
            let place = options.places.get(i).copied().unwrap_or(0);
            loader.device = options.device(place)?;
            layers.push(loader.layer(&config, i, place)?);
        }
        loader.device = options.device(0)?;
        let self_conditioning = loader.self_conditioning(&config)?;
        let unused = loader.checkpoint.finish(tensors::deliberately_unused)?;
        let root = (h as f64).sqrt();
        Ok(Self {
            embed_scale: if options.dtype == DType::BF16 {
                f64::from(half::bf16::from_f64(root))
            } else {
                root
            },
            rope_sliding: Rope::new(&config.rope_sliding, config_head_dim(&config, Attention::Sliding)),
            rope_full: Rope::new(&config.rope_full, config_head_dim(&config, Attention::Full)),
            device: options.device(0)?.clone(),
            dtype: loader.compute.activations(),
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
    compute: Compute,
    /// Where what is loaded next goes.
    device: &'a Device,
    weights: Report,
    report: &'a mut dyn FnMut(u64, u64),
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
        let encodings = stored.encodings();
        let name = parts.first().map_or("", |(name, _)| name);
        debug_assert!(
            parts.iter().all(|(part, _)| tensors::stack_of(part) == tensors::stack_of(name)),
            "a plan would count {parts:?} apart"
        );
        let form = self.compute.form(&encodings, inputs, role);
        let linear =
            linear(self.compute, form, self.device, &stored).map_err(|fault| fault.in_stack(parts))?;
        let row = Row {
            tensors: parts.len(),
            from_bytes: stored.bytes() as u64,
            to_bytes: linear.bytes() as u64,
            deviation: deviation(&stored, &linear)?,
        };
        self.weights.add(Class::of(name), Encoding::names(&encodings), linear.form(), row);
        let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
        self.loaded(&names);
        Ok(linear)
    }

    /// `[E, outputs, inputs]` → one projection per expert, all in one form.
    fn experts(&mut self, name: &str, shape: [usize; 3]) -> Result<Vec<Linear>> {
        let whole = self.checkpoint.stored(name, &shape)?;
        let encodings = whole.encodings();
        let form = self.compute.form(&encodings, whole.inputs, Role::Layer);
        // Each expert is decoded, brought into its form and let go of before the next: a stack is never held twice.
        let (compute, device) = (self.compute, self.device);
        let experts: Vec<(Linear, Row)> = whole
            .split(shape[0])
            .par_iter()
            .enumerate()
            .with_max_len(1)
            .map(|(number, stored)| {
                let linear = linear(compute, form, device, stored)
                    .map_err(|fault| fault.at(&format!("{name}, expert {number}")))?;
                let deviation = if number % MEASURED == 0 { deviation(stored, &linear)? } else { None };
                let (from_bytes, to_bytes) = (stored.bytes() as u64, linear.bytes() as u64);
                Ok((linear, Row { tensors: usize::from(number == 0), from_bytes, to_bytes, deviation }))
            })
            .collect::<Result<_>>()?;
        let mut linears = Vec::with_capacity(experts.len());
        for (linear, row) in experts {
            self.weights.add(Class::Experts, Encoding::names(&encodings), linear.form(), row);
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

    fn layer(&mut self, config: &Config, i: usize, place: usize) -> Result<Layer> {
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
            place,
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

fn linear(
    compute: Compute,
    form: Form,
    device: &Device,
    stored: &Stored<'_>,
) -> std::result::Result<Linear, Fault> {
    stored.check_scales()?;
    let blocks = |format| {
        let bytes = weights::blocks(stored, format)?;
        Ok(Linear::of_blocks(format, bytes, (stored.rows(), stored.inputs), device)?)
    };
    match form {
        Form::Quantised(quant) => blocks(quant.format()),
        Form::Blocks(format) => blocks(format),
        Form::Packed => Ok(Linear::Packed(Matrix::Bf16(
            match stored.encodings().as_slice() {
                [Encoding::Bf16] => PackedBf16::pack(&stored.raw(), stored.inputs),
                _ => PackedBf16::pack(&[&stored.decode_bf16_bytes()], stored.inputs),
            },
            if compute.dtype == DType::BF16 { Precision::Bf16 } else { Precision::F32 },
        ))),
        Form::Plain(dtype) => Ok(Linear::Dense(stored.tensor(dtype, device)?)),
    }
}

/// What a matrix lost on the way; `None` where nothing was rounded to fewer bits.
fn deviation(stored: &Stored<'_>, linear: &Linear) -> Result<Option<Deviation>> {
    if !linear.is_blocks() && stored.encodings().len() == 1 {
        return Ok(None);
    }
    let mut deviation = Deviation::default();
    deviation.add(&stored.decode(), &linear.dense()?.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?);
    Ok(Some(deviation))
}
