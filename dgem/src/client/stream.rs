//! A reply that comes in pieces. The request is tried as any other until the first byte of the reply is there; from then on the
//! same deadline holds, and nothing is asked again.

use std::collections::VecDeque;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Response};
use tokio::time::{Instant, timeout_at};

use super::events::{Event, Parser, TooLong};
use super::retry::{Failure, Tally};
use super::{Client, Sent, fault};
use crate::auth::Pass;
use crate::error::Error;

/// What a server makes of a request for a stream.
#[derive(Debug)]
pub(crate) enum Streamed {
    Events(Box<Stream>),
    /// Some servers know no streams and send the reply as one document.
    Whole(Sent),
}

/// Events to come.
#[derive(Debug)]
pub(crate) struct Stream {
    response: Response,
    parser: Parser,
    ready: VecDeque<Event>,
    ended: bool,
    deadline: Instant,
    longest: Duration,
    /// The token it was asked for with.
    secret: Option<String>,
    /// Full address of the request.
    pub(crate) url: String,
    /// When the try that worked was sent.
    pub(crate) start: Instant,
    pub(crate) tally: Tally,
}

/// The first piece of a reply.
enum Begun {
    Events { response: Response, first: Vec<u8>, start: Instant, secret: Option<String> },
    Whole(Vec<u8>, Duration),
}

impl Client {
    /// Posts a JSON body to a path below the base URL, for a reply in events.
    pub(crate) async fn stream(&self, path: &str, body: Vec<u8>) -> Result<Streamed, Error> {
        let url = self.settings.endpoint.route(path);
        let mut request = self.request(Method::POST, &url, Some(body))?;
        request
            .headers_mut()
            .insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json;q=0.5"));
        let longest = self.settings.timeout;
        let deadline = Instant::now() + longest;
        let retries = self.settings.retries.unwrap_or_default();
        let (begun, tally) = self
            .tries(&url, retries, deadline, longest, async |pass| {
                let (mut response, start) = self.begin(&request, pass).await?;
                if !holds_events(&response) {
                    return Ok(Begun::Whole(self.rest(response).await?, start.elapsed()));
                }
                let first = response.chunk().await.map_err(|cause| {
                    Failure::of_the_network(fault::transport(&self.settings, &url, &cause))
                })?;
                let secret = match pass {
                    Pass::Token(minted) => Some(minted.token.reveal().to_owned()),
                    Pass::None | Pass::Refused(_) => None,
                };
                Ok(Begun::Events { response, first: first.unwrap_or_default().to_vec(), start, secret })
            })
            .await;
        match begun? {
            Begun::Whole(body, wall) => Ok(Streamed::Whole(Sent { body, url, wall, tally })),
            Begun::Events { response, first, start, secret } => {
                let mut stream = Stream {
                    response,
                    parser: Parser::default(),
                    ready: VecDeque::new(),
                    ended: false,
                    deadline,
                    longest,
                    secret,
                    url,
                    start,
                    tally,
                };
                stream.take(&first)?;
                Ok(Streamed::Events(Box::new(stream)))
            }
        }
    }
}

/// A reply that says nothing of its form may hold events.
fn holds_events(response: &Response) -> bool {
    let form = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    form.is_none_or(|form| form.trim_start().to_ascii_lowercase().starts_with("text/event-stream"))
}

impl Stream {
    /// The next event; `None` at the end of the body.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.ended {
                return Ok(None);
            }
            match timeout_at(self.deadline, self.response.chunk()).await {
                Ok(Ok(Some(bytes))) => self.take(&bytes)?,
                Ok(Ok(None)) => {
                    self.ended = true;
                    let last = self.parser.finish().map_err(|TooLong| self.too_long())?;
                    self.ready.extend(last);
                }
                Ok(Err(cause)) => {
                    let reason = format!("the connection broke ({})", fault::root(&cause));
                    return Err(self.broke_off(reason, "try again; if it stays, look at the server's log"));
                }
                Err(_) => {
                    let reason = format!("{} s were not enough for all of it", self.longest.as_secs_f64());
                    return Err(self.broke_off(
                        reason,
                        "allow more with --timeout SECONDS, or ask for less with --max-tokens",
                    ));
                }
            }
        }
    }

    /// What the server says, for a message: without the token, should it repeat that.
    pub(crate) fn hidden(&self, text: &str) -> String {
        match &self.secret {
            Some(secret) => text.replace(secret, "(hidden)"),
            None => text.to_owned(),
        }
    }

    /// The reply is not whole.
    pub(crate) fn broke_off(&self, reason: String, hint: &'static str) -> Error {
        Error::BrokeOff { url: self.url.clone(), reason, hint }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.parser.push(bytes, &mut self.ready).map_err(|TooLong| self.too_long())
    }

    fn too_long(&self) -> Error {
        Error::ReplyTooLarge { url: self.url.clone(), limit_mib: TooLong::LIMIT_MIB }
    }
}
