//! The routes. Everything here is translation: bytes to `api`, its results to replies.
//!
//! `routes` holds the table of routes and what is around them, `envelope` writes ids, metrics and errors, `error` holds the
//! table of statuses, `keys` guards, `body` reads under a limit.

mod accept;
mod body;
pub(crate) mod connections;
mod deadline;
mod envelope;
mod error;
pub mod keys;
pub mod listen;
mod openapi;
pub mod routes;
mod socket;
mod stream;
mod systemone;
mod trace;
mod visitors;

use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::reply::to_json;
use crate::api::{Api, ChatReply, ModelEntry, Status};
use crate::error::{Error, Kind};
use crate::metrics::{self, Metrics};
use crate::{Options, build};
use trace::RequestId;
use visitors::Visitors;

/// Characters of a header's value in an error.
const LONGEST_SHOWN: usize = 200;
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

#[derive(Debug, Clone)]
struct Shared {
    api: Arc<Api>,
    metrics: Arc<Metrics>,
    body_limit_bytes: usize,
    /// How long a body may take to come.
    receive_limit: Duration,
    log_content: bool,
}

#[derive(Debug, Serialize, ToSchema)]
struct Alive {
    status: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
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

#[derive(Debug, Serialize, ToSchema)]
struct Models {
    object: &'static str,
    data: Vec<ModelEntry>,
    /// The same for clients of the Jev API.
    models: Vec<JevModel>,
}

#[derive(Debug, Serialize, ToSchema)]
struct JevModel {
    name: String,
    description: &'static str,
    release_date: &'static str,
}

/// All routes over `api`, as the options say. `on_loopback`: only this machine reaches them.
pub fn router(api: Arc<Api>, metrics: Arc<Metrics>, options: &Options, on_loopback: bool) -> Router {
    let shared = Shared {
        api,
        metrics,
        body_limit_bytes: options.body_limit_bytes,
        receive_limit: options.receive_limit,
        log_content: options.log_content,
    };
    let visitors = Visitors::new(options, on_loopback);
    routes::surround(routes::table(), &shared, options.keys.clone(), visitors, &options.cors_origins)
        .with_state(shared)
}

async fn livez() -> Response {
    Json(Alive { status: "ok" }).into_response()
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

async fn metrics(State(Shared { metrics, .. }): State<Shared>) -> Result<Response, Error> {
    let text = metrics.render().map_err(|_| Error::Internal { what: "writing the metrics" })?;
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

async fn models(State(Shared { api, .. }): State<Shared>) -> Response {
    let data = api.models();
    let models = data.iter().map(|model| JevModel {
        name: model.id.clone(),
        description: "decisions of DiffusionGemma, read from its logits",
        // A checkpoint does not tell.
        release_date: "unknown",
    });
    let models = models.collect();
    Json(Models { object: "list", data, models }).into_response()
}

async fn chat(State(shared): State<Shared>, request: Request) -> Result<Response, Error> {
    let deadline = request.extensions().get().copied();
    let request_id = request.extensions().get().map_or_else(String::new, |RequestId(id)| id.clone());
    let body = shared.read(request, false).await?;
    match shared.api.chat(&body).await? {
        ChatReply::Streamed { head, generation, stream } => {
            let request = stream::Request { shared, deadline, request_id };
            Ok(stream::respond(request, head, *generation, stream))
        }
        ChatReply::Whole { completion, stream, decide_ms } => {
            let (content_type, text) = match stream {
                None => ("application/json", to_json(&completion)?),
                Some(stream) => ("text/event-stream", completion.to_events(stream.include_usage)?),
            };
            let mut response = shared.reply(content_type, text, decide_ms);
            if stream.is_some() {
                response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            }
            Ok(response)
        }
    }
}

impl Shared {
    /// The body, under the limit. `takes_forms`: it may be one with files instead of JSON.
    async fn read(&self, request: Request, takes_forms: bool) -> Result<Vec<u8>, Error> {
        // An empty one has a message of its own.
        if request.body().size_hint().exact() != Some(0) {
            body::check_form(request.headers(), takes_forms)?;
        }
        let body = body::read(request.into_body(), self.body_limit_bytes, self.receive_limit).await?;
        if self.log_content {
            tracing::info!(content = %String::from_utf8_lossy(&body), "body of the request");
        }
        Ok(body)
    }

    /// A reply; `decide_ms`: how long its decision took.
    fn reply(&self, content_type: &'static str, text: String, decide_ms: Option<f64>) -> Response {
        if self.log_content {
            tracing::info!(content = text, "body of the reply");
        }
        let mut response = ([(header::CONTENT_TYPE, content_type)], text).into_response();
        let timing = decide_ms.map(|ms| HeaderValue::from_str(&format!("decide;dur={ms:.3}")));
        if let Some(Ok(timing)) = timing {
            response.headers_mut().insert(SERVER_TIMING, timing);
        }
        response
    }
}

/// A header's value as it may stand in an error: a long one is cut.
fn shown(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).chars().take(LONGEST_SHOWN).collect()
}

async fn no_route(uri: Uri) -> Error {
    Error::NoRoute { path: uri.path().to_owned() }
}

async fn method_not_allowed(method: Method, uri: Uri) -> Error {
    Error::MethodNotAllowed { method: method.to_string(), path: uri.path().to_owned() }
}
