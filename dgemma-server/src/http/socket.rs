//! The socket of one connection, and what its traffic tells: a client that is slow, that has left, or that only stopped sending.
//!
//! hyper reads and writes through it; `connections` waits for [`Socket::end`] beside. What hyper says of a request that it cannot
//! read is written here in the form of every other error.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::Version;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::error::raw_reply;
use super::trace::new_id;
use crate::error::Error;
use crate::metrics::Metrics;

/// How long a connection may rest between two requests. Longer than the balancers before a server keep theirs, so that they
/// are the ones to close it.
const REST: Duration = Duration::from_secs(650);
/// How long a reply is waited for before a client that sends no more is asked whether it still listens.
const BEFORE_PROBE: Duration = Duration::from_millis(100);
/// How often it is looked whether the answer to that question has come: a reset, or nothing.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);
/// An interim reply, which every HTTP/1.1 client has to skip. The system of a client that has gone answers it with a reset.
const PROBE: &[u8] = b"HTTP/1.1 102 Processing\r\n\r\n";
/// How every HTTP/2 connection begins.
const HTTP_2: &[u8] = b"PRI";

/// Cheap to clone; all clones are the same socket.
#[derive(Debug, Clone)]
pub(super) struct Socket(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// Something happened that may change how long the connection lives.
    changed: Notify,
    receive_limit: Duration,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct State {
    stream: TcpStream,
    /// Of the connection, as its first bytes and then its requests tell.
    version: Option<Version>,
    /// Requests between their head and their reply.
    running: usize,
    /// Part of a reply is out, and more of it is being made.
    streaming: bool,
    /// When the head of a request began to come.
    head_since: Option<Instant>,
    /// When the last reply was made, or the connection.
    quiet_since: Instant,
    served: bool,
    /// Since when part of a reply waits for the client to take any of it.
    stuck_since: Option<Instant>,
    /// The end of the last body was not read.
    unread: bool,
}

/// A request that is being answered. Dropped with the reply, or with the work for a client that left.
#[derive(Debug)]
pub(super) struct Running(Socket);

impl Socket {
    /// `receive_limit`: how long the head of a request may take.
    pub(super) fn new(stream: TcpStream, receive_limit: Duration, metrics: Arc<Metrics>) -> Self {
        let state = State {
            stream,
            version: None,
            running: 0,
            streaming: false,
            head_since: None,
            quiet_since: Instant::now(),
            served: false,
            stuck_since: None,
            unread: false,
        };
        Socket(Arc::new(Inner { state: Mutex::new(state), changed: Notify::new(), receive_limit, metrics }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The head of a request is complete.
    pub(super) fn begin(&self, version: Version) -> Running {
        let mut state = self.state();
        state.version = Some(version);
        state.running += 1;
        state.head_since = None;
        state.unread = false;
        drop(state);
        self.0.changed.notify_one();
        Running(self.clone())
    }

    /// The body of the last request is no longer wanted.
    pub(super) fn left_unread(&self) {
        self.state().unread = true;
    }

    /// Takes in what a client still sends of a body that nobody wants, at most so many bytes. To be called after the last reply.
    pub(super) async fn take_rest(&self, most_bytes: usize) {
        if !self.state().unread {
            return;
        }
        let (mut piece, mut taken) = (vec![0; 64 << 10], 0);
        while taken < most_bytes {
            let read = std::future::poll_fn(|cx| {
                let mut buffer = ReadBuf::new(&mut piece);
                let read = ready!(Pin::new(&mut self.state().stream).poll_read(cx, &mut buffer));
                Poll::Ready(read.map(|()| buffer.filled().len()))
            });
            match read.await {
                Ok(bytes @ 1..) => taken += bytes,
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Completes when the connection has to end although hyper would keep it: the head of a request takes too long, nothing of a
    /// reply is taken for too long, there has been no request for long, or the client has left while its request was worked on.
    pub(super) async fn end(&self) {
        loop {
            let (running, stuck, listens_for_end, limit) = {
                let state = self.state();
                let limit = match state.head_since.or(state.stuck_since) {
                    Some(since) => since + self.0.receive_limit,
                    None if state.served => state.quiet_since + REST,
                    None => state.quiet_since + self.0.receive_limit,
                };
                let http_1 = state.version.is_some_and(|version| version < Version::HTTP_2);
                (state.running > 0, state.stuck_since.is_some(), http_1, limit)
            };
            tokio::select! {
                () = self.0.changed.notified() => {}
                () = sleep_until(limit), if !running || stuck => {
                    self.refuse_head();
                    return;
                }
                () = self.left(), if running && listens_for_end => return,
            }
        }
    }

    /// Completes when a client that waits for a reply is gone. One that has only closed its own direction is not.
    async fn left(&self) {
        let closed = std::future::poll_fn(|cx| {
            let (byte, state) = (&mut [0], self.state());
            let peeked = ready!(state.stream.poll_peek(cx, &mut ReadBuf::new(byte)));
            match peeked {
                // What comes next hides an end behind it; `changed` tells when it was read.
                Ok(1..) => Poll::Pending,
                Ok(0) => Poll::Ready(Ok(())),
                Err(error) => Poll::Ready(Err(error)),
            }
        });
        // An older client cannot be asked, and one that stops sending mostly leaves.
        if closed.await.is_err() || self.state().version.is_none_or(|version| version < Version::HTTP_11) {
            return;
        }
        sleep(BEFORE_PROBE).await;
        let asked = {
            let state = self.state();
            // A stream asks by its own comments; anything else would stand in the middle of them.
            state.stuck_since.is_some()
                || state.streaming
                || state.stream.try_write(PROBE).is_ok_and(|written| written == PROBE.len())
        };
        if !asked {
            return;
        }
        loop {
            sleep(PROBE_INTERVAL).await;
            if !matches!(self.state().stream.take_error(), Ok(None)) {
                return;
            }
        }
    }

    /// The reply to a head that took too long, if one had begun to come.
    fn refuse_head(&self) {
        let state = self.state();
        if state.head_since.is_some() && state.version.is_none_or(|version| version < Version::HTTP_2) {
            let error = Error::SlowHead { seconds: self.0.receive_limit.as_secs_f64() };
            // As far as it goes: the connection ends either way.
            let _ = state.stream.try_write(&self.refusal(&error));
        }
    }

    /// The bytes of a reply that no handler makes, counted like the others.
    fn refusal(&self, error: &Error) -> Vec<u8> {
        let (status, bytes) = raw_reply(error, &new_id());
        self.0.metrics.refused_head(status.as_u16(), error.code());
        bytes
    }
}

impl Running {
    /// Its reply is out in part.
    pub(super) fn streaming(self) -> Self {
        self.0.state().streaming = true;
        self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Running(socket) = self;
        let mut state = socket.state();
        state.running -= 1;
        state.streaming = false;
        state.served = true;
        state.quiet_since = Instant::now();
        drop(state);
        socket.0.changed.notify_one();
    }
}

/// The error behind a reply that hyper made by itself: a bare head. The replies of this server have an id.
fn made_by_hyper(reply: &[u8]) -> Option<Error> {
    if !reply.ends_with(b"\r\n\r\n") || reply.windows(13).any(|piece| piece == b"x-request-id:") {
        return None;
    }
    match reply.strip_prefix(b"HTTP/1.1 ")?.get(..3)? {
        b"400" => Some(Error::BadHead),
        b"414" => Some(Error::UriTooLong),
        b"431" => Some(Error::HeadTooLarge),
        _ => None,
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.state();
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut state.stream).poll_read(cx, buffer));
        let bytes = &buffer.filled()[before..];
        if !bytes.is_empty() {
            let guess = if bytes.starts_with(HTTP_2) { Version::HTTP_2 } else { Version::HTTP_11 };
            let version = *state.version.get_or_insert(guess);
            // Between the requests of HTTP/2 there are frames of other kinds.
            let may_be_head = version < Version::HTTP_2 || !state.served;
            if state.running == 0 && may_be_head && state.head_since.is_none() {
                state.head_since = Some(Instant::now());
            }
            self.0.changed.notify_one();
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        if let Some(error) = made_by_hyper(bytes) {
            let reply = self.refusal(&error);
            let written = state.stream.try_write(&reply);
            return Poll::Ready(written.map(|_| bytes.len()));
        }
        let written = Pin::new(&mut state.stream).poll_write(cx, bytes);
        let before = state.stuck_since;
        state.stuck_since = match &written {
            Poll::Ready(Ok(written)) if *written == bytes.len() => None,
            Poll::Ready(_) => Some(Instant::now()),
            Poll::Pending => before.or_else(|| Some(Instant::now())),
        };
        if before != state.stuck_since {
            self.0.changed.notify_one();
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.state().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.state().stream).poll_shutdown(cx)
    }
}
