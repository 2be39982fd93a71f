//! Width and height of a picture from its header, without decoding it.

use super::kind::Kind;

/// `(width, height)` in pixels; `None` when the header is cut or is none.
pub(super) fn of(kind: Kind, bytes: &[u8]) -> Option<(u32, u32)> {
    match kind {
        // Behind the signature comes the chunk IHDR: length, name, width, height.
        Kind::Png => Some((big(bytes, 16, 4)?, big(bytes, 20, 4)?)),
        Kind::Gif => Some((little(bytes, 6, 2)?, little(bytes, 8, 2)?)),
        Kind::Jpeg => jpeg(bytes),
        Kind::Webp => webp(bytes),
        Kind::Svg => None,
    }
}

/// Walks the segments to the frame header (SOF).
fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        if *bytes.get(at)? != 0xff {
            return None;
        }
        match *bytes.get(at + 1)? {
            // Padding before a marker, and markers without a segment.
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            // All SOF but the three numbers that are other segments.
            marker @ 0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                return Some((big(bytes, at + 7, 2)?, big(bytes, at + 5, 2)?));
            }
            // The picture itself, before any frame header.
            0xda | 0xd9 => return None,
            _ => at += 2 + big(bytes, at + 2, 2)? as usize,
        }
    }
}

/// One of three first chunks: lossy, lossless, extended.
fn webp(bytes: &[u8]) -> Option<(u32, u32)> {
    match bytes.get(12..16)? {
        b"VP8 " => Some((little(bytes, 26, 2)? & 0x3fff, little(bytes, 28, 2)? & 0x3fff)),
        b"VP8L" => {
            let packed = little(bytes, 21, 4)?;
            Some(((packed & 0x3fff) + 1, ((packed >> 14) & 0x3fff) + 1))
        }
        b"VP8X" => Some((little(bytes, 24, 3)? + 1, little(bytes, 27, 3)? + 1)),
        _ => None,
    }
}

fn big(bytes: &[u8], at: usize, count: usize) -> Option<u32> {
    Some(bytes.get(at..at + count)?.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
}

fn little(bytes: &[u8], at: usize, count: usize) -> Option<u32> {
    Some(bytes.get(at..at + count)?.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_tells_its_size() {
        let png =
            [&[0x89, b'P', b'N', b'G', 13, 10, 26, 10, 0, 0, 0, 13][..], b"IHDR", &[0, 0, 1, 2, 0, 0, 0, 9]]
                .concat();
        assert_eq!(of(Kind::Png, &png), Some((258, 9)));
        assert_eq!(of(Kind::Gif, b"GIF89a\x02\x01\x09\x00"), Some((258, 9)));
        let jpeg = [0xff, 0xd8, 0xff, 0xe0, 0, 4, 1, 2, 0xff, 0xff, 0xc2, 0, 11, 8, 0, 9, 1, 2, 3];
        assert_eq!(of(Kind::Jpeg, &jpeg), Some((258, 9)));
        let head = |name: &[u8]| [b"RIFF\0\0\0\0WEBP", name, &[0; 4]].concat();
        let lossy = [&head(b"VP8 ")[..], &[0; 6], &[2, 1, 9, 0]].concat();
        let lossless = [&head(b"VP8L")[..], &[0x2f, 1, 0x41, 2, 0]].concat();
        let extended = [&head(b"VP8X")[..], &[0; 4], &[1, 1, 0, 8, 0, 0]].concat();
        assert_eq!(of(Kind::Webp, &lossy), Some((258, 9)));
        assert_eq!(of(Kind::Webp, &lossless), Some((258, 10)));
        assert_eq!(of(Kind::Webp, &extended), Some((258, 9)));
    }

    #[test]
    fn a_cut_header_has_no_size_and_no_panic() {
        for (kind, bytes) in [
            (Kind::Png, &b"\x89PNG"[..]),
            (Kind::Jpeg, &[0xff, 0xd8, 0xff, 0xe0, 0, 0][..]),
            (Kind::Jpeg, &[0xff, 0xd8, 0xff, 0xd9][..]),
            (Kind::Gif, b"GIF8"),
            (Kind::Webp, b"RIFF\0\0\0\0WEBPVP8 "),
        ] {
            assert_eq!(of(kind, bytes), None);
        }
    }
}
