//! The tensors that a model of some architecture is made of, by name and shape: what `verify` asks a checkpoint for, and what a
//! memory plan counts before there is a checkpoint.

use super::inventory::Inventory;
use super::manifest::Kind;
use super::quantize::Profile;
use super::report::Class;
use super::stored::Encoding;
use crate::config::{Attention, Config};
use crate::error::{Error, Result};

/// A tensor of the text model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorShape {
    pub name: String,
    pub shape: Vec<usize>,
}

/// Every tensor that loading reads, in the order of the layers.
pub fn of_model(config: &Config) -> Vec<TensorShape> {
    let (h, ff, ffe, e) =
        (config.hidden_size, config.intermediate_size, config.moe_intermediate_size, config.num_experts);
    let mut all = Vec::new();
    let mut put = |name: String, shape: &[usize]| all.push(TensorShape { name, shape: shape.to_vec() });
    put("model.decoder.embed_tokens.weight".into(), &[config.vocab_size, h]);
    put("model.decoder.norm.weight".into(), &[h]);
    for (i, layer) in config.layers.iter().enumerate() {
        let p = format!("model.decoder.layers.{i}");
        let (q, kv, d) = (config.query_width(i), config.kv_width(i), layer.head_dim);
        put(format!("{p}.layer_scalar"), &[1]);
        put(format!("model.encoder.language_model.layers.{i}.layer_scalar"), &[1]);
        for norm in [
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "pre_feedforward_layernorm_2",
            "post_feedforward_layernorm",
            "post_feedforward_layernorm_1",
            "post_feedforward_layernorm_2",
        ] {
            put(format!("{p}.{norm}.weight"), &[h]);
        }
        put(format!("{p}.self_attn.q_norm.weight"), &[d]);
        put(format!("{p}.self_attn.k_norm.weight"), &[d]);
        put(format!("{p}.self_attn.q_proj.weight"), &[q, h]);
        put(format!("{p}.self_attn.k_proj.weight"), &[kv, h]);
        if layer.attention == Attention::Sliding {
            put(format!("{p}.self_attn.v_proj.weight"), &[kv, h]);
        }
        put(format!("{p}.self_attn.o_proj.weight"), &[h, q]);
        put(format!("{p}.mlp.gate_proj.weight"), &[ff, h]);
        put(format!("{p}.mlp.up_proj.weight"), &[ff, h]);
        put(format!("{p}.mlp.down_proj.weight"), &[h, ff]);
        put(format!("{p}.router.proj.weight"), &[e, h]);
        put(format!("{p}.router.scale"), &[h]);
        put(format!("{p}.router.per_expert_scale"), &[e]);
        put(format!("{p}.experts.gate_up_proj"), &[e, 2 * ffe, h]);
        put(format!("{p}.experts.down_proj"), &[e, h, ffe]);
    }
    let p = "model.decoder.self_conditioning";
    put(format!("{p}.pre_norm.weight"), &[h]);
    put(format!("{p}.gate_proj.weight"), &[ff, h]);
    put(format!("{p}.up_proj.weight"), &[ff, h]);
    put(format!("{p}.down_proj.weight"), &[h, ff]);
    all
}

/// The encoder's copies of shared weights, an untied spelling of the head, and the vision tower, which reads pixels.
pub(crate) fn deliberately_unused(name: &str) -> bool {
    let copied = name.starts_with("model.encoder.language_model.") && !name.ends_with(".layer_scalar");
    copied || name == "lm_head.weight" || Class::of(name) == Class::Vision
}

/// Whether a checkpoint has every tensor of the model in its shape, and none that nothing reads.
pub fn check(inventory: &Inventory, config: &Config) -> Result<()> {
    let mut surplus: std::collections::BTreeSet<&str> =
        inventory.tensors().map(|one| one.name).filter(|name| !deliberately_unused(name)).collect();
    for TensorShape { name, shape } in of_model(config) {
        let found = &inventory.entry(&name)?.shape;
        if *found != shape {
            return Err(Error::weight(&name, format!("has shape {found:?}, config.json asks for {shape:?}")));
        }
        surplus.remove(name.as_str());
    }
    match surplus.first() {
        None => Ok(()),
        Some(name) => Err(Error::weight(
            name,
            format!("is surplus: no part of the model reads it ({} such)", surplus.len()),
        )),
    }
}

/// A tensor as a plan counts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) class: Class,
    pub(crate) encoding: Encoding,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: u64,
}

/// Those of an open checkpoint that loading reads.
pub(crate) fn of_inventory(inventory: &Inventory) -> Vec<Planned> {
    let read = inventory.tensors().filter(|one| !deliberately_unused(one.name));
    read.map(|one| Planned {
        class: one.class,
        encoding: one.encoding,
        shape: one.shape.to_vec(),
        bytes: one.bytes,
    })
    .collect()
}

/// Those of a model in bf16, or in the pack that `quantize` would make of that.
pub(crate) fn of_profile(config: &Config, profile: Option<Profile>) -> Vec<Planned> {
    of_model(config)
        .into_iter()
        .map(|TensorShape { name, shape }| {
            let class = Class::of(&name);
            let encoding = match profile.map_or(Kind::Raw, |profile| profile.kind(class, &shape)) {
                Kind::Raw => Encoding::Bf16,
                Kind::Q4Block => Encoding::Q4Block,
                Kind::Q6Block => Encoding::Q6Block,
                Kind::Q8Row => Encoding::Q8Row,
                Kind::Nvfp4Block => Encoding::Nvfp4,
            };
            let (width, outer) = shape.split_last().map_or((1, &[][..]), |(width, outer)| (*width, outer));
            let rows: usize = outer.iter().product();
            let bytes = (rows * encoding.row_bytes(width).unwrap_or(0)) as u64;
            Planned { class, encoding, shape, bytes }
        })
        .collect()
}
