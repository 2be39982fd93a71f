//! The one layer of retries: which failures are worth another try, how long to wait, and when to stop.
//!
//! Used by `client` for every request. Pauses have full jitter (a random time up to a limit that doubles), respect the
//! server's `Retry-After`, and never outlast the deadline. A decision has no side effects, so that asking again is safe.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::Error;

/// The first pause is at most this long, each next at most twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What was spent on one request, its tries taken together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tries, the first included.
    pub attempts: u32,
    /// Tries after the first.
    pub retries: u32,
    /// Replies that said the server is too busy (429 or 503).
    pub busy: u32,
    /// Time between the tries.
    pub waited: Duration,
}

impl Tally {
    /// Counts those of another request in.
    pub(crate) fn add(&mut self, other: Self) {
        self.attempts += other.attempts;
        self.retries += other.retries;
        self.busy += other.busy;
        self.waited += other.waited;
    }
}

/// One try that did not work.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    /// Another try may help.
    pub(super) worth_another: bool,
    /// How long the server asks to wait.
    pub(super) retry_after: Option<Duration>,
}

impl Failure {
    /// Trying again would change nothing.
    pub(super) fn for_good(error: Error) -> Self {
        Self { error, worth_another: false, retry_after: None }
    }

    /// The connection could not be made, or broke.
    pub(super) fn of_the_network(error: Error) -> Self {
        let worth_another = matches!(error, Error::Unreachable { .. } | Error::Transport { .. });
        Self { error, worth_another, retry_after: None }
    }

    /// No token could be had.
    pub(super) fn of_the_token(error: Error) -> Self {
        let worth_another = matches!(error, Error::NoToken { transient: true, .. });
        Self { error, worth_another, retry_after: None }
    }

    /// The server answered with this error.
    pub(super) fn of_the_server(error: Error, retry_after: Option<Duration>) -> Self {
        let worth_another = matches!(error.status(), Some(429 | 502 | 503 | 504));
        Self { error, worth_another, retry_after }
    }
}

/// Tries until it works, `retries` further tries are used up, or `deadline` comes.
pub(super) async fn run<T>(
    retries: u32,
    deadline: Instant,
    late: impl Fn() -> Error,
    mut attempt: impl AsyncFnMut() -> Result<T, Failure>,
) -> (Result<T, Error>, Tally) {
    let mut tally = Tally::default();
    let mut last: Option<Error> = None;
    loop {
        tally.attempts += 1;
        let failure = match timeout_at(deadline, attempt()).await {
            Ok(Ok(done)) => return (Ok(done), tally),
            Ok(Err(failure)) => failure,
            Err(_) => return (Err(gave_up(late(), tally, last.as_ref())), tally),
        };
        tally.busy += u32::from(matches!(failure.error.status(), Some(429 | 503)));
        let jitter = longest_pause(tally.attempts).mul_f64(fastrand::f64());
        let pause = failure.retry_after.unwrap_or_default().saturating_add(jitter);
        let in_time = Instant::now().checked_add(pause).is_some_and(|next| next < deadline);
        if !failure.worth_another || tally.attempts > retries {
            return (Err(gave_up(failure.error, tally, None)), tally);
        }
        if !in_time {
            let left = deadline.saturating_duration_since(Instant::now());
            return (Err(gave_up(too_late(failure, left), tally, None)), tally);
        }
        sleep(pause).await;
        tally.waited += pause;
        tally.retries += 1;
        last = Some(failure.error);
    }
}

/// The error, with the wait that the server asks for as the reason why nothing more is tried, where it is longer than what is
/// left.
fn too_late(failure: Failure, left: Duration) -> Error {
    match (failure.error, failure.retry_after) {
        (Error::Status { url, status, message, .. }, Some(wait)) if wait > left => {
            let seconds = wait.as_secs();
            let hint = format!(
                "the server asks to wait {seconds} s, longer than the deadline leaves; allow more with --timeout, or try again then"
            );
            Error::Status { url, status, message, hint }
        }
        (error, _) => error,
    }
}

/// A century stands for more seconds than a number holds.
const ENDLESS: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Before the try after `attempts` others.
fn longest_pause(attempts: u32) -> Duration {
    let doublings = attempts.saturating_sub(1).min(16);
    (FIRST_PAUSE * (1 << doublings)).min(LONGEST_PAUSE)
}

