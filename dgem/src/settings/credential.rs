//! Which token a request carries: one that was given, one from a command, or one from Google, by the host of the server.
//!
//! The rule that matters: a Google token goes only to a host of Google's or to one that was named with a kind or an audience.
//! A token that was given goes only where the user, not a file of a project, sends it. `auth` fetches what is chosen here.

use std::path::{Path, PathBuf};

use super::endpoint::Endpoint;
use super::keys::{self, Key};
use super::layers::{Layers, Origin, Sourced};
use super::mistyped;
use super::token::Token;
use crate::error::Error;

/// How to prove who one is.
#[derive(Clone, Debug)]
pub enum Credential {
    None,
    Given(Token, Origin),
    /// Read again when the server refuses it: others may renew the file.
    File(PathBuf),
    /// Run by the shell.
    Command(String),
    Google(Google),
}

/// Of the two kinds of Google tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Says who calls, for one audience: what Cloud Run checks.
    Id,
    /// Opens Google's own interfaces: what Vertex checks.
    Access,
}

/// A token to fetch from Google.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Google {
    pub kind: Kind,
    /// Of an ID token; for an access token the scope.
    pub audience: String,
    /// Asked for, or only concluded from the host: then a request may go without when there are no credentials at all.
    pub asked_for: bool,
    /// Service account to act as.
    pub impersonate: Option<String>,
}

impl Google {
    /// Whether it is what this host of Google's asks for and, where it has an audience, of no use anywhere else.
    fn is_only_for(&self, endpoint: &Endpoint) -> bool {
        let fits = kind_of_host(endpoint.host()) == Some(self.kind);
        fits && (self.kind == Kind::Access || self.audience == endpoint.origin())
    }
}

/// The scope of an access token. A narrower one does not let IAM make ID tokens.
pub const CLOUD_PLATFORM: &str = "https://www.googleapis.com/auth/cloud-platform";

const GCP_AUTH_FORM: &str = "use host (by the server's host), id, access, or off";

/// What `--gcp-auth` says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    ByHost,
    Kind(Kind),
    Off,
}

impl Credential {
    pub(super) fn find(layers: &Layers<'_>, endpoint: &Endpoint, url_origin: &Origin) -> Result<Self, Error> {
        let (credential, origin) = match Self::given(layers)? {
            Some(given) => given,
            None => match google(layers, endpoint)? {
                Some((google, origin)) => (Self::Google(google), origin),
                None => return Ok(Self::None),
            },
        };
        if !endpoint.may_carry_a_token() {
            return Err(Error::TokenInTheClear { url: endpoint.to_string() });
        }
        let by_host = matches!(&credential, Self::Google(google) if google.is_only_for(endpoint));
        let from_project = matches!(url_origin, Origin::ProjectFile { .. });
        if from_project && origin.rank() > 0 && !by_host && !endpoint.is_loopback() {
            return Err(Error::TokenForProjectUrl {
                url: endpoint.to_string(),
                url_origin: url_origin.to_string(),
                token_origin: origin.to_string(),
            });
        }
        Ok(credential)
    }

    /// What a host of Google's wants, for a request that must have it.
    pub fn by_host(endpoint: &Endpoint) -> Self {
        kind_of_host(endpoint.host()).map_or(Self::None, |kind| {
            let audience = match kind {
                Kind::Id => endpoint.origin(),
                Kind::Access => CLOUD_PLATFORM.to_owned(),
            };
            Self::Google(Google { kind, audience, asked_for: true, impersonate: None })
        })
    }

    /// A token that the user brings, from the layer that wins.
    fn given(layers: &Layers<'_>) -> Result<Option<(Self, Origin)>, Error> {
        let found = [&keys::TOKEN, &keys::TOKEN_FILE, &keys::TOKEN_COMMAND]
            .into_iter()
            .filter_map(|key| Some((key, layers.get(key)?)))
            .min_by_key(|(_, value)| value.origin.rank());
        let Some((key, Sourced { text, origin })) = found else { return Ok(None) };
        let credential = if *key == keys::TOKEN {
            Self::Given(Token::parse(&text, &origin.to_string())?, origin.clone())
        } else if *key == keys::TOKEN_FILE {
            // Found out now rather than at the first request.
            Token::from_file(Path::new(&text))?;
            Self::File(PathBuf::from(text))
        } else {
            Self::Command(text)
        };
        Ok(Some((credential, origin)))
    }
}

