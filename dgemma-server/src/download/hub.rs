//! The hub's side: which commit a revision is, which files it has, and a request for a part of one.
//!
//! The API of the Hugging Face hub and its mirrors: `GET /api/models/REPO/revision/REV`, `GET /api/models/REPO/tree/COMMIT`
//! (in pages, linked by `Link: <…>; rel="next"`) and `GET /REPO/resolve/COMMIT/PATH`, which may redirect to a store elsewhere.

use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderValue, LINK, RANGE};
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::digest::Digest;
use super::retry::Retry;
use crate::error::Error;

/// Variable of the hub's address.
pub const ENDPOINT_VARIABLE: &str = "HF_ENDPOINT";
/// Variable of the token for repositories that are not open.
pub const TOKEN_VARIABLE: &str = "HF_TOKEN";
const DEFAULT_ENDPOINT: &str = "https://huggingface.co";
/// To reach the hub.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// Without a byte, after which a request is given up and tried again.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// Pages of a listing, and bytes of one. A checkpoint has a few dozen files.
const MOST_PAGES: usize = 100;
const PAGE_BYTES: usize = 8 << 20;
/// Of one file. Hubs split models into files of a few dozen GB.
const MOST_FILE_BYTES: u64 = 4 << 40;

/// Which hub, and as whom.
#[derive(Clone)]
pub struct Access {
    endpoint: String,
    token: Option<String>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("Access").field("endpoint", &self.endpoint).field("token", &token).finish()
    }
}

impl Access {
    /// Empty values count as none.
    #[must_use]
    pub fn new(endpoint: Option<String>, token: Option<String>) -> Self {
        let given = |value: Option<String>| {
            value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        Self { endpoint: given(endpoint).unwrap_or_else(|| DEFAULT_ENDPOINT.into()), token: given(token) }
    }

    /// From `HF_ENDPOINT` and `HF_TOKEN`.
    #[must_use]
    pub fn of_environment() -> Self {
        Self::new(std::env::var(ENDPOINT_VARIABLE).ok(), std::env::var(TOKEN_VARIABLE).ok())
    }
}

/// One file of the repository.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Relative, with `/`; every part is a plain name.
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) digest: Digest,
}

/// One repository of one hub.
#[derive(Debug)]
pub(super) struct Hub {
    client: Client,
    endpoint: Url,
    repo: String,
    revision: String,
}

#[derive(Deserialize)]
struct Revision {
    sha: String,
}

#[derive(Deserialize)]
struct Node {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    oid: String,
    #[serde(default)]
    size: u64,
    lfs: Option<Large>,
}

#[derive(Deserialize)]
struct Large {
    oid: String,
    size: u64,
}

