//! API keys: where they come from, and the check before every route that is not open.
//!
//! A key comes as `Authorization: Bearer KEY` or, where a gateway needs that header for itself, as `X-API-Key: KEY`. The
//! comparison takes the same time whichever key is tried, and no key is ever shown, also not by `Debug`.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::{Choice, ConstantTimeEq};

use super::routes::is_open;
use crate::error::Error;

/// The environment variable that holds keys, separated by commas or white space.
pub const VARIABLE: &str = "DGEMMA_API_KEYS";
/// The other header a key may come in.
pub(super) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Longest key, in bytes. Keys are compared in fields of this size, so that their length does not show in the time.
const LONGEST: usize = 256;

/// The keys of a server. None: everybody is served.
#[derive(Clone, Default)]
pub struct Keys(Vec<Key>);

#[derive(Clone)]
struct Key {
    bytes: [u8; LONGEST],
    length: u64,
}

impl Keys {
    /// The keys of a file (one a line; empty lines and lines with `#` are skipped) and of the environment variable.
    pub fn load(file: Option<&Path>, variable: Option<OsString>) -> Result<Self, Error> {
        let mut keys = Vec::new();
        if let Some(path) = file {
            let text = std::fs::read_to_string(path).map_err(|source| Error::Io {
                what: format!("cannot read {}", path.display()),
                source,
                hint: "--api-key-file names a text file with one key a line",
            })?;
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            let before = keys.len();
            for key in lines {
                keys.push(Key::checked(key, &path.display().to_string())?);
            }
            if keys.len() == before {
                return Err(bad_keys(&path.display().to_string(), "it holds no key"));
            }
        }
        if let Some(value) = variable {
            let value = value.into_string().map_err(|_| bad_keys(VARIABLE, "it is not UTF-8"))?;
            let parts: Vec<&str> =
                value.split([',', ' ', '\t', '\n', '\r']).filter(|key| !key.is_empty()).collect();
            // A variable that was meant to hold a key and is empty must not open the server.
            if parts.is_empty() {
                return Err(bad_keys(VARIABLE, "it is set and holds no key"));
            }
            for key in parts {
                keys.push(Key::checked(key, VARIABLE)?);
            }
        }
        Ok(Keys(keys))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `given` is one of the keys. All are compared, in the same time.
    fn hold(&self, given: &[u8]) -> bool {
        let Some(given) = Key::new(given) else { return false };
        self.0.iter().fold(Choice::from(0), |found, key| found | key.is(&given)).into()
    }
}

impl Key {
    /// `None` when it is empty or too long.
    fn new(key: &[u8]) -> Option<Self> {
        let mut bytes = [0; LONGEST];
        bytes.get_mut(..key.len())?.copy_from_slice(key);
        (!key.is_empty()).then_some(Key { bytes, length: key.len() as u64 })
    }

    /// A key as it can come in a header.
    fn checked(key: &str, source: &str) -> Result<Self, Error> {
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad_keys(source, "a key has a character that no header can carry"));
        }
        Key::new(key.as_bytes()).ok_or_else(|| bad_keys(source, "a key is longer than 256 bytes"))
    }

    fn is(&self, other: &Key) -> Choice {
        self.bytes.ct_eq(&other.bytes) & self.length.ct_eq(&other.length)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Keys({} hidden)", self.0.len())
    }
}

fn bad_keys(source: &str, reason: &'static str) -> Error {
    Error::Keys { source_name: source.to_owned(), reason }
}

/// Lets through what needs no key or has one.
pub(super) async fn check(State(keys): State<Keys>, request: Request, next: Next) -> Response {
    if keys.is_empty() || is_open(request.uri().path()) {
        return next.run(request).await;
    }
    match given(request.headers()) {
        None => Error::NoKey.into_response(),
        Some(key) if keys.hold(key) => next.run(request).await,
        Some(_) => Error::WrongKey.into_response(),
    }
}

fn given(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(key) = headers.get(API_KEY) {
        return Some(key.as_bytes());
    }
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, key) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn keys_come_from_the_file_and_the_variable() {
        let file = file("# staff\nalpha\n\n  beta  \n");
        let keys = Keys::load(Some(file.path()), Some("gamma, delta\nepsilon".into())).unwrap();
        for key in ["alpha", "beta", "gamma", "delta", "epsilon"] {
            assert!(keys.hold(key.as_bytes()), "{key}");
        }
        for wrong in ["", "alph", "alphaa", "ALPHA", "# staff", "alpha\0", "gamma,"] {
            assert!(!keys.hold(wrong.as_bytes()), "{wrong:?}");
        }
        assert!(!keys.hold(&[b'a'; 300]));
        assert!(Keys::load(None, None).unwrap().is_empty());
    }

    #[test]
    fn a_source_without_keys_does_not_open_the_server() {
        let comment = file("# nothing yet\n");
        for error in [
            Keys::load(Some(comment.path()), None),
            Keys::load(Some(Path::new("/nowhere/keys")), None),
            Keys::load(None, Some("".into())),
            Keys::load(None, Some(" , ".into())),
            Keys::load(None, Some("naïve".into())),
            Keys::load(None, Some("k".repeat(257).into())),
        ] {
            let message = error.unwrap_err().to_string();
            assert!(message.contains("hint:") && !message.contains("kkk"), "{message}");
        }
    }

    #[test]
    fn keys_are_never_shown() {
        let keys = Keys::load(None, Some("secret-one secret-two".into())).unwrap();
        assert_eq!(format!("{keys:?}"), "Keys(2 hidden)");
    }
}
