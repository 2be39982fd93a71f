//! `dgem completions`: what a shell needs to complete the command line, from the same definition as the help.

use std::io::{self, Write};

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs};
use crate::error::Error;
use crate::exit::Exit;

pub(super) fn run(args: &CompletionsArgs) -> Result<Exit, Error> {
    // The generator panics where it cannot write; memory can always be written to.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "dgem", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(Exit::Done)
}
