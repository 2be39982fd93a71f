//! What is around every request: its id in and out, the body of an error, one line in the log.
//!
//! The id is the client's `X-Request-Id` when it is a sound one, else a new one. No content of a request is logged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

use super::error::{ErrorBody, Failure};
use crate::api::reply::to_json;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id taken from a client, in bytes.
const LONGEST_ID: usize = 128;

static NEXT: AtomicU64 = AtomicU64::new(0);

pub(super) async fn wrap(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = given_id(request.headers()).unwrap_or_else(new_id);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut response = next.run(request).await;
    let failure = response.extensions_mut().remove::<Failure>();
    if let Some(Failure(error)) = &failure {
        // The body is made of strings; it always becomes JSON.
        let body = to_json(&ErrorBody::new(error, &id)).unwrap_or_default();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = body.into();
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let status = response.status().as_u16();
    let ms = started.elapsed().as_secs_f64() * 1e3;
    match failure {
        Some(Failure(error)) if status >= 500 => {
            tracing::error!(%method, path, status, ms, request_id = id, %error, "request failed");
        }
        Some(Failure(error)) => {
            tracing::info!(%method, path, status, ms, request_id = id, code = error.code(), "request refused");
        }
        None => tracing::info!(%method, path, status, ms, request_id = id, "request"),
    }
    response
}

fn given_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?.trim();
    (!id.is_empty() && id.len() <= LONGEST_ID && id.bytes().all(|byte| byte.is_ascii_graphic()))
        .then(|| id.to_owned())
}

/// Unique in this process by the counter, and in practice beyond it by the time.
fn new_id() -> String {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    format!("req-{nanos:x}-{:x}", NEXT.fetch_add(1, Ordering::Relaxed))
}
