//! The way to a server that the commands share: settings, client, and the wait for a server that is starting.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::cli::ConnectionFlags;
use crate::client::{Client, Progress};
use crate::env::Environment;
use crate::error::Error;
use crate::settings::Settings;

/// Without a terminal, the same state is told again after this time.
const REPEAT: Duration = Duration::from_secs(10);

/// A client for the server of the settings.
pub(super) async fn client(connection: &ConnectionFlags, environment: &Environment) -> Result<Client, Error> {
    ready(Client::new(Settings::resolve(connection, environment)?)?).await
}

/// The same client, when its server can decide, if `--wait-ready` asks for that.
pub(super) async fn ready(client: Client) -> Result<Client, Error> {
    if let Some(longest) = client.settings().wait_ready {
        let mut display = Display::new();
        let result = client.wait_ready(longest, |progress| display.show(progress)).await;
        display.end();
        result?;
    }
    Ok(client)
}

/// One line on a terminal that changes; elsewhere a line when there is something new.
struct Display {
    terminal: bool,
    last: Option<(String, Instant)>,
}

impl Display {
    fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), last: None }
    }

    fn show(&mut self, progress: &Progress) {
        let text = progress.to_string();
        let mut err = io::stderr();
        // A note that nobody takes changes nothing.
        let _ = if self.terminal {
            write!(err, "\r\u{1b}[Kwaiting for the server: {text}")
        } else if self
            .last
            .as_ref()
            .is_none_or(|(phase, told)| *phase != progress.phase || told.elapsed() > REPEAT)
        {
            self.last = Some((progress.phase.clone(), Instant::now()));
            writeln!(err, "waiting for the server: {text}")
        } else {
            Ok(())
        };
    }

    fn end(&self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\u{1b}[K");
        }
    }
}
