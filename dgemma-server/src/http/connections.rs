//! Serves connections: HTTP/1 or HTTP/2, until the client closes it, is too slow, or the server drains.
//!
//! Called by `serve`. `accept` gives the connections, `socket` watches the traffic of each; the router answers the requests. While the
//! server drains, new ones get one reply each: the health routes tell what happens, the others refuse. Past the drain what still runs is
//! answered by `closing`, so that no client meets a cut connection.

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
use hyper::body::{Frame, SizeHint};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tower::{ServiceExt, service_fn};

use super::accept::Door;
use super::socket::{Running, Socket};
use super::stream::Streaming;
use crate::api::Api;
use crate::api::readiness::Phase;
use crate::error::Error;
use crate::metrics::Metrics;

/// How long and how much of a body that nobody reads is taken in after its reply.
const REST_OF_BODY: Duration = Duration::from_secs(5);
const REST_OF_BODY_BYTES: usize = 64 << 20;

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
    /// Serves until the drain begins, then until the last connection from before it has ended. Dropped, it ends them.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let mut door = Door::new(listener, Arc::clone(&self.metrics));
        // Those that came during the drain are not waited for.
        let (mut open, mut late) = (JoinSet::new(), JoinSet::new());
        let mut draining = std::pin::pin!(self.api.readiness.reached(Phase::Draining));
        let mut drains = false;
        while !(drains && open.is_empty()) {
            tokio::select! {
                stream = door.next() => {
                    let connection = self.clone().connection(stream, drains);
                    if drains { late.spawn(connection) } else { open.spawn(connection) };
                }
                Some(_) = open.join_next() => {}
                Some(_) = late.join_next() => {}
                () = &mut draining, if !drains => drains = true,
            }
        }
    }

    /// `late`: it came while the server drains, and is served one request.
    async fn connection(self, stream: TcpStream, late: bool) {
        // A reply is written in one piece: waiting for more to send only delays it.
        let _ = stream.set_nodelay(true);
        let socket = Socket::new(stream, self.receive_limit, self.metrics);
        let (router, of_requests) = (self.router, socket.clone());
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let (router, running) = (router.clone(), of_requests.begin(request.version()));
            let socket = of_requests.clone();
            async move {
                let request = request.map(|body| Body::new(Taken { body, socket, whole: false }));
                let response = router.oneshot(request).await?;
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
        builder.http1().half_close(true).keep_alive(!late);
        let io = TokioIo::new(socket.clone());
        let mut connection = std::pin::pin!(builder.serve_connection(io, TowerToHyperService::new(service)));
        let mut draining = std::pin::pin!(self.api.readiness.reached(Phase::Draining));
        // One without a request yet would be closed by being told.
        let mut told = late;
        loop {
            tokio::select! {
                result = &mut connection => {
                    if let Err(error) = result {
                        tracing::debug!(error = %error, "a connection ended early");
                    }
                    break;
                }
                () = socket.end() => return,
                () = &mut draining, if !told => {
                    told = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
        // Closing on a client that still sends would lose it the reply.
        tokio::select! {
            _ = tokio::time::timeout(REST_OF_BODY, socket.take_rest(REST_OF_BODY_BYTES)) => {}
            () = self.api.readiness.reached(Phase::Draining) => {}
        }
    }
}

/// The body of a request, of which the socket learns when it is dropped before its end.
struct Taken {
    body: hyper::body::Incoming,
    socket: Socket,
    whole: bool,
}

impl HttpBody for Taken {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.whole |= matches!(frame, Poll::Ready(None));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.whole && !self.body.is_end_stream() {
            self.socket.left_unread();
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
