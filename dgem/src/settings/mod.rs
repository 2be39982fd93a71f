//! What the typed flags mean: flag > `DGEM_*` variable > default, resolved once before anything else happens.
//!
//! Called by `commands::decide`; `client` gets the finished [`Settings`] and never looks at flags or the environment.

mod duration;
mod endpoint;
mod token;

use std::time::Duration;

use crate::cli::ConnectionFlags;
use crate::env::{self, Environment};
use crate::error::Error;

pub use endpoint::Endpoint;
pub use token::Token;

const DEFAULT_URL: &str = "http://127.0.0.1:8080/v1";
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// Everything the client needs to know about the connection.
#[derive(Clone, Debug)]
pub struct Settings {
    pub endpoint: Endpoint,
    /// `None`: the request names no model and the server answers with the one it has.
    pub model: Option<String>,
    /// From the start of the connection to the last byte of the reply.
    pub timeout: Duration,
    pub token: Option<Token>,
    /// Further tries after the first; 0 means none.
    pub retries: u32,
}

impl Settings {
    pub fn resolve(flags: &ConnectionFlags, environment: &Environment) -> Result<Self, Error> {
        let pick =
            |flag: &Option<String>, name| flag.clone().or_else(|| environment.get(name).map(str::to_owned));
        let endpoint = Endpoint::parse(pick(&flags.url, env::URL).as_deref().unwrap_or(DEFAULT_URL))?;
        let timeout = match pick(&flags.timeout, env::TIMEOUT) {
            Some(text) => duration::parse(&text)?,
            None => DEFAULT_TIMEOUT,
        };
        let token = Token::find(flags.token_file.as_deref(), environment)?;
        if token.is_some() && !endpoint.may_carry_a_token() {
            return Err(Error::TokenInTheClear { url: endpoint.to_string() });
        }
        Ok(Self { endpoint, model: pick(&flags.model, env::MODEL), timeout, token, retries: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::from_lookup(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_that_over_the_default() {
        let outside = environment(&[
            (env::URL, "http://localhost:1/v1"),
            (env::MODEL, "from-env"),
            (env::TIMEOUT, "7"),
        ]);
        let flags =
            ConnectionFlags { url: Some("http://localhost:2/v1".into()), ..ConnectionFlags::default() };
        let settings = Settings::resolve(&flags, &outside).unwrap();
        assert_eq!(settings.endpoint.to_string(), "http://localhost:2/v1");
        assert_eq!(settings.model.as_deref(), Some("from-env"));
        assert_eq!(settings.timeout, Duration::from_secs(7));

        let bare = Settings::resolve(&ConnectionFlags::default(), &environment(&[(env::URL, "")])).unwrap();
        assert_eq!(bare.endpoint.to_string(), DEFAULT_URL);
        assert_eq!((bare.model, bare.timeout), (None, DEFAULT_TIMEOUT));
    }

    #[test]
    fn a_token_never_goes_over_plain_http_to_another_machine() {
        let with = |url: &str| {
            Settings::resolve(
                &ConnectionFlags::default(),
                &environment(&[(env::URL, url), (env::TOKEN, "s3cret")]),
            )
        };
        assert!(with("http://127.0.0.1:8080/v1").is_ok());
        assert!(with("http://[::1]:8080/v1").is_ok());
        assert!(with("https://example.org/v1").is_ok());
        let message = with("http://example.org/v1").unwrap_err().to_string();
        assert!(message.contains("http://example.org/v1") && !message.contains("s3cret"), "{message}");
    }
}
