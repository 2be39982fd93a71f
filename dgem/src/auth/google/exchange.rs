//! One HTTP exchange with a token service: a POST or a GET whose JSON or text holds a token.
//!
//! What is sent are secrets, so that it goes over https or stays on this machine, and no redirect is followed.

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{RequestBuilder, Url};
use serde_json::Value;

use crate::client;
use crate::error::Error;
use crate::foreign::clipped;
use crate::settings::{Endpoint, Settings, Token};
use crate::{capped, env};

/// Characters of an error that are repeated.
const SAID_CHARS: usize = 300;
/// The header by which the metadata server and its callers know each other.
const FLAVOR: &str = "Metadata-Flavor";

pub(super) struct Exchange {
    https: reqwest::Client,
    /// For services on this machine.
    plain: reqwest::Client,
    pub(super) user_tokens: String,
    pub(super) iam: String,
}

impl Exchange {
    pub(super) fn new(settings: &Settings) -> Result<Self, Error> {
        let environment = &settings.environment;
        let user_tokens = "https://oauth2.googleapis.com/token";
        Ok(Self {
            https: client::http(settings, true)?,
            plain: client::http(settings, false)?,
            user_tokens: super::address(environment, env::CLOUDSDK_AUTH_TOKEN_HOST, user_tokens),
            iam: super::address(environment, env::IAM_ENDPOINT, "https://iamcredentials.googleapis.com"),
        })
    }

    /// A form, as token endpoints take it.
    pub(super) async fn form(
        &self,
        provider: &str,
        url: &str,
        fields: &[(&str, &str)],
    ) -> Result<Value, Error> {
        let mut form = Url::parse("x:").map_err(|cause| no_token(provider, cause.to_string(), false))?;
        form.query_pairs_mut().extend_pairs(fields);
        let body = form.query().unwrap_or_default().to_owned();
        let request =
            self.to(provider, url)?.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
        json(provider, &send(provider, request).await?)
    }

    /// A JSON document, with the token of the caller.
    pub(super) async fn json(
        &self,
        provider: &str,
        url: &str,
        body: &Value,
        caller: &Token,
    ) -> Result<Value, Error> {
        let request = self.to(provider, url)?.bearer_auth(caller.reveal()).json(body);
        json(provider, &send(provider, request).await?)
    }

    fn to(&self, provider: &str, url: &str) -> Result<RequestBuilder, Error> {
        let endpoint = Endpoint::parse(url).map_err(|cause| no_token(provider, cause.headline(), false))?;
        if !endpoint.may_carry_a_token() {
            let reason = format!("{url} is plain http, and secrets would be readable on the way");
            return Err(no_token(provider, reason, false));
        }
        let http = if endpoint.is_https() { &self.https } else { &self.plain };
        Ok(http.post(url))
    }

    /// The metadata server: plain http by design, inside the machine. `Err`: nobody answers there, or somebody else does: every
    /// reply of the real one says what it is.
    pub(super) async fn metadata(&self, provider: &str, url: &str) -> Result<Result<Vec<u8>, String>, Error> {
        let request = self.plain.get(url).header(FLAVOR, "Google");
        match request.send().await {
            Err(cause) if cause.is_connect() => Ok(Err(client::root(&cause))),
            Err(cause) => Err(no_token(provider, client::root(&cause), true)),
            Ok(response) if response.headers().get(FLAVOR).is_none_or(|flavor| flavor != "Google") => {
                Ok(Err(format!("no metadata server: the reply of {provider} has no `{FLAVOR}: Google`")))
            }
            Ok(response) => read(provider, response).await.map(Ok),
        }
    }
}

async fn send(provider: &str, request: RequestBuilder) -> Result<Vec<u8>, Error> {
    let response = request.send().await.map_err(|cause| no_token(provider, client::root(&cause), true))?;
    read(provider, response).await
}

async fn read(provider: &str, mut response: reqwest::Response) -> Result<Vec<u8>, Error> {
    let status = response.status();
    let mut bytes = Vec::new();
    while let Some(chunk) =
        response.chunk().await.map_err(|cause| no_token(provider, client::root(&cause), true))?
    {
        bytes.extend_from_slice(&chunk);
        if bytes.len() as u64 > capped::TOKEN_BYTES {
            return Err(no_token(provider, "its reply is far too large".to_owned(), false));
        }
    }
    if status.is_success() {
        return Ok(bytes);
    }
    let transient = status.as_u16() == 429 || status.is_server_error();
    Err(no_token(provider, format!("it answered HTTP {}: {}", status.as_u16(), said(&bytes)), transient))
}

/// The message of an error, in the shapes in use at Google.
fn said(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let found = ["/error/message", "/error_description", "/error"];
    let found = found.iter().find_map(|path| value.pointer(path).and_then(Value::as_str));
    clipped(found.unwrap_or(&text), SAID_CHARS)
}

pub(super) fn json(provider: &str, bytes: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(bytes).map_err(|_| no_token(provider, "its reply is no JSON".to_owned(), false))
}

/// The token under one key of a reply.
pub(super) fn token(provider: &str, reply: &Value, key: &str) -> Result<Token, Error> {
    match reply.get(key).and_then(Value::as_str) {
        Some(text) => Token::parse(text, provider),
        None => Err(no_token(provider, format!("its reply holds no `{key}`"), false)),
    }
}

/// How long a token lives, where the reply says so.
pub(super) fn lives(reply: &Value) -> Option<Duration> {
    reply.get("expires_in").and_then(Value::as_u64).map(Duration::from_secs)
}

/// A source that applies and does not work.
pub(super) fn no_token(provider: &str, reason: String, transient: bool) -> Error {
    let hint = if reason.contains("ACCESS_TOKEN_SCOPE_INSUFFICIENT")
        || reason.contains("insufficient authentication scopes")
    {
        "the machine's service account has a narrow scope; give it cloud-platform".to_owned()
    } else if transient {
        "try again; if it stays, bring a token with --token-file or --token-command".to_owned()
    } else {
        "repair that source, or bring a token with --token-file or --token-command; --gcp-auth=off sends none"
            .to_owned()
    };
    Error::NoToken { provider: provider.to_owned(), reason, hint, transient }
}
