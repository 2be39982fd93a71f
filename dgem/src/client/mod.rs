//! Talks to a server: requests below one base URL, each within one total deadline that covers tokens, tries and pauses.
//!
//! [`Client`] is cheap to clone and may be used by many tasks at once: they share its connections and its token. `body`
//! writes a decision, `reply` reads its answers, `stream` gives a reply in text piece by piece, `retry` decides about further
//! tries, `fault` names what went wrong. Nothing here prints.

mod body;
mod completion;
mod events;
mod fault;
mod http;
mod ready;
mod reply;
mod retry;
mod stream;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use decision::Schema;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request as HttpRequest, Response};
use tokio::time::{Instant, timeout_at};

use crate::auth::{self, Auth, Minted, Pass};
use crate::error::Error;
use crate::settings::Settings;
use crate::state::State;
use crate::template::Request;
use retry::Failure;

pub(crate) use body::chat_completion as chat_body;
pub(crate) use completion::Completion;
pub(crate) use events::Event;
pub(crate) use fault::{excerpt, root};
pub(crate) use http::http;
pub use ready::Progress;
pub use reply::Reply;
pub(crate) use reply::{no_decision, slot};
pub use retry::Tally;
pub(crate) use stream::{Stream, Streamed};

/// A decision is a few kilobytes; what is larger than this is something else.
const REPLY_LIMIT_BYTES: usize = 4 << 20;

