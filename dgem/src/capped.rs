//! Files, stdin and rendered text up to a limit, so that an endless one (`/dev/zero`, a pipe, loops in loops) is an error and
//! not the end of memory.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// A template.
pub(crate) const TEMPLATE_BYTES: u64 = 1 << 20;
/// A settings file.
pub(crate) const SETTINGS_BYTES: u64 = 256 << 10;
/// A token file, a file of credentials or certificates.
pub(crate) const TOKEN_BYTES: u64 = 64 << 10;
/// The value of one variable, or all of them in a data file. No server takes a state of this size.
pub(crate) const VARIABLES_BYTES: u64 = 64 << 20;

/// What a template renders to: as much as one value may have, since it may print one.
pub(crate) const RENDERED_BYTES: u64 = VARIABLES_BYTES;

/// Takes what is written, up to a limit.
pub(crate) struct Sink {
    pub(crate) bytes: Vec<u8>,
    pub(crate) most_bytes: u64,
}

impl Write for Sink {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        if (self.bytes.len() + part.len()) as u64 > self.most_bytes {
            return Err(too_large(self.most_bytes));
        }
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The whole file, if it is not longer than `most_bytes`.
pub(crate) fn read_file(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    read(File::open(path)?, most_bytes)
}

/// Everything `source` gives, if that is not more than `most_bytes`.
pub(crate) fn read(source: impl Read, most_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(most_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most_bytes {
        return Err(too_large(most_bytes));
    }
    Ok(bytes)
}

fn too_large(most_bytes: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {} KiB", most_bytes >> 10))
}

/// As text.
pub(crate) fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|cause| {
        let message = format!("it is not UTF-8: invalid byte at offset {}", cause.utf8_error().valid_up_to());
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_itself_is_allowed_and_an_endless_source_ends() {
        assert_eq!(read(&[1_u8; 8][..], 8).unwrap().len(), 8);
        assert_eq!(read(&[1_u8; 9][..], 8).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(read(io::repeat(0), 4096).unwrap_err().to_string().contains("4 KiB"));
    }
}
