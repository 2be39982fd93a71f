//! Which failures of the network are worth another try, and when.

use std::future::Future;
use std::time::{Duration, SystemTime};

use reqwest::header::RETRY_AFTER;
use reqwest::{Response, StatusCode};

use crate::error::Error;

/// Tries in a row that bring nothing, after which it is given up.
const MOST_TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// A hub that asks for more patience than this is not waited for.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// A failure of one request.
#[derive(Debug)]
pub(super) enum Retry {
    /// Another try may do better, after that time if the hub named one.
    Later { error: Error, after: Option<Duration> },
    /// It will not.
    Never(Error),
}

impl Retry {
    /// The connection broke, or nothing came.
    pub(super) fn soon(error: &reqwest::Error) -> Self {
        let mut reason = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(inner) = source {
            reason = inner.to_string(); // the innermost one names the fault; the outer ones repeat the address
            source = inner.source();
        }
        Self::Later {
            error: unnamed(reason, "check the network and run the same command again"),
            after: None,
        }
    }

    /// What came is not what was asked for.
    pub(super) fn odd(reason: String) -> Self {
        Self::Later {
            error: unnamed(reason, "run the same command again; what came so far is kept"),
            after: None,
        }
    }

    pub(super) fn of(response: &Response, (reason, hint): (String, String)) -> Self {
        let error = Error::Download { what: String::new(), reason, hint };
        match response.status() {
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
                Self::Later { error, after: pause_asked_for(response) }
            }
            status if status.is_server_error() => Self::Later { error, after: pause_asked_for(response) },
            _ => Self::Never(error),
        }
    }

    /// Runs `request` until it succeeds, fails for good, or has failed often enough.
    pub(super) async fn repeat<T, F>(mut request: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Self>>,
    {
        let mut patience = Patience::default();
        loop {
            match request().await {
                Ok(value) => return Ok(value),
                Err(failure) => patience.after(failure).await?,
            }
        }
    }
}

/// Tries left before it is given up.
#[derive(Debug, Default)]
pub(super) struct Patience {
    failures: u32,
}

impl Patience {
    /// Something came: what failed before does not count any more.
    pub(super) fn renew(&mut self) {
        self.failures = 0;
    }

    /// Waits before the next try, or gives the error back.
    pub(super) async fn after(&mut self, failure: Retry) -> Result<(), Error> {
        let (error, after) = match failure {
            Retry::Never(error) => return Err(error),
            Retry::Later { error, after } => (error, after),
        };
        self.failures += 1;
        let pause = after.unwrap_or(FIRST_PAUSE * 2u32.pow(self.failures - 1));
        if self.failures >= MOST_TRIES || pause > LONGEST_PAUSE {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

/// `Retry-After` in seconds or as a date.
fn pause_asked_for(response: &Response) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    Some(until.duration_since(SystemTime::now()).unwrap_or_default())
}

/// The caller puts a name in front.
fn unnamed(reason: String, hint: &str) -> Error {
    Error::Download { what: String::new(), reason, hint: hint.into() }
}
