//! What a hub says a file's content is: SHA-256 of large files, git's own hash of small ones.

use std::io::Read;
use std::path::Path;

use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// Read at once.
const BUFFER_BYTES: usize = 1 << 20;

/// A digest in lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Digest {
    /// Of the content: the `oid` of a file in large-file storage.
    Sha256(String),
    /// SHA-1 of `blob LENGTH\0` and the content: the `oid` of a file in git itself.
    Git(String),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Sha256,
    Git,
}

impl Digest {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Sha256(_) => Kind::Sha256,
            Self::Git(_) => Kind::Git,
        }
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sha256(hex) => write!(f, "SHA-256 {hex}"),
            Self::Git(hex) => write!(f, "git hash {hex}"),
        }
    }
}

/// `bytes`: length of the file, which git's hash begins with.
pub(super) fn of_file(path: &Path, kind: Kind, bytes: u64) -> std::io::Result<Digest> {
    let file = std::fs::File::open(path)?;
    Ok(match kind {
        Kind::Sha256 => Digest::Sha256(hex(&read::<Sha256>(file, Sha256::new())?)),
        Kind::Git => Digest::Git(hex(&read(file, Sha1::new_with_prefix(format!("blob {bytes}\0")))?)),
    })
}

fn read<D: sha2::Digest>(mut file: std::fs::File, mut digest: D) -> std::io::Result<Vec<u8>> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(digest.finalize().to_vec()),
            read => digest.update(&buffer[..read]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // a String takes everything
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_sha256sum_and_git_hash_object() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hello");
        std::fs::write(&path, "hello\n").unwrap();
        let expected = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        assert_eq!(of_file(&path, Kind::Sha256, 6).unwrap(), Digest::Sha256(expected.into()));
        let expected = "ce013625030ba8dba906f756967f9e9ca394464a";
        assert_eq!(of_file(&path, Kind::Git, 6).unwrap(), Digest::Git(expected.into()));
    }
}
