//! Which web pages may use a server that asks for no key.
//!
//! A browser on the machine reaches a server on its loopback, and a page of any site can make it send a request. Two checks keep such
//! pages out: the `Origin` a browser names must be this server's or an allowed one, and on loopback the `Host` must be a name that
//! only this machine can have, so that no site can point a name of its own here (DNS rebinding). A key does the same and more.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::shown;
use crate::Options;
use crate::error::Error;

/// Who is let in.
#[derive(Debug, Clone, Default)]
pub(super) struct Visitors(Arc<Rules>);

#[derive(Debug, Default)]
struct Rules {
    /// The server has keys, which no page knows.
    keyed: bool,
    on_loopback: bool,
    hosts: Vec<String>,
    origins: Vec<HeaderValue>,
}

impl Visitors {
    pub(super) fn new(options: &Options, on_loopback: bool) -> Self {
        Visitors(Arc::new(Rules {
            keyed: !options.keys.is_empty(),
            on_loopback,
            hosts: options.hosts.clone(),
            origins: options.cors_origins.clone(),
        }))
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        let Visitors(rules) = self;
        if rules.keyed {
            return Ok(());
        }
        // HTTP/2 has it in the URI.
        let authority = request.uri().authority().map(ToString::to_string);
        let authority =
            authority.or_else(|| request.headers().get(header::HOST).map(shown)).unwrap_or_default();
        if rules.on_loopback && !authority.trim().is_empty() && !rules.is_own(&authority) {
            return Err(Error::ForeignHost { found: authority });
        }
        match request.headers().get(header::ORIGIN) {
            Some(origin) if !rules.may_ask(origin, &authority) => {
                Err(Error::ForeignOrigin { found: shown(origin) })
            }
            _ => Ok(()),
        }
    }
}

impl Rules {
    /// An address, a name of this machine that no public name server can give, or one that was allowed.
    fn is_own(&self, authority: &str) -> bool {
        let Ok(authority) = authority.trim().parse::<Authority>() else { return false };
        let host = authority.host().trim_end_matches('.').to_ascii_lowercase();
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
        address.parse::<IpAddr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || host.ends_with(".internal")
            || self.hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(&host))
    }

    /// Programs that are no web page name no origin, or one of a kind of their own.
    fn may_ask(&self, origin: &HeaderValue, authority: &str) -> bool {
        let text = shown(origin).to_ascii_lowercase();
        let of_page = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        match of_page {
            Some(page) => page.eq_ignore_ascii_case(authority) || self.origins.contains(origin),
            None => text != "null",
        }
    }
}

pub(super) async fn check(State(visitors): State<Visitors>, request: Request, next: Next) -> Response {
    match visitors.check(&request) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn rules() -> Rules {
        Rules {
            keyed: false,
            on_loopback: true,
            hosts: vec!["Model.example".into()],
            origins: vec![HeaderValue::from_static("https://app.example")],
        }
    }

    fn ask(rules: Rules, host: &str, origin: Option<&str>) -> Result<(), Error> {
        let mut request = Request::get("/livez").header("host", host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        Visitors(Arc::new(rules)).check(&request.body(Body::empty()).unwrap())
    }

    #[test]
    fn on_loopback_a_server_answers_to_names_of_this_machine_only() {
        for own in [
            "localhost",
            "LOCALHOST:8080",
            "localhost.",
            "a.localhost:1",
            "127.0.0.1:8080",
            "10.1.2.3",
            "[::1]:8080",
            "[::1]",
            "host.docker.internal:8080",
            "model.example",
            "",
        ] {
            ask(rules(), own, None).unwrap_or_else(|error| panic!("{own}: {error}"));
        }
        for foreign in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "x",
            "a b",
        ] {
            let error = ask(rules(), foreign, None).unwrap_err();
            assert!(matches!(&error, Error::ForeignHost { found } if found == foreign), "{error}");
            ask(Rules { on_loopback: false, ..rules() }, foreign, None).unwrap();
            ask(Rules { keyed: true, ..rules() }, foreign, None).unwrap();
        }
    }

    #[test]
    fn pages_of_other_sites_are_kept_out() {
        let host = "127.0.0.1:8080";
        for welcome in ["http://127.0.0.1:8080", "https://app.example", "vscode-file://vscode-app"] {
            ask(rules(), host, Some(welcome)).unwrap_or_else(|error| panic!("{welcome}: {error}"));
        }
        for foreign in ["http://127.0.0.1:3000", "https://evil.example", "http://app.example", "null"] {
            let error = ask(rules(), host, Some(foreign)).unwrap_err();
            assert!(matches!(&error, Error::ForeignOrigin { found } if found == foreign), "{error}");
            assert!(ask(Rules { on_loopback: false, ..rules() }, host, Some(foreign)).is_err());
            ask(Rules { keyed: true, ..rules() }, host, Some(foreign)).unwrap();
        }
    }
}
