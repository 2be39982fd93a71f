//! NVFP4 in safetensors, as ModelOpt and compressed-tensors write it, and experts that are stored one by one.
//!
//! Both exporters store a linear layer `X` as packed E2M1 weights, an E4M3 scale per 16 of them and one f32 scale for the
//! tensor; they differ in names, and compressed-tensors stores the reciprocal of the last. [`take`] takes these tensors out of
//! the listing and puts one entry `X.weight` in their place. [`fuse_experts`] stacks `experts.N.{gate,up,down}_proj` to the two
//! tensors that the model reads. Whatever does not fit the layout is refused by name.

use std::collections::BTreeMap;

use memmap2::Mmap;
use safetensors::Dtype;

use super::checkpoint::{Entry, PlacedPiece};
use super::codec::NVFP4_GROUP;
use super::safetensors::Listed;
use super::stored::Encoding;
use crate::error::{Error, Result};

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Who wrote it; `None` where nothing is NVFP4.
    pub(crate) exporter: Option<&'static str>,
    pub(crate) entries: Vec<(String, Entry)>,
}

/// Names of one exporter.
struct Layout {
    exporter: &'static str,
    weight: &'static str,
    global: &'static str,
    reciprocal: bool,
    /// Scale of the activations, which arithmetic in f32 or bf16 does not need.
    input: &'static str,
}

const LAYOUTS: [Layout; 2] = [
    Layout {
        exporter: "ModelOpt",
        weight: "weight",
        global: "weight_scale_2",
        reciprocal: false,
        input: "input_scale",
    },
    Layout {
        exporter: "compressed-tensors",
        weight: "weight_packed",
        global: "weight_global_scale",
        reciprocal: true,
        input: "input_global_scale",
    },
];

/// Takes every NVFP4 layer out of the listing.
pub(crate) fn take(files: &[Mmap], listed: &mut BTreeMap<String, Listed>) -> Result<Taken> {
    if let Some(name) = listed.keys().find(|name| name.ends_with(".pre_quant_scale")) {
        return Err(Error::weight(name, "scales activations before the layer, which is not computed here"));
    }
    let mut taken = Taken::default();
    for layout in &LAYOUTS {
        let stems: Vec<String> = listed
            .iter()
            .filter(|(_, one)| one.dtype == Dtype::U8)
            .filter_map(|(name, _)| name.strip_suffix(layout.weight)?.strip_suffix('.'))
            .filter(|stem| listed.contains_key(&format!("{stem}.weight_scale")))
            .map(str::to_owned)
            .collect();
        for stem in stems {
            taken.entries.push((format!("{stem}.weight"), layer(files, listed, layout, &stem)?));
            taken.exporter = Some(layout.exporter);
        }
    }
    if taken.exporter.is_some() {
        // Scales of an 8-bit cache of keys and values, which is not what is kept here.
        listed.retain(|name, _| !name.ends_with("_proj.k_scale") && !name.ends_with("_proj.v_scale"));
    }
    Ok(taken)
}

fn layer(
    files: &[Mmap],
    listed: &mut BTreeMap<String, Listed>,
    layout: &Layout,
    stem: &str,
) -> Result<Entry> {
    let mut part = |suffix: &str| {
        let name = format!("{stem}.{suffix}");
        listed.remove(&name).ok_or_else(|| Error::weight(&name, "is missing beside packed NVFP4 weights"))
    };
    let (weight, scale, global) = (part(layout.weight)?, part("weight_scale")?, part(layout.global)?);
    // The scale of activations is used by nothing, and may be absent.
    let _ = part(layout.input);
    let refuse = |suffix: &str, reason: String| Err(Error::weight(&format!("{stem}.{suffix}"), reason));
    let &[outputs, half] = weight.shape.as_slice() else {
        return refuse(
            layout.weight,
            format!("has shape {:?}; packed NVFP4 weights are a matrix", weight.shape),
        );
    };
    let inputs = 2 * half;
    if !inputs.is_multiple_of(NVFP4_GROUP) {
        return refuse(layout.weight, format!("has {inputs} inputs, no multiple of {NVFP4_GROUP}"));
    }
    let scales = [outputs, inputs / NVFP4_GROUP];
    if scale.dtype != Dtype::F8_E4M3 || scale.shape != scales {
        return refuse(
            "weight_scale",
            format!(
                "is {:?} {:?}; plain NVFP4 has F8_E4M3 {scales:?} (one per {NVFP4_GROUP} inputs, not rearranged)",
                scale.dtype, scale.shape
            ),
        );
    }
    let bytes: Option<[u8; 4]> = files[global.file][global.bytes.clone()].try_into().ok();
    let Some(bytes) = bytes.filter(|_| global.dtype == Dtype::F32) else {
        return refuse(layout.global, format!("is {:?} {:?}, not one f32", global.dtype, global.shape));
    };
    let global = f32::from_le_bytes(bytes);
    let piece = PlacedPiece {
        scales: Some(scale.place()),
        global: if layout.reciprocal { global.recip() } else { global },
        ..PlacedPiece::plain(Encoding::Nvfp4, outputs, weight.place())
    };
    Ok(Entry { shape: vec![outputs, inputs], pieces: vec![piece], foreign: None })
}

