//! Talks to a server: one POST to `{url}/chat/completions` per decision, within one total deadline.
//!
//! `body` writes the request, `reply` reads the answer, `fault` names what went wrong. Nothing here prints.

mod body;
mod fault;
mod reply;

use std::time::{Duration, Instant};

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::redirect;

use crate::error::Error;
use crate::settings::Settings;
use crate::template::Request;

pub use reply::Reply;

/// A decision is a few kilobytes; what is larger than this is something else.
const REPLY_LIMIT_BYTES: usize = 4 << 20;

/// A connection to one server. Cheap to reuse, connections are kept.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    settings: Settings,
}

/// A reply with what the client itself measured.
#[derive(Debug)]
pub struct Decided {
    pub reply: Reply,
    /// From the first byte sent to the last byte read.
    pub wall: Duration,
    /// Full address of the request.
    pub url: String,
}

impl Client {
    /// Needs a rustls provider installed by the program beforehand.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("dgem/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers(&settings)?)
            .timeout(settings.timeout)
            // A redirect would carry the state, and perhaps the token, to a place the user did not name.
            .redirect(redirect::Policy::none());
        if settings.endpoint.is_loopback() {
            builder = builder.no_proxy();
        }
        if !settings.endpoint.is_https() {
            // Plain http never needs the certificates, and reading them costs milliseconds at every start.
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build().map_err(|cause| Error::HttpSetup { cause: fault::chain(&cause) })?;
        Ok(Self { http, settings })
    }

    /// Sends one decision and reads its answers.
    pub async fn decide(&self, request: &Request) -> Result<Decided, Error> {
        let url = self.settings.endpoint.chat_completions();
        let body = body::chat_completion(self.settings.model.as_deref(), request);
        let start = Instant::now();
        let response =
            self.http.post(&url).body(body).send().await.map_err(|cause| self.fault(&url, &cause))?;
        let status = response.status();
        let location = fault::redirect_target(&response);
        let bytes = self.read(&url, response).await?;
        let wall = start.elapsed();
        if !status.is_success() {
            return Err(fault::status(url, status.as_u16(), &bytes, location));
        }
        let reply = Reply::parse(&bytes, &url)?;
        if start.elapsed() > self.settings.timeout {
            // A reply may come in time and still take long to read.
            return Err(Error::DeadlinePassed { url, seconds: self.settings.timeout.as_secs_f64() });
        }
        Ok(Decided { reply, wall, url })
    }

    async fn read(&self, url: &str, mut response: reqwest::Response) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|cause| self.fault(url, &cause))? {
            if bytes.len() + chunk.len() > REPLY_LIMIT_BYTES {
                return Err(Error::ReplyTooLarge { url: url.to_owned(), limit_mib: REPLY_LIMIT_BYTES >> 20 });
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    fn fault(&self, url: &str, cause: &reqwest::Error) -> Error {
        fault::transport(&self.settings, url, cause)
    }
}

fn headers(settings: &Settings) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    if let Some(token) = &settings.token {
        let mut value = HeaderValue::try_from(token.header())
            .map_err(|_| Error::BadToken { origin: "the settings".to_owned() })?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}
