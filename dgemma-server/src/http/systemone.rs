//! `POST /v1/systemone`: JSON or a form with images, and errors in the shape that clients of the Jev API read.
//!
//! An error has two forms in one body: OpenAI's `error`, as on every route, and `detail`, a list for a request that is wrong
//! and an object for all else. `envelope` asks here for the body, since only it knows the request id.

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, FromRequest, Multipart, Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::Shared;
use super::error::{ErrorBody, kind_name};
use crate::api::reply::to_json;
use crate::error::{Error, Kind};

pub(super) const PATH: &str = "/v1/systemone";

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SystemoneError)]
pub(super) struct ErrorReply<'a> {
    detail: Detail<'a>,
    #[serde(flatten)]
    error: ErrorBody<'a>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SystemoneErrorDetail)]
#[serde(untagged)]
enum Detail<'a> {
    Validation([Invalid<'a>; 1]),
    Other { error_type: &'static str, message: String },
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SystemoneInvalid)]
struct Invalid<'a> {
    /// From the body inwards.
    loc: Vec<&'a str>,
    msg: String,
    #[serde(rename = "type")]
    kind: &'static str,
}

pub(super) async fn systemone(State(shared): State<Shared>, request: Request) -> Result<Response, Error> {
    let content_type = request.headers().get(header::CONTENT_TYPE).cloned();
    let is_form = content_type
        .as_ref()
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.trim_start().to_ascii_lowercase().starts_with("multipart/form-data"));
    let body = shared.read(request, true).await?;
    let reply = match content_type.filter(|_| is_form) {
        None => shared.api.systemone(&body, 0).await?,
        Some(content_type) => {
            let mut request = Request::new(Body::from(body));
            request.headers_mut().insert(header::CONTENT_TYPE, content_type);
            // The body was read under the limit of this server; the lower one of `Multipart` must not come after it.
            DefaultBodyLimit::disable().apply(&mut request);
            let (json, files) = form(request).await?;
            shared.api.systemone(&json, files).await?
        }
    };
    let decide_ms = reply.x_diagnostics.timing.total_ms;
    Ok(shared.reply("application/json", to_json(&reply)?, Some(decide_ms)))
}

/// The part `request` of a form, and how many other parts there are: one for each image.
async fn form(request: Request) -> Result<(Vec<u8>, usize), Error> {
    let fault = |reason: String| Error::Systemone {
        path: Vec::new(),
        reason,
        hint: "a form has the JSON in a part named \"request\" and a part for each image",
    };
    let mut parts = Multipart::from_request(request, &()).await.map_err(|error| fault(error.body_text()))?;
    let (mut json, mut files) = (None, 0);
    while let Some(part) = parts.next_field().await.map_err(|error| fault(error.body_text()))? {
        let is_request = part.name() == Some("request");
        let bytes = part.bytes().await.map_err(|error| fault(error.body_text()))?;
        if is_request {
            json = Some(bytes.to_vec());
        } else {
            files += 1;
        }
    }
    json.map(|json| (json, files)).ok_or_else(|| fault("the form has no part \"request\"".into()))
}

/// Status and body of an error on this route.
pub(super) fn error_reply(error: &Error, status: StatusCode, request_id: &str) -> (StatusCode, String) {
    let invalid = error.kind() == Kind::Invalid;
    let detail = if invalid {
        let mut loc = vec!["body"];
        match error {
            Error::Systemone { path, .. } => loc.extend(path.iter().map(String::as_str)),
            Error::Images { .. } => loc.push("images"),
            Error::Schema(error) => {
                if let Some(id) = error.question() {
                    loc.extend(["questions", id]);
                }
            }
            _ => {}
        }
        Detail::Validation([Invalid { loc, msg: error.to_string(), kind: error.code() }])
    } else {
        Detail::Other { error_type: kind_name(error.kind()), message: error.to_string() }
    };
    let body = ErrorReply { detail, error: ErrorBody::new(error, request_id) };
    let status = if invalid { StatusCode::UNPROCESSABLE_ENTITY } else { status };
    (status, to_json(&body).unwrap_or_default())
}
