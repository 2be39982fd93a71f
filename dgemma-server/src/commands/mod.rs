//! What `dgemma-server` does instead of serving: look at a checkpoint, check it, plan for it, convert it, ask it once.
//!
//! One file per subcommand; each prints its result on stdout and everything else on stderr. Called by `main`.

pub mod ask;
pub mod inspect;
mod limit;
pub mod memory;
pub mod quantize;
pub mod verify;

use std::fmt;
use std::io::Write;

use crate::cli::{Arguments, Command};
use crate::error::Error;

/// Runs the subcommand that was given; `None` where it is none of these.
pub fn run(arguments: &Arguments) -> Option<Result<(), Error>> {
    let dir = || arguments.checkpoint();
    Some(match arguments.command.as_ref()? {
        Command::Inspect { tensors } => dir().and_then(|dir| inspect::run(&dir, *tensors)),
        Command::Verify => dir().and_then(|dir| verify::run(&dir)),
        Command::Quantize { out, profile } => {
            dir().and_then(|dir| quantize::run(&dir, out, (*profile).into()))
        }
        Command::Plan { batch, published } => memory::run(arguments, *batch, *published),
        Command::Ask(question) => dir().and_then(|dir| ask::run(arguments, dir, question)),
        Command::Bench { .. } | Command::Download { .. } => return None,
    })
}

/// Prints a result.
fn print(result: impl fmt::Display) -> Result<(), Error> {
    let mut out = std::io::stdout();
    write!(out, "{result}")
        .and_then(|()| out.flush())
        .map_err(|source| Error::io("cannot print the result", source))
}

/// A remark on stderr; that nobody reads it is no reason to stop.
fn remark(text: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Remarks how far a long task is, at every tenth.
fn tenths(what: &'static str) -> impl FnMut(u64, u64) {
    let mut told = 0;
    move |done, total| {
        let tenth = done * 10 / total.max(1);
        if tenth > told {
            told = tenth;
            remark(format_args!("{what} {tenth}0 %"));
        }
    }
}
