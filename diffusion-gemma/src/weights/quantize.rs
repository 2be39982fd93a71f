//! A checkpoint of any format that is read → a `.dgq` pack.
//!
//! Tensors are written one after the other, a block of rows at a time, so that memory does not grow with the model. The blob
//! goes to a `.part` file and the manifest comes last: a folder that has one is whole. Called by `dgemma-server quantize`.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use rayon::prelude::*;

use super::encode;
use super::inventory::Inventory;
use super::manifest::{ALIGNMENT, BLOB, Kind, MANIFEST, Manifest, Tensor};
use super::pack::is_pack;
use super::report::{Class, Deviation, Report, Row};
use super::stored::{Encoding, Fault, NOT_FINITE, Piece, Stored, largest_of};
use crate::error::{Error, Result};

/// Where the experts begin.
const EXPERT_ALIGNMENT: u64 = 16_384;
/// Weights that are in memory as f32 at a time.
const BLOCK: usize = 1 << 22;
/// Copied as they are, where they exist.
const SIDECARS: [&str; 5] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
];

/// What of a model is kept in how many bits. Embedding, router, norms and the vision tower stay as they are in all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Experts in 4 bits, self-conditioning in 8, attention and dense layers as stored: the published pack.
    Q4,
    /// Experts in 6 bits, the rest as in `q4`.
    Q6,
    /// Experts, attention, dense layers and self-conditioning in 8 bits. Of these profiles the one that the public tool does not
    /// know.
    Q8,
    /// Experts, attention and dense layers in 4-bit floats, self-conditioning in 8 bits.
    Nvfp4,
}

impl Profile {
    /// Its name in a manifest.
    pub fn name(self) -> &'static str {
        match self {
            Self::Q4 => "q4",
            Self::Q6 => "q6",
            Self::Q8 => "q8",
            Self::Nvfp4 => "nvfp4",
        }
    }

    /// How a tensor is written. A width that its groups of 32 do not divide stays as it is.
    pub(super) fn kind(self, class: Class, shape: &[usize]) -> Kind {
        let whole_groups = shape.last().is_some_and(|width| width.is_multiple_of(super::codec::GROUP));
        match (class, shape.len(), self) {
            (Class::Experts, 3, Self::Q4) if whole_groups => Kind::Q4Block,
            (Class::Experts, 3, Self::Q6) if whole_groups => Kind::Q6Block,
            (Class::Experts, 3, Self::Nvfp4) | (Class::Attention | Class::DenseFfn, 2, Self::Nvfp4) => {
                Kind::Nvfp4Block
            }
            (Class::Experts, 3, Self::Q8)
            | (Class::Attention | Class::DenseFfn, 2, Self::Q8)
            | (Class::SelfConditioning, 2, _) => Kind::Q8Row,
            _ => Kind::Raw,
        }
    }
}

/// Writes `source` as a pack into the folder `target`, which is made if need be. `progress` hears how many of how many stored
/// bytes are done. Gives the error of every class against the source.
pub fn quantize(
    source: &Path,
    target: &Path,
    profile: Profile,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report> {
    let inventory = Inventory::open(source)?;
    if is_pack(target) {
        return Err(Error::checkpoint(
            target,
            "holds a pack already",
            "name another folder, or delete it first",
        ));
    }
    fs::create_dir_all(target).map_err(Error::write(target))?;
    let part = target.join(format!("{BLOB}.part"));
    let written = Writer::new(&inventory, profile, &part).and_then(|writer| writer.run(progress));
    let (mut manifest, report) = match written {
        Ok(done) => done,
        Err(error) => {
            // What is left of it is of no use; that it cannot be removed says nothing new.
            let _ = fs::remove_file(&part);
            return Err(error);
        }
    };
    manifest.source_model =
        source.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    for name in SIDECARS {
        let (from, to) = (source.join(name), target.join(name));
        if from.is_file() {
            fs::copy(&from, &to).map_err(Error::write(&to))?;
        }
    }
    let (blob, path) = (target.join(BLOB), target.join(MANIFEST));
    fs::rename(&part, &blob).map_err(Error::write(&blob))?;
    let text = serde_json::to_string_pretty(&manifest)
        .map_err(|e| Error::checkpoint(&path, e.to_string(), "report this"))?;
    let part = target.join(format!("{MANIFEST}.part"));
    fs::write(&part, text).map_err(Error::write(&part))?;
    fs::rename(&part, &path).map_err(Error::write(&path))?;
    Ok(report)
}

struct Writer<'a> {
    inventory: &'a Inventory,
    profile: Profile,
    path: &'a Path,
    out: BufWriter<File>,
    at: u64,
    report: Report,
}

