//! A checkpoint as a list: what `inspect`, `verify` and the memory plan look at without loading a model.

use std::path::Path;

use super::checkpoint::{Checkpoint, Entry};
use super::report::Class;
use super::stored::{Encoding, Stored};
use crate::error::{Error, Result};

/// An open checkpoint of any format.
#[derive(Debug)]
pub struct Inventory(Checkpoint);

/// One tensor of it. Experts that are stored one by one are listed as the stack that the model reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<'a> {
    pub name: &'a str,
    pub class: Class,
    pub encoding: Encoding,
    pub shape: &'a [usize],
    /// In the checkpoint, scales included.
    pub bytes: u64,
}

impl Inventory {
    /// Opens a folder; reads headers and no weights.
    pub fn open(dir: &Path) -> Result<Self> {
        Ok(Self(Checkpoint::open(dir)?))
    }

    /// The format in words.
    pub fn format(&self) -> &str {
        &self.0.format
    }

    /// Bytes of all weight files.
    pub fn file_bytes(&self) -> u64 {
        self.0.file_bytes()
    }

    /// Every tensor, by name.
    pub fn tensors(&self) -> impl Iterator<Item = Listing<'_>> {
        self.0.entries.iter().map(|(name, entry)| Listing {
            name,
            class: Class::of(name),
            encoding: entry.encoding(),
            shape: &entry.shape,
            bytes: entry.bytes(),
        })
    }

    /// All numbers of a tensor, exactly as its encoding says, in the order of its shape.
    pub fn values(&self, name: &str) -> Result<Vec<f32>> {
        Ok(self.stored(name)?.decode())
    }

    /// Reads a tensor through and gives the number of its weights; the first number that is none, or a scale that cannot be, is an
    /// error. At most a few rows are in memory at a time.
    pub fn verify(&self, name: &str) -> Result<usize> {
        let stored = self.stored(name)?;
        stored.check_scales().and_then(|()| stored.largest()).map_err(|fault| fault.at(name))?;
        self.0.forget(name);
        Ok(stored.rows() * stored.inputs)
    }

    pub(crate) fn stored(&self, name: &str) -> Result<Stored<'_>> {
        let shape = self.entry(name)?.shape.clone();
        self.0.stored(name, &shape)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.0.entries.iter()
    }

    pub(crate) fn entry(&self, name: &str) -> Result<&Entry> {
        self.0.entries.get(name).ok_or_else(|| Error::weight(name, "is missing"))
    }

    pub(crate) fn raw(&self, entry: &Entry) -> Vec<&[u8]> {
        self.0.raw(entry)
    }

    pub(crate) fn forget(&self, name: &str) {
        self.0.forget(name);
    }
}
