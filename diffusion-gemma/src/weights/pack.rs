//! `.dgq` packs: a manifest (`manifest.rs`) and one blob that holds every tensor.

use std::collections::BTreeMap;
use std::path::Path;

use super::checkpoint::{Checkpoint, Entry, Place, PlacedPiece, map_read_only};
use super::manifest::{Checked, MANIFEST, Manifest};
use crate::error::{Error, Result};

/// Whether a folder is a pack: it has a manifest.
pub fn is_pack(dir: &Path) -> bool {
    dir.join(MANIFEST).is_file()
}

/// Maps the blob of a pack and checks its manifest against it.
pub(crate) fn open(dir: &Path) -> Result<Checkpoint> {
    let path = dir.join(MANIFEST);
    let manifest = Manifest::read(dir)?;
    let blob_path = dir.join(&manifest.blob_file);
    let blob = map_read_only(&blob_path)?;
    let mut entries = BTreeMap::new();
    for (name, checked) in manifest.check(&path, blob.len() as u64)? {
        let entry = entry(&checked, &blob).ok_or_else(|| Error::weight(&name, "lies outside the blob"))?;
        entries.insert(name, entry);
    }
    let format = format!(".dgq pack, profile {}, version {}", manifest.profile, manifest.version);
    Ok(Checkpoint::new(format, vec![blob], entries))
}

/// `None` where the blob ends early, which the check of the manifest has ruled out.
fn entry(checked: &Checked, blob: &[u8]) -> Option<Entry> {
    let stride = checked.bytes.len() / checked.matrices;
    let pieces = (0..checked.matrices).map(|matrix| {
        let start = checked.bytes.start + matrix * stride;
        let global = match checked.header {
            0 => 1.0,
            _ => f32::from_le_bytes(*blob.get(start..start + 4)?.first_chunk()?),
        };
        let at = Place { file: 0, bytes: start + checked.header..start + stride };
        Some(PlacedPiece { global, ..PlacedPiece::plain(checked.encoding, checked.rows, at) })
    });
    let (shape, foreign) = (checked.shape.clone(), checked.foreign.clone());
    Some(Entry { shape, pieces: pieces.collect::<Option<_>>()?, foreign })
}