/// The kind of token that a host of Google's wants. The end of a name counts only from a dot on: `evilrun.app` is no such host.
fn kind_of_host(host: &str) -> Option<Kind> {
    let host = host.trim_end_matches('.');
    let is_below = |domains: &[&str]| {
        domains.iter().any(|domain| host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')))
    };
    if is_below(&["run.app", "cloudfunctions.net"]) {
        Some(Kind::Id)
    } else if is_below(&["googleapis.com", "prediction.vertexai.goog"]) {
        Some(Kind::Access)
    } else {
        None
    }
}

fn google(layers: &Layers<'_>, endpoint: &Endpoint) -> Result<Option<(Google, Origin)>, Error> {
    let text = |key: &Key| layers.get(key).map(|value| value.text);
    let wish = layers.get(&keys::GCP_AUTH);
    let audience = text(&keys::AUDIENCE);
    let by_host = kind_of_host(endpoint.host());
    let kind = match wish.as_ref().map(read_wish).transpose()? {
        Some(Wish::Off) => None,
        Some(Wish::Kind(kind)) => Some(kind),
        None => by_host,
        Some(Wish::ByHost) => match (by_host, &audience) {
            (Some(kind), _) => Some(kind),
            (None, Some(_)) => Some(Kind::Id),
            (None, None) if endpoint.is_loopback() => None,
            (None, None) => return Err(Error::UnknownHost { url: endpoint.to_string() }),
        },
    };
    Ok(kind.map(|kind| {
        let audience = match kind {
            Kind::Id => audience.unwrap_or_else(|| endpoint.origin()),
            Kind::Access => CLOUD_PLATFORM.to_owned(),
        };
        let google =
            Google { kind, audience, asked_for: wish.is_some(), impersonate: text(&keys::IMPERSONATE) };
        // What an ID token opens is said by its audience.
        let named = layers.get(&keys::AUDIENCE).filter(|_| kind == Kind::Id).or(wish);
        (google, named.map_or(Origin::Default, |named| named.origin))
    }))
}

fn read_wish(value: &Sourced) -> Result<Wish, Error> {
    match value.text.trim().to_ascii_lowercase().as_str() {
        "host" | "auto" | "on" | "true" | "yes" | "1" => Ok(Wish::ByHost),
        "id" => Ok(Wish::Kind(Kind::Id)),
        "access" => Ok(Wish::Kind(Kind::Access)),
        "off" | "false" | "no" | "0" => Ok(Wish::Off),
        _ => Err(mistyped(&keys::GCP_AUTH, value, GCP_AUTH_FORM)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ConnectionFlags;
    use crate::env::{self, Environment};
    use crate::settings::Settings;

    fn with(url: &str, pairs: &[(&str, &str)]) -> Result<Credential, Error> {
        let outside = Environment::from_lookup(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        });
        let flags = ConnectionFlags { url: Some(url.to_owned()), ..ConnectionFlags::default() };
        Settings::resolve(&flags, &outside).map(|settings| settings.credential)
    }

    #[test]
    fn the_kind_of_token_follows_the_host() {
        let kind = |url| match with(url, &[]).unwrap() {
            Credential::Google(google) => Some((google.kind, google.audience)),
            _ => None,
        };
        let id = |audience: &str| Some((Kind::Id, audience.to_owned()));
        assert_eq!(kind("https://svc-abc-uc.a.run.app/v1"), id("https://svc-abc-uc.a.run.app"));
        assert_eq!(kind("https://X.Run.App./v1/"), id("https://x.run.app."));
        assert_eq!(
            kind("https://us-central1-p.cloudfunctions.net/f"),
            id("https://us-central1-p.cloudfunctions.net")
        );
        for url in [
            "https://us-central1-aiplatform.googleapis.com/v1",
            "https://7.us-1-42.prediction.vertexai.goog/v1",
        ] {
            assert_eq!(kind(url), Some((Kind::Access, CLOUD_PLATFORM.to_owned())), "{url}");
        }
        for url in [
            "http://127.0.0.1:8080/v1",
            "https://34.1.2.3/v1",
            "https://example.org/v1",
            "https://evilrun.app/v1",
            "https://run.app/v1",
            "https://a.run.app.example.org/v1",
            "https://googleapis.com.example.org/v1",
            "https://example.org/a.run.app",
        ] {
            assert_eq!(kind(url), None, "{url}");
        }
    }

    #[test]
    fn an_unknown_host_gets_a_google_token_only_when_named() {
        let asked = [(env::GCP_AUTH, "true")];
        let message = with("https://example.org/v1", &asked).unwrap_err().to_string();
        assert!(message.contains("https://example.org/v1") && message.contains("--audience"), "{message}");
        assert!(matches!(with("http://localhost:1/v1", &asked), Ok(Credential::None)));
        let only_audience = with("https://example.org/v1", &[(env::AUDIENCE, "https://a")]);
        assert!(matches!(only_audience, Ok(Credential::None)));
        let named =
            with("https://example.org/v1", &[(env::GCP_AUTH, "1"), (env::AUDIENCE, "https://a")]).unwrap();
        assert!(
            matches!(named, Credential::Google(google) if google.kind == Kind::Id && google.audience == "https://a")
        );
        let clear = with("http://example.org/v1", &[(env::GCP_AUTH, "access")]).unwrap_err();
        assert!(matches!(clear, Error::TokenInTheClear { .. }), "{clear}");
        assert!(matches!(with("https://x.run.app/v1", &[(env::GCP_AUTH, "off")]), Ok(Credential::None)));
        let clear = with("http://x.run.app/v1", &[]).unwrap_err();
        assert!(matches!(clear, Error::TokenInTheClear { .. }), "{clear}");
    }
}
