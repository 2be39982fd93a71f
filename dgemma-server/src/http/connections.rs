//! Accepts connections and serves each: HTTP/1 or HTTP/2, until the client closes it, is too slow, or the server drains.
//!
//! Called by `serve`. `socket` watches the traffic of a connection; the router answers the requests. Past the drain what still
//! runs is answered by `closing`, so that no client meets a cut connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tower::{ServiceExt, service_fn};

use super::socket::{Running, Socket};
use super::stream::Streaming;
use crate::api::Api;
use crate::api::readiness::Phase;
use crate::error::Error;
use crate::metrics::Metrics;

/// How long to wait before the next connection is accepted when the system has no room for one.
const NO_ROOM: Duration = Duration::from_millis(200);

/// What every connection needs.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    pub(crate) router: Router,
    pub(crate) api: Arc<Api>,
    pub(crate) metrics: Arc<Metrics>,
    /// How long the head of a request may take to come.
    pub(crate) receive_limit: Duration,
}

impl Connections {
    /// Serves until the drain begins, then until the last connection has ended. Dropped, it ends them.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let mut open = JoinSet::new();
        let mut draining = std::pin::pin!(self.api.readiness.reached(Phase::Draining));
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        open.spawn(self.clone().connection(stream));
                    }
                    // A client that was gone at once is its own affair; with no descriptor free, closing others helps.
                    Err(error) => {
                        tracing::debug!(%error, "a connection was not accepted");
                        tokio::time::sleep(NO_ROOM).await;
                    }
                },
                Some(_) = open.join_next() => {}
                () = &mut draining => break,
            }
        }
        drop(listener);
        while open.join_next().await.is_some() {}
    }

    async fn connection(self, stream: TcpStream) {
        // A reply is written in one piece: waiting for more to send only delays it.
        let _ = stream.set_nodelay(true);
        let socket = Socket::new(stream, self.receive_limit, self.metrics);
        let (router, of_requests) = (self.router, socket.clone());
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let (router, running) = (router.clone(), of_requests.begin(request.version()));
            async move {
                let response = router.oneshot(request.map(Body::new)).await?;
                // A reply that is made while it is sent runs until its last event.
                Ok::<_, Infallible>(if response.extensions().get::<Streaming>().is_some() {
                    response.map(|body| Body::new(Watched { body, _running: running.streaming() }))
                } else {
                    response
                })
            }
        });
        let mut builder = Builder::new(TokioExecutor::new());
        // A client that has said everything may close its direction and wait for the reply.
        builder.http1().half_close(true);
        let io = TokioIo::new(socket.clone());
        let mut connection = std::pin::pin!(builder.serve_connection(io, TowerToHyperService::new(service)));
        let mut draining = std::pin::pin!(self.api.readiness.reached(Phase::Draining));
        let mut told = false;
        loop {
            tokio::select! {
                result = &mut connection => {
                    if let Err(error) = result {
                        tracing::debug!(error = %error, "a connection ended early");
                    }
                    return;
                }
                () = socket.end() => return,
                () = &mut draining, if !told => {
                    told = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// A body during which the client is watched.
struct Watched {
    body: Body,
    _running: Running,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }
}

/// Answers what is still running when the time to drain is over.
pub(super) async fn closing(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    tokio::select! {
        response = next.run(request) => response,
        () = api.readiness.reached(Phase::Closing) => Error::Draining.into_response(),
    }
}
