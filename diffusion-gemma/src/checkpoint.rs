//! The tensors of a checkpoint folder, memory-mapped: one safetensors file, or shards with their index.
//!
//! [`Checkpoint`] accounts for every tensor: it hands each out once by name and expected shape, and at the end
//! [`Checkpoint::finish`] refuses whatever was neither used nor known to be deliberately unused.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use crate::error::{Error, Result};

struct Entry {
    file: usize,
    dtype: DType,
    shape: Vec<usize>,
    /// Byte range inside the file.
    bytes: std::ops::Range<usize>,
}

/// An open checkpoint.
pub(crate) struct Checkpoint {
    files: Vec<Mmap>,
    entries: BTreeMap<String, Entry>,
    used: BTreeSet<String>,
    loaded_bytes: u64,
}

impl Checkpoint {
    /// Maps `model.safetensors`, or every shard that `model.safetensors.index.json` names.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let mut this =
            Self { files: Vec::new(), entries: BTreeMap::new(), used: BTreeSet::new(), loaded_bytes: 0 };
        let index = dir.join("model.safetensors.index.json");
        if index.exists() {
            let map = shard_map(&index)?;
            let shards: BTreeSet<&String> = map.values().collect();
            for shard in shards {
                this.map_file(&dir.join(shard))?;
            }
            if let Some((name, shard)) = map.iter().find(|(name, _)| !this.entries.contains_key(*name)) {
                return Err(Error::weight(
                    name,
                    format!("the index says it is in {shard}, but it is not there"),
                ));
            }
        } else {
            this.map_file(&dir.join("model.safetensors"))?;
        }
        Ok(this)
    }

    fn map_file(&mut self, path: &Path) -> Result<()> {
        let file = File::open(path).map_err(Error::read(path))?;
        let map = map_read_only(&file).map_err(Error::read(path))?;
        let damaged = |reason: String| {
            Error::checkpoint(path, reason, "the file is cut short or damaged, fetch it again")
        };
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
            let dtype = match info.dtype {
                Dtype::F32 => DType::F32,
                Dtype::F16 => DType::F16,
                Dtype::BF16 => DType::BF16,
                other => {
                    return Err(Error::weight(
                        &name,
                        format!("stored as {other:?}; F32, F16 and BF16 are read"),
                    ));
                }
            };
            let entry = Entry { file: self.files.len(), dtype, shape: info.shape.clone(), bytes };
            if self.entries.insert(name.clone(), entry).is_some() {
                return Err(Error::weight(&name, "stands in two shards"));
            }
        }
        self.files.push(map);
        Ok(())
    }

    /// One tensor in the wanted type, on the device. It counts as used.
    pub(crate) fn tensor(
        &mut self,
        name: &str,
        shape: &[usize],
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        let entry = self.entry(name, shape)?;
        let bytes = &self.files[entry.file][entry.bytes.clone()];
        let tensor = Tensor::from_raw_buffer(bytes, entry.dtype, shape, &Device::Cpu)?.to_dtype(dtype)?;
        self.count(name);
        Ok(tensor.to_device(device)?)
    }

    /// How a tensor is stored.
    pub(crate) fn stored_dtype(&self, name: &str, shape: &[usize]) -> Result<DType> {
        Ok(self.entry(name, shape)?.dtype)
    }

    /// The stored bytes of some tensors of the same type, straight from the map. They count as used.
    pub(crate) fn raw(&mut self, names: &[&str]) -> Vec<&[u8]> {
        names.iter().for_each(|name| self.count(name));
        let stored = names.iter().filter_map(|name| self.entries.get(*name));
        stored.map(|entry| &self.files[entry.file][entry.bytes.clone()]).collect()
    }

    fn entry(&self, name: &str, shape: &[usize]) -> Result<&Entry> {
        let entry = self.entries.get(name).ok_or_else(|| Error::weight(name, "is missing"))?;
        if entry.shape != shape {
            return Err(Error::weight(
                name,
                format!("has shape {:?}, config.json asks for {shape:?}", entry.shape),
            ));
        }
        Ok(entry)
    }

    fn count(&mut self, name: &str) {
        if let Some(entry) = self.entries.get(name).filter(|_| self.used.insert(name.to_owned())) {
            self.loaded_bytes += entry.bytes.len() as u64;
        }
    }

    /// Every tensor must be used or deliberately unused. Returns the names of the latter.
    pub(crate) fn finish(self, deliberately_unused: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        let (unused, surplus): (Vec<String>, Vec<String>) = self
            .entries
            .into_keys()
            .filter(|name| !self.used.contains(name))
            .partition(|name| deliberately_unused(name));
        match surplus.first() {
            None => Ok(unused),
            Some(name) => Err(Error::weight(
                name,
                format!("is surplus: no part of the model reads it ({} such)", surplus.len()),
            )),
        }
    }

    /// Bytes of the tensors handed out so far.
    pub(crate) fn loaded_bytes(&self) -> u64 {
        self.loaded_bytes
    }

    /// Bytes of all files.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.files.iter().map(|map| map.len() as u64).sum()
    }
}

/// The one `unsafe` of this file.
#[allow(unsafe_code)]
fn map_read_only(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the map is read-only. Should another process shorten the file while it is mapped, a read faults and the
    // process ends; checkpoints are written once and never changed in place, and that is said in the documentation.
    unsafe { Mmap::map(file) }
}

fn shard_map(path: &PathBuf) -> Result<BTreeMap<String, String>> {
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
