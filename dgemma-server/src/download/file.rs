//! One file: its ranges in parallel into `NAME.part`, with a list of the finished ones beside it, so that a later run goes on.
//!
//! The part has its full length from the start and ranges go to their places: nothing is joined at the end and no byte is on the
//! disk twice. A range counts as finished when its bytes are on the disk. Read `digest` for what follows.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use futures_util::stream::{self, TryStreamExt as _};
use reqwest::StatusCode;
use reqwest::header::CONTENT_RANGE;
use serde::{Deserialize, Serialize};

use super::hub::{Entry, Hub};
use super::progress::Progress;
use super::retry::{Patience, Retry};
use super::{Options, digest_of, marker, on_disk};
use crate::error::Error;

/// Which ranges of a part are finished. Only valid for the same content in the same ranges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Journal {
    digest: String,
    bytes: u64,
    chunk_bytes: u64,
    finished: Vec<bool>,
}

impl Journal {
    fn new(entry: &Entry, chunk_bytes: u64) -> Self {
        let chunks = entry.bytes.div_ceil(chunk_bytes) as usize;
        Self {
            digest: entry.digest.to_string(),
            bytes: entry.bytes,
            chunk_bytes,
            finished: vec![false; chunks],
        }
    }

    /// The one on the disk if it is about the same content, else a new one.
    fn load(part: &Part, entry: &Entry, chunk_bytes: u64) -> Self {
        let new = Self::new(entry, chunk_bytes);
        let whole = std::fs::metadata(&part.data).is_ok_and(|metadata| metadata.len() == entry.bytes);
        std::fs::read(&part.journal)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok())
            .filter(|old| whole && Self { finished: new.finished.clone(), ..old.clone() } == new)
            .filter(|old| old.finished.len() == new.finished.len())
            .unwrap_or(new)
    }

    /// First byte of a range and the one after its last.
    fn range(&self, chunk: usize) -> (u64, u64) {
        let from = chunk as u64 * self.chunk_bytes;
        (from, (from + self.chunk_bytes).min(self.bytes))
    }

    fn finished_bytes(&self) -> u64 {
        let finished = self.finished.iter().enumerate().filter(|(_, finished)| **finished);
        finished.map(|(chunk, _)| self.range(chunk)).map(|(from, to)| to - from).sum()
    }
}

/// The two files that stand for one until it is whole.
struct Part {
    data: PathBuf,
    journal: PathBuf,
}

impl Part {
    fn of(target: &Path) -> Self {
        let with = |extension: &str| {
            let mut name = target.as_os_str().to_owned();
            name.push(extension);
            PathBuf::from(name)
        };
        Self { data: with(".part"), journal: with(".part.json") }
    }
}

/// Bytes that the disk must still take for that file.
pub(super) fn missing_bytes(folder: &Path, entry: &Entry, chunk_bytes: u64) -> u64 {
    let part = Part::of(&folder.join(&entry.path));
    entry.bytes - Journal::load(&part, entry, chunk_bytes).finished_bytes()
}

/// Fetches what is missing, compares the whole with the hub's digest, and gives the file its name. A file that came wrong is
/// fetched once more.
pub(super) async fn fetch(
    hub: &Hub,
    commit: &str,
    entry: &Entry,
    folder: &Path,
    options: &Options,
    progress: &Progress,
) -> Result<(), Error> {
    let target = folder.join(&entry.path);
    let part = Part::of(&target);
    if let Some(parent) = target.parent() {
        std::fs::create_dir_all(parent).map_err(|source| on_disk(parent, &source))?;
    }
    let mut journal = Journal::load(&part, entry, options.chunk_bytes);
    progress.add(journal.finished_bytes());
    let mut came = None;
    for _ in 0..2 {
        fill(hub, commit, entry, &part, journal, options.jobs, progress).await?;
        progress.say(&format!("checking {}", entry.path));
        let digest = digest_of(part.data.clone(), entry).await?;
        if digest == entry.digest {
            std::fs::rename(&part.data, &target).map_err(|source| on_disk(&target, &source))?;
            // Without its part the list means nothing.
            let _ = std::fs::remove_file(&part.journal);
            return Ok(());
        }
        tracing::warn!("{} came with {digest}, not {}; fetching it again", entry.path, entry.digest);
        progress.take_back(entry.bytes);
        let _ = std::fs::remove_file(&part.journal);
        journal = Journal::new(entry, options.chunk_bytes);
        came = Some(digest);
    }
    Err(Error::Download {
        what: entry.path.clone(),
        reason: format!(
            "it came twice with {}, and the hub says {}",
            came.map_or_else(String::new, |digest| digest.to_string()),
            entry.digest
        ),
        hint: "the mirror or something between it and this machine changes the file; ask another HF_ENDPOINT"
            .into(),
    })
}

