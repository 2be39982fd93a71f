//! Gives failures of the network and of the server a name, a cause and a hint.

use std::error::Error as _;

use reqwest::Response;
use reqwest::header::{HeaderMap, LOCATION};
use serde_json::Value;

use crate::auth::{Minted, Pass};
use crate::error::Error;
use crate::foreign::clipped;
use crate::settings::{Kind, Settings};

/// Characters of a foreign text that a message repeats.
const EXCERPT_CHARS: usize = 400;
/// Stands where a secret stood.
const HIDDEN: &str = "(hidden)";
/// What is shorter may be a word of a reply, such as `yes` or `support`, and no secret that somebody made.
const SECRET_BYTES: usize = 8;

/// What `reqwest` reports while sending or reading.
pub(super) fn transport(settings: &Settings, url: &str, cause: &reqwest::Error) -> Error {
    let origin = settings.endpoint.origin();
    let cause_text = root(cause);
    if !cause.is_connect() {
        return Error::Transport { url: url.to_owned(), cause: cause_text };
    }
    if cause.is_timeout() {
        let seconds = settings.connect_timeout.as_secs_f64();
        return Error::Unreachable {
            origin,
            cause: format!("no connection within {seconds} s (--connect-timeout)"),
        };
    }
    if settings.endpoint.is_https() && cause_text.contains("InvalidContentType") {
        // What a TLS client makes of a reply in plain text.
        return Error::NoTls { plain: origin.replacen("https", "http", 1), origin };
    }
    if cause_text.contains("certificate") {
        return Error::Untrusted { origin, cause: cause_text };
    }
    Error::Unreachable { origin, cause: cause_text }
}

/// A reply with a status other than 2xx. What it says is repeated, but never the token.
///
/// `headers`: those of the client, where a key may stand.
pub(super) fn status(
    url: String,
    status: u16,
    body: &[u8],
    location: Option<String>,
    headers: &HeaderMap,
    pass: &Pass,
) -> Error {
    let hidden = |text: &str| {
        let text = without_keys(text, headers);
        match pass {
            Pass::Token(minted) => text.replace(minted.token.reveal(), HIDDEN),
            Pass::None | Pass::Refused(_) => text,
        }
    };
    // Hidden before it is cut, lest a part of the token stays.
    let message = match location {
        Some(target) => format!("redirected to {}", excerpt(&hidden(&target))),
        None => message_of(hidden(&String::from_utf8_lossy(body)).as_bytes()),
    };
    if status == 503 && url.ends_with("/readyz") {
        return Error::NotReady { url, body: body.to_vec() };
    }
    // A server of ours gives its own hint, which knows more, but not the flags of this program.
    let (message, hint) = match message.split_once("; hint: ") {
        Some((message, _)) if matches!(status, 401 | 404 | 429) => {
            (message.to_owned(), hint(status, &url, pass))
        }
        Some((message, _)) if status == 400 && message.contains("image_url") => {
            (message.to_owned(), "this server takes no pictures yet; leave out -I".to_owned())
        }
        Some((message, hint)) => (message.to_owned(), hint.to_owned()),
        None => (message, hint(status, &url, pass)),
    };
    Error::Status { hint, url, status, message }
}

/// A good reply: a server that repeats the token in it must not bring it into any output.
pub(super) fn body_without_secrets(body: Vec<u8>, headers: &HeaderMap, pass: &Pass) -> Vec<u8> {
    let own = match pass {
        Pass::Token(minted) => Some(minted.token.reveal()),
        Pass::None | Pass::Refused(_) => None,
    };
    let keys = headers.values().filter(|value| value.is_sensitive()).filter_map(|value| value.to_str().ok());
    let is_secret = |key: &str| key.len() >= SECRET_BYTES;
    // A body that is no text is refused by whoever reads it.
    match std::str::from_utf8(&body) {
        Ok(text) => match own
            .into_iter()
            .chain(keys)
            .filter(|key| is_secret(key) && text.contains(key))
            .collect::<Vec<_>>()
        {
            found if found.is_empty() => body,
            found => found.iter().fold(text.to_owned(), |text, key| text.replace(key, HIDDEN)).into_bytes(),
        },
        Err(_) => body,
    }
}

/// The text without the secrets in these headers.
pub(super) fn without_keys(text: &str, headers: &HeaderMap) -> String {
    let keys = headers.values().filter(|value| value.is_sensitive()).filter_map(|value| value.to_str().ok());
    keys.filter(|key| !key.is_empty()).fold(text.to_owned(), |text, key| text.replace(key, HIDDEN))
}

