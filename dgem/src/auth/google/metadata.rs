//! The metadata server of a machine at Google: GCE, Cloud Run, GKE.

use std::time::Duration;

use reqwest::Url;
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::Fresh;
use super::exchange::{self, Exchange, no_token};
use crate::env::{self, Environment};
use crate::error::Error;
use crate::settings::{Kind, Token};

const PUBLIC: &str = "metadata.google.internal";
/// Inside the machine; who does not answer at once is not there.
const LONGEST: Duration = Duration::from_millis(500);
/// Making an ID token takes the server longer than the connection.
const LONGEST_REPLY: Duration = Duration::from_secs(10);

/// `Err`: this is no machine at Google, or none with a service account.
pub(super) async fn token(
    kind: Kind,
    audience: &str,
    environment: &Environment,
    exchange: &Exchange,
) -> Result<Result<Fresh, String>, Error> {
    let named = environment.get(env::GCE_METADATA_HOST);
    let host = named.unwrap_or(PUBLIC);
    let provider = format!("the metadata server {host}");
    let address = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
    // The name exists only on Google's machines, and asking elsewhere could hang.
    let reachable = async {
        let mut addresses = lookup_host(&address).await.map_err(|_| format!("{host} is not known here"))?;
        let address = addresses.next().ok_or_else(|| format!("{host} has no address"))?;
        let connected = tokio::net::TcpStream::connect(address).await;
        connected.map(drop).map_err(|cause| format!("{host}: {cause}"))
    };
    let probe =
        timeout(LONGEST, reachable).await.unwrap_or_else(|_| Err(format!("{host} did not answer in time")));
    if let Err(reason) = probe {
        return Ok(Err(reason));
    }
    let account = format!("http://{host}/computeMetadata/v1/instance/service-accounts/default");
    let url = match kind {
        Kind::Id => Url::parse_with_params(
            &format!("{account}/identity"),
            [("audience", audience), ("format", "full")],
        ),
        Kind::Access => Url::parse(&format!("{account}/token")),
    };
    let url =
        url.map_err(|cause| no_token(&provider, format!("GCE_METADATA_HOST is no host: {cause}"), false))?;
    let reply = timeout(LONGEST_REPLY, exchange.metadata(&provider, url.as_str()));
    let reply =
        match reply.await.map_err(|_| no_token(&provider, "it did not answer in time".to_owned(), true))?? {
            Ok(reply) => reply,
            Err(reason) => return Ok(Err(reason)),
        };
    let (token, lives) = match kind {
        Kind::Id => (Token::parse(&String::from_utf8_lossy(&reply), &provider)?, None),
        Kind::Access => {
            let reply = exchange::json(&provider, &reply)?;
            (exchange::token(&provider, &reply, "access_token")?, exchange::lives(&reply))
        }
    };
    Ok(Ok(Fresh { token, lives, provider, caveat: None }))
}
