//! Reading a request body: only in a form that can be read, and under a limit.
//!
//! What is refused is refused before any of the body is read, and a body without a length at the byte that passes the limit. The
//! client may still be sending then; `connections` takes in the rest, so that the reply is not lost on the way.

use std::error::Error as _;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;

use super::shown;
use crate::error::Error;

/// The whole body: at most so many bytes, within so much time.
pub(super) async fn read(body: Body, limit_bytes: usize, limit: Duration) -> Result<Vec<u8>, Error> {
    if body.size_hint().lower() > limit_bytes as u64 {
        return Err(Error::BodyTooLarge { limit_bytes });
    }
    let slow = |_| Error::SlowBody { seconds: limit.as_secs_f64() };
    tokio::time::timeout(limit, collect(body, limit_bytes)).await.map_err(slow)?
}

async fn collect(mut body: Body, limit_bytes: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::BodyCut {
            reason: error.source().map_or_else(|| error.to_string(), ToString::to_string),
        })?;
        if let Some(data) = frame.data_ref() {
            if bytes.len() + data.len() > limit_bytes {
                return Err(Error::BodyTooLarge { limit_bytes });
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes)
}

/// Whether a body with these headers can be read: JSON, or a form where the route takes one, and not compressed. A web page
/// cannot send JSON to a server of another origin without asking first, so this also keeps strange pages out.
pub(super) fn check_form(headers: &HeaderMap, takes_forms: bool) -> Result<(), Error> {
    if let Some(found) = headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .find(|value| !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity"))
    {
        return Err(Error::ContentEncoding { found: shown(found) });
    }
    let found = headers.get(header::CONTENT_TYPE).map(shown);
    let essence = found.as_deref().unwrap_or_default().split(';').next().unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    if is_json(&essence) || (takes_forms && is_form(&essence)) {
        return Ok(());
    }
    Err(Error::ContentType { found })
}

/// `essence`: a media type in lower case, without parameters.
fn is_json(essence: &str) -> bool {
    let suffix = || essence.split_once('/').is_some_and(|(_, subtype)| subtype.ends_with("+json"));
    matches!(essence, "application/json" | "text/json") || suffix()
}

fn is_form(essence: &str) -> bool {
    essence == "multipart/form-data"
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn check(name: header::HeaderName, value: &str, takes_forms: bool) -> Result<(), Error> {
        let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut headers = HeaderMap::from_iter([json]);
        headers.insert(name, value.parse().unwrap());
        check_form(&headers, takes_forms)
    }

    #[test]
    fn json_is_known_by_any_of_its_names() {
        for value in
            ["application/json", "Application/JSON; charset=utf-8", "application/x+json", "text/json"]
        {
            check(header::CONTENT_TYPE, value, false).unwrap();
        }
        let form = "multipart/form-data; boundary=b";
        check(header::CONTENT_TYPE, form, true).unwrap();
        for value in
            ["application/x-www-form-urlencoded", "text/plain", "application/jsonp", "", "json", form]
        {
            let error = check(header::CONTENT_TYPE, value, false).unwrap_err().to_string();
            assert!(error.contains("hint:") && error.contains("application/json"), "{error}");
        }
        assert!(check_form(&HeaderMap::new(), true).is_err());
    }

    #[test]
    fn only_plain_bodies_are_read() {
        check(header::CONTENT_ENCODING, "Identity", false).unwrap();
        for value in ["gzip", "br", "identity, gzip"] {
            let error = check(header::CONTENT_ENCODING, value, false).unwrap_err().to_string();
            assert!(error.contains("hint:") && error.contains(value), "{error}");
        }
    }
}
