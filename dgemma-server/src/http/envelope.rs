//! What is around every request: its id in and out, the body of an error, its metrics, one line in the log.
//!
//! No content of a request is logged here. A client that leaves drops the future of its request; the guard sees that.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use tracing::{Instrument, Span};

use super::error::{ErrorBody, Failure};
use super::routes::route_name;
use super::systemone;
use super::trace::{REQUEST_ID, RequestId, request_id, trace_id};
use crate::api::reply::to_json;
use crate::error::Error;
use crate::metrics::Metrics;

/// A request in progress. Dropped without [`Guard::answered`], its client has left.
struct Guard {
    metrics: Arc<Metrics>,
    span: Span,
    method: Method,
    path: String,
    route: &'static str,
    started: Instant,
    answered: bool,
}

pub(super) async fn wrap(State(metrics): State<Arc<Metrics>>, mut request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    request.extensions_mut().insert(RequestId(id.clone()));
    // Of the level error, so that no filter takes the id away from a line that is shown.
    let span = tracing::error_span!("request", request_id = id, trace_id = tracing::field::Empty);
    if let Some(trace_id) = trace_id(request.headers()) {
        span.record("trace_id", trace_id);
    }
    let guard = Guard {
        metrics,
        span: span.clone(),
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        route: route_name(request.extensions().get::<MatchedPath>().map(MatchedPath::as_str)),
        started: Instant::now(),
        answered: false,
    };
    let mut response = next.run(request).instrument(span).await;
    let failure = response.extensions_mut().remove::<Failure>().map(|Failure(error)| error);
    if let Some(error) = &failure {
        // The body is made of strings; it always becomes JSON.
        let body = if guard.path == systemone::PATH {
            let (status, body) = systemone::error_reply(error, response.status(), &id);
            *response.status_mut() = status;
            body
        } else {
            to_json(&ErrorBody::new(error, &id)).unwrap_or_default()
        };
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.headers_mut().remove(header::CONTENT_LENGTH);
        *response.body_mut() = body.into();
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    guard.answered(response.status().as_u16(), failure.as_deref());
    response
}

impl Guard {
    fn answered(mut self, status: u16, failure: Option<&Error>) {
        self.answered = true;
        let took = self.started.elapsed();
        self.metrics.answered(self.route, status, took);
        let (method, path, ms) = (&self.method, &self.path, took.as_secs_f64() * 1e3);
        let _entered = self.span.enter();
        let Some(error) = failure else {
            tracing::info!(%method, path, status, ms, "request");
            return;
        };
        let code = error.code();
        self.metrics.rejected(code);
        if matches!(error, Error::NonFinite { .. }) {
            // Its message names a question, which is content of the request.
            tracing::error!(%method, path, status, ms, code, "request failed: a number of the model is not finite");
        } else if status >= 500 && error.is_fault() {
            tracing::error!(%method, path, status, ms, code, %error, "request failed");
        } else {
            tracing::info!(%method, path, status, ms, code, "request refused");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.answered {
            self.metrics.cancelled();
            let ms = self.started.elapsed().as_secs_f64() * 1e3;
            let _entered = self.span.enter();
            tracing::info!(method = %self.method, path = self.path, ms, "the client left before the reply");
        }
    }
}
