//! Which request this is: its id, and the trace it belongs to when a proxy or client says so.
//!
//! The id is the client's `X-Request-Id` when it is a sound one, else a new one. The trace comes from `traceparent` (W3C) or
//! `X-Cloud-Trace-Context`. Both stand in every log line of the request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, HeaderName};

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const CLOUD_TRACE: HeaderName = HeaderName::from_static("x-cloud-trace-context");
/// Longest id taken from a client, in bytes.
const LONGEST_ID: usize = 128;

/// The id of a request, for those who need it while they answer.
#[derive(Debug, Clone)]
pub(super) struct RequestId(pub(super) String);

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The client's id or a new one.
pub(super) fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).map(str::trim);
    given
        .filter(|id| {
            !id.is_empty() && id.len() <= LONGEST_ID && id.bytes().all(|byte| byte.is_ascii_graphic())
        })
        .map_or_else(new_id, str::to_owned)
}

/// Unique in this process by the counter, and in practice beyond it by the time.
pub(super) fn new_id() -> String {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    format!("req-{nanos:x}-{:x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The id of the trace, 32 hexadecimal digits.
pub(super) fn trace_id(headers: &HeaderMap) -> Option<&str> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok();
    let w3c = text(TRACEPARENT).and_then(|value| {
        let mut parts = value.trim().split('-');
        let (version, trace, parent) = (parts.next()?, parts.next()?, parts.next()?);
        (is_hex(version, 2) && version != "ff" && is_hex(parent, 16)).then_some(trace)
    });
    w3c.or_else(|| text(CLOUD_TRACE)?.trim().split('/').next())
        .filter(|trace| is_hex(trace, 32) && trace.bytes().any(|digit| digit != b'0'))
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_taken_from_either_header_when_it_is_sound() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        let find = |name: &'static str, value: &str| {
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), value.parse().unwrap())]);
            trace_id(&headers).map(str::to_owned)
        };
        assert_eq!(find("traceparent", &format!("00-{id}-00f067aa0ba902b7-01")).as_deref(), Some(id));
        assert_eq!(find("x-cloud-trace-context", &format!("{id}/1;o=1")).as_deref(), Some(id));
        for wrong in [
            "",
            "00-0-0-0",
            &format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            &format!("ff-{id}-00f067aa0ba902b7-01"),
        ] {
            assert_eq!(find("traceparent", wrong), None, "{wrong}");
        }
    }
}
