//! The program `gcloud`, logged in as a user or as a service account.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;

use super::exchange::no_token;
use super::{Fresh, USER_CAVEAT};
use crate::auth::command;
use crate::env::{self, Environment};
use crate::error::Error;
use crate::settings::{Kind, Token};

const LONGEST: Duration = Duration::from_secs(10);
const NAME: &str = if cfg!(windows) { "gcloud.cmd" } else { "gcloud" };
/// What accounts that are no user's end in.
const SERVICE_ACCOUNT: &str = ".gserviceaccount.com";

/// Where it is, if it is.
pub(super) fn program(environment: &Environment) -> Option<PathBuf> {
    let path = environment.get(env::PATH)?;
    std::env::split_paths(path).map(|folder| folder.join(NAME)).find(|program| program.is_file())
}

pub(super) async fn token(program: &Path, kind: Kind, audience: &str) -> Result<Fresh, Error> {
    let provider = "gcloud";
    let run = async |arguments: &[&str]| {
        let mut gcloud = Command::new(program);
        gcloud.args(arguments);
        command::output(gcloud, LONGEST).await.map_err(|reason| no_token(provider, reason, false))
    };
    let account = run(&["config", "get-value", "account", "--quiet"]).await?;
    let account = account.trim();
    if account.is_empty() || account == "(unset)" {
        let reason = "nobody is logged in; run `gcloud auth login`".to_owned();
        return Err(no_token(provider, reason, false));
    }
    let is_user = !account.ends_with(SERVICE_ACCOUNT);
    let with_audience = format!("--audiences={audience}");
    let text = match kind {
        Kind::Access => run(&["auth", "print-access-token", "--quiet"]).await?,
        // Refused for users: their ID tokens have the audience of gcloud itself.
        Kind::Id if is_user => run(&["auth", "print-identity-token", "--quiet"]).await?,
        Kind::Id => run(&["auth", "print-identity-token", &with_audience, "--quiet"]).await?,
    };
    Ok(Fresh {
        token: Token::parse(&text, provider)?,
        // Not said by gcloud, which may hand out one that is old already: the server's 401 tells.
        lives: None,
        provider: format!("gcloud ({})", crate::foreign::clipped(account, 100)),
        caveat: (is_user && kind == Kind::Id).then_some(USER_CAVEAT),
    })
}
