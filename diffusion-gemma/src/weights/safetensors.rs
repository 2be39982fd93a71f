//! Checkpoints in the Hugging Face layout: one safetensors file, or shards with their index.
//!
//! Numbers may be f32, f16 or bf16, and linear layers NVFP4 (`nvfp4.rs`). Others are listed, and refused by name where the model
//! needs them; so are other quantised layouts, with what to use instead.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::checkpoint::{Checkpoint, Entry, Place, PlacedPiece, map_read_only};
use super::nvfp4;
use super::stored::Encoding;
use crate::error::{Error, Result};

/// A tensor as its file lists it.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) file: usize,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Range<usize>,
}

impl Listed {
    pub(crate) fn place(&self) -> Place {
        Place { file: self.file, bytes: self.bytes.clone() }
    }

    /// As a tensor whose bytes say all there is to know. Numbers that are not read are no fault until the model needs them.
    fn plain(&self) -> Entry {
        let encoding = match self.dtype {
            Dtype::F32 => Encoding::F32,
            Dtype::F16 => Encoding::F16,
            Dtype::BF16 => Encoding::Bf16,
            _ => Encoding::Other,
        };
        let rows = self.shape.split_last().map_or(1, |(_, outer)| outer.iter().product());
        Entry {
            shape: self.shape.clone(),
            pieces: vec![PlacedPiece::plain(encoding, rows, self.place())],
            foreign: (encoding == Encoding::Other).then(|| format!("{:?}", self.dtype)),
        }
    }
}

/// Maps `model.safetensors`, or every shard that `model.safetensors.index.json` names.
pub(crate) fn open(dir: &Path) -> Result<Checkpoint> {
    let (files, mut listed) = list(dir)?;
    refuse_declared_quantisation(dir)?;
    refuse_mlx(dir, &listed)?;
    let mut entries = BTreeMap::new();
    let packed = nvfp4::take(&files, &mut listed)?;
    let format = match (&packed.exporter, files.len()) {
        (Some(exporter), n) => format!("safetensors, NVFP4 by {exporter}, {n} files"),
        (None, 1) => "safetensors".into(),
        (None, n) => format!("safetensors, {n} shards"),
    };
    entries.extend(packed.entries);
    for (name, one) in &listed {
        entries.insert(name.clone(), one.plain());
    }
    nvfp4::fuse_experts(&mut entries)?;
    Ok(Checkpoint::new(format, files, entries))
}

fn list(dir: &Path) -> Result<(Vec<Mmap>, BTreeMap<String, Listed>)> {
    let (mut files, mut listed) = (Vec::new(), BTreeMap::new());
    let index = dir.join("model.safetensors.index.json");
    if !index.exists() {
        map_file(&dir.join("model.safetensors"), &mut files, &mut listed)?;
        return Ok((files, listed));
    }
    let map = shard_map(&index)?;
    let shards: BTreeSet<&String> = map.values().collect();
    for shard in shards {
        map_file(&dir.join(shard), &mut files, &mut listed)?;
    }
    match map.iter().find(|(name, _)| !listed.contains_key(*name)) {
        None => Ok((files, listed)),
        Some((name, shard)) => {
            Err(Error::weight(name, format!("the index says it is in {shard}, but it is not there")))
        }
    }
}

fn map_file(path: &Path, files: &mut Vec<Mmap>, listed: &mut BTreeMap<String, Listed>) -> Result<()> {
    let map = map_read_only(path)?;
    let damaged =
        |reason: String| Error::checkpoint(path, reason, "the file is cut short or damaged, fetch it again");
    let (header, metadata) = SafeTensors::read_metadata(&map).map_err(|e| damaged(e.to_string()))?;
    let data_start = header + 8;
    for (name, info) in metadata.tensors() {
        let bytes = data_start + info.data_offsets.0..data_start + info.data_offsets.1;
        if bytes.end > map.len() {
            return Err(damaged(format!(
                "tensor {name} ends at byte {}, the file has {}",
                bytes.end,
                map.len()
            )));
        }
        if info.shape.contains(&0) {
            return Err(Error::weight(&name, format!("has shape {:?}, which holds nothing", info.shape)));
        }
        let one = Listed { file: files.len(), dtype: info.dtype, shape: info.shape.clone(), bytes };
        if listed.insert(name.clone(), one).is_some() {
            return Err(Error::weight(&name, "stands in two shards"));
        }
    }
    files.push(map);
    Ok(())
}

fn shard_map(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(path).map_err(Error::read(path))?;
    let damaged = |reason: &str| Error::checkpoint(path, reason, "fetch the index again");
    let json: Value = serde_json::from_str(&text).map_err(|e| damaged(&e.to_string()))?;
    let map = json["weight_map"].as_object().ok_or_else(|| damaged("no weight_map"))?;
    map.iter()
        .map(|(name, shard)| {
            let shard = shard.as_str().ok_or_else(|| damaged("a shard is not a file name"))?;
            // A shard is a sibling of the index: a path in its name would read files elsewhere.
            if Path::new(shard).file_name().is_none_or(|plain| plain != shard) {
                return Err(damaged(&format!("shard name {shard:?} is a path")));
            }
            Ok((name.clone(), shard.to_owned()))
        })
        .collect()
}

/// Only the methods whose layout is read here are let through.
fn refuse_declared_quantisation(dir: &Path) -> Result<()> {
    let path = dir.join("config.json");
    // A folder without one is refused elsewhere, by name.
    let Ok(text) = fs::read_to_string(&path) else { return Ok(()) };
    let json: Value = serde_json::from_str(&text).map_err(|e| Error::Config(e.to_string()))?;
    let config = &json["quantization_config"];
    let Some(method) = config["quant_method"].as_str() else { return Ok(()) };
    if matches!(method, "modelopt" | "compressed-tensors") {
        return Ok(());
    }
    let detail = config["quant_algo"].as_str().or_else(|| config["format"].as_str());
    let detail = detail.map_or(String::new(), |detail| format!(" ({detail})"));
    Err(Error::checkpoint(
        path,
        format!("the weights are quantised by {method}{detail}, which is not read"),
        "use the bf16 checkpoint with --quant, an NVFP4 checkpoint, or a .dgq pack",
    ))
}

/// MLX keeps 4-bit weights in words of 32 bits, with scales and biases beside them.
fn refuse_mlx(dir: &Path, listed: &BTreeMap<String, Listed>) -> Result<()> {
    let mlx = listed.iter().find(|(name, one)| {
        let stem = name.strip_suffix("weight").unwrap_or(name);
        one.dtype == Dtype::U32 && listed.contains_key(&format!("{stem}scales"))
    });
    match mlx {
        None => Ok(()),
        Some((name, _)) => Err(Error::checkpoint(
            dir,
            format!("an MLX checkpoint: {name} holds packed integers with scales beside it"),
            "MLX weights are not read here; a .dgq pack has 4 bits as well (dgemma-server download), or quantise the bf16 checkpoint on \
             load with --quant q4k",
        )),
    }
}
