//! A token from Google: the sources in their order, of which the first that applies is taken.
//!
//! First the credentials file named in `GOOGLE_APPLICATION_CREDENTIALS`, then the one of `gcloud auth application-default
//! login`, the metadata server of the machine, the program `gcloud`. A source that applies and fails is an error, never a
//! silent step to the next. With a service account to act as, the sources give the token to ask IAM with (`impersonation`).
//!
//! The crate `gcp_auth` reads key files and signs (`key`). The rest is done here, because that crate makes no ID tokens, and
//! goes past proxies, own certificates and the deadline.

mod exchange;
mod file;
mod gcloud;
mod impersonation;
mod key;
mod metadata;
mod user;

use std::time::Duration;

use tokio::time::Instant;

use super::{Claims, Minted, jwt};
use crate::env::{self, Environment};
use crate::error::Error;
use crate::settings::{Google, Kind, Settings, Token};
use exchange::Exchange;
use file::Credentials;

/// What a source gives.
struct Fresh {
    token: Token,
    lives: Option<Duration>,
    provider: String,
    caveat: Option<&'static str>,
}

/// Said where Google ignores the audience.
const USER_CAVEAT: &str = "user credentials cannot set an audience; use --impersonate-service-account SA if the server refuses them";

pub(super) async fn mint(google: &Google, settings: &Settings) -> Result<Minted, Error> {
    let exchange = Exchange::new(settings)?;
    let fresh = match &google.impersonate {
        None => from_sources(google.kind, &google.audience, settings, &exchange).await?,
        Some(account) => {
            let scope = crate::settings::CLOUD_PLATFORM;
            let caller = Box::pin(from_sources(Kind::Access, scope, settings, &exchange)).await?;
            impersonation::token(account, &[], google.kind, &google.audience, &caller, &exchange).await?
        }
    };
    let claims = Claims::of(&fresh.token);
    let expires = match fresh.lives {
        Some(lives) => Instant::now().checked_add(lives),
        None => claims.expires(),
    };
    let Fresh { token, provider, caveat, .. } = fresh;
    Ok(Minted { token, provider, kind: Some(google.kind), expires, claims, caveat })
}

/// The first source that applies.
async fn from_sources(
    kind: Kind,
    audience: &str,
    settings: &Settings,
    exchange: &Exchange,
) -> Result<Fresh, Error> {
    let environment = &settings.environment;
    let mut tried = Vec::new();
    if let Some(path) = environment.get(env::GOOGLE_APPLICATION_CREDENTIALS) {
        let credentials = Credentials::read(path.as_ref())?;
        return from_file(&credentials, kind, audience, exchange).await;
    }
    tried.push("GOOGLE_APPLICATION_CREDENTIALS: not set".to_owned());
    match file::default_path(environment) {
        None => tried
            .push("application default credentials: no HOME and no CLOUDSDK_CONFIG to look in".to_owned()),
        Some(path) if !path.exists() => {
            tried.push(format!("application default credentials: no file {}", path.display()));
        }
        Some(path) => {
            let credentials = Credentials::read(&path)?;
            let is_user = matches!(credentials, Credentials::User(_));
            if !(is_user && kind == Kind::Id && gcloud::program(environment).is_some()) {
                return from_file(&credentials, kind, audience, exchange).await;
            }
            tried.push(format!(
                "application default credentials: {} is of a user, whose ID tokens have no audience; gcloud goes first",
                path.display()
            ));
        }
    }
    match metadata::token(kind, audience, environment, exchange).await? {
        Ok(fresh) => return Ok(fresh),
        Err(reason) => tried.push(format!("metadata server: {reason}")),
    }
    match gcloud::program(environment) {
        Some(program) => return gcloud::token(&program, kind, audience).await,
        None => tried.push("gcloud: not on PATH".to_owned()),
    }
    Err(Error::NoCredentials { url: settings.endpoint.to_string(), tried })
}

async fn from_file(
    credentials: &Credentials,
    kind: Kind,
    audience: &str,
    exchange: &Exchange,
) -> Result<Fresh, Error> {
    match credentials {
        Credentials::Key(key) => key.token(kind, audience, exchange).await,
        Credentials::User(user) => user.token(kind, exchange).await,
        Credentials::Impersonated { account, delegates, source } => {
            let caller =
                Box::pin(from_file(source, Kind::Access, crate::settings::CLOUD_PLATFORM, exchange)).await?;
            impersonation::token(account, delegates, kind, audience, &caller, exchange).await
        }
    }
}

/// A variable of the environment, or what Google's public address is.
fn address(environment: &Environment, variable: &'static str, public: &str) -> String {
    environment.get(variable).unwrap_or(public).trim_end_matches('/').to_owned()
}
