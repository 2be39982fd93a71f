//! `dgemma-server download`: a checkpoint or pack from a hub into a folder, whole and checked, or not at all.
//!
//! `hub` asks what there is, `file` fetches one file in parallel ranges and goes on where an earlier run stopped, `digest`
//! compares with what the hub says, `marker` is the list written last: a folder without it is not whole. Called by `main`.

mod digest;
mod file;
mod hub;
mod marker;
mod progress;
mod retry;

use std::path::{Path, PathBuf};

pub use hub::{Access, ENDPOINT_VARIABLE, TOKEN_VARIABLE};
pub use marker::{MARKER, Marker};

use crate::error::Error;
use digest::Digest;
use hub::{Entry, Hub};
use progress::Progress;

/// The pack that the guide's `make download` fetches.
pub const DEFAULT_REPO: &str = "mmastrac/diffgemma-26b-a4b-it-q4";
/// Bytes of one range. A broken connection loses at most what came of one.
pub const CHUNK_BYTES: u64 = 64 << 20;
/// Taken by one download at a time.
const LOCK: &str = ".download.lock";

/// What to fetch, from where, to where.
#[derive(Debug, Clone)]
pub struct Options {
    /// `organisation/name`.
    pub repo: String,
    /// A branch, a tag or a commit.
    pub revision: String,
    /// Ranges fetched at the same time.
    pub jobs: usize,
    pub chunk_bytes: u64,
    /// The folder to fill.
    pub out: PathBuf,
    pub access: Access,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    pub commit: String,
    pub files: usize,
    pub bytes: u64,
    /// Of these bytes, the ones that this run fetched.
    pub fetched_bytes: u64,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { commit, files, bytes, fetched_bytes } = self;
        let plural = if *files == 1 { "" } else { "s" };
        write!(
            f,
            "{files} file{plural} of commit {commit}, {bytes} bytes, all as the hub says ({fetched_bytes} fetched now)"
        )
    }
}

/// `model/NAME` for `organisation/NAME`.
#[must_use]
pub fn default_folder(repo: &str) -> PathBuf {
    Path::new("model").join(repo.rsplit('/').next().unwrap_or(repo))
}

/// Fetches what is missing or wrong in the folder. Needs a rustls provider installed by the program beforehand.
pub async fn run(options: &Options) -> Result<Summary, Error> {
    let hub = Hub::new(&options.access, &options.repo, &options.revision)?;
    let commit = hub.commit().await?;
    let entries = hub.files(&commit).await?;
    let folder = &options.out;
    std::fs::create_dir_all(folder).map_err(|source| on_disk(folder, &source))?;
    let _lock = lock(folder)?;
    let bytes = entries.iter().map(|entry| entry.bytes).sum();
    let progress = Progress::new(bytes);
    // From here on the folder is not whole until the end.
    let marker = Marker::of(&options.repo, &commit, &entries);
    marker::remove(folder)?;

    progress.say("checking what is already there");
    let mut wanted = Vec::new();
    for entry in &entries {
        if present(folder, entry).await? {
            progress.add(entry.bytes);
        } else {
            wanted.push(entry);
        }
    }
    let missing = wanted.iter().map(|entry| file::missing_bytes(folder, entry, options.chunk_bytes)).sum();
    check_space(folder, missing)?;
    for entry in wanted {
        progress.say(&entry.path);
        file::fetch(&hub, &commit, entry, folder, options, &progress).await?;
    }
    let fetched_bytes = progress.fetched();
    marker.write(folder)?;
    progress.finish();
    Ok(Summary { commit, files: entries.len(), bytes, fetched_bytes })
}

/// Compares a folder with the list of its download: how many files there are, `None` where there is no list.
pub fn verify(folder: &Path) -> Result<Option<usize>, Error> {
    let Some(marker) = Marker::read(folder)? else { return Ok(None) };
    for (name, file) in &marker.files {
        let path = folder.join(name);
        let wanted = file.digest();
        let refuse = |reason: String, hint: &str| {
            Err(Error::Setup { what: path.display().to_string(), reason, hint: hint.into() })
        };
        let compared = std::fs::metadata(&path).and_then(|metadata| {
            let bytes = metadata.len();
            let same = bytes == file.bytes && digest::of_file(&path, wanted.kind(), bytes)? == wanted;
            Ok((bytes, same))
        });
        match compared {
            Ok((_, true)) => {}
            Ok((bytes, false)) => {
                let fetched = file.bytes;
                return refuse(
                    format!("it has {bytes} bytes and is not what was fetched ({fetched} bytes, {wanted})"),
                    "run dgemma-server download again: it fetches what is damaged",
                );
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return refuse(
                    "it was fetched and is not there any more".into(),
                    "run dgemma-server download again: it fetches what is missing",
                );
            }
            Err(error) => {
                return refuse(error.to_string(), "see that you may read it and that the disk is sound");
            }
        }
    }
    Ok(Some(marker.files.len()))
}

/// Whether the file is there, as long as the hub says and with the same digest.
async fn present(folder: &Path, entry: &Entry) -> Result<bool, Error> {
    let path = folder.join(&entry.path);
    match std::fs::metadata(&path) {
        Ok(metadata) if metadata.is_file() && metadata.len() == entry.bytes => {
            Ok(digest_of(path, entry).await? == entry.digest)
        }
        Ok(metadata) if metadata.is_dir() => Err(Error::Download {
            what: path.display().to_string(),
            reason: "a folder stands where a file of the repository belongs".into(),
            hint: "remove it, or choose another folder with -o".into(),
        }),
        Ok(_) => Ok(false),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(on_disk(&path, &source)),
    }
}

/// Reads a file to its end, away from the threads that serve the network.
async fn digest_of(path: PathBuf, entry: &Entry) -> Result<Digest, Error> {
    let (kind, bytes) = (entry.digest.kind(), entry.bytes);
    let result = tokio::task::spawn_blocking(move || {
        digest::of_file(&path, kind, bytes).map_err(|source| on_disk(&path, &source))
    });
    result.await.map_err(|_| Error::Internal { what: "the thread that computes a digest" })?
}

/// Held until it is dropped; the system takes it back from a program that dies.
fn lock(folder: &Path) -> Result<std::fs::File, Error> {
    let path = folder.join(LOCK);
    let file = std::fs::File::create(&path).map_err(|source| on_disk(&path, &source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(Error::Download {
            what: folder.display().to_string(),
            reason: "another download into this folder is running".into(),
            hint: "wait for it, or choose another folder with -o".into(),
        }),
        Err(std::fs::TryLockError::Error(source)) => Err(on_disk(&path, &source)),
    }
}

fn check_space(folder: &Path, missing_bytes: u64) -> Result<(), Error> {
    let disk = rustix::fs::statvfs(folder).map_err(|errno| on_disk(folder, &errno.into()))?;
    let free_bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
    if missing_bytes <= free_bytes {
        return Ok(());
    }
    Err(Error::Download {
        what: folder.display().to_string(),
        reason: format!("{missing_bytes} bytes are to come, and this disk has {free_bytes} free"),
        hint: "make room, or choose a folder on another disk with -o".into(),
    })
}

fn on_disk(path: &Path, source: &std::io::Error) -> Error {
    Error::Download {
        what: path.display().to_string(),
        reason: source.to_string(),
        hint: "what came so far is kept; mend this and run the same command again".into(),
    }
}
