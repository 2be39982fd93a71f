//! The tensors of a checkpoint folder, memory-mapped, whatever its format: safetensors (plain or NVFP4) or a `.dgq` pack.
//!
//! [`Checkpoint`] accounts for every tensor: it hands each out by name and expected shape, and at the end
//! [`Checkpoint::finish`] refuses whatever was neither used nor known to be deliberately unused. The formats are read in
//! `safetensors.rs` (with `nvfp4.rs`) and `pack.rs`; what is handed out is a [`Stored`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use memmap2::{Advice, Mmap, UncheckedAdvice};

use super::stored::{Encoding, Piece, Stored};
use super::{pack, safetensors};
use crate::error::{Error, Result};

/// Bytes of one of the mapped files.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Place {
    pub(crate) file: usize,
    pub(crate) bytes: Range<usize>,
}

/// Some rows of a tensor and where they lie.
#[derive(Debug, Clone)]
pub(crate) struct PlacedPiece {
    pub(crate) encoding: Encoding,
    pub(crate) rows: usize,
    pub(crate) at: Place,
    pub(crate) scales: Option<Place>,
    pub(crate) global: f32,
}

impl PlacedPiece {
    /// Rows whose bytes say all there is to know.
    pub(crate) fn plain(encoding: Encoding, rows: usize, at: Place) -> Self {
        Self { encoding, rows, at, scales: None, global: 1.0 }
    }

    fn bytes(&self) -> u64 {
        (self.at.bytes.len() + self.scales.as_ref().map_or(0, |place| place.bytes.len())) as u64
    }
}

/// A tensor: its pieces are rows of its last dimension, back to back.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) shape: Vec<usize>,
    pub(crate) pieces: Vec<PlacedPiece>,
    /// Type of numbers that are not read, as the file calls it: integers of a part that nothing computes, for instance.
    pub(crate) foreign: Option<String>,
}

impl Entry {
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(PlacedPiece::bytes).sum()
    }

    /// The encoding of all its pieces.
    pub(crate) fn encoding(&self) -> Encoding {
        match self.encodings().as_slice() {
            [one] => *one,
            [] => Encoding::Other,
            _ => Encoding::Mixed,
        }
    }

    /// Each encoding of its pieces, once.
    pub(crate) fn encodings(&self) -> Vec<Encoding> {
        Encoding::distinct(self.pieces.iter().map(|piece| piece.encoding))
    }

    /// Refuses numbers that are not read, and another shape.
    pub(crate) fn check(&self, name: &str, shape: &[usize]) -> Result<()> {
        if let Some(dtype) = &self.foreign {
            return Err(Error::Numbers { name: name.to_owned(), dtype: dtype.clone() });
        }
        if self.shape != shape {
            let reason = format!("has shape {:?}, config.json asks for {shape:?}", self.shape);
            return Err(Error::weight(name, reason));
        }
        Ok(())
    }

    fn width(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }
}

/// An open checkpoint.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// In words, for people.
    pub(crate) format: String,
    pub(crate) files: Vec<Mmap>,
    pub(crate) entries: BTreeMap<String, Entry>,
    used: BTreeSet<String>,
    loaded_bytes: u64,
}

