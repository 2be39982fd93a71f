//! Taking connections from the listening socket, also when the system has no room for one.
//!
//! A process that has run out of file descriptors is told so again and again by the system; this waits in between, counts, and says so
//! in the log now and then. Called by `connections`.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

use crate::metrics::Metrics;

/// How long to wait before the next connection is accepted when the system has no room for one.
const NO_ROOM: Duration = Duration::from_millis(100);
/// How often the operator is told.
const BETWEEN_WARNINGS: Duration = Duration::from_secs(10);

/// Where connections come in.
#[derive(Debug)]
pub(super) struct Door {
    listener: TcpListener,
    metrics: Arc<Metrics>,
    closed_until: Option<Instant>,
    warned_at: Option<Instant>,
    /// Errors that no warning has told of.
    untold: u64,
}

impl Door {
    pub(super) fn new(listener: TcpListener, metrics: Arc<Metrics>) -> Self {
        Door { listener, metrics, closed_until: None, warned_at: None, untold: 0 }
    }

    /// The next connection. May be dropped and called again.
    pub(super) async fn next(&mut self) -> TcpStream {
        loop {
            if let Some(until) = self.closed_until {
                sleep_until(until).await;
            }
            self.closed_until = None;
            match self.listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(error) if is_of_client(&error) => {
                    tracing::debug!(%error, "a connection was gone at once");
                }
                Err(error) => self.no_room(&error),
            }
        }
    }

    fn no_room(&mut self, error: &io::Error) {
        let now = Instant::now();
        self.closed_until = Some(now + NO_ROOM);
        self.metrics.not_accepted();
        self.untold += 1;
        if self.warned_at.is_none_or(|at| now >= at + BETWEEN_WARNINGS) {
            tracing::warn!(
                %error,
                failures = self.untold,
                "cannot accept connections; hint: allow this process more open files (ulimit -n, LimitNOFILE=), or let fewer clients in"
            );
            (self.warned_at, self.untold) = (Some(now), 0);
        }
    }
}

/// A client that has gone before it was accepted.
fn is_of_client(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted)
}
