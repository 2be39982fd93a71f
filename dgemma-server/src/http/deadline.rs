//! The deadline a client sets for its own request, in `X-Request-Timeout-Ms`.
//!
//! It covers everything from the headers to the reply. When it is over the work is dropped, as if the client had left.

use std::time::Duration;

use axum::extract::Request;
use axum::http::HeaderName;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::Error;

pub(super) const TIMEOUT_MS: HeaderName = HeaderName::from_static("x-request-timeout-ms");

pub(super) async fn keep(request: Request, next: Next) -> Response {
    let Some(value) = request.headers().get(TIMEOUT_MS) else { return next.run(request).await };
    let timeout_ms = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok());
    let Some(timeout_ms) = timeout_ms.filter(|&timeout_ms| timeout_ms > 0) else {
        return Error::Header {
            name: "X-Request-Timeout-Ms",
            reason: format!("it is {value:?}"),
            hint: "send a whole number of milliseconds, at least 1",
        }
        .into_response();
    };
    match tokio::time::timeout(Duration::from_millis(timeout_ms), next.run(request)).await {
        Ok(response) => response,
        Err(_) => Error::DeadlineExceeded { timeout_ms }.into_response(),
    }
}
