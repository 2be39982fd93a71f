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

/// Whether a checkpoint has every tensor of the model in its shape and in numbers that are read, and none that nothing reads.
pub fn check(inventory: &Inventory, config: &Config) -> Result<()> {
    let mut surplus: std::collections::BTreeSet<&str> =
        inventory.tensors().map(|one| one.name).filter(|name| !deliberately_unused(name)).collect();
    for TensorShape { name, shape } in of_model(config) {
        inventory.entry(&name)?.check(&name, &shape)?;
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

/// The name that tensors share where loading stacks them to one matrix: q, k and v; gate and up. Others have their own.
pub(crate) fn stack_of(name: &str) -> String {
    let stacks: [(&str, &[&str]); 2] = [
        ("qkv", &["q_proj.weight", "k_proj.weight", "v_proj.weight"]),
        ("gate_up", &["gate_proj.weight", "up_proj.weight"]),
    ];
    let stem = |parts: &[&str]| parts.iter().find_map(|part| name.strip_suffix(part));
    let stacked = stacks.iter().find_map(|(stack, parts)| Some(format!("{}{stack}", stem(parts)?)));
    stacked.unwrap_or_else(|| name.to_owned())
}

/// A tensor as a plan counts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) name: String,
    pub(crate) class: Class,
    /// Whose it is; `None`: of no layer.
    pub(crate) layer: Option<usize>,
    pub(crate) encodings: Vec<Encoding>,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: u64,
}

impl Planned {
    fn new(name: &str, encodings: Vec<Encoding>, shape: &[usize], bytes: u64) -> Self {
        let after = name.split_once(".layers.").map(|(_, after)| after);
        Self {
            name: name.to_owned(),
            class: Class::of(name),
            layer: after.and_then(|after| after.split('.').next()?.parse().ok()),
            encodings,
            shape: shape.to_vec(),
            bytes,
        }
    }
}

/// Those of an open checkpoint that loading reads.
pub(crate) fn of_inventory(inventory: &Inventory) -> Vec<Planned> {
    let read = inventory.entries().filter(|(name, _)| !deliberately_unused(name));
    read.map(|(name, entry)| Planned::new(name, entry.encodings(), &entry.shape, entry.bytes())).collect()
}

/// Those of a model in bf16, or in the pack that `quantize` would make of that.
pub(crate) fn of_profile(config: &Config, profile: Option<Profile>) -> Vec<Planned> {
    of_model(config)
        .into_iter()
        .map(|TensorShape { name, shape }| {
            let kind = profile.map_or(Kind::Raw, |profile| profile.kind(Class::of(&name), &shape));
            let encoding = kind.blocks().unwrap_or(Encoding::Bf16);
            let (width, outer) = shape.split_last().map_or((1, &[][..]), |(width, outer)| (*width, outer));
            let rows: usize = outer.iter().product();
            let bytes = (rows * encoding.row_bytes(width).unwrap_or(0)) as u64;
            Planned::new(&name, vec![encoding], &shape, bytes)
        })
        .collect()
}
