//! `GET /openapi.json`: the routes of the table, and the types that their handlers read and write, for tools that make clients.
//!
//! The schemas are derived from those types; the schema language and the answers are described in `decision::openapi`. A test holds
//! the document against real requests and replies.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use decision::DecisionReply;
use decision::openapi::SchemaForm;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::error::{ErrorBody, TABLE};
use super::routes::{ROUTES, Route};
use super::systemone::{self, ErrorReply};
use super::{Alive, Health, Models};
use crate::api::Status;
use crate::api::chat::ChatRequest;
use crate::api::reply::{Chunk, Completion};
use crate::api::systemone_reply::SystemoneReply;
use crate::error::Kind;
use crate::{build, metrics};

pub(super) const PATH: &str = "/openapi.json";

/// A body of `POST /v1/systemone`. Beside these fields the settings of `DecisionSchema` may stand (`samples`, `seed`, …); others are ignored.
#[derive(Debug, Serialize, ToSchema)]
struct SystemoneRequest {
    /// Any name is accepted.
    model: Option<String>,
    /// What is decided about: a string, an object or a list.
    state: Value,
    /// Id → question, in any order.
    questions: BTreeMap<String, SystemoneQuestion>,
    /// Data URLs or {"content_type", "base64"}. Understood, and refused until this server reads pixels.
    images: Option<Vec<Value>>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SystemoneQuestion {
    #[serde(rename = "type")]
    kind: SystemoneType,
    /// A string, an object or a list.
    instructions: Option<Value>,
    /// noul: {"true", "false"} or nothing; choice: name → description or null; score: the levels, lowest first.
    criteria: Option<Value>,
    depends_on: Option<Vec<String>>,
    ask_if: Option<BTreeMap<String, Vec<Value>>>,
    alone: Option<bool>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, reason = "only described: the body is read by hand in api::systemone")]
enum SystemoneType {
    Noul,
    Choice,
    Score,
}

static DOCUMENT: LazyLock<String> = LazyLock::new(|| document().to_string());

pub(super) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}

/// The schemas that were referred to, by name.
#[derive(Default)]
struct Schemas(BTreeMap<String, Value>);

impl Schemas {
    fn refer<T: ToSchema>(&mut self) -> Value {
        let mut found = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut found);
        self.0.extend(found.into_iter().map(|(name, schema)| (name, json!(schema))));
        json!({ "$ref": format!("#/components/schemas/{}", T::name()) })
    }
}

