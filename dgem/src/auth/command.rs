//! Tokens from programs: the user's own command, and `gcloud` (`google::gcloud`).

use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::Minted;
use crate::error::Error;
use crate::foreign::clipped;
use crate::settings::Token;

/// A vault may ask its user first.
const LONGEST: Duration = Duration::from_secs(60);
/// Characters of what a program says about its failure.
const SAID_CHARS: usize = 300;
const PROVIDER: &str = "the token command";

/// Runs the command in a shell; what it prints is the token.
pub(super) async fn token(command: &str) -> Result<Minted, Error> {
    let mut shell = if cfg!(windows) { Command::new("cmd") } else { Command::new("sh") };
    shell.args([if cfg!(windows) { "/C" } else { "-c" }, command]);
    let text = output(shell, LONGEST).await.map_err(|reason| Error::NoToken {
        provider: PROVIDER.to_owned(),
        reason,
        hint: "run the command of --token-command by hand; it must print the token and nothing else"
            .to_owned(),
        transient: false,
    })?;
    Ok(Minted::given(Token::parse(&text, PROVIDER)?, PROVIDER.to_owned()))
}

/// What a program prints, or why it did not. Only stderr is repeated: stdout may hold a secret.
pub(super) async fn output(mut command: Command, longest: Duration) -> Result<String, String> {
    let started =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn();
    let child = started.map_err(|cause| format!("it cannot be started: {cause}"))?;
    let Output { status, stdout, stderr } = timeout(longest, child.wait_with_output())
        .await
        .map_err(|_| format!("it ran longer than {} s", longest.as_secs()))?
        .map_err(|cause| cause.to_string())?;
    if !status.success() {
        let said = clipped(&String::from_utf8_lossy(&stderr), SAID_CHARS);
        let said = if said.is_empty() { "it said nothing".to_owned() } else { said };
        return Err(format!("it ended with {status}: {said}"));
    }
    String::from_utf8(stdout).map_err(|_| "its output is not UTF-8".to_owned())
}
