//! The key of a service account: it signs an assertion, the token endpoint gives a token for it.

use gcp_auth::CustomServiceAccount;
use serde_json::{Value, json};

use super::exchange::{self, Exchange, no_token};
use super::{Fresh, jwt};
use crate::error::Error;
use crate::settings::Kind;

const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Google takes no assertion that is valid for longer.
const LIVES_SECONDS: u64 = 3600;

pub(super) struct Key {
    account: CustomServiceAccount,
    email: String,
    token_uri: String,
    provider: String,
}

impl Key {
    pub(super) fn parse(value: &Value, provider: &str) -> Result<Self, Error> {
        let text = |key: &str| match value[key].as_str() {
            Some(text) if !text.is_empty() => Ok(text.to_owned()),
            _ => Err(no_token(provider, format!("it has no `{key}`"), false)),
        };
        let (email, token_uri) = (text("client_email")?, text("token_uri")?);
        let account = CustomServiceAccount::from_json(&value.to_string())
            .map_err(|cause| no_token(provider, format!("its key cannot be used: {cause}"), false))?;
        Ok(Self { account, email, token_uri, provider: provider.to_owned() })
    }

    pub(super) async fn token(
        &self,
        kind: Kind,
        audience: &str,
        exchange: &Exchange,
    ) -> Result<Fresh, Error> {
        let now = jwt::now();
        let mut claims = json!({
            "iss": self.email, "sub": self.email, "aud": self.token_uri, "iat": now, "exp": now + LIVES_SECONDS
        });
        // An ID token has a target and no scope, an access token the reverse.
        let (claim, answer) = match kind {
            Kind::Id => ("target_audience", "id_token"),
            Kind::Access => ("scope", "access_token"),
        };
        claims[claim] = json!(audience);
        let text = jwt::to_sign(&claims);
        let signature = self.account.signer().sign(text.as_bytes());
        let signature = signature
            .map_err(|cause| no_token(&self.provider, format!("its key does not sign: {cause}"), false))?;
        let assertion = jwt::signed(&text, &signature);
        let fields = [("grant_type", GRANT), ("assertion", assertion.as_str())];
        let reply = exchange.form(&self.provider, &self.token_uri, &fields).await?;
        Ok(Fresh {
            token: exchange::token(&self.provider, &reply, answer)?,
            lives: if kind == Kind::Access { exchange::lives(&reply) } else { None },
            provider: format!("{} (key of {})", self.provider, self.email),
            caveat: None,
        })
    }
}