fn document() -> Value {
    let mut schemas = Schemas::default();
    // Both stand as text inside a message, where no reference leads to them.
    schemas.refer::<SchemaForm>();
    schemas.refer::<DecisionReply>();
    let mut paths: BTreeMap<&str, Value> = BTreeMap::new();
    for route in &ROUTES {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        item[route.method.to_ascii_lowercase()] = operation(route, &mut schemas);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "dgemma-server",
            "version": build::VERSION,
            "description": "Typed decisions and text of DiffusionGemma. For a decision in /v1/chat/completions the system message is a DecisionSchema as JSON text, \
                            the user message the state, and the content of the reply a DecisionReply as JSON text.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas.0,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    })
}

fn operation(route: &Route, schemas: &mut Schemas) -> Value {
    let (summary, replies) = replies(route.path, schemas);
    let mut responses = json!({});
    for (status, description, content_type, schema) in replies {
        responses[status.as_str()]["description"] = json!(description);
        responses[status.as_str()]["content"][content_type]["schema"] = schema;
    }
    let is_systemone = route.path == systemone::PATH;
    for &(kind, status, name, retry_after) in &TABLE {
        let applies = match kind {
            Kind::Unauthorised => !route.open,
            Kind::Fault | Kind::TimedOut | Kind::HeadTooLarge | Kind::UriTooLong | Kind::Forbidden => true,
            Kind::NoRoute | Kind::MethodNotAllowed => false,
            Kind::Invalid
            | Kind::TooSlow
            | Kind::TooLarge
            | Kind::MediaType
            | Kind::Busy
            | Kind::Unavailable => route.method == "POST",
        };
        if !applies {
            continue;
        }
        let (status, schema) = if is_systemone {
            let invalid = kind == Kind::Invalid;
            let status = if invalid { StatusCode::UNPROCESSABLE_ENTITY } else { status };
            (status, schemas.refer::<ErrorReply<'_>>())
        } else {
            (status, schemas.refer::<ErrorBody<'_>>())
        };
        let response = &mut responses[status.as_str()];
        response["description"] = json!(format!("an error of the type {name}"));
        response["content"]["application/json"]["schema"] = schema;
        if retry_after.is_some() {
            response["headers"]["Retry-After"] =
                json!({"description": "seconds", "schema": {"type": "integer"}});
        }
    }
    let mut operation = json!({
        "summary": summary,
        // Without keys the server asks for none, hence the empty requirement.
        "security": if route.open { json!([]) } else { json!([{"bearer": []}, {"header": []}, {}]) },
        "parameters": [
            {"name": "X-Request-Id", "in": "header", "schema": {"type": "string", "maxLength": 128},
             "description": "comes back in the reply and stands in the log"},
            {"name": "X-Request-Timeout-Ms", "in": "header", "schema": {"type": "integer", "minimum": 1},
             "description": "after so many milliseconds the reply is 504 and the work stops"},
        ],
        "responses": responses,
    });
    if route.method == "POST" {
        operation["requestBody"] = request_body(is_systemone, schemas);
    }
    operation
}

fn request_body(is_systemone: bool, schemas: &mut Schemas) -> Value {
    if !is_systemone {
        let content = json!({"application/json": {"schema": schemas.refer::<ChatRequest>()}});
        return json!({"required": true, "content": content});
    }
    let request = schemas.refer::<SystemoneRequest>();
    let form = json!({
        "type": "object",
        "required": ["request"],
        "properties": {"request": request.clone()},
        "additionalProperties": {"type": "string", "contentMediaType": "application/octet-stream"},
        "description": "the JSON in the part \"request\", and a part for each image",
    });
    let content = json!({"application/json": {"schema": request}, "multipart/form-data": {"schema": form}});
    json!({"required": true, "content": content})
}

type Reply = (StatusCode, &'static str, &'static str, Value);

/// What a route is for, and its replies that are no errors.
fn replies(path: &str, schemas: &mut Schemas) -> (&'static str, Vec<Reply>) {
    const JSON: &str = "application/json";
    let (ok, unavailable) = (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE);
    match path {
        "/livez" => ("Whether the process runs", vec![(ok, "it does", JSON, schemas.refer::<Alive>())]),
        "/readyz" => (
            "Whether requests are answered, and how far the model is",
            vec![
                (ok, "they are", JSON, schemas.refer::<Status>()),
                (unavailable, "not now", JSON, schemas.refer::<Status>()),
            ],
        ),
        "/health" => (
            "As /readyz, with what runs here",
            vec![
                (ok, "requests are answered", JSON, schemas.refer::<Health<'_>>()),
                (unavailable, "not now", JSON, schemas.refer::<Health<'_>>()),
            ],
        ),
        "/metrics" => (
            "Figures of operation",
            vec![(ok, "OpenMetrics text", metrics::CONTENT_TYPE, json!({"type": "string"}))],
        ),
        "/v1/models" => (
            "The names of the model and the limits of a decision",
            vec![(ok, "the list", JSON, schemas.refer::<Models>())],
        ),
        "/v1/chat/completions" => (
            "A decision or a reply in text, in OpenAI's shape",
            vec![
                (ok, "the decision, or the text", JSON, schemas.refer::<Completion>()),
                (ok, "its events", "text/event-stream", schemas.refer::<Chunk<'_>>()),
            ],
        ),
        systemone::PATH => (
            "Independent questions about one state, in the shape of the Jev API",
            vec![(ok, "the answers", JSON, schemas.refer::<SystemoneReply>())],
        ),
        PATH => ("This document", vec![(ok, "OpenAPI 3.1", JSON, json!({"type": "object"}))]),
        // A route without a description is found by the test of the document.
        _ => ("", Vec::new()),
    }
}
