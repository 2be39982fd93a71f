//! `--wait-ready`: asks `/readyz` until the server can decide. A cold start of minutes is normal.
//!
//! The commands call it once, before their first request, and show what it reports.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use super::{Client, Sent};
use crate::error::Error;
use crate::foreign::clipped;

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// A single look may hang on a machine that is only being started.
const LONGEST_LOOK: Duration = Duration::from_secs(30);

/// How far the server is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// By the server's own name, such as `loading`; or why it does not answer.
    pub phase: String,
    pub bytes_loaded: u64,
    /// 0 when the server does not say.
    pub bytes_total: u64,
}

#[derive(Deserialize)]
struct Status {
    phase: Option<String>,
    #[serde(default)]
    bytes_loaded: u64,
    #[serde(default)]
    bytes_total: u64,
}

impl Client {
    /// Returns when the server is ready, or has no such route: then only a request can tell.
    pub async fn wait_ready(&self, longest: Duration, mut show: impl FnMut(&Progress)) -> Result<(), Error> {
        let url = self.settings.endpoint.beside("/readyz");
        let start = Instant::now();
        let deadline = start + longest;
        loop {
            let look = self.look(&url, LONGEST_LOOK.min(deadline.saturating_duration_since(Instant::now())));
            let Err(error) = look.await else { return Ok(()) };
            let progress = match &error {
                Error::NotReady { body, .. } => progress(body),
                Error::Status { status: 404 | 405, .. } => return Ok(()),
                Error::Status { status: 408 | 429 | 500.., .. }
                | Error::Unreachable { .. }
                | Error::Transport { .. }
                | Error::DeadlinePassed { .. } => Progress { phase: error.headline(), ..Progress::default() },
                _ => return Err(error),
            };
            show(&progress);
            let next = Instant::now() + PAUSE;
            if next >= deadline {
                return Err(Error::NeverReady {
                    url,
                    seconds: longest.as_secs_f64(),
                    state: progress.to_string(),
                });
            }
            sleep_until(next).await;
        }
    }

    /// One look: `None` when it is ready.
    pub async fn is_ready(&self) -> Result<Option<Progress>, Error> {
        let url = self.settings.endpoint.beside("/readyz");
        match self.look(&url, self.settings.timeout).await {
            Ok(_) => Ok(None),
            Err(Error::NotReady { body, .. }) => Ok(Some(progress(&body))),
            Err(error) => Err(error),
        }
    }

    /// What `/health` says about the server, such as its version; `None` where there is no such route.
    pub async fn health(&self) -> Option<serde_json::Value> {
        let sent = self.look(&self.settings.endpoint.beside("/health"), LONGEST_LOOK).await.ok()?;
        serde_json::from_slice(&sent.body).ok()
    }

    async fn look(&self, url: &str, longest: Duration) -> Result<Sent, Error> {
        self.send_within(reqwest::Method::GET, url.to_owned(), None, 0, longest).await
    }
}

fn progress(body: &[u8]) -> Progress {
    match serde_json::from_slice::<Status>(body) {
        Ok(Status { phase: Some(phase), bytes_loaded, bytes_total }) => {
            Progress { phase: clipped(&phase, 40), bytes_loaded, bytes_total }
        }
        _ => Progress { phase: "starting".to_owned(), ..Progress::default() },
    }
}

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.phase)?;
        if self.bytes_total > 0 {
            let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
            let share = self.bytes_loaded as f64 / self.bytes_total as f64 * 100.0;
            write!(f, ", {:.2} of {:.2} GiB ({share:.0}%)", gib(self.bytes_loaded), gib(self.bytes_total))?;
        }
        Ok(())
    }
}
