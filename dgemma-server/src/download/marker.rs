//! The list of what was fetched, written last. `verify` reads it; a folder without it is an unfinished download or was never one.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::hub::{Entry, plain_path};
use super::on_disk;
use crate::error::Error;

/// Name of the list in the folder.
pub const MARKER: &str = ".dgemma-download.json";

/// Where a folder came from, and what it held then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    pub repo: String,
    pub commit: String,
    pub files: BTreeMap<String, File>,
}

/// One file. Exactly one of the digests is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    pub bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// SHA-1 of `blob LENGTH\0` and the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<String>,
}

impl File {
    /// What its content has to be.
    pub(super) fn digest(&self) -> Digest {
        match (&self.sha256, &self.git) {
            (Some(hex), _) => Digest::Sha256(hex.clone()),
            (None, hex) => Digest::Git(hex.clone().unwrap_or_default()),
        }
    }
}

impl Marker {
    pub(super) fn of(repo: &str, commit: &str, entries: &[Entry]) -> Self {
        let files = entries.iter().map(|entry| {
            let (sha256, git) = match entry.digest.clone() {
                Digest::Sha256(hex) => (Some(hex), None),
                Digest::Git(hex) => (None, Some(hex)),
            };
            (entry.path.clone(), File { bytes: entry.bytes, sha256, git })
        });
        Self { repo: repo.into(), commit: commit.into(), files: files.collect() }
    }

    /// The list of a folder, if it has one.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>, Error> {
        let path = folder.join(MARKER);
        let refuse = |reason: String| Error::Setup {
            what: path.display().to_string(),
            reason,
            hint: "delete it and run dgemma-server download again: what is sound stays".into(),
        };
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(refuse(error.to_string())),
        };
        let marker: Self = serde_json::from_slice(&text)
            .map_err(|error| refuse(format!("it is no list of a download: {error}")))?;
        // Whoever wrote it, it names files of this folder and no others.
        match marker.files.keys().find(|name| !plain_path(name)) {
            None => Ok(Some(marker)),
            Some(name) => Err(refuse(format!("it names a file {name:?}"))),
        }
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), Error> {
        let text = serde_json::to_vec_pretty(self).map_err(|error| on_disk(folder, &error.into()))?;
        replace(&folder.join(MARKER), &text)
    }
}

pub(super) fn remove(folder: &Path) -> Result<(), Error> {
    let path = folder.join(MARKER);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(on_disk(&path, &error)),
        _ => Ok(()),
    }
}

/// Writes a file so that it is there in whole or as it was before, whatever happens meanwhile.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    use std::io::Write as _;
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let write = || {
        let mut file = std::fs::File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    };
    write().map_err(|source| on_disk(path, &source))
}
