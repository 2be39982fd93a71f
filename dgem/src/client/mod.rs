//! Talks to a server: requests below one base URL, each within one total deadline that covers tokens, tries and pauses.
//!
//! [`Client`] is cheap to clone and may be used by many tasks at once: they share its connections and its token. `body`
//! writes a decision, `reply` reads its answers, `retry` decides about further tries, `fault` names what went wrong.
//! Nothing here prints.

mod body;
mod fault;
mod reply;
mod retry;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Request as HttpRequest, redirect};
use tokio::time::Instant;

use crate::error::Error;
use crate::settings::Settings;
use crate::template::Request;
use retry::Failure;

pub use reply::Reply;
pub use retry::Tally;

/// A decision is a few kilobytes; what is larger than this is something else.
const REPLY_LIMIT_BYTES: usize = 4 << 20;

/// A connection to one server.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    settings: Arc<Settings>,
}

/// The body of a reply with status 2xx, and what it took to get it.
#[derive(Debug)]
pub struct Sent {
    pub body: Vec<u8>,
    /// Full address of the request.
    pub url: String,
    /// The last try: from its first byte sent to its last byte read.
    pub wall: Duration,
    pub tally: Tally,
}

/// A decision with what the client itself measured.
#[derive(Debug)]
pub struct Decided {
    pub reply: Reply,
    /// The last try: from its first byte sent to its last byte read.
    pub wall: Duration,
    /// Full address of the request.
    pub url: String,
    pub tally: Tally,
}

impl Client {
    /// Needs a rustls provider installed by the program beforehand.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("dgem/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers(&settings)?)
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
        Ok(Self { http, settings: Arc::new(settings) })
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sends one decision and reads its answers.
    pub async fn decide(&self, request: &Request) -> Result<Decided, Error> {
        let body = body::chat_completion(self.settings.model.as_deref(), request);
        let Sent { body, url, wall, tally } = self.post("/chat/completions", body).await?;
        Ok(Decided { reply: Reply::parse(&body, &url)?, wall, url, tally })
    }

    /// Posts a JSON body to a path below the base URL: `/chat/completions` goes to `http://host/v1/chat/completions`.
    pub async fn post(&self, path: &str, body: Vec<u8>) -> Result<Sent, Error> {
        self.send(Method::POST, self.settings.endpoint.route(path), Some(body)).await
    }

    /// Reads a path below the base URL.
    pub async fn get(&self, path: &str) -> Result<Sent, Error> {
        self.send(Method::GET, self.settings.endpoint.route(path), None).await
    }

    /// The deadline, the tries and the token of one request.
    async fn send(&self, method: Method, url: String, body: Option<Vec<u8>>) -> Result<Sent, Error> {
        let settings = &self.settings;
        let mut builder = self.http.request(method, &url);
        if let Some(body) = body {
            builder = builder.body(body);
        }
        let request = builder.build().map_err(|cause| Error::HttpSetup { cause: fault::chain(&cause) })?;
        let late = || Error::DeadlinePassed { url: url.clone(), seconds: settings.timeout.as_secs_f64() };
        let deadline = Instant::now() + settings.timeout;
        let (result, tally) = retry::run(settings.retries, deadline, late, async || {
            // A body in memory can always be sent again.
            let request = request.try_clone().ok_or_else(|| {
                Failure::for_good(Error::HttpSetup { cause: "the request cannot be repeated".to_owned() })
            })?;
            self.try_once(request, &url).await
        })
        .await;
        let (body, wall) = result?;
        Ok(Sent { body, url, wall, tally })
    }

    async fn try_once(&self, request: HttpRequest, url: &str) -> Result<(Vec<u8>, Duration), Failure> {
        let network =
            |cause: &reqwest::Error| Failure::of_the_network(fault::transport(&self.settings, url, cause));
        let start = Instant::now();
        let mut response = self.http.execute(request).await.map_err(|cause| network(&cause))?;
        let status = response.status();
        let location = fault::redirect_target(&response);
        let retry_after = retry::retry_after(response.headers(), SystemTime::now());
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|cause| network(&cause))? {
            if bytes.len() + chunk.len() > REPLY_LIMIT_BYTES {
                let limit_mib = REPLY_LIMIT_BYTES >> 20;
                return Err(Failure::for_good(Error::ReplyTooLarge { url: url.to_owned(), limit_mib }));
            }
            bytes.extend_from_slice(&chunk);
        }
        if !status.is_success() {
            let error = fault::status(url.to_owned(), status.as_u16(), &bytes, location);
            return Err(Failure::of_the_server(error, retry_after));
        }
        Ok((bytes, start.elapsed()))
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