/// The matrices of one expert.
#[derive(Default)]
struct Expert {
    gate: Option<Entry>,
    up: Option<Entry>,
    down: Option<Entry>,
}

/// Stacks experts that are stored one by one.
pub(crate) fn fuse_experts(entries: &mut BTreeMap<String, Entry>) -> Result<()> {
    let mut stacks: BTreeMap<String, BTreeMap<usize, Expert>> = BTreeMap::new();
    let names: Vec<(String, (String, usize, String))> =
        entries.keys().filter_map(|name| Some((name.clone(), expert_of(name)?))).collect();
    for (name, (stack, expert, part)) in names {
        let expert = stacks.entry(stack).or_default().entry(expert).or_default();
        let place = match part.as_str() {
            "gate_proj" => &mut expert.gate,
            "up_proj" => &mut expert.up,
            "down_proj" => &mut expert.down,
            _ => continue,
        };
        let entry = entries.remove(&name);
        if place.is_some() {
            return Err(Error::weight(&name, "stands in the checkpoint twice, under two spellings"));
        }
        *place = entry;
    }
    for (stack, experts) in stacks {
        let (mut gate_up, mut down) =
            (Vec::with_capacity(2 * experts.len()), Vec::with_capacity(experts.len()));
        let count = experts.len();
        for (wanted, (found, expert)) in experts.into_iter().enumerate() {
            let missing =
                |part: &str| Error::weight(&format!("{stack}.{wanted}.{part}.weight"), "is missing");
            if found != wanted {
                return Err(missing("gate_proj"));
            }
            gate_up.push(expert.gate.ok_or_else(|| missing("gate_proj"))?);
            gate_up.push(expert.up.ok_or_else(|| missing("up_proj"))?);
            down.push(expert.down.ok_or_else(|| missing("down_proj"))?);
        }
        for (name, parts) in [("gate_up_proj", gate_up), ("down_proj", down)] {
            let name = format!("{stack}.{name}");
            let entry = fuse(&name, count, parts)?;
            if entries.insert(name.clone(), entry).is_some() {
                return Err(Error::weight(&name, "is stored whole and by expert"));
            }
        }
    }
    Ok(())
}

/// `…experts.3.up_proj.weight` → (`…experts`, 3, `up_proj`). Some exporters write `moe.experts`.
fn expert_of(name: &str) -> Option<(String, usize, String)> {
    let (stack, rest) = name.split_once(".experts.")?;
    let (number, part) = rest.strip_suffix(".weight")?.split_once('.')?;
    let stack = stack.strip_suffix(".moe").unwrap_or(stack);
    Some((format!("{stack}.experts"), number.parse().ok()?, part.to_owned()))
}

/// Matrices of the same shape, stacked by rows to `[count, …, inputs]`.
fn fuse(name: &str, count: usize, parts: Vec<Entry>) -> Result<Entry> {
    let shape = parts.first().map(|part| part.shape.clone()).unwrap_or_default();
    if let Some(other) = parts.iter().find(|part| part.shape != shape) {
        return Err(Error::weight(name, format!("its experts have shapes {shape:?} and {:?}", other.shape)));
    }
    let &[rows, inputs] = shape.as_slice() else {
        return Err(Error::weight(name, format!("an expert has shape {shape:?}, not that of a matrix")));
    };
    let rows = rows * parts.len() / count.max(1);
    Ok(Entry {
        shape: vec![count, rows, inputs],
        foreign: parts.iter().find_map(|part| part.foreign.clone()),
        pieces: parts.into_iter().flat_map(|part| part.pieces).collect(),
    })
}