async fn fill(
    hub: &Hub,
    commit: &str,
    entry: &Entry,
    part: &Part,
    journal: Journal,
    jobs: usize,
    progress: &Progress,
) -> Result<(), Error> {
    let disk = |source| on_disk(&part.data, &source);
    let file = File::options().create(true).truncate(false).write(true).open(&part.data).map_err(disk)?;
    file.set_len(entry.bytes).map_err(disk)?;
    let missing: Vec<usize> = (0..journal.finished.len()).filter(|chunk| !journal.finished[*chunk]).collect();
    let ranges: Vec<_> = missing.into_iter().map(|chunk| (chunk, journal.range(chunk))).collect();
    let (file, journal) = (&file, &Mutex::new(journal));
    stream::iter(ranges.into_iter().map(Ok))
        .map_ok(|(chunk, (from, to))| async move {
            fetch_range(hub, commit, entry, file, from, to, progress).await?;
            file.sync_data().map_err(disk)?;
            // The lock is held while it is written, so that an older list never replaces a newer one.
            let mut journal = journal.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            journal.finished[chunk] = true;
            let text =
                serde_json::to_vec(&*journal).map_err(|error| on_disk(&part.journal, &error.into()))?;
            marker::replace(&part.journal, &text)
        })
        .try_buffer_unordered(jobs)
        .try_for_each(|()| std::future::ready(Ok(())))
        .await
}

/// Bytes `from..to` to their place in the file, in as many requests as the network needs.
async fn fetch_range(
    hub: &Hub,
    commit: &str,
    entry: &Entry,
    file: &File,
    from: u64,
    to: u64,
    progress: &Progress,
) -> Result<(), Error> {
    let mut at = from;
    let mut patience = Patience::default();
    while at < to {
        let before = at;
        if let Err(failure) = request(hub, commit, entry, file, &mut at, to, progress).await {
            if at > before {
                patience.renew();
            }
            patience.after(failure).await.map_err(|error| match error {
                Error::Download { what, reason, hint } if what.is_empty() => {
                    Error::Download { what: entry.path.clone(), reason, hint }
                }
                other => other,
            })?;
        }
    }
    Ok(())
}

/// One request for `at..to`. `at` moves with what is on its way to the disk.
async fn request(
    hub: &Hub,
    commit: &str,
    entry: &Entry,
    file: &File,
    at: &mut u64,
    to: u64,
    progress: &Progress,
) -> Result<(), Retry> {
    let mut response = hub.range(commit, &entry.path, *at, to).await?;
    let expected = format!("bytes {at}-{}/{}", to - 1, entry.bytes);
    let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    match (response.status(), range) {
        (StatusCode::PARTIAL_CONTENT, Some(range)) if range == expected => {}
        // The whole file was asked for, and that is what comes.
        (StatusCode::OK, _) if *at == 0 && to == entry.bytes => {}
        (StatusCode::OK, _) => {
            return Err(Retry::Never(Error::Download {
                what: entry.path.clone(),
                reason: "the hub sends the whole file where a part was asked for".into(),
                hint: "a mirror must serve ranges; ask another HF_ENDPOINT".into(),
            }));
        }
        (_, range) => {
            let range = range.unwrap_or("nothing");
            return Err(Retry::odd(format!("the hub sends {range} where {expected} was asked for")));
        }
    }
    while let Some(piece) = response.chunk().await.map_err(|error| Retry::soon(&error))? {
        let bytes = piece.len() as u64;
        if *at + bytes > to {
            return Err(Retry::odd("the hub sends more than was asked for".into()));
        }
        // A write to the page cache; it is short enough not to need a thread of its own.
        file.write_all_at(&piece, *at)
            .map_err(|source| Retry::Never(on_disk(Path::new(&entry.path), &source)))?;
        *at += bytes;
        progress.add_fetched(bytes);
    }
    if *at < to {
        return Err(Retry::odd(format!("the connection ended after {} of {} bytes", *at, entry.bytes)));
    }
    Ok(())
}