impl Hub {
    pub(super) fn new(access: &Access, repo: &str, revision: &str) -> Result<Self, Error> {
        let wrong = |what: &str, reason: &str, hint: &str| Error::Download {
            what: what.into(),
            reason: reason.into(),
            hint: hint.into(),
        };
        let parts: Vec<&str> = repo.split('/').collect();
        if parts.len() != 2 || !parts.iter().all(|part| plain_name(part)) {
            return Err(wrong(
                &format!("--repo {repo:?}"),
                "this names no repository",
                "a repository is organisation/name, as in google/diffusiongemma-26B-A4B-it",
            ));
        }
        if !revision.split('/').all(plain_name) {
            return Err(wrong(
                &format!("--revision {revision:?}"),
                "this names no revision",
                "a revision is a branch, a tag or a commit, as in main",
            ));
        }
        let endpoint = Url::parse(&access.endpoint)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some())
            .ok_or_else(|| {
                wrong(ENDPOINT_VARIABLE, "this is no address of a hub", "set it to https://HOST, or unset it")
            })?;
        if access.token.is_some() && endpoint.scheme() == "http" && !is_loopback(&endpoint) {
            return Err(wrong(
                TOKEN_VARIABLE,
                "it would travel in the clear to a hub that is asked over plain http",
                "set HF_ENDPOINT to an https address, or unset HF_TOKEN",
            ));
        }
        let client = client(access.token.as_deref())?;
        Ok(Self { client, endpoint, repo: repo.into(), revision: revision.into() })
    }

    /// The commit that the revision is now. Everything else is asked of that commit, so that a branch that moves meanwhile
    /// does not mix two states.
    pub(super) async fn commit(&self) -> Result<String, Error> {
        let url = self.url(&["api", "models", &self.repo, "revision", &self.revision]);
        let (Revision { sha }, _) = self.json(url).await?;
        if sha.is_empty() || !sha.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(self.odd(&format!("it calls {sha:?} a commit")));
        }
        Ok(sha)
    }

    /// All files of a commit in the order of their size, small ones first: a missing permission shows before hours of waiting.
    pub(super) async fn files(&self, commit: &str) -> Result<Vec<Entry>, Error> {
        let mut url = self.url(&["api", "models", &self.repo, "tree", commit]);
        url.set_query(Some("recursive=true"));
        let mut next = Some(url);
        let mut entries = Vec::new();
        for _ in 0..MOST_PAGES {
            let Some(url) = next.take() else { break };
            let (nodes, headers): (Vec<Node>, _) = self.json(url).await?;
            for node in nodes {
                entries.extend(self.entry(node)?);
            }
            next = self.next_page(&headers);
        }
        if next.is_some() {
            return Err(self.odd("its list of files does not end"));
        }
        if entries.is_empty() {
            return Err(self.odd("it lists no files"));
        }
        entries.sort_by(|a, b| a.bytes.cmp(&b.bytes).then_with(|| a.path.cmp(&b.path)));
        if entries.iter().enumerate().any(|(i, a)| entries[..i].iter().any(|b| a.path == b.path)) {
            return Err(self.odd("it lists a file twice"));
        }
        Ok(entries)
    }

    /// Bytes `from..to` of a file.
    pub(super) async fn range(
        &self,
        commit: &str,
        path: &str,
        from: u64,
        to: u64,
    ) -> Result<Response, Retry> {
        let url = self.url(&[&self.repo, "resolve", commit, path]);
        let request = self.client.get(url).header(RANGE, format!("bytes={from}-{}", to - 1));
        let response = request.send().await.map_err(|error| Retry::soon(&error))?;
        match response.status() {
            status if status.is_success() => Ok(response),
            status => Err(Retry::of(&response, refusal(status))),
        }
    }

    fn entry(&self, node: Node) -> Result<Option<Entry>, Error> {
        if node.kind != "file" || node.path == ".gitattributes" {
            return Ok(None);
        }
        // A path out of the folder would write wherever the hub likes.
        if !plain_path(&node.path) {
            return Err(self.odd(&format!("it names a file {:?}", node.path)));
        }
        let (digest, bytes) = match node.lfs {
            Some(large) => (Digest::Sha256(large.oid.to_ascii_lowercase()), large.size),
            None => (Digest::Git(node.oid.to_ascii_lowercase()), node.size),
        };
        if bytes > MOST_FILE_BYTES {
            return Err(self.odd(&format!("it says that {:?} has {bytes} bytes", node.path)));
        }
        Ok(Some(Entry { path: node.path, bytes, digest }))
    }

    async fn json<T: DeserializeOwned>(&self, url: Url) -> Result<(T, HeaderMap), Error> {
        Retry::repeat(|| async {
            let mut response =
                self.client.get(url.clone()).send().await.map_err(|error| Retry::soon(&error))?;
            if !response.status().is_success() {
                return Err(Retry::of(&response, refusal(response.status())));
            }
            let headers = response.headers().clone();
            let mut body = Vec::new();
            while let Some(piece) = response.chunk().await.map_err(|error| Retry::soon(&error))? {
                body.extend_from_slice(&piece);
                if body.len() > PAGE_BYTES {
                    return Err(Retry::Never(self.odd("its reply does not end")));
                }
            }
            match serde_json::from_slice(&body) {
                Ok(value) => Ok((value, headers)),
                Err(error) => Err(Retry::Never(self.odd(&format!("its reply cannot be read: {error}")))),
            }
        })
        .await
        .map_err(|error| self.named(error))
    }

    /// Only pages of the same hub are followed.
    fn next_page(&self, headers: &HeaderMap) -> Option<Url> {
        let links = headers.get(LINK)?.to_str().ok()?;
        let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
        let address = next.split_once('<')?.1.split_once('>')?.0;
        self.endpoint.join(address).ok().filter(|url| url.origin() == self.endpoint.origin())
    }

    /// `parts` may hold `/`.
    fn url(&self, parts: &[&str]) -> Url {
        let mut url = self.endpoint.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(parts.iter().flat_map(|part| part.split('/')));
        }
        url
    }

    /// An error with the repository in front.
    pub(super) fn named(&self, error: Error) -> Error {
        match error {
            Error::Download { what, reason, hint } if what.is_empty() => {
                Error::Download { what: self.name(), reason, hint }
            }
            other => other,
        }
    }

    fn odd(&self, reason: &str) -> Error {
        let host = self.endpoint.host_str().unwrap_or_default();
        let hint = format!("is {host} a hub? {ENDPOINT_VARIABLE} names it");
        Error::Download { what: self.name(), reason: reason.into(), hint }
    }

    fn name(&self) -> String {
        format!("{} at {}", self.repo, self.revision)
    }
}

fn client(token: Option<&str>) -> Result<Client, Error> {
    // Compressed bytes would be neither the length nor the ranges that were asked for.
    let mut headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
    if let Some(token) = token {
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| Error::Download {
            what: TOKEN_VARIABLE.into(),
            reason: "it has a character that no token has".into(),
            hint: "set it to the token alone".into(),
        })?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let policy = reqwest::redirect::Policy::custom(|attempt| {
        let was = attempt.previous().last().map(|url| url.scheme().to_owned());
        match () {
            () if attempt.previous().len() > 10 => attempt.error("too many redirects"),
            () if was.as_deref() == Some("https") && attempt.url().scheme() != "https" => {
                attempt.error("the hub redirects from https to an address without")
            }
            // The library leaves the token out when the host changes.
            () => attempt.follow(),
        }
    });
    Client::builder()
        .user_agent(concat!("dgemma-server/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .redirect(policy)
        .connect_timeout(CONNECT_LIMIT)
        .read_timeout(SILENCE_LIMIT)
        .build()
        .map_err(|error| Error::Download {
            what: "the network".into(),
            reason: error.to_string(),
            hint: "check the proxy variables and the system's certificates".into(),
        })
}

/// What went wrong, and what to do.
fn refusal(status: StatusCode) -> (String, String) {
    let hint = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "accept the licence on the model's page, and set HF_TOKEN to a token that may read it"
        }
        StatusCode::NOT_FOUND => {
            "check --repo and --revision; a repository that is not open also needs HF_TOKEN"
        }
        StatusCode::TOO_MANY_REQUESTS => "wait, ask with HF_TOKEN, or use fewer --jobs",
        _ => "run the same command again later; what came so far is kept",
    };
    (format!("the hub answers {status}"), hint.into())
}

/// Whether it names a file inside the folder. Names with a dot in front are ours.
pub(super) fn plain_path(path: &str) -> bool {
    path.split('/').all(|part| plain_name(part) && !part.starts_with('.'))
}

fn plain_name(part: &str) -> bool {
    !matches!(part, "" | "." | "..")
        && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-+ ()=@".contains(&byte))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
