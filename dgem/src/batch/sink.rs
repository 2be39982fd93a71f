//! The output file: appended to, made safe in groups, and picked up where an earlier run stopped.
//!
//! A line counts when it is whole. What is written between two syncs may be lost with the machine; those rows are then simply
//! not done. A last line that was cut off is removed before anything is appended.

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Report;
use super::record::{Record, Status};
use crate::error::Error;

/// Time between two syncs: a disk takes milliseconds for one.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// What every line begins with (`record`).
const LINE_START: &[u8] = b"{\"id\":\"";

/// What an earlier run left.
#[derive(Debug, Default)]
pub struct Done {
    /// Keys of the ids that need no answer any more: those with the status `ok`.
    pub keys: HashSet<u64>,
    /// Their answers, as far as the right ones are known.
    pub report: Report,
}

/// Takes lines and writes them.
#[derive(Debug)]
pub struct Sink {
    out: Out,
    path: PathBuf,
    dirty_since: Option<Instant>,
    /// Lines that wait for an earlier one: place → line. `None` when order does not matter.
    waiting: Option<BTreeMap<u64, Vec<u8>>>,
    next: u64,
    hasher: RandomState,
}

#[derive(Debug)]
enum Out {
    Stdout(io::Stdout),
    File(BufWriter<File>),
}

impl Sink {
    /// Opens the output; `-` is stdout. A file with content is refused, unless `resume` says to go on with it.
    pub fn open(path: &Path, resume: bool, keep_order: bool) -> Result<(Self, Done), Error> {
        let hasher = RandomState::new();
        let mut done = Done::default();
        let out = if path.as_os_str() == "-" {
            if resume {
                return Err(refused(path, "stdout cannot be read back", "name a file with -o to resume"));
            }
            Out::Stdout(io::stdout())
        } else {
            let failed = |cause: io::Error| {
                refused(path, &cause.to_string(), "check the path and the permissions; the folder must exist")
            };
            let mut file =
                OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
            if !file.metadata().map_err(failed)?.is_file() {
                let hint = "what is written must be readable again; with -o - it goes to stdout, and from there anywhere";
                return Err(refused(path, "it is a device or a pipe, no file", hint));
            }
            if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
                let hint = "give every run a file of its own; {shard} in its name stands for the shard";
                return Err(refused(path, "another run is writing it", hint));
            }
            if !resume && file.metadata().map_err(failed)?.len() > 0 {
                let hint = "add --resume to go on with it, or name another file";
                return Err(refused(path, "it holds something already", hint));
            }
            let whole = read_back(&file, path, &hasher, &mut done)?;
            file.set_len(whole).map_err(failed)?;
            file.seek(SeekFrom::End(0)).map_err(failed)?;
            Out::File(BufWriter::with_capacity(1 << 18, file))
        };
        let waiting = keep_order.then(BTreeMap::new);
        Ok((Self { out, path: path.to_owned(), dirty_since: None, waiting, next: 0, hasher }, done))
    }

    /// The key under which an id is remembered: ids may be long, and there may be many.
    pub(super) fn key(&self) -> impl Fn(&str) -> u64 + Send + 'static {
        let hasher = self.hasher.clone();
        move |id| hasher.hash_one(id)
    }

    /// Lines that wait for an earlier one.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.as_ref().map_or(0, BTreeMap::len)
    }

    /// Takes the line of the row at this place.
    pub(super) fn put(&mut self, place: u64, line: Vec<u8>) -> Result<(), Error> {
        let Some(waiting) = &mut self.waiting else { return self.write(&line) };
        waiting.insert(place, line);
        while let Some(line) = self.waiting.as_mut().and_then(|waiting| waiting.remove(&self.next)) {
            self.write(&line)?;
            self.next += 1;
        }
        Ok(())
    }

    fn write(&mut self, line: &[u8]) -> Result<(), Error> {
        let written = match &mut self.out {
            Out::Stdout(out) => out.write_all(line),
            Out::File(out) => out.write_all(line),
        };
        written.map_err(|cause| self.failed(cause))?;
        self.dirty_since.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Makes the lines so far safe, if some have waited long enough.
    pub(super) fn sync_when_due(&mut self) -> Result<(), Error> {
        match self.dirty_since {
            Some(since) if since.elapsed() >= SYNC_EVERY => self.sync(),
            _ => Ok(()),
        }
    }

    /// Writes what still waits (after a stop there may be gaps before it) and makes everything safe.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        for line in std::mem::take(&mut self.waiting).unwrap_or_default().into_values() {
            self.write(&line)?;
        }
        self.sync()
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.dirty_since = None;
        let synced = match &mut self.out {
            Out::Stdout(out) => out.flush(),
            // Some file systems know no sync; the lines are written all the same.
            Out::File(out) => out.flush().and_then(|()| match out.get_ref().sync_data() {
                Err(cause) if cause.kind() == io::ErrorKind::InvalidInput => Ok(()),
                synced => synced,
            }),
        };
        synced.map_err(|cause| self.failed(cause))
    }

    fn failed(&self, cause: io::Error) -> Error {
        match self.out {
            // Unlike a table of one decision: rows that nobody read are not done.
            Out::Stdout(_) if cause.kind() == io::ErrorKind::BrokenPipe => {
                let hint = "name a file with -o; then --resume goes on where a run ended";
                refused(&self.path, "who reads it has gone away", hint)
            }
            Out::Stdout(_) => Error::Output(cause),
            Out::File(_) => {
                refused(&self.path, &cause.to_string(), "check the disk, then go on with --resume")
            }
        }
    }
}

