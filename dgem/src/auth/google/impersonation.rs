//! IAM Credentials: with an access token of one's own, a token of a service account.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::Fresh;
use super::exchange::{self, Exchange, no_token};
use crate::error::Error;
use crate::settings::Kind;

const LIVES: Duration = Duration::from_secs(3600);

/// `delegates`: the accounts between the caller and `account`, in order.
pub(super) async fn token(
    account: &str,
    delegates: &[String],
    kind: Kind,
    audience: &str,
    caller: &Fresh,
    exchange: &Exchange,
) -> Result<Fresh, Error> {
    let provider = format!("IAM for {account} (asked with {})", caller.provider);
    // It goes into a path.
    if !account.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '@' | '.' | '-' | '_')) {
        return Err(no_token(&provider, "that is no e-mail address of a service account".to_owned(), false));
    }
    let (method, mut body, answer) = match kind {
        Kind::Id => ("generateIdToken", json!({"audience": audience, "includeEmail": true}), "token"),
        Kind::Access => {
            let lifetime = format!("{}s", LIVES.as_secs());
            ("generateAccessToken", json!({"scope": [audience], "lifetime": lifetime}), "accessToken")
        }
    };
    if !delegates.is_empty() {
        body["delegates"] = json!(delegates);
    }
    let url = format!("{}/v1/projects/-/serviceAccounts/{account}:{method}", exchange.iam);
    let reply = exchange.json(&provider, &url, &body, &caller.token).await?;
    Ok(Fresh {
        token: exchange::token(&provider, &reply, answer)?,
        lives: lives(kind, &reply),
        provider,
        caveat: None,
    })
}

/// An ID token says itself until when it is valid.
fn lives(kind: Kind, reply: &Value) -> Option<Duration> {
    let written = reply.get("expireTime").and_then(Value::as_str);
    match kind {
        Kind::Id => None,
        Kind::Access => written.and_then(until).or(Some(LIVES)),
    }
}

/// From `2026-12-01T01:00:00Z`: the dates of HTTP are written otherwise, so that the parts are put together anew.
fn until(text: &str) -> Option<Duration> {
    let (date, time) = text.split_once('T')?;
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?.parse::<usize>().ok()?, parts.next()?);
    let month = "JanFebMarAprMayJunJulAugSepOctNovDec".get((month.checked_sub(1)?) * 3..)?.get(..3)?;
    let date =
        httpdate::parse_http_date(&format!("Mon, {day} {month} {year} {} GMT", time.get(..8)?)).ok()?;
    date.duration_since(SystemTime::now()).ok()
}
