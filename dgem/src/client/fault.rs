//! Gives failures of the network and of the server a name, a cause and a hint.

use std::error::Error as _;

use reqwest::Response;
use reqwest::header::LOCATION;
use serde_json::Value;

use crate::error::Error;
use crate::foreign::clipped;
use crate::settings::Settings;

/// Characters of a foreign text that a message repeats.
const EXCERPT_CHARS: usize = 400;

/// What `reqwest` reports while sending or reading.
pub(super) fn transport(settings: &Settings, url: &str, cause: &reqwest::Error) -> Error {
    let url = url.to_owned();
    if cause.is_timeout() {
        Error::DeadlinePassed { url, seconds: settings.timeout.as_secs_f64() }
    } else if cause.is_connect() {
        Error::Unreachable { origin: settings.endpoint.origin(), cause: root(cause) }
    } else {
        Error::Transport { url, cause: root(cause) }
    }
}

/// A reply with a status other than 2xx.
pub(super) fn status(url: String, status: u16, body: &[u8], location: Option<String>) -> Error {
    let message = match location {
        Some(target) => format!("redirected to {target}"),
        None => message_of(body),
    };
    Error::Status { url, status, message, hint: hint(status).to_owned() }
}

/// Where a redirect points; redirects are not followed.
pub(super) fn redirect_target(response: &Response) -> Option<String> {
    let target = response.headers().get(LOCATION).filter(|_| response.status().is_redirection())?;
    Some(excerpt(&String::from_utf8_lossy(target.as_bytes())))
}

fn hint(status: u16) -> &'static str {
    match status {
        300..=399 => "redirects are not followed; name that address with -u",
        400 | 422 => "the server refused the request; its message above says why",
        401 | 403 => "the server wants a valid token: set DGEM_TOKEN or --token-file",
        404 | 405 => "the URL is probably incomplete: it usually ends in /v1",
        413 => "the request is larger than the server allows; shorten the state",
        429 => "the server is busy; try again in a moment",
        503 => "the server is starting or stopping; try again in a moment",
        500.. => "the fault is on the server's side; look at its log",
        _ => "the server refused the request",
    }
}

/// The message in the error shapes in use (OpenAI's, and `detail`), else the text itself.
fn message_of(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    let found = ["/error/message", "/detail/message", "/error", "/detail", "/message"]
        .iter()
        .find_map(|path| value.pointer(path).and_then(Value::as_str));
    match found.unwrap_or(&text).trim() {
        "" => "(no message)".to_owned(),
        message => excerpt(message),
    }
}

/// The first part of a foreign text.
pub(super) fn excerpt(text: &str) -> String {
    clipped(text, EXCERPT_CHARS)
}

/// The innermost cause: "Connection refused" instead of "error sending request".
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// The whole chain of causes.
pub(super) fn chain(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_found_in_every_error_shape() {
        for (body, message) in [
            (r#"{"error":{"message":"too long","code":413}}"#, "too long"),
            (r#"{"detail":"nope"}"#, "nope"),
            (r#"{"error":"flat"}"#, "flat"),
            ("<html>\u{1b}[31mred</html>", "<html> [31mred</html>"),
            ("", "(no message)"),
        ] {
            assert_eq!(message_of(body.as_bytes()), message);
        }
        assert!(message_of("x".repeat(10_000).as_bytes()).chars().count() <= EXCERPT_CHARS + 1);
    }
}
