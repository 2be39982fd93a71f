//! The table of routes: everything the server answers to, and what of it needs no key.
//!
//! The router is built from it and a test walks it, so that no route can be added past the check of the keys.

use std::sync::Arc;

use axum::http::{HeaderValue, Method, header};
use axum::routing::{MethodRouter, get, post};
use axum::{Router, middleware};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::CorsLayer;

use super::keys::{API_KEY, Keys};
use super::visitors::Visitors;
use super::{Shared, connections, deadline, envelope, error, keys, openapi, systemone, trace, visitors};
use crate::metrics::OTHER_ROUTE;

/// One route.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    /// Answered without a key.
    pub open: bool,
    handler: fn() -> MethodRouter<Shared>,
}

/// All of them.
pub const ROUTES: [Route; 8] = [
    Route { open: true, ..read("/livez", || get(super::livez)) },
    Route { open: true, ..read("/readyz", || get(super::readyz)) },
    read("/health", || get(super::health)),
    read("/metrics", || get(super::metrics)),
    read(openapi::PATH, || get(openapi::openapi)),
    read("/v1/models", || get(super::models)),
    write("/v1/chat/completions", || post(super::chat)),
    write(systemone::PATH, || post(systemone::systemone)),
];

const fn read(path: &'static str, handler: fn() -> MethodRouter<Shared>) -> Route {
    Route { method: "GET", path, open: false, handler }
}

const fn write(path: &'static str, handler: fn() -> MethodRouter<Shared>) -> Route {
    Route { method: "POST", path, open: false, handler }
}

/// Whether a path is answered without a key.
pub(super) fn is_open(path: &str) -> bool {
    ROUTES.iter().any(|route| route.open && route.path == path)
}

/// The name of a route in the metrics.
pub(super) fn route_name(matched: Option<&str>) -> &'static str {
    ROUTES.iter().find(|route| Some(route.path) == matched).map_or(OTHER_ROUTE, |route| route.path)
}

/// The routes of the table, and the two replies for what is not in it.
pub(super) fn table() -> Router<Shared> {
    ROUTES
        .iter()
        .fold(Router::new(), |router, route| router.route(route.path, (route.handler)()))
        .fallback(super::no_route)
        .method_not_allowed_fallback(super::method_not_allowed)
}

/// What is around all routes, the innermost first: the end of the drain, the client's deadline, the keys, the pages that may ask, a
/// net for panics, the envelope.
pub(super) fn surround(
    router: Router<Shared>,
    Shared { api, metrics, .. }: &Shared,
    keys: Keys,
    visitors: Visitors,
    cors_origins: &[HeaderValue],
) -> Router<Shared> {
    let for_panics = Arc::clone(metrics);
    let router = router
        .layer(middleware::from_fn_with_state(Arc::clone(api), connections::closing))
        .layer(middleware::from_fn(deadline::keep))
        .layer(middleware::from_fn_with_state(keys, keys::check))
        .layer(middleware::from_fn_with_state(visitors, visitors::check))
        .layer(CatchPanicLayer::custom(move |_| {
            for_panics.panicked();
            error::panicked()
        }))
        .layer(middleware::from_fn_with_state(Arc::clone(metrics), envelope::wrap));
    // A preflight carries no key, so this is outermost.
    if cors_origins.is_empty() { router } else { router.layer(cors(cors_origins)) }
}

fn cors(origins: &[HeaderValue]) -> CorsLayer {
    CorsLayer::new()
        .allow_origin(origins.to_vec())
        .allow_methods([Method::GET, Method::POST])
        .allow_headers([
            header::AUTHORIZATION,
            header::CONTENT_TYPE,
            API_KEY,
            trace::REQUEST_ID,
            trace::TRACEPARENT,
            deadline::TIMEOUT_MS,
        ])
        .expose_headers([trace::REQUEST_ID, super::SERVER_TIMING, header::RETRY_AFTER])
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::Request;
    use axum::response::Response;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;
    use crate::api::Api;
    use crate::metrics::Metrics;

    #[allow(clippy::panic, reason = "it is what is tested")]
    async fn panics() -> Response {
        panic!("scripted, with content of the request")
    }

    #[tokio::test]
    async fn a_panic_in_a_handler_is_a_500_in_the_usual_shape() {
        let metrics = Arc::new(Metrics::default());
        let shared = Shared {
            api: Arc::new(Api::new("demo".into())),
            metrics: Arc::clone(&metrics),
            body_limit_bytes: 1,
            receive_limit: std::time::Duration::from_secs(1),
            log_content: false,
        };
        let router = Router::new().route("/panics", get(panics));
        let router = surround(router, &shared, Keys::default(), Visitors::default(), &[]).with_state(shared);
        for _ in 0..2 {
            let request =
                Request::get("/panics").header("x-request-id", "this-one").body(Body::empty()).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), 500);
            assert_eq!(response.headers()["x-request-id"], "this-one");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["error"]["code"], "internal_error");
            assert!(!body.to_string().contains("content of the request"), "{body}");
        }
        let text = metrics.render().unwrap();
        assert!(text.contains("dgemma_panics_total 2\n"), "{text}");
    }
}
