//! SHA-256, by which a receipt names exactly what was measured.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// In hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        // Writing into a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The first eight bytes as a number: puts cases into parts, the same in every run.
pub(crate) fn number(text: &str) -> u64 {
    Sha256::digest(text).iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_text_has_its_well_known_hash() {
        assert_eq!(sha256(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(number(""), 0xe3b0_c442_98fc_1c14);
    }
}