fn refused(path: &Path, reason: &str, hint: &'static str) -> Error {
    Error::BatchOutput { path: path.to_owned(), reason: reason.to_owned(), hint }
}

const ANOTHER_KIND: &str =
    "--resume goes on with an output of dgem batch; name the right file, or another one";

/// Reads the lines of an earlier run into `done`. Returns the length of the whole lines in bytes.
fn read_back(file: &File, path: &Path, hasher: &RandomState, done: &mut Done) -> Result<u64, Error> {
    let failed = |cause: io::Error| refused(path, &cause.to_string(), "check the file and the disk");
    let mut input = BufReader::new(file);
    let (mut whole, mut number) = (0, 0_u64);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = input.read_until(b'\n', &mut line).map_err(failed)? as u64;
        if !line.ends_with(b"\n") {
            // The end of the file, or a line that was cut off.
            // A lost tail of a file may read as zeros.
            let lost = line.iter().all(|byte| *byte == 0);
            if lost || line.starts_with(LINE_START) || LINE_START.starts_with(&line) {
                return Ok(whole);
            }
            let reason = format!("its last line (line {}) is no result of a row", number + 1);
            return Err(refused(path, &reason, ANOTHER_KIND));
        }
        number += 1;
        let record: Record = serde_json::from_slice(&line).map_err(|cause| {
            refused(path, &format!("line {number} is no result of a row ({cause})"), ANOTHER_KIND)
        })?;
        whole += length;
        if record.status == Status::Ok {
            // A row that was answered twice counts once.
            if done.keys.insert(hasher.hash_one(record.id.as_str())) {
                done.report.add(&record);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, status: &str) -> String {
        format!("{{\"id\":\"{id}\",\"status\":\"{status}\"}}\n")
    }

    #[test]
    fn a_torn_last_line_is_removed_and_failed_rows_are_not_done() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let whole = line("a", "ok") + &line("b", "error");
        for tail in ["{\"id\":\"c\",\"sta", &"\0".repeat(4096)] {
            std::fs::write(&path, whole.clone() + tail).unwrap();
            drop(Sink::open(&path, true, false).unwrap());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
        }
        std::fs::write(&path, whole.clone() + "{\"id\":\"c\",\"sta").unwrap();
        let (mut sink, done) = Sink::open(&path, true, false).unwrap();
        let key = sink.key();
        assert_eq!(
            [("a", true), ("b", false), ("c", false)].map(|(id, _)| done.keys.contains(&key(id))),
            [true, false, false]
        );
        sink.put(0, line("c", "ok").into_bytes()).unwrap();
        sink.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole + &line("c", "ok"));
    }

    #[test]
    fn a_file_of_another_kind_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        std::fs::write(&path, "precious\n").unwrap();
        let refused = |resume| Sink::open(&path, resume, false).unwrap_err().to_string();
        assert!(refused(false).contains("--resume"));
        assert!(refused(true).contains("line 1"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious\n");
        // Without a line end it is no line that was cut off either, alone or behind whole lines.
        for text in ["precious", "{\"id\": 1}", "{\n", &(line("a", "ok") + "precious")] {
            std::fs::write(&path, text).unwrap();
            let message = refused(true);
            assert!(
                message.contains("is no result of a row") && message.contains("hint: --resume"),
                "{message}"
            );
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        for torn in ["", "{", "{\"id\":", "{\"id\":\"c\",\"status\":\"ok\"}"] {
            std::fs::write(&path, line("a", "ok") + torn).unwrap();
            assert!(Sink::open(&path, true, false).is_ok(), "{torn}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), line("a", "ok"));
        }
        let (_first, _) = Sink::open(&folder.path().join("b"), false, false).unwrap();
        assert!(
            Sink::open(&folder.path().join("b"), true, false)
                .unwrap_err()
                .to_string()
                .contains("another run")
        );
    }

    #[test]
    fn lines_are_put_in_order_and_a_gap_at_the_end_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let (mut sink, _) = Sink::open(&path, false, true).unwrap();
        for place in [2, 0, 1, 5] {
            sink.put(place, format!("{place}\n").into_bytes()).unwrap();
        }
        assert_eq!(sink.waiting(), 1);
        sink.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "0\n1\n2\n5\n");
    }
}
