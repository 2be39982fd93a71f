//! What an image file is, by its first bytes: names lie.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Png,
    Jpeg,
    Webp,
    Gif,
    Svg,
}

/// Bytes in which an SVG must have begun.
const SVG_HEAD_BYTES: usize = 4096;

/// The kind, or what it seems to be instead.
pub(super) fn of(bytes: &[u8]) -> Result<Kind, String> {
    let webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
    match bytes {
        [] => Err("it is empty".to_owned()),
        [0x89, b'P', b'N', b'G', ..] => Ok(Kind::Png),
        [0xff, 0xd8, 0xff, ..] => Ok(Kind::Jpeg),
        [b'G', b'I', b'F', b'8', ..] => Ok(Kind::Gif),
        _ if webp => Ok(Kind::Webp),
        [0x1f, 0x8b, ..] => Err("it is compressed; for an SVG write gunzip -c x.svgz > x.svg".to_owned()),
        _ if is_svg(bytes) => Ok(Kind::Svg),
        _ => Err(format!("it is {}", seeming(bytes))),
    }
}

/// Text with an `<svg` element at the start, behind a declaration and comments.
fn is_svg(bytes: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(SVG_HEAD_BYTES)]);
    let text = head.trim_start_matches('\u{feff}').trim_start();
    text.starts_with('<') && text.contains("<svg")
}

fn seeming(bytes: &[u8]) -> &'static str {
    match bytes {
        [b'B', b'M', ..] => "a BMP file",
        [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => "a TIFF file",
        [b'%', b'P', b'D', b'F', ..] => "a PDF file",
        _ if bytes.get(4..8) == Some(b"ftyp") => "a HEIC, AVIF or video file",
        [b'<', ..] => "a text with markup, but no SVG",
        _ => "no image of a known kind",
    }
}

impl Kind {
    pub(super) fn mime(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Webp => "image/webp",
            Self::Gif => "image/gif",
            Self::Svg => "image/svg+xml",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::Webp => "WebP",
            Self::Gif => "GIF",
            Self::Svg => "SVG",
        })
    }
}