/// A failure after several tries says so, and what the try before died of where the last one just ran out of time.
fn gave_up(error: Error, tally: Tally, before: Option<&Error>) -> Error {
    if tally.attempts == 1 {
        return error;
    }
    Error::GaveUp {
        attempts: tally.attempts,
        waited_seconds: tally.waited.as_secs_f64(),
        before: before.map(Error::headline),
        cause: Box::new(error),
    }
}

/// `Retry-After` in both its forms: seconds, or a date.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) if text.len() > 1 && text.bytes().all(|byte| byte.is_ascii_digit()) => Some(ENDLESS),
        // A date that has passed asks for no wait.
        Err(_) => {
            httpdate::parse_http_date(text).ok().map(|date| date.duration_since(now).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    fn status(status: u16) -> Error {
        Error::Status { url: "http://x".into(), status, message: "no".into(), hint: "wait".into() }
    }

    fn late() -> Error {
        Error::DeadlinePassed { url: "http://x".into(), seconds: 60.0 }
    }

    async fn against(
        statuses: &[u16],
        retries: u32,
        wait_seconds: Option<u64>,
    ) -> (Result<(), Error>, Tally) {
        let mut replies = statuses.iter();
        let deadline = Instant::now() + Duration::from_secs(60);
        run(retries, deadline, late, async || match replies.next() {
            Some(200) | None => Ok(()),
            Some(code) => Err(Failure::of_the_server(status(*code), wait_seconds.map(Duration::from_secs))),
        })
        .await
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_may_pass_is_tried_again_and_zero_means_zero() {
        let (result, tally) = against(&[503, 429, 200], 3, None).await;
        assert!(result.is_ok() && (tally.attempts, tally.busy) == (3, 2), "{tally:?}");
        for code in [400, 401, 403, 404, 413, 500, 501] {
            let (result, tally) = against(&[code, 200], 3, None).await;
            assert_eq!((result.unwrap_err().status(), tally.attempts), (Some(code), 1));
        }
        let (result, tally) = against(&[503, 200], 0, None).await;
        assert_eq!(
            (result.unwrap_err().status(), tally.attempts, tally.waited),
            (Some(503), 1, Duration::ZERO)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_final_error_tells_attempts_waited_time_and_the_last_cause() {
        let start = Instant::now();
        let (result, tally) = against(&[503, 502, 504], 2, Some(3)).await;
        let message = result.unwrap_err().to_string();
        assert!(message.contains("HTTP 504: no\n  gave up after 3 attempts and "), "{message}");
        assert!(message.ends_with("\nhint: wait"), "{message}");
        assert!(tally.waited >= Duration::from_secs(6) && tally.waited < Duration::from_secs(7), "{tally:?}");
        assert_eq!(start.elapsed().as_secs(), tally.waited.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn no_pause_outlasts_the_deadline() {
        let start = Instant::now();
        let (result, tally) = against(&[503, 200], 3, Some(61)).await;
        assert_eq!(
            (result.unwrap_err().status(), tally.attempts, start.elapsed()),
            (Some(503), 1, Duration::ZERO)
        );
        let mut first = true;
        let (result, tally) = run(9, Instant::now() + Duration::from_secs(60), late, async || {
            if std::mem::take(&mut first) {
                return Err::<(), _>(Failure::of_the_server(status(503), None));
            }
            std::future::pending().await
        })
        .await;
        let message = result.unwrap_err().to_string();
        assert!(tally.attempts == 2 && message.contains("within 60 s"), "{message}");
        assert!(message.contains("HTTP 503"), "{message}");
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        assert_eq!(longest_pause(1), FIRST_PAUSE);
        assert_eq!(longest_pause(3), FIRST_PAUSE * 4);
        assert_eq!(longest_pause(u32::MAX), LONGEST_PAUSE);
    }

    #[test]
    fn retry_after_is_read_in_both_forms() {
        let now = httpdate::parse_http_date("Tue, 01 Dec 2026 01:00:00 GMT").unwrap();
        for (text, seconds) in [
            ("7", Some(7)),
            ("0", Some(0)),
            ("Tue, 01 Dec 2026 01:00:30 GMT", Some(30)),
            ("Tue, 01 Dec 2026 00:59:00 GMT", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
            assert_eq!(retry_after(&headers, now), seconds.map(Duration::from_secs), "{text}");
        }
        let endless = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("99999999999999999999"))]);
        assert_eq!(retry_after(&endless, now), Some(ENDLESS));
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
