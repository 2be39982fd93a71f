//! Server-sent events of a reply that is being made.
//!
//! A task takes the deltas and writes the events; the body hands them on. A client that leaves drops the body, which ends the task
//! and with it the work. While nothing is there to say, a comment every second keeps proxies patient and finds out about clients
//! that have gone. Called by `http::chat`.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::Instrument;

use super::Shared;
use super::deadline::Deadline;
use super::error::ErrorBody;
use crate::api::Stream;
use crate::api::generation::Generation;
use crate::api::readiness::Phase;
use crate::api::reply::{DONE, Head, to_json};
use crate::error::Error;

/// Longest silence.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
const COMMENT: &str = ": still working\n\n";
/// Events that may wait for a slow client; the engine does not wait for it.
const WAITING_EVENTS: usize = 16;

/// Marks a reply whose body is made while it is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Streaming;

/// The receiving end of the events.
#[derive(Debug)]
struct Events {
    from: mpsc::Receiver<Bytes>,
    /// Set where they end before the reply does: the client must not take it for whole, should it read on.
    given_up: Arc<AtomicBool>,
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let event = ready!(self.from.poll_recv(cx)).map(|bytes| Ok(Frame::data(bytes)));
        let cut = || self.given_up.load(Ordering::Acquire).then(|| Err(io::ErrorKind::TimedOut.into()));
        Poll::Ready(event.or_else(cut))
    }
}

/// What a stream needs to know of its request.
pub(super) struct Request {
    pub(super) shared: Shared,
    pub(super) deadline: Option<Deadline>,
    pub(super) request_id: String,
}

/// The reply whose events will follow.
pub(super) fn respond(request: Request, head: Head, generation: Generation, stream: Stream) -> Response {
    let (to, from) = mpsc::channel(WAITING_EVENTS);
    let events = Events { from, given_up: Arc::default() };
    let given_up = Arc::clone(&events.given_up);
    tokio::spawn(
        async move {
            if !run(request, head, generation, stream, &to).await {
                given_up.store(true, Ordering::Release);
            }
        }
        .in_current_span(),
    );
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    let mut response = (headers, Body::new(events)).into_response();
    response.extensions_mut().insert(Streaming);
    response
}

/// Sends everything, or sees the client go: then false.
async fn run(
    request: Request,
    head: Head,
    generation: Generation,
    stream: Stream,
    to: &mpsc::Sender<Bytes>,
) -> bool {
    let Request { shared, deadline, request_id } = request;
    let client = Client { to, limit: shared.receive_limit, log_content: shared.log_content };
    let closing = Arc::clone(&shared.api);
    let outcome = tokio::select! {
        // A finished reply is sent even where its time ends at the same moment.
        biased;
        () = to.closed() => Ok(false),
        outcome = send(&head, generation, stream, &client) => outcome,
        error = Deadline::reached(deadline) => Err(error),
        () = closing.readiness.reached(Phase::Closing) => Err(Error::Draining),
    };
    match outcome {
        Ok(true) => true,
        Ok(false) => {
            shared.metrics.cancelled();
            tracing::info!("the client left before the end of the reply");
            false
        }
        Err(error) => {
            shared.metrics.rejected(error.code());
            if error.is_fault() {
                tracing::error!(code = error.code(), %error, "reply failed");
            } else {
                tracing::info!(code = error.code(), "reply ended early");
            }
            let body = to_json(&ErrorBody::new(&error, &request_id)).unwrap_or_default();
            client.send(format!("data: {body}\n\n")).await
        }
    }
}

/// False when the client has gone.
async fn send(
    head: &Head,
    mut generation: Generation,
    stream: Stream,
    client: &Client<'_>,
) -> Result<bool, Error> {
    if !client.send(head.begin()?).await {
        return Ok(false);
    }
    let mut silent_since = Instant::now();
    loop {
        let next = tokio::time::timeout_at(silent_since + KEEP_ALIVE, generation.next()).await;
        let mut events = String::new();
        match next {
            Err(_) => events.push_str(COMMENT),
            Ok(deltas) => match deltas? {
                None => break,
                Some(deltas) => {
                    for delta in deltas {
                        events.push_str(&head.add(delta)?);
                    }
                }
            },
        }
        if !client.send(events).await {
            return Ok(false);
        }
        silent_since = Instant::now();
    }
    let mut events = head.finish(generation.finish_reason(), generation.report())?;
    if stream.include_usage {
        events.push_str(&head.usage(generation.usage())?);
    }
    events.push_str(DONE);
    Ok(client.send(events).await)
}

struct Client<'a> {
    to: &'a mpsc::Sender<Bytes>,
    /// How long it may take nothing.
    limit: Duration,
    log_content: bool,
}

impl Client<'_> {
    /// False when it has gone, or has long stopped reading.
    async fn send(&self, events: String) -> bool {
        if self.log_content {
            tracing::info!(content = events, "part of the reply");
        }
        self.to.send_timeout(events.into(), self.limit).await.is_ok()
    }
}
