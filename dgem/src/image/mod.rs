//! Images that belong to a state: named on the command line, sent as `image_url` parts in front of the text.
//!
//! A file or a data URI is looked at by content, not by name (`kind`), measured and sent as it is; an SVG becomes a PNG (`svg`),
//! since no model server draws one. An https URL is passed on: the server fetches it, or refuses to.

mod kind;
mod size;
mod svg;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};

use self::kind::Kind;
use crate::capped;
use crate::error::Error;
use crate::settings::shown_url;

/// Of a file, before it is encoded. Servers take bodies of a few MiB.
const MOST_BYTES: u64 = 16 << 20;
/// Of the decoded picture. No model sees more, and a small file can hold very many.
const MOST_PIXELS: u64 = 64 << 20;

/// Of all images of one request, before they are encoded: what is sent is a third larger, and 32 MiB is the most that platforms
/// let through.
const MOST_BYTES_TOGETHER: u64 = 24 << 20;
/// For all drawings of one request.
const MOST_TIME: Duration = Duration::from_secs(20);

/// An image ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// A data URI, or the https URL that was given. Shared by all rows of a batch.
    pub url: Arc<str>,
}

/// What the images of one request may still use.
#[derive(Debug)]
struct Budget {
    whole: Duration,
    left: Duration,
    bytes: u64,
}

impl Image {
    /// All images of one request, each a path, a data URI or an https URL. Drawing them takes no longer than `timeout`.
    pub fn load_all(texts: &[String], timeout: Duration) -> Result<Vec<Self>, Error> {
        let whole = MOST_TIME.min(timeout);
        let mut budget = Budget { whole, left: whole, bytes: MOST_BYTES_TOGETHER };
        texts.iter().map(|text| Self::load(text, &mut budget)).collect()
    }

    fn load(text: &str, budget: &mut Budget) -> Result<Self, Error> {
        let scheme = text.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            Some("https") => Ok(Self { url: text.into() }),
            Some("http") => Err(bad(&shown_url(text), "an image URL must begin with https")),
            Some("data") => {
                let bytes = decode(text).map_err(|reason| bad("the data URI", &reason))?;
                Self::from_bytes("the data URI", bytes, budget)
            }
            _ => {
                let bytes = capped::read_file(Path::new(text), MOST_BYTES)
                    .map_err(|cause| bad(text, &cause.to_string()))?;
                Self::from_bytes(text, bytes, budget)
            }
        }
    }

    fn from_bytes(name: &str, bytes: Vec<u8>, budget: &mut Budget) -> Result<Self, Error> {
        let refuse = |reason: String| bad(name, &reason);
        let kind = kind::of(&bytes).map_err(refuse)?;
        let (mime, bytes) = if kind == Kind::Svg {
            let start = Instant::now();
            let png = svg::rasterise(bytes, budget.left, budget.whole).map_err(refuse)?;
            budget.left = budget.left.saturating_sub(start.elapsed());
            (Kind::Png.mime(), png)
        } else {
            measured(kind, &bytes).map_err(refuse)?;
            (kind.mime(), bytes)
        };
        budget.bytes = budget.bytes.checked_sub(bytes.len() as u64).ok_or_else(|| {
            refuse(format!("with those before it, it is larger than {} MiB", MOST_BYTES_TOGETHER >> 20))
        })?;
        Ok(Self { url: data_uri(mime, &bytes).into() })
    }

    /// The URL for a person: a data URI without its data, an address without the keys it may hold.
    pub fn shown(&self) -> String {
        match self.url.split_once(";base64,") {
            Some((head, data)) => format!("{head};base64,… ({} KiB)", data.len() * 3 / 4 / 1024),
            None => shown_url(&self.url),
        }
    }

    /// The type and the base64 text of a data URI; `None` for an https URL.
    pub fn inline(&self) -> Option<(&str, &str)> {
        self.url.strip_prefix("data:")?.split_once(";base64,")
    }
}

/// Whether a picture of pixels is one, and not too many of them.
fn measured(kind: Kind, bytes: &[u8]) -> Result<(), String> {
    let (width, height) = size::of(kind, bytes).ok_or_else(|| format!("it is a damaged {kind} file"))?;
    let pixels = u64::from(width) * u64::from(height);
    if pixels == 0 || pixels > MOST_PIXELS {
        let most = MOST_PIXELS >> 20;
        return Err(format!("it has {width} x {height} pixels, and the most is {most} million"));
    }
    Ok(())
}

fn data_uri(mime: &str, bytes: &[u8]) -> String {
    format!("data:{mime};base64,{}", STANDARD.encode(bytes))
}

/// The bytes in a data URI: base64 in either alphabet, or percent-encoded text as SVG often is.
fn decode(uri: &str) -> Result<Vec<u8>, String> {
    let (head, data) = uri.split_once(',').ok_or("it has no comma before the data")?;
    let bytes = if head.to_ascii_lowercase().ends_with(";base64") {
        let data: String = data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        STANDARD
            .decode(&data)
            .or_else(|_| STANDARD_NO_PAD.decode(&data))
            .or_else(|_| URL_SAFE.decode(&data))
            .map_err(|cause| format!("it is no base64: {cause}"))?
    } else {
        percent_decoded(data)
    };
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("it is larger than {} KiB", MOST_BYTES >> 10));
    }
    Ok(bytes)
}

/// `%3C` becomes `<`; a `%` that begins no such pair stays.
fn percent_decoded(text: &str) -> Vec<u8> {
    let (bytes, mut decoded, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let pair = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        if let Some(byte) = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            decoded.push(byte);
            at += 3;
        } else {
            decoded.push(bytes[at]);
            at += 1;
        }
    }
    decoded
}

fn bad(name: &str, reason: &str) -> Error {
    Error::BadImage { name: name.to_owned(), reason: reason.to_owned() }
}
