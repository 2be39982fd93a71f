//! Gets the token that `settings` decided on, keeps it until shortly before it expires, and renews it once when the server
//! says 401.
//!
//! Called by `client`, by many tasks at once: one of them fetches, the others wait for what it brings. `google` asks Google's
//! sources, `command` runs the user's own. Tokens leave this module only as header values.

mod command;
mod google;
mod jwt;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::Error;
use crate::settings::{Credential, Kind, Settings, Token};

pub use jwt::Claims;

/// A token is renewed when it has less than this left.
const MARGIN: Duration = Duration::from_secs(60);

/// A token and what is known about it.
#[derive(Debug)]
pub struct Minted {
    pub token: Token,
    /// Where it comes from, in words.
    pub provider: String,
    /// `None` for a token that the user brought.
    pub kind: Option<Kind>,
    /// `None`: nobody said.
    pub expires: Option<Instant>,
    /// What it says about itself.
    pub claims: Claims,
    /// What may go wrong with it.
    pub caveat: Option<&'static str>,
}

impl Minted {
    fn given(token: Token, provider: String) -> Self {
        let claims = Claims::of(&token);
        Self { provider, kind: None, expires: claims.expires(), claims, caveat: None, token }
    }

    /// `None` when nobody said when it expires.
    pub fn seconds_left(&self) -> Option<u64> {
        self.expires.map(|expires| expires.saturating_duration_since(Instant::now()).as_secs())
    }

    fn is_fresh(&self) -> bool {
        self.expires.is_none_or(|expires| expires > Instant::now() + MARGIN)
    }
}

/// What was last found.
#[derive(Debug, Default)]
enum Slot {
    #[default]
    Empty,
    Token(Arc<Minted>),
    /// Nobody asked for a token, and there are no credentials: the reasons, for the case that the server wants one.
    Nothing(Arc<Error>),
}

/// The tokens for one server.
#[derive(Debug, Default)]
pub(crate) struct Auth {
    slot: Mutex<Slot>,
}

/// What a request has to go with.
#[derive(Clone, Debug)]
pub(crate) enum Pass {
    None,
    Token(Arc<Minted>),
    /// None could be had; the reasons.
    Refused(Arc<Error>),
}

impl Auth {
    /// The token for the next request. Whoever comes first fetches it.
    pub(crate) async fn pass(&self, settings: &Settings) -> Result<Pass, Error> {
        if matches!(settings.credential, Credential::None) {
            return Ok(Pass::None);
        }
        let mut slot = self.slot.lock().await;
        match &*slot {
            Slot::Token(minted) if minted.is_fresh() => return Ok(Pass::Token(Arc::clone(minted))),
            Slot::Nothing(reasons) => return Ok(Pass::Refused(Arc::clone(reasons))),
            Slot::Token(_) | Slot::Empty => {}
        }
        match mint(settings).await {
            Ok(minted) => {
                let minted = Arc::new(minted);
                *slot = Slot::Token(Arc::clone(&minted));
                Ok(Pass::Token(minted))
            }
            Err(reasons @ Error::NoCredentials { .. }) if !asked_for(settings) => {
                let reasons = Arc::new(reasons);
                *slot = Slot::Nothing(Arc::clone(&reasons));
                Ok(Pass::Refused(reasons))
            }
            Err(error) => Err(error),
        }
    }

    /// The server refused this token. Whether it is worth asking for another one.
    pub(crate) async fn refused(&self, settings: &Settings, minted: &Arc<Minted>) -> bool {
        if matches!(settings.credential, Credential::Given(..) | Credential::None) {
            return false;
        }
        let mut slot = self.slot.lock().await;
        // Another task may have renewed it in the meantime.
        if matches!(&*slot, Slot::Token(current) if Arc::ptr_eq(current, minted)) {
            *slot = Slot::Empty;
        }
        true
    }
}

fn asked_for(settings: &Settings) -> bool {
    !matches!(&settings.credential, Credential::Google(google) if !google.asked_for)
}

async fn mint(settings: &Settings) -> Result<Minted, Error> {
    match &settings.credential {
        Credential::None => {
            Err(Error::NoCredentials { url: settings.endpoint.to_string(), tried: Vec::new() })
        }
        Credential::Given(token, origin) => Ok(Minted::given(token.clone(), origin.to_string())),
        Credential::File(path) => Ok(Minted::given(Token::from_file(path)?, path.display().to_string())),
        Credential::Command(command) => command::token(command).await,
        Credential::Google(google) => google::mint(google, settings).await,
    }
}

/// There was no token when the time of the request was up.
pub(crate) fn late(settings: &Settings, longest: Duration) -> Error {
    let provider = match &settings.credential {
        Credential::Command(_) => command::PROVIDER.to_owned(),
        Credential::Given(_, origin) => origin.to_string(),
        Credential::File(path) => path.display().to_string(),
        Credential::Google(_) | Credential::None => "Google's credentials".to_owned(),
    };
    Error::NoToken {
        provider,
        reason: format!("there is none after {} s (--timeout)", longest.as_secs_f64()),
        hint: "`dgem auth check` gets the token alone; allow more with --timeout SECONDS".to_owned(),
        transient: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ConnectionFlags;
    use crate::env::{self, Environment};
    use std::fs;

    /// A command that counts its runs in a file and prints a token that expires in `seconds`.
    fn settings(folder: &std::path::Path, seconds: u64) -> Settings {
        let token = jwt::unsigned(&serde_json::json!({"exp": jwt::now() + seconds, "aud": "https://a"}));
        let command = format!("echo run >> {}/runs; echo {token}", folder.display());
        let outside = Environment::from_lookup(|name| (name == env::TOKEN_COMMAND).then(|| command.clone()));
        Settings::resolve(&ConnectionFlags::default(), &outside).unwrap()
    }

    fn runs(folder: &std::path::Path) -> usize {
        fs::read_to_string(folder.join("runs")).unwrap_or_default().lines().count()
    }

    #[tokio::test]
    async fn sixty_four_tasks_share_one_refresh() {
        let folder = tempfile::tempdir().unwrap();
        let (auth, settings) = (Arc::new(Auth::default()), Arc::new(settings(folder.path(), 3600)));
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let (auth, settings) = (Arc::clone(&auth), Arc::clone(&settings));
                tokio::spawn(async move { auth.pass(&settings).await.unwrap() })
            })
            .collect();
        let mut passes = Vec::new();
        for task in tasks {
            passes.push(task.await.unwrap());
        }
        assert_eq!(runs(folder.path()), 1);
        // All of them are refused at once: again one refresh.
        for pass in &passes {
            let Pass::Token(minted) = pass else { panic!("{pass:?}") };
            assert!(auth.refused(&settings, minted).await);
            auth.pass(&settings).await.unwrap();
        }
        assert_eq!(runs(folder.path()), 2);
    }

    #[tokio::test]
    async fn a_token_is_renewed_a_minute_before_it_expires() {
        let folder = tempfile::tempdir().unwrap();
        let (auth, settings) = (Auth::default(), settings(folder.path(), 600));
        for (seconds, expected) in [(0, 1), (500, 1), (45, 2), (0, 2)] {
            // Paused only for this: with a paused clock a child process would never be waited for.
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(seconds)).await;
            tokio::time::resume();
            auth.pass(&settings).await.unwrap();
            assert_eq!(runs(folder.path()), expected, "{seconds}");
        }
    }
}
