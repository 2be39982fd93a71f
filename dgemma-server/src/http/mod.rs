//! The routes. Everything here is translation: bytes to `api`, its results to replies.
//!
//! `envelope` is around all routes, `error` holds the table of statuses, `body` reads under a limit.

mod body;
mod envelope;
mod error;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use serde::Serialize;

use crate::api::reply::to_json;
use crate::api::{Api, ModelEntry, Status};
use crate::build;
use crate::error::{Error, Kind};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

#[derive(Debug, Clone)]
struct Shared {
    api: Arc<Api>,
    body_limit_bytes: usize,
}

#[derive(Debug, Serialize)]
struct Health<'a> {
    #[serde(flatten)]
    status: Status,
    version: &'static str,
    git_revision: &'static str,
    model: &'a str,
    /// Known once the model is loaded.
    engine: Option<&'static str>,
    device: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Models {
    object: &'static str,
    data: Vec<ModelEntry>,
}

/// All routes over `api`.
pub fn router(api: Arc<Api>, body_limit_bytes: usize) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/health", get(health))
        .route("/v1/models", get(models))
        .route("/v1/chat/completions", post(chat))
        .fallback(no_route)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn(envelope::wrap))
        .with_state(Shared { api, body_limit_bytes })
}

async fn livez() -> Response {
    Json(serde_json::json!({"status": "ok"})).into_response()
}

async fn readyz(State(Shared { api, .. }): State<Shared>) -> Response {
    when_ready(&api, &api.status())
}

async fn health(State(Shared { api, .. }): State<Shared>) -> Response {
    let info = api.info();
    let health = Health {
        status: api.status(),
        version: build::VERSION,
        git_revision: build::GIT_REVISION,
        model: &api.model,
        engine: info.map(|info| info.engine),
        device: info.map(|info| info.device.as_str()),
    };
    when_ready(&api, &health)
}

/// 200 when ready, else 503 with the same body and a time to come back.
fn when_ready(api: &Api, body: &impl Serialize) -> Response {
    if api.decider().is_ok() {
        return Json(body).into_response();
    }
    let mut response = (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response();
    if let Some(seconds) = error::retry_after(Kind::Unavailable) {
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    response
}

async fn models(State(Shared { api, .. }): State<Shared>) -> Response {
    Json(Models { object: "list", data: api.models() }).into_response()
}

async fn chat(
    State(Shared { api, body_limit_bytes }): State<Shared>,
    request: Request,
) -> Result<Response, Error> {
    let body = body::read(request.into_body(), body_limit_bytes).await?;
    let reply = api.chat(&body).await?;
    let (content_type, text) = match reply.stream {
        None => ("application/json", to_json(&reply.completion)?),
        Some(stream) => ("text/event-stream", reply.completion.to_events(stream.include_usage)?),
    };
    let mut response = ([(header::CONTENT_TYPE, content_type)], text).into_response();
    if reply.stream.is_some() {
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    }
    if let Ok(timing) = HeaderValue::from_str(&format!("decide;dur={:.3}", reply.decide_ms)) {
        response.headers_mut().insert(SERVER_TIMING, timing);
    }
    Ok(response)
}

async fn no_route(uri: Uri) -> Error {
    Error::NoRoute { path: uri.path().to_owned() }
}

async fn method_not_allowed(method: Method, uri: Uri) -> Error {
    Error::MethodNotAllowed { method: method.to_string(), path: uri.path().to_owned() }
}