/// Where a redirect points; redirects are not followed.
pub(super) fn redirect_target(response: &Response) -> Option<String> {
    let target = response.headers().get(LOCATION).filter(|_| response.status().is_redirection())?;
    Some(String::from_utf8_lossy(target.as_bytes()).into_owned())
}

fn hint(status: u16, url: &str, pass: &Pass) -> String {
    match (status, pass) {
        (401 | 403, Pass::Refused(reasons)) => {
            return format!(
                "the server wants a token, and there are no Google credentials:\n{}",
                tried(reasons)
            );
        }
        (401, Pass::Token(minted)) => return not_accepted(minted),
        (403, Pass::Token(minted)) if minted.kind.is_some() => return not_allowed(minted, url),
        _ => {}
    }
    let text = match status {
        300..=399 => "redirects are not followed; name that address with -u",
        400 | 422 => "the server refused the request; its message above says why",
        401 | 403 => "the server wants a valid token: --token-file FILE, DGEM_TOKEN or -k TOKEN",
        404 | 405 if !url.contains("/v1/") => "the base URL ends in /v1: -u http://…/v1",
        404 | 405 => "the server has no such route; check the base URL (-u)",
        413 => "the request is larger than the server allows; shorten the state",
        429 => "the server is busy: --retries 3 tries again, and waits as long as Retry-After asks",
        503 => "the server is starting or stopping; --wait-ready 10m waits for it, --retries 3 tries again",
        500.. => "the fault is on the server's side; look at its log",
        _ => "the server refused the request",
    };
    text.to_owned()
}

fn not_accepted(minted: &Minted) -> String {
    let from = &minted.provider;
    match (&minted.kind, &minted.claims.audience, minted.caveat) {
        (_, _, Some(caveat)) => format!("the token of {from} was not accepted; {caveat}"),
        (Some(Kind::Id), Some(audience), None) => format!(
            "the audience of the token is {audience}; a Cloud Run service expects its own URL: try --audience URL"
        ),
        _ => format!("the token of {from} was not accepted; `dgem auth check` shows what is known about it"),
    }
}

fn not_allowed(minted: &Minted, url: &str) -> String {
    if let Some(caveat) = minted.caveat {
        return format!("the account may not use {url}, or not with this kind of token; {caveat}");
    }
    let account = minted.claims.email.as_deref();
    let member = account.map_or("MEMBER".to_owned(), |email| {
        let kind = if email.ends_with(".gserviceaccount.com") { "serviceAccount" } else { "user" };
        format!("{kind}:{email}")
    });
    match minted.kind {
        Some(Kind::Access) => format!(
            "{} may not use this endpoint; it needs roles/aiplatform.user in the project",
            account.unwrap_or("the account")
        ),
        _ => format!(
            "{} may not call this service: gcloud run services add-iam-policy-binding SERVICE --member={member} --role=roles/run.invoker",
            account.unwrap_or("the account")
        ),
    }
}

/// One line per source.
fn tried(reasons: &Error) -> String {
    match reasons {
        Error::NoCredentials { tried, .. } => {
            tried.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
        }
        other => other.to_string(),
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
pub(crate) fn excerpt(text: &str) -> String {
    clipped(text, EXCERPT_CHARS)
}

/// The innermost cause: "Connection refused" instead of "error sending request".
pub(crate) fn root(error: &reqwest::Error) -> String {
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
    fn a_key_is_hidden_before_the_text_is_cut() {
        let mut value = reqwest::header::HeaderValue::from_static("k3y-of-the-user");
        value.set_sensitive(true);
        let headers = HeaderMap::from_iter([(reqwest::header::AUTHORIZATION, value)]);
        let told = |body: &str, location: Option<&str>| {
            let location = location.map(str::to_owned);
            status("u".to_owned(), 302, body.as_bytes(), location, &headers, &Pass::None).to_string()
        };
        for lead in [0, EXCERPT_CHARS - 5] {
            let text = "x".repeat(lead) + "k3y-of-the-user";
            for message in [told(&text, None), told("", Some(&text))] {
                assert!(!message.contains("k3y"), "{message}");
            }
        }
        assert!(told("not k3y-of-the-user", None).contains("not (hidden)"));
    }

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
