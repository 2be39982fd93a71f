//! `model.dgq.json`: the list of tensors of a pack, checked before a byte of the blob is used.
//!
//! A manifest may come from anywhere, so sizes are recomputed from shapes with checked arithmetic, and places must be aligned,
//! inside the blob and disjoint. What a tensor is encoded as is said by its own `kind`; `profile` is a word about the whole
//! and decides nothing. Read by `pack.rs`, written by `quantize.rs`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::stored::Encoding;
use crate::error::{Error, Result};

/// Name of the manifest in a pack's folder.
pub const MANIFEST: &str = "model.dgq.json";
/// Name of the blob that `quantize` writes; a manifest names its own.
pub const BLOB: &str = "model.dgq.bin";
/// Every tensor begins at a multiple of this.
pub(crate) const ALIGNMENT: u64 = 64;
/// Versions of the format that are read: 1 affine, 2 with NVFP4, 3 layered, 4 with classes of the author's choice.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=4;
/// The published manifest has 1047 tensors in a third of a megabyte.
const LARGEST_BYTES: u64 = 64 << 20;
/// Matrices with a scale of their own, other tensors counted once. The published model has 60 stacks of 128 experts; for each
/// some memory is taken before there is a shape to compare with.
const MOST_MATRICES: usize = 1 << 18;

/// The file as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) version: u32,
    pub(crate) profile: String,
    #[serde(default)]
    pub(crate) source_model: String,
    pub(crate) blob_file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expert_split: Option<u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) external_files: BTreeMap<String, Value>,
    pub(crate) tensors: Vec<Tensor>,
}

/// One tensor of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Type of the checkpoint that the pack was made of; says how `raw` is to be read and nothing else.
    pub(crate) dtype: String,
    pub(crate) shape: Vec<i64>,
    pub(crate) offset: u64,
    pub(crate) byte_len: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<Value>,
}

/// How the bytes of a tensor are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Raw,
    Q4Block,
    Q6Block,
    Q8Row,
    Nvfp4Block,
}

/// A tensor after all checks. `matrices` of `rows` by `width`, each after `header` bytes of its own.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Checked {
    pub(crate) encoding: Encoding,
    /// As the manifest calls it, where that is none of the types that are read.
    pub(crate) foreign: Option<String>,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: std::ops::Range<usize>,
    pub(crate) matrices: usize,
    pub(crate) rows: usize,
    pub(crate) header: usize,
}

impl Kind {
    /// The blocks that it says; `None`: plain numbers of the tensor's own type.
    pub(crate) fn blocks(self) -> Option<Encoding> {
        match self {
            Self::Raw => None,
            Self::Q4Block => Some(Encoding::Q4Block),
            Self::Q6Block => Some(Encoding::Q6Block),
            Self::Q8Row => Some(Encoding::Q8Row),
            Self::Nvfp4Block => Some(Encoding::Nvfp4),
        }
    }
}

impl Manifest {
    /// Reads the manifest of a pack folder.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let path = dir.join(MANIFEST);
        let length = std::fs::metadata(&path).map_err(Error::read(&path))?.len();
        if length > LARGEST_BYTES {
            return Err(damaged(
                &path,
                format!("{length} bytes is no manifest; the published one has 0.3 MB"),
            ));
        }
        let text = std::fs::read_to_string(&path).map_err(Error::read(&path))?;
        let version: Value = serde_json::from_str(&text).map_err(|e| damaged(&path, e.to_string()))?;
        let version = version["version"].as_u64();
        if !version.is_some_and(|v| u32::try_from(v).is_ok_and(|v| VERSIONS.contains(&v))) {
            let found = version.map_or("no version".into(), |v| format!("version {v}"));
            return Err(Error::checkpoint(
                &path,
                format!("{found}; versions {} to {} are read", VERSIONS.start(), VERSIONS.end()),
                "a newer pack needs a newer dgemma-server",
            ));
        }
        let manifest: Self = serde_json::from_str(&text).map_err(|e| damaged(&path, e.to_string()))?;
        manifest.refuse_layered(&path)?;
        let plain =
            Path::new(&manifest.blob_file).file_name().is_some_and(|name| name == &*manifest.blob_file);
        if !plain {
            return Err(damaged(
                &path,
                format!("blob_file {:?} is a path; it must be a sibling", manifest.blob_file),
            ));
        }
        Ok(manifest)
    }

    fn refuse_layered(&self, path: &Path) -> Result<()> {
        let layered = self.tensors.iter().find(|tensor| tensor.source.is_some());
        if layered.is_none() && self.external_files.is_empty() {
            return Ok(());
        }
        let what =
            layered.map_or("it names external files".into(), |t| format!("{} lies in another file", t.name));
        Err(Error::checkpoint(
            path,
            format!("a layered pack ({what}): its tensors are spread over files of another program's cache"),
            "make it whole with the tool that wrote it (`diffgemma repack --monolithic`), or fetch the published pack",
        ))
    }

    /// Every tensor by name, with its place in a blob of so many bytes.
    pub(crate) fn check(&self, path: &Path, blob_bytes: u64) -> Result<BTreeMap<String, Checked>> {
        let (mut checked, mut matrices) = (BTreeMap::new(), 0);
        for tensor in &self.tensors {
            let one = tensor
                .check(blob_bytes)
                .map_err(|reason| damaged(path, format!("tensor {}: {reason}", tensor.name)))?;
            matrices += one.matrices;
            if matrices > MOST_MATRICES {
                let reason = format!("tensor {}: a pack of more than {MOST_MATRICES} matrices", tensor.name);
                return Err(damaged(path, reason));
            }
            if checked.insert(tensor.name.clone(), one).is_some() {
                return Err(damaged(path, format!("tensor {} stands in it twice", tensor.name)));
            }
        }
        let mut places: Vec<(&String, &Checked)> = checked.iter().collect();
        places.sort_by_key(|(_, one)| one.bytes.start);
        if let Some(two) = places.windows(2).find(|two| two[0].1.bytes.end > two[1].1.bytes.start) {
            return Err(damaged(path, format!("tensors {} and {} overlap", two[0].0, two[1].0)));
        }
        Ok(checked)
    }
}

