//! The exit codes of the program, in one table. `main` returns them, `error` maps every failure to one of them.

use std::process::ExitCode;

/// The table as the long help prints it.
pub const HELP: &str = "Exit codes:
  0  done
  1  an answer is not to be acted on: a gate failed (--fail-if, …),
     one is invalid, or one is missing (--strict)
  2  a mistake in the command line, the settings or a template
  3  a token is missing, unreadable or not accepted
  4  the server refused the request, or nothing in its reply can be used;
     with --strict also when one answer is invalid
  5  the server could not be reached, was not ready or took too long;
     trying again may help
  6  some rows of a batch failed
130  interrupted; a batch can be resumed";

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything asked for was done.
    Done = 0,
    /// The run worked, but not every answer can be used: a gate failed, one is invalid, or one is missing and `--strict` is set.
    ConditionNotMet = 1,
    /// A mistake in the command line, the settings or a template. Trying again changes nothing.
    Usage = 2,
    /// A token is missing, unreadable or not accepted.
    Auth = 3,
    /// The server refused the request, or its reply cannot be used: no decision at all, no usable answer in it, an invalid one
    /// under `--strict`, or no text where one was asked for. Trying again changes nothing.
    Rejected = 4,
    /// The server could not be reached, was not ready or took too long. Trying again may help.
    Unavailable = 5,
    /// A batch ran, and some of its rows failed.
    Partial = 6,
    /// The user ended the run. A batch can be resumed.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