/// A connection to one server.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    headers: Arc<HeaderMap>,
    auth: Arc<Auth>,
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
        Self::with_headers(settings, HeaderMap::new())
    }

    /// A client that identifies itself with a key in a header of its own.
    pub(crate) fn with_key(settings: Settings, header: &'static str, key: &str) -> Result<Self, Error> {
        let mut value =
            HeaderValue::try_from(key).map_err(|_| Error::BadToken { origin: header.to_owned() })?;
        value.set_sensitive(true);
        Self::with_headers(settings, HeaderMap::from_iter([(HeaderName::from_static(header), value)]))
    }

    fn with_headers(settings: Settings, mut headers: HeaderMap) -> Result<Self, Error> {
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let http = http::to_server(&settings)?;
        Ok(Self { http, headers: Arc::new(headers), auth: Arc::default(), settings: Arc::new(settings) })
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the server says, for a message: without the key of `with_key`, should it repeat that.
    pub(crate) fn without_key(&self, text: &str) -> String {
        fault::without_keys(text, &self.headers)
    }

    /// Sends one decision and reads its answers.
    pub async fn decide(&self, request: &Request) -> Result<Decided, Error> {
        let state = State { text: request.state.clone(), images: Vec::new() };
        self.decide_about(&request.schema, &state).await
    }

    /// The same for a state that may hold images.
    pub(crate) async fn decide_about(&self, schema: &Schema, state: &State) -> Result<Decided, Error> {
        let body = body::chat_completion(self.settings.model.as_deref(), schema, state);
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

    /// The token that requests go with; `None` when they go without.
    pub async fn token(&self) -> Result<Option<Arc<Minted>>, Error> {
        let longest = self.settings.timeout;
        match self.pass_within(Instant::now() + longest, longest).await? {
            Pass::Token(minted) => Ok(Some(minted)),
            Pass::None | Pass::Refused(_) => Ok(None),
        }
    }

    /// What gives no token in time is named itself, and not the server that nobody has asked yet.
    async fn pass_within(&self, deadline: Instant, longest: Duration) -> Result<Pass, Error> {
        let pass = timeout_at(deadline, self.auth.pass(&self.settings)).await;
        pass.unwrap_or_else(|_| Err(auth::late(&self.settings, longest)))
    }

    async fn send(&self, method: Method, url: String, body: Option<Vec<u8>>) -> Result<Sent, Error> {
        let retries = self.settings.retries.unwrap_or_default();
        self.send_within(method, url, body, retries, self.settings.timeout).await
    }

    /// The deadline, the tries and the token of one request.
    async fn send_within(
        &self,
        method: Method,
        url: String,
        body: Option<Vec<u8>>,
        retries: u32,
        longest: Duration,
    ) -> Result<Sent, Error> {
        let request = self.request(method, &url, body)?;
        let deadline = Instant::now() + longest;
        let (result, tally) = self
            .tries(&url, retries, deadline, longest, async |pass| {
                let (response, start) = self.begin(&request, pass).await?;
                Ok((fault::body_without_secrets(self.rest(response).await?, &self.headers, pass), start))
            })
            .await;
        let (body, start) = result?;
        Ok(Sent { body, url, wall: start.elapsed(), tally })
    }

    fn request(&self, method: Method, url: &str, body: Option<Vec<u8>>) -> Result<HttpRequest, Error> {
        let mut builder = self.http.request(method, url).headers((*self.headers).clone());
        if let Some(body) = body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body);
        }
        builder.build().map_err(|cause| Error::HttpSetup { cause: fault::chain(&cause) })
    }

    /// Tries `once` with the token of this client, until it works or it is too late.
    async fn tries<T>(
        &self,
        url: &str,
        retries: u32,
        deadline: Instant,
        longest: Duration,
        once: impl AsyncFn(&Pass) -> Result<T, Failure>,
    ) -> (Result<T, Error>, Tally) {
        let late = || Error::DeadlinePassed { url: url.to_owned(), seconds: longest.as_secs_f64() };
        let mut renewed = false;
        retry::run(retries, deadline, late, async || {
            loop {
                let pass = self.pass_within(deadline, longest).await.map_err(Failure::of_the_token)?;
                let result = once(&pass).await;
                // A token may have been withdrawn, or have expired on the way: once, a new one is tried.
                if let (Err(failure), Pass::Token(minted)) = (&result, &pass)
                    && failure.error.status() == Some(401)
                    && !renewed
                    && self.auth.refused(&self.settings, minted).await
                {
                    renewed = true;
                    continue;
                }
                return result;
            }
        })
        .await
    }

    /// Sends the request. The head of a reply with status 2xx, and when the request was sent.
    async fn begin(&self, request: &HttpRequest, pass: &Pass) -> Result<(Response, Instant), Failure> {
        let url = request.url().to_string();
        // A body in memory can always be sent again.
        let mut request = request.try_clone().ok_or_else(|| {
            Failure::for_good(Error::HttpSetup { cause: "the request cannot be repeated".to_owned() })
        })?;
        if let Pass::Token(minted) = pass {
            request.headers_mut().insert(AUTHORIZATION, header(minted).map_err(Failure::for_good)?);
        }
        let start = Instant::now();
        let response = self
            .http
            .execute(request)
            .await
            .map_err(|cause| Failure::of_the_network(fault::transport(&self.settings, &url, &cause)))?;
        let status = response.status();
        if status.is_success() {
            return Ok((response, start));
        }
        let location = fault::redirect_target(&response);
        let retry_after = retry::retry_after(response.headers(), SystemTime::now());
        let bytes = self.rest(response).await?;
        let error = fault::status(url, status.as_u16(), &bytes, location, &self.headers, pass);
        Err(Failure::of_the_server(error, retry_after))
    }

    /// The whole body.
    async fn rest(&self, mut response: Response) -> Result<Vec<u8>, Failure> {
        let url = response.url().to_string();
        let mut bytes = Vec::new();
        loop {
            let chunk = response
                .chunk()
                .await
                .map_err(|cause| Failure::of_the_network(fault::transport(&self.settings, &url, &cause)))?;
            let Some(chunk) = chunk else { return Ok(bytes) };
            if bytes.len() + chunk.len() > REPLY_LIMIT_BYTES {
                let limit_mib = REPLY_LIMIT_BYTES >> 20;
                return Err(Failure::for_good(Error::ReplyTooLarge { url, limit_mib }));
            }
            bytes.extend_from_slice(&chunk);
        }
    }
}

fn header(minted: &Minted) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::try_from(minted.token.header())
        .map_err(|_| Error::BadToken { origin: minted.provider.clone() })?;
    value.set_sensitive(true);
    Ok(value)
}
