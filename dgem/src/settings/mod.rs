//! What was typed and written means: flag > `DGEM_*` variable > project file > user file > default, resolved once before
//! anything else happens.
//!
//! Called by the commands; `client` gets the finished [`Settings`] and never looks at flags or the environment. `keys` is
//! the table of settings, `file` reads files, `layers` finds the value that wins, `credential` says who the user is.

mod credential;
mod duration;
mod endpoint;
mod file;
pub mod keys;
mod layers;
mod token;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::ConnectionFlags;
use crate::env::{self, Environment};
use crate::error::Error;
use keys::Key;

pub use credential::{CLOUD_PLATFORM, Credential, Google, Kind};
pub use endpoint::Endpoint;
pub(crate) use endpoint::shown as shown_url;
pub use file::SettingsFile;
pub use layers::{Layers, Origin, Sourced};
pub use token::Token;

/// More tries than this do not help anyone.
const MOST_RETRIES: u32 = 100;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Everything the client needs to know about the connection.
#[derive(Clone, Debug)]
pub struct Settings {
    pub endpoint: Endpoint,
    /// `None`: the request names no model and the server answers with the one it has.
    pub model: Option<String>,
    /// Of a whole request: the token, every try and every pause, to the last byte of the reply.
    pub timeout: Duration,
    pub connect_timeout: Duration,
    /// Further tries after the first; `None`: as the command sees fit, which is 0 for single requests.
    pub retries: Option<u32>,
    /// How long to wait for a server that is starting.
    pub wait_ready: Option<Duration>,
    pub credential: Credential,
    /// PEM file with certificates to trust beside those of the system.
    pub cacert: Option<PathBuf>,
    /// What finding Google credentials depends on.
    pub environment: Environment,
}

impl Settings {
    /// For the current folder.
    pub fn resolve(flags: &ConnectionFlags, environment: &Environment) -> Result<Self, Error> {
        // Without a current folder there is no project.
        let folder = std::env::current_dir().unwrap_or_default();
        Self::from_layers(&Layers::gather(flags, environment, &folder)?)
    }

    pub fn from_layers(layers: &Layers<'_>) -> Result<Self, Error> {
        let url = needed(layers, &keys::URL);
        let endpoint = Endpoint::parse(&url.text).map_err(|cause| cause.set_by(&url.origin))?;
        Ok(Self {
            credential: Credential::find(layers, &endpoint, &url.origin)?,
            endpoint,
            model: layers.get(&keys::MODEL).map(|model| model.text),
            timeout: duration(&keys::TIMEOUT, &needed(layers, &keys::TIMEOUT))?,
            connect_timeout: duration(&keys::CONNECT_TIMEOUT, &needed(layers, &keys::CONNECT_TIMEOUT))?,
            retries: layers.get(&keys::RETRIES).map(|text| retries(&text)).transpose()?,
            wait_ready: match layers.get(&keys::WAIT_READY) {
                Some(never) if never.text.trim() == "0" => None,
                Some(text) => Some(duration(&keys::WAIT_READY, &text)?),
                None => None,
            },
            cacert: layers.get(&keys::CACERT).map(|path| Path::new(&path.text).to_owned()),
            environment: layers.environment().clone(),
        })
    }
}

impl Settings {
    /// For another server than the user's own, with what is known about it; the rest is the default.
    pub fn elsewhere(
        endpoint: Endpoint,
        model: Option<String>,
        timeout: Duration,
        retries: u32,
        credential: Credential,
        environment: &Environment,
    ) -> Self {
        Self {
            endpoint,
            model,
            timeout,
            connect_timeout: timeout.min(CONNECT_TIMEOUT),
            retries: Some(retries),
            wait_ready: None,
            credential,
            cacert: environment.get(env::CACERT).map(PathBuf::from),
            environment: environment.clone(),
        }
    }

    /// Whether requests carry a token, or would if one can be had.
    pub fn sends_a_token(&self) -> bool {
        !matches!(self.credential, Credential::None)
    }
}

/// A duration that is no setting of its own.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, Error> {
    duration::parse(text).ok_or_else(|| Error::BadSetting {
        name: "duration",
        value: crate::foreign::clipped(text, 100),
        origin: "the command line".to_owned(),
        form: duration::FORM,
    })
}

/// A setting with a default is always there.
fn needed(layers: &Layers<'_>, key: &Key) -> Sourced {
    layers.get(key).unwrap_or(Sourced { text: String::new(), origin: Origin::Default })
}

fn duration(key: &Key, value: &Sourced) -> Result<Duration, Error> {
    duration::parse(&value.text).ok_or_else(|| mistyped(key, value, duration::FORM))
}

fn retries(value: &Sourced) -> Result<u32, Error> {
    let number = value.text.trim().parse().ok().filter(|number| *number <= MOST_RETRIES);
    number.ok_or_else(|| mistyped(&keys::RETRIES, value, "use a whole number from 0 (none) to 100"))
}

/// Says what is wrong, where it stands and what would be right.
fn mistyped(key: &Key, value: &Sourced, form: &'static str) -> Error {
    let value_shown =
        if key.secret { "(hidden)".to_owned() } else { crate::foreign::clipped(&value.text, 100) };
    Error::BadSetting { name: key.name, value: value_shown, origin: value.origin.to_string(), form }
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
        assert_eq!(bare.endpoint.to_string(), "http://127.0.0.1:8080/v1");
        assert_eq!((bare.model, bare.timeout, bare.retries), (None, Duration::from_secs(120), None));
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

    #[test]
    fn a_mistyped_setting_says_what_and_where() {
        let with = |name, value| {
            let outside = environment(&[(name, value)]);
            Settings::resolve(&ConnectionFlags::default(), &outside).unwrap_err().to_string()
        };
        for (name, value) in [
            (env::TIMEOUT, "soon"),
            (env::RETRIES, "many"),
            (env::WAIT_READY, "1h"),
            (env::GCP_AUTH, "maybe"),
        ] {
            let message = with(name, value);
            assert!(message.contains(name) && message.contains(&format!("`{value}`")), "{message}");
            assert!(message.contains("\nhint: "), "{message}");
        }
        assert!(with(env::URL, "ftp://x").contains("\n  set by DGEM_URL\nhint: "));
    }
}