impl Checkpoint {
    /// Maps the weights of a folder and reads where each tensor lies.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        if pack::is_pack(dir) { pack::open(dir) } else { safetensors::open(dir) }
    }

    pub(crate) fn new(format: String, files: Vec<Mmap>, entries: BTreeMap<String, Entry>) -> Self {
        Self { format, files, entries, used: BTreeSet::new(), loaded_bytes: 0 }
    }

    /// Tensors of the same width stacked by rows, `[.., outputs, inputs]` each. They do not count as used yet.
    pub(crate) fn stacked(&self, parts: &[(String, usize)], inputs: usize) -> Result<Stored<'_>> {
        let mut pieces = Vec::with_capacity(parts.len());
        for (name, outputs) in parts {
            let entry = self.entry(name, &[*outputs, inputs])?;
            self.fetch(entry);
            pieces.extend(entry.pieces.iter().map(|piece| self.piece(piece)));
        }
        Ok(Stored { inputs, pieces })
    }

    /// A tensor as rows of its last dimension. It does not count as used yet.
    pub(crate) fn stored(&self, name: &str, shape: &[usize]) -> Result<Stored<'_>> {
        let entry = self.entry(name, shape)?;
        self.fetch(entry);
        let pieces = entry.pieces.iter().map(|piece| self.piece(piece)).collect();
        Ok(Stored { inputs: entry.width(), pieces })
    }

    /// The bytes of a tensor as they are, whatever they mean.
    pub(crate) fn raw(&self, entry: &Entry) -> Vec<&[u8]> {
        entry.pieces.iter().map(|piece| self.piece(piece).bytes).collect()
    }

    /// One tensor in the wanted type, on the device; its stored bytes and encoding. It does not count as used yet.
    pub(crate) fn tensor(
        &self,
        name: &str,
        shape: &[usize],
        dtype: DType,
        device: &Device,
    ) -> Result<(Tensor, u64, Encoding)> {
        let stored = self.stored(name, shape)?;
        stored.check_scales().map_err(|fault| fault.at(name))?;
        let entry = &self.entries[name];
        let tensor = stored.tensor(dtype, device)?.reshape(shape)?;
        Ok((tensor, entry.bytes(), entry.encoding()))
    }

    fn piece(&self, piece: &PlacedPiece) -> Piece<'_> {
        let bytes = |place: &Place| &self.files[place.file][place.bytes.clone()];
        Piece {
            encoding: piece.encoding,
            rows: piece.rows,
            bytes: bytes(&piece.at),
            scales: piece.scales.as_ref().map(bytes),
            global: piece.global,
        }
    }

    fn entry(&self, name: &str, shape: &[usize]) -> Result<&Entry> {
        let entry = self.entries.get(name).ok_or_else(|| Error::weight(name, "is missing"))?;
        entry.check(name, shape)?;
        Ok(entry)
    }

    /// Counts tensors as used, and forgets them.
    pub(crate) fn count(&mut self, names: &[&str]) {
        for name in names {
            if self.entries.contains_key(*name) && self.used.insert((*name).to_owned()) {
                self.loaded_bytes += self.entries[*name].bytes();
                self.forget(name);
            }
        }
    }

    /// Lets the system begin to read a tensor that is about to be decoded. A failure costs time and nothing else.
    fn fetch(&self, entry: &Entry) {
        let places = entry.pieces.iter().flat_map(|piece| [Some(&piece.at), piece.scales.as_ref()]);
        for Place { file, bytes } in places.flatten() {
            let _ = self.files[*file].advise_range(Advice::WillNeed, bytes.start, bytes.len());
        }
    }

    /// Takes the pages of a tensor out of this process: what was read of it stays in the cache of the system and is no memory of
    /// ours.
    pub(crate) fn forget(&self, name: &str) {
        let pieces = self.entries.get(name).map_or(&[][..], |entry| &entry.pieces);
        let places = pieces.iter().flat_map(|piece| [Some(&piece.at), piece.scales.as_ref()]);
        places.flatten().for_each(|place| forget(&self.files[place.file], &place.bytes));
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

    /// Bytes of all weight files.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.files.iter().map(|map| map.len() as u64).sum()
    }
}

/// Maps a file of weights.
#[allow(unsafe_code)]
pub(crate) fn map_read_only(path: &Path) -> Result<Mmap> {
    let file = File::open(path).map_err(Error::read(path))?;
    // SAFETY: the map is read-only. Should another process shorten the file while it is mapped, a read faults and the
    // process ends; checkpoints are written once and never changed in place, and that is said in the documentation.
    unsafe { Mmap::map(&file) }.map_err(Error::read(path))
}

/// Takes pages out of this process. A failure costs memory for a while and nothing else.
#[allow(unsafe_code)]
fn forget(file: &Mmap, bytes: &Range<usize>) {
    // SAFETY: the map is a shared, read-only one of a file: its pages come back with the same bytes when they are read again.
    let _ = unsafe { file.unchecked_advise_range(UncheckedAdvice::DontNeed, bytes.start, bytes.len()) };
}