impl<'a> Writer<'a> {
    fn new(inventory: &'a Inventory, profile: Profile, path: &'a Path) -> Result<Self> {
        let file = File::create(path).map_err(Error::write(path))?;
        let out = BufWriter::with_capacity(1 << 20, file);
        Ok(Self { inventory, profile, path, out, at: 0, report: Report::default() })
    }

    fn run(mut self, progress: &mut dyn FnMut(u64, u64)) -> Result<(Manifest, Report)> {
        let mut order: Vec<(bool, &str)> = self
            .inventory
            .tensors()
            .map(|one| (one.name.contains(".experts.") && one.shape.len() == 3, one.name))
            .collect();
        order.sort_unstable();
        let total: u64 = self.inventory.tensors().map(|one| one.bytes).sum();
        let (mut done, mut expert_split) = (0, None);
        let mut tensors = Vec::with_capacity(order.len());
        for (expert, name) in order {
            if expert && expert_split.is_none() {
                self.align(EXPERT_ALIGNMENT)?;
                expert_split = Some(self.at);
            }
            self.align(ALIGNMENT)?;
            tensors.push(self.tensor(name)?);
            self.inventory.forget(name);
            done += self.inventory.entry(name)?.bytes();
            progress(done, total);
        }
        self.out.flush().map_err(Error::write(self.path))?;
        self.out.get_ref().sync_all().map_err(Error::write(self.path))?;
        let nvfp4 = tensors.iter().any(|tensor| tensor.kind == Kind::Nvfp4Block);
        let manifest = Manifest {
            version: if nvfp4 { 2 } else { 1 },
            profile: self.profile.name().to_owned(),
            source_model: String::new(),
            blob_file: BLOB.to_owned(),
            expert_split,
            external_files: std::collections::BTreeMap::new(),
            tensors,
        };
        Ok((manifest, self.report))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes).map_err(Error::write(self.path))
    }

    fn align(&mut self, to: u64) -> Result<()> {
        let gap = self.at.next_multiple_of(to) - self.at;
        self.write(&vec![0u8; gap as usize])
    }

    fn tensor(&mut self, name: &str) -> Result<Tensor> {
        let entry = self.inventory.entry(name)?;
        let (class, shape, offset) = (Class::of(name), entry.shape.clone(), self.at);
        let kind = if entry.foreign.is_some() { Kind::Raw } else { self.profile.kind(class, &shape) };
        let target = target(kind, &entry.encodings());
        let (deviation, dtype) = match (target, &entry.foreign) {
            // Numbers that nothing here reads go along as they are.
            (_, Some(dtype)) => {
                self.inventory.raw(entry).into_iter().try_for_each(|bytes| self.write(bytes))?;
                (None, dtype.clone())
            }
            (target, None) => {
                let stored = self.inventory.stored(name)?;
                let written =
                    stored.check_scales().and_then(|()| self.matrices(&stored, kind, target, &shape));
                let plain = if target.is_plain() { target } else { Encoding::Bf16 };
                (written.map_err(|fault| fault.at(name))?, plain.name().to_uppercase())
            }
        };
        let byte_len = self.at - offset;
        let row = Row { tensors: 1, from_bytes: entry.bytes(), to_bytes: byte_len, deviation };
        self.report.add(class, Encoding::names(&entry.encodings()), target.name(), row);
        let shape = shape.iter().map(|dim| *dim as i64).collect();
        Ok(Tensor { name: name.to_owned(), kind, dtype, shape, offset, byte_len, source: None })
    }

    /// Writes a tensor; gives the error, `None` where nothing was rounded.
    fn matrices(
        &mut self,
        stored: &Stored<'_>,
        kind: Kind,
        target: Encoding,
        shape: &[usize],
    ) -> std::result::Result<Option<Deviation>, Fault> {
        if kind == Kind::Raw && stored.encodings() == [target] {
            stored.largest()?;
            stored.raw().into_iter().try_for_each(|bytes| self.write(bytes))?;
            return Ok(None);
        }
        // Each NVFP4 matrix of a stack has a scale of its own.
        let count = if kind == Kind::Nvfp4Block && shape.len() == 3 { shape[0] } else { 1 };
        let mut deviation = Deviation::default();
        for (number, one) in stored.split(count).iter().enumerate() {
            deviation.merge(self.matrix(one, target, number * one.rows())?);
        }
        // f32 holds every f16.
        Ok((target != Encoding::F32).then_some(deviation))
    }

    /// Encodes every row, writes it, reads it back and says how far off it is. `first`: the number of its first row in the tensor.
    fn matrix(
        &mut self,
        stored: &Stored<'_>,
        to: Encoding,
        first: usize,
    ) -> std::result::Result<Deviation, Fault> {
        let width = stored.inputs;
        let mut global = 1.0;
        if to == Encoding::Nvfp4 {
            global = encode::nvfp4_global(stored.largest().map_err(|fault| fault.after(first))?);
            self.write(&global.to_le_bytes())?;
        }
        let (mut deviation, mut at) = (Deviation::default(), first);
        let rows = 65_536_usize.div_ceil(width);
        for block in stored.blocks((BLOCK / width).max(1)) {
            let values = block.decode();
            let encode = |(number, some): (usize, &[f32])| {
                let (mut bytes, mut deviation) = (Vec::new(), Deviation::default());
                let mut back = vec![0f32; width];
                for (i, row) in some.chunks_exact(width).enumerate() {
                    let from = bytes.len();
                    encode::row(to, row, global, &mut bytes);
                    let piece = Piece { encoding: to, rows: 1, bytes: &bytes[from..], scales: None, global };
                    piece.row(0, &mut back);
                    let (before, after) = (largest_of(row), largest_of(&back));
                    if before.is_infinite() || after.is_infinite() {
                        let what = format!("is not finite any more as {}", to.name());
                        let reason = if before.is_infinite() { NOT_FINITE.to_owned() } else { what };
                        return Err(Fault::row(at + number * rows + i, reason));
                    }
                    deviation.add(row, &back);
                }
                Ok((bytes, deviation))
            };
            let encoded: Vec<(Vec<u8>, Deviation)> = values
                .par_chunks(rows * width)
                .enumerate()
                .map(encode)
                .collect::<std::result::Result<_, Fault>>()?;
            for (bytes, one) in encoded {
                self.write(&bytes)?;
                deviation.merge(one);
            }
            at += block.rows();
        }
        Ok(deviation)
    }
}

/// What a tensor that is stored so is written as. Plain numbers stay as they are, except that the public tool takes every plain
/// number of two bytes for bf16, so f16 becomes f32; what was quantised before comes back as bf16.
fn target(kind: Kind, stored: &[Encoding]) -> Encoding {
    kind.blocks().unwrap_or_else(|| match Encoding::common(stored) {
        Encoding::F16 => Encoding::F32,
        plain if plain.is_plain() || plain == Encoding::Other => plain,
        _ => Encoding::Bf16,
    })
}
