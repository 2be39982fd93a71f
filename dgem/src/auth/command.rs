//! Tokens from programs: the user's own command, and `gcloud` (`google::gcloud`).

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::try_join;
use tokio::io::{AsyncRead, AsyncReadExt, copy, sink};
use tokio::process::Command;
use tokio::time::timeout;

use super::Minted;
use crate::capped;
use crate::error::Error;
use crate::foreign::clipped;
use crate::settings::Token;

/// A vault may ask its user first.
const LONGEST: Duration = Duration::from_secs(60);
/// Characters of what a program says about its failure.
const SAID_CHARS: usize = 300;
pub(super) const PROVIDER: &str = "the token command";

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
    let mut child = started.map_err(|cause| format!("it cannot be started: {cause}"))?;
    let mut running = Running(child.id());
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let ended = async {
        let (stdout, stderr) = try_join(token_of(out), drained(err)).await?;
        child.wait().await.map(|status| (status, stdout, stderr)).map_err(|cause| cause.to_string())
    };
    let (status, stdout, stderr) = timeout(longest, ended)
        .await
        .map_err(|_| format!("it ran longer than {} s", longest.as_secs()))??;
    running.0 = None;
    if !status.success() {
        let said = clipped(&String::from_utf8_lossy(&stderr), SAID_CHARS);
        let said = if said.is_empty() { "it said nothing".to_owned() } else { said };
        return Err(format!("it ended with {status}: {said}"));
    }
    String::from_utf8(stdout).map_err(|_| "its output is not UTF-8".to_owned())
}

/// A program that has not ended. When nobody waits for it any more, what it has started is ended with it: a shell that is killed
/// leaves its commands behind. It stays in our process group, since it may have to ask its user at the terminal.
struct Running(Option<u32>);

impl Drop for Running {
    fn drop(&mut self) {
        let Some(pid) = self.0 else { return };
        let pids: Vec<String> = descendants(pid).iter().map(u32::to_string).collect();
        if !pids.is_empty() {
            let kill = format!("kill -KILL {} 2>/dev/null", pids.join(" "));
            // One that has just ended is no matter.
            let _ = std::process::Command::new("sh").args(["-c", &kill]).status();
        }
    }
}

/// What a process has started, and what that has; where the system lists it in `/proc`.
fn descendants(pid: u32) -> Vec<u32> {
    let parent = |entry: fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // Behind the name, which may hold anything: the state, then the parent.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        Some((pid, parent))
    };
    let all: Vec<(u32, u32)> =
        fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(parent).collect();
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(
            all.iter()
                .filter(|(pid, of)| *of == parent && !found.contains(pid))
                .map(|(pid, _)| *pid)
                .collect::<Vec<_>>(),
        );
        at += 1;
    }
    found.split_off(1)
}

/// All that is printed; an error for what can be no token, so that a program without an end does not fill the memory.
async fn token_of(stdout: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, String> {
    let bytes = first_of(stdout, capped::TOKEN_BYTES + 1).await?.0;
    if bytes.len() as u64 > capped::TOKEN_BYTES {
        return Err(format!("it printed more than {} KiB", capped::TOKEN_BYTES >> 10));
    }
    Ok(bytes)
}

/// The beginning of what it says; the rest is read too, lest it waits for a reader.
async fn drained(stderr: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, String> {
    let (bytes, rest) = first_of(stderr, capped::TOKEN_BYTES).await?;
    if let Some(mut rest) = rest {
        copy(&mut rest, &mut sink()).await.map_err(|cause| cause.to_string())?;
    }
    Ok(bytes)
}

async fn first_of<R: AsyncRead + Unpin>(
    source: Option<R>,
    most_bytes: u64,
) -> Result<(Vec<u8>, Option<R>), String> {
    let mut bytes = Vec::new();
    let Some(source) = source else { return Ok((bytes, None)) };
    let mut start = source.take(most_bytes);
    start.read_to_end(&mut bytes).await.map_err(|cause| cause.to_string())?;
    Ok((bytes, Some(start.into_inner())))
}
