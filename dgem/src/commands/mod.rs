//! One function per command: it takes what was typed, walks through the other modules and says how the run ended.

mod decide;
mod template;

use std::io::{self, Write};

use crate::cli::{Cli, Command};
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;

/// Runs the command that was typed.
pub async fn run(cli: Cli, environment: &Environment) -> Result<Exit, Error> {
    match cli.command {
        Command::Decide(args) => decide::run(args, &cli.connection, environment).await,
        Command::Template(command) => template::run(command, &cli.connection, environment).await,
    }
}

/// A note that is no result: stderr.
fn warn(text: &str) {
    // Not `eprintln`, which panics when nobody takes the note.
    let _ = writeln!(io::stderr(), "warning: {text}");
}
