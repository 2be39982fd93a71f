//! The refresh token of a user, exchanged for an access token or an ID token. Google gives the latter the audience of the
//! program that logged in, whatever one wants: a last resort.

use serde_json::Value;

use super::exchange::{self, Exchange, no_token};
use super::{Fresh, USER_CAVEAT};
use crate::error::Error;
use crate::settings::Kind;

pub(super) struct User {
    client_id: String,
    client_secret: String,
    refresh_token: String,
    provider: String,
}

impl User {
    pub(super) fn parse(value: &Value, provider: &str) -> Result<Self, Error> {
        let text = |key: &str| match value[key].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(no_token(provider, format!("it has no `{key}`"), false)),
        };
        Ok(Self {
            client_id: text("client_id")?,
            client_secret: text("client_secret")?,
            refresh_token: text("refresh_token")?,
            provider: provider.to_owned(),
        })
    }

    pub(super) async fn token(&self, kind: Kind, exchange: &Exchange) -> Result<Fresh, Error> {
        let fields = [
            ("grant_type", "refresh_token"),
            ("client_id", self.client_id.as_str()),
            ("client_secret", self.client_secret.as_str()),
            ("refresh_token", self.refresh_token.as_str()),
        ];
        let reply = exchange.form(&self.provider, &exchange.user_tokens, &fields).await?;
        let (answer, lives, caveat) = match kind {
            Kind::Id => ("id_token", None, Some(USER_CAVEAT)),
            Kind::Access => ("access_token", exchange::lives(&reply), None),
        };
        let token = exchange::token(&self.provider, &reply, answer)?;
        Ok(Fresh { token, lives, provider: format!("{} (a user)", self.provider), caveat })
    }
}