impl Tensor {
    fn check(&self, blob_bytes: u64) -> std::result::Result<Checked, String> {
        let shape: Vec<usize> = self
            .shape
            .iter()
            .map(|dim| usize::try_from(*dim).ok().filter(|dim| *dim > 0))
            .collect::<Option<_>>()
            .ok_or_else(|| format!("shape {:?} has a dimension that is not positive", self.shape))?;
        let product = |dims: &[usize]| dims.iter().try_fold(1usize, |n, dim| n.checked_mul(*dim));
        let large = || format!("shape {:?} is larger than can be counted", self.shape);
        let encoding = self.encoding();
        let ranks = match self.kind {
            Kind::Raw => 0..=8,
            _ => 2..=3,
        };
        if !ranks.contains(&shape.len()) {
            return Err(format!("{:?} cannot have {} dimensions", self.kind, shape.len()));
        }
        let (width, outer) = shape.split_last().map_or((1, &[][..]), |(width, outer)| (*width, outer));
        let (matrices, rows) = match self.kind {
            // Each matrix of a stack has a scale of its own.
            Kind::Nvfp4Block if outer.len() == 2 => (outer[0], outer[1]),
            _ => (1, product(outer).ok_or_else(large)?),
        };
        let header = if self.kind == Kind::Nvfp4Block { 4 } else { 0 };
        let wanted = match encoding.row_bytes(width) {
            Some(row) => row
                .checked_mul(rows)
                .and_then(|bytes| bytes.checked_add(header)?.checked_mul(matrices))
                .ok_or_else(large)?,
            // Integers and the like: nothing reads them, so their length is their own affair.
            None => usize::try_from(self.byte_len).map_err(|_| large())?,
        };
        if wanted as u64 != self.byte_len {
            return Err(format!(
                "byte_len is {}, shape {:?} as {} has {wanted}",
                self.byte_len,
                self.shape,
                encoding.name()
            ));
        }
        if !self.offset.is_multiple_of(ALIGNMENT) {
            return Err(format!("offset {} is no multiple of {ALIGNMENT}", self.offset));
        }
        match self.offset.checked_add(self.byte_len) {
            Some(end) if end <= blob_bytes => {
                let start = self.offset as usize;
                let foreign = (encoding == Encoding::Other).then(|| self.dtype.clone());
                Ok(Checked { encoding, foreign, shape, bytes: start..start + wanted, matrices, rows, header })
            }
            _ => Err(format!(
                "it takes {} bytes from {}, the blob has {blob_bytes}",
                self.byte_len, self.offset
            )),
        }
    }

    fn encoding(&self) -> Encoding {
        self.kind.blocks().unwrap_or_else(|| match self.dtype.to_ascii_uppercase().as_str() {
            "BF16" => Encoding::Bf16,
            "F16" => Encoding::F16,
            "F32" => Encoding::F32,
            _ => Encoding::Other,
        })
    }
}

fn damaged(path: &Path, reason: impl Into<String>) -> Error {
    Error::checkpoint(path, reason, "the pack is damaged or was not fetched whole, fetch it again")
}
