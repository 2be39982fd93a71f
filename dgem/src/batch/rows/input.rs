//! The bytes of an input: counted for the progress bar, and watched where one record could take in all the rest.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::quotes::Quotes;

pub(super) type Input = BufReader<Counted>;

#[derive(Debug)]
pub(super) struct Counted {
    raw: Raw,
    read: Arc<AtomicU64>,
    /// Of a CSV.
    pub(super) watch: Option<Watch>,
}

#[derive(Debug)]
pub(super) enum Raw {
    File(File),
    Stdin(io::Stdin),
}

/// Where the records of a CSV may not go.
#[derive(Debug)]
pub(super) struct Watch {
    /// Bytes that may still come before the next record.
    pub(super) left: u64,
    pub(super) quotes: Quotes,
}

impl Counted {
    pub(super) fn new(raw: Raw, read: Arc<AtomicU64>) -> Self {
        Self { raw, read, watch: None }
    }
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match &mut self.raw {
            Raw::File(file) => file.read(buffer),
            Raw::Stdin(stdin) => stdin.read(buffer),
        }?;
        if let Some(watch) = &mut self.watch {
            let bytes = &buffer[..count];
            let fine = if bytes.is_empty() { watch.quotes.end() } else { watch.quotes.take(bytes) };
            fine.map_err(|reason| io::Error::new(io::ErrorKind::InvalidData, reason))?;
            watch.left = watch.left.checked_sub(count as u64).ok_or_else(|| {
                let reason = "a CSV record is too large: a quotation mark that is never closed takes in the rest of the file";
                io::Error::new(io::ErrorKind::FileTooLarge, reason)
            })?;
        }
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
