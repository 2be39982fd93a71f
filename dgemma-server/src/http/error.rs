//! Errors as replies: one table from kind to status, one shape for every body.
//!
//! A handler returns the error; the envelope around all routes writes the body, because only it knows the request id.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::trace::REQUEST_ID;
use crate::api::reply::to_json;
use crate::error::{Error, Kind};

/// Status, OpenAI's error type, and the seconds of `Retry-After`, for every kind.
pub(super) const TABLE: [(Kind, StatusCode, &str, Option<u32>); 14] = [
    (Kind::Invalid, StatusCode::BAD_REQUEST, "invalid_request_error", None),
    (Kind::NoRoute, StatusCode::NOT_FOUND, "invalid_request_error", None),
    (Kind::MethodNotAllowed, StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", None),
    (Kind::Unauthorised, StatusCode::UNAUTHORIZED, "authentication_error", None),
    (Kind::Forbidden, StatusCode::FORBIDDEN, "permission_error", None),
    (Kind::MediaType, StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", None),
    (Kind::TooSlow, StatusCode::REQUEST_TIMEOUT, "timeout_error", None),
    (Kind::UriTooLong, StatusCode::URI_TOO_LONG, "invalid_request_error", None),
    (Kind::HeadTooLarge, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "invalid_request_error", None),
    (Kind::TooLarge, StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", None),
    (Kind::Busy, StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", Some(1)),
    (Kind::Unavailable, StatusCode::SERVICE_UNAVAILABLE, "service_unavailable_error", Some(2)),
    (Kind::TimedOut, StatusCode::GATEWAY_TIMEOUT, "timeout_error", None),
    (Kind::Fault, StatusCode::INTERNAL_SERVER_ERROR, "server_error", None),
];

/// An error on its way to the envelope.
#[derive(Debug, Clone)]
pub(super) struct Failure(pub(super) Arc<Error>);

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ErrorBody<'a> {
    error: ErrorFields<'a>,
    request_id: &'a str,
}

#[derive(Debug, Serialize, ToSchema)]
struct ErrorFields<'a> {
    message: String,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'a str>,
    code: &'static str,
}

fn row(kind: Kind) -> (StatusCode, &'static str, Option<u32>) {
    TABLE
        .iter()
        .find(|row| row.0 == kind)
        .map_or((StatusCode::INTERNAL_SERVER_ERROR, "server_error", None), |row| (row.1, row.2, row.3))
}

/// Seconds after which a request that was refused for this reason may be sent again.
pub(super) fn retry_after(kind: Kind) -> Option<HeaderValue> {
    row(kind).2.map(HeaderValue::from)
}

/// OpenAI's error type.
pub(super) fn kind_name(kind: Kind) -> &'static str {
    row(kind).1
}

/// Status and bytes of an HTTP/1.1 reply to a head that never became a request.
pub(super) fn raw_reply(error: &Error, request_id: &str) -> (StatusCode, Vec<u8>) {
    let status = row(error.kind()).0;
    let body = to_json(&ErrorBody::new(error, request_id)).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{REQUEST_ID}: {request_id}\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    (status, [head, body].concat().into_bytes())
}

impl<'a> ErrorBody<'a> {
    pub(super) fn new(error: &'a Error, request_id: &'a str) -> Self {
        let fields = ErrorFields {
            message: error.to_string(),
            kind: kind_name(error.kind()),
            param: error.param(),
            code: error.code(),
        };
        ErrorBody { error: fields, request_id }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let mut response = row(self.kind()).0.into_response();
        if let Some(seconds) = retry_after(self.kind()) {
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        if self.kind() == Kind::Unauthorised {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(Failure(Arc::new(self)));
        response
    }
}

/// The reply after a panic. Its text stays here: it may quote what was being worked on.
pub(super) fn panicked() -> Response {
    Error::Internal { what: "the handler of this request" }.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_one_row() {
        let kinds = [
            Kind::Invalid,
            Kind::NoRoute,
            Kind::MethodNotAllowed,
            Kind::Forbidden,
            Kind::MediaType,
            Kind::Unauthorised,
            Kind::TooLarge,
            Kind::TooSlow,
            Kind::UriTooLong,
            Kind::HeadTooLarge,
            Kind::TimedOut,
            Kind::Busy,
            Kind::Unavailable,
            Kind::Fault,
        ];
        for kind in kinds {
            assert_eq!(TABLE.iter().filter(|row| row.0 == kind).count(), 1, "{kind:?}");
        }
        assert_eq!(TABLE.len(), kinds.len());
    }
}
