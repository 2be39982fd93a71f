//! The base URL of a server: checked once, printed without secrets, joined without doubled slashes.

use std::fmt;
use std::net::IpAddr;

use reqwest::Url;

use crate::error::Error;

const CHAT_COMPLETIONS: &str = "/chat/completions";

/// A base URL such as `http://127.0.0.1:8080/v1`, without a trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    base: Url,
}

impl Endpoint {
    /// Accepts a base URL with or without a trailing slash, or the full address of the chat route.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let refuse = |reason: &str| Error::BadUrl { url: shown(text), reason: reason.to_owned() };
        let mut base = Url::parse(text.trim()).map_err(|cause| refuse(&cause.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(refuse("the scheme must be http or https"));
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(refuse("a user name or password inside the URL is not supported; use a token"));
        }
        if base.query().is_some() || base.fragment().is_some() {
            return Err(refuse("a base URL has no `?` or `#` part"));
        }
        let path = base.path().trim_end_matches('/').trim_end_matches(CHAT_COMPLETIONS).trim_end_matches('/');
        let path = match path.strip_suffix("/invoke") {
            // A Vertex endpoint hands on what follows `/invoke`.
            Some(_) if is_vertex(&base) => format!("{path}/v1"),
            _ => path.to_owned(),
        };
        base.set_path(&path);
        Ok(Self { base })
    }

    /// Where decisions are posted.
    pub fn chat_completions(&self) -> String {
        self.route(CHAT_COMPLETIONS)
    }

    /// A path below the base URL, such as `/models`.
    pub fn route(&self, path: &str) -> String {
        // A method of Vertex, such as `…/endpoints/7:rawPredict`, is a whole address.
        let is_method = is_vertex(&self.base)
            && self.base.path_segments().and_then(Iterator::last).is_some_and(|last| last.contains(':'));
        if is_method && path == CHAT_COMPLETIONS { self.to_string() } else { format!("{self}{path}") }
    }

    /// A path beside the base URL, without its `/v1`: `/readyz`.
    pub fn beside(&self, path: &str) -> String {
        let base = self.to_string();
        format!("{}{path}", base.strip_suffix("/v1").unwrap_or(&base))
    }

    /// The host, in lower case, without a port.
    pub fn host(&self) -> &str {
        self.base.host_str().unwrap_or_default()
    }

    /// Scheme, host and port: the audience of a token for this server.
    pub fn origin(&self) -> String {
        self.base.origin().ascii_serialization()
    }

    pub fn is_https(&self) -> bool {
        self.base.scheme() == "https"
    }

    /// Whether the server is on this machine.
    pub fn is_loopback(&self) -> bool {
        let host = self.base.host_str().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
    }

    /// Whether a token sent there cannot be read on the way.
    pub fn may_carry_a_token(&self) -> bool {
        self.is_https() || self.is_loopback()
    }
}

/// Whether the host is one of Vertex AI.
fn is_vertex(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_end_matches('.');
    host.ends_with(".prediction.vertexai.goog") || host.ends_with("aiplatform.googleapis.com")
}

/// The text of a URL for a message, parsed or not: all that may be a user name or a password, in front of an `@`, or a key
/// in a query, is left out.
pub(crate) fn shown(text: &str) -> String {
    let text = text.trim();
    let scheme = ["http://", "https://"]
        .into_iter()
        .find(|scheme| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
        .unwrap_or_default();
    // Escaped, an `@` still ends what its writer took for a password.
    let secret_end = ["@", "%40", "＠"].iter().filter_map(|at| Some(text.rfind(at)? + at.len())).max();
    let (hidden, rest) = match secret_end {
        Some(end) => (format!("{scheme}(hidden)@"), &text[end..]),
        None => (String::new(), text),
    };
    match rest.find(['?', '#']) {
        Some(query) => hidden + &rest[..=query] + "…",
        None => hidden + rest,
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.base.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_32_a_trailing_slash_gives_a_single_slash_and_the_origin_is_the_audience() {
        for text in [
            "https://x.run.app/v1/",
            "https://x.run.app/v1",
            "https://x.run.app/v1//",
            "https://x.run.app/v1/chat/completions",
        ] {
            let endpoint = Endpoint::parse(text).unwrap();
            assert_eq!(endpoint.chat_completions(), "https://x.run.app/v1/chat/completions", "{text}");
            assert_eq!(endpoint.origin(), "https://x.run.app", "{text}");
        }
        assert_eq!(
            Endpoint::parse("http://127.0.0.1:8080").unwrap().chat_completions(),
            "http://127.0.0.1:8080/chat/completions"
        );
    }

    #[test]
    fn case_34_a_vertex_url_gets_its_path_exactly_once() {
        let endpoint = "https://7.us-central1-42.prediction.vertexai.goog/v1/projects/42/locations/us-central1/endpoints/7";
        for end in ["/invoke", "/invoke/", "/invoke/v1", "/invoke/v1/chat/completions"] {
            let parsed = Endpoint::parse(&format!("{endpoint}{end}")).unwrap();
            assert_eq!(parsed.chat_completions(), format!("{endpoint}/invoke/v1/chat/completions"), "{end}");
        }
        let method = "https://us-central1-aiplatform.googleapis.com/v1/projects/42/locations/us-central1/endpoints/7:rawPredict";
        assert_eq!(Endpoint::parse(method).unwrap().chat_completions(), method);
        let other = Endpoint::parse("https://example.org/invoke").unwrap();
        assert_eq!(other.chat_completions(), "https://example.org/invoke/chat/completions");
    }

    #[test]
    fn the_health_routes_are_beside_the_base() {
        for text in ["https://x.run.app/v1", "https://x.run.app/v1/", "https://x.run.app"] {
            assert_eq!(Endpoint::parse(text).unwrap().beside("/readyz"), "https://x.run.app/readyz");
        }
    }

    #[test]
    fn what_is_no_base_url_is_refused_with_its_reason() {
        for (text, part) in [
            ("127.0.0.1:8080/v1", "http"),
            ("ftp://x/v1", "http or https"),
            ("http://x/v1?a=1", "`?`"),
            ("", "URL"),
        ] {
            let message = Endpoint::parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn a_password_is_never_shown_and_the_host_is() {
        for (text, part) in [
            ("https://me:pass1@x/v1", "`https://(hidden)@x/v1`"),
            ("http://me:pass1@127.0.0.1:99999/v1", "`http://(hidden)@127.0.0.1:99999/v1`"),
            ("me:pass1@host:1/v1", "`(hidden)@host:1/v1`"),
            ("me:pass1://x@host/v1", "`(hidden)@host/v1`"),
            ("http:me:pass1@host", "`(hidden)@host`"),
            ("http://me:pass1@x@[::1/v1", "`http://(hidden)@[::1/v1`"),
            ("http://me:pass1%40host/v1", "`http://(hidden)@host/v1`"),
            ("HTTP://me:pass1/x?a@b/v1", "`http://(hidden)@b/v1`"),
            ("http://host/v1?key=pass1", "`http://host/v1?…`"),
        ] {
            let message = Endpoint::parse(text).unwrap_err().to_string();
            assert!(!message.contains("pass1") && message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn loopback_is_told_by_the_host_and_not_by_a_substring() {
        assert!(Endpoint::parse("http://127.0.0.2/v1").unwrap().is_loopback());
        assert!(Endpoint::parse("http://LOCALHOST/v1").unwrap().is_loopback());
        assert!(!Endpoint::parse("http://localhost.example.org/v1").unwrap().is_loopback());
        assert!(!Endpoint::parse("http://example.org/127.0.0.1").unwrap().is_loopback());
    }
}
