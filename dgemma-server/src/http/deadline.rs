//! The deadline a client sets for its own request, in `X-Request-Timeout-Ms`.
//!
//! It covers everything from the headers to the reply. When it is over the work is dropped, as if the client had left.

use std::time::Duration;

use axum::extract::Request;
use axum::http::HeaderName;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;

use crate::error::Error;

pub(super) const TIMEOUT_MS: HeaderName = HeaderName::from_static("x-request-timeout-ms");

/// When the reply has to be complete; a streamed one watches it itself once its head is out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    at: Instant,
    timeout_ms: u64,
}

impl Deadline {
    /// The error of a deadline once it is over; without one, never.
    pub(super) async fn reached(deadline: Option<Self>) -> Error {
        match deadline {
            None => std::future::pending().await,
            Some(Deadline { at, timeout_ms }) => {
                tokio::time::sleep_until(at).await;
                Error::DeadlineExceeded { timeout_ms }
            }
        }
    }
}

pub(super) async fn keep(mut request: Request, next: Next) -> Response {
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
    let timeout = Duration::from_millis(timeout_ms);
    if let Some(at) = Instant::now().checked_add(timeout) {
        request.extensions_mut().insert(Deadline { at, timeout_ms });
    }
    match tokio::time::timeout(timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Error::DeadlineExceeded { timeout_ms }.into_response(),
    }
}
