//! The two things this client does with a JWT: read what a token says about itself, and write the text that a key signs.
//!
//! Nothing here checks a signature: that is the server's business. A token that is no JWT says nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::foreign::clipped;
use crate::settings::Token;

/// Characters of a claim that are shown.
const SHOWN_CHARS: usize = 200;

/// What a token says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    pub audience: Option<String>,
    pub email: Option<String>,
    /// Seconds since 1970.
    expires: Option<u64>,
}

#[derive(Deserialize)]
struct Payload {
    aud: Option<Value>,
    email: Option<Value>,
    exp: Option<Value>,
}

impl Claims {
    pub(crate) fn of(token: &Token) -> Self {
        let payload = token.reveal().split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
        let Some(payload) = payload.and_then(|json| serde_json::from_slice::<Payload>(&json).ok()) else {
            return Self::default();
        };
        let text = |value: Option<Value>| match value? {
            Value::String(text) => Some(clipped(&text, SHOWN_CHARS)),
            Value::Array(texts) => {
                let texts: Vec<&str> = texts.iter().filter_map(Value::as_str).collect();
                Some(clipped(&texts.join(", "), SHOWN_CHARS))
            }
            _ => None,
        };
        Self {
            audience: text(payload.aud),
            email: text(payload.email),
            expires: payload.exp.and_then(|exp| exp.as_f64()).map(|exp| exp as u64),
        }
    }

    pub(super) fn expires(&self) -> Option<Instant> {
        let left = self.expires?.saturating_sub(now());
        Instant::now().checked_add(Duration::from_secs(left))
    }
}

/// Header and claims of an assertion, ready to be signed with RS256.
pub(super) fn to_sign(claims: &Value) -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}", part(r#"{"alg":"RS256","typ":"JWT"}"#), part(&claims.to_string()))
}

/// The whole assertion.
pub(super) fn signed(text: &str, signature: &[u8]) -> String {
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A JWT with these claims and an empty signature.
#[cfg(test)]
pub(super) fn unsigned(claims: &Value) -> String {
    signed(&to_sign(claims), b"x")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn claims_are_read_and_what_is_no_jwt_says_nothing() {
        let claims = |text: &str| Claims::of(&Token::parse(text, "test").unwrap());
        let token = unsigned(&json!({"aud": "https://a", "email": "e@x\u{1b}[2J", "exp": now() + 100}));
        let read = claims(&token);
        assert_eq!((read.audience.as_deref(), read.email.as_deref()), (Some("https://a"), Some("e@x [2J")));
        assert!(read.expires().unwrap() <= Instant::now() + Duration::from_secs(100));
        assert_eq!(claims(&unsigned(&json!({"aud": ["a", "b"]}))).audience.as_deref(), Some("a, b"));
        for text in ["abc", "a.b.c", "..", "a.!!!.c"] {
            assert_eq!(claims(text), Claims::default(), "{text}");
        }
    }
}
