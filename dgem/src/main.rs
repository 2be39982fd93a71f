//! The program: reads the command line, runs it, and turns the end of the run into an exit code (`exit`).
//!
//! Results go to stdout; errors go to stderr as `error:` and `hint:` lines, without a dump of the usage. What cannot be
//! written to stdout is a failure; what cannot be written to stderr changes nothing.

mod closed_stdout;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};
use dgem::cli::Cli;
use dgem::env::Environment;
use dgem::error::Error;
use dgem::exit::Exit;

fn main() -> ExitCode {
    let ended = if closed_stdout::found() {
        Err(Error::Output(io::Error::other("stdout is closed")))
    } else {
        match Cli::try_parse() {
            Ok(cli) => run(cli).map(ExitCode::from),
            Err(message) => show(&message),
        }
    };
    // Nothing may stay in the buffer: the program's end would drop it and any error with it.
    match ended.and_then(|code| Ok(io::stdout().flush().map(|()| code)?)) {
        Ok(code) => code,
        // The reader of a pipe that has seen enough is no failure of ours.
        Err(Error::Output(cause)) if cause.kind() == io::ErrorKind::BrokenPipe => Exit::Done.into(),
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {}", error.shown());
            error.exit().into()
        }
    }
}

/// Flags of the server that are typed at the client by mistake.
const SERVER_FLAGS: [&str; 7] =
    ["--ctx", "--addr", "--threads", "--quant", "--device", "--api-key-file", "--queue"];

/// The help, the version, or what is wrong with the command line.
fn show(message: &clap::Error) -> Result<ExitCode, Error> {
    let printed = message.print();
    if let Some(ContextValue::String(flag)) = message.get(ContextKind::InvalidArg)
        && SERVER_FLAGS.contains(&flag.as_str())
    {
        let _ = writeln!(io::stderr(), "hint: {flag} is a flag of dgemma-server, not of its client");
    }
    if !message.use_stderr() {
        printed?;
    }
    Ok(if message.exit_code() == 0 { Exit::Done } else { Exit::Usage }.into())
}

fn run(cli: Cli) -> Result<Exit, Error> {
    // Fails only when a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // One request at a time needs no worker threads.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|cause| Error::HttpSetup { cause: cause.to_string() })?;
    let ended = runtime.block_on(dgem::run(cli, &Environment::from_process()));
    // A look-up of a name that nobody knows may still run; nobody waits for it.
    runtime.shutdown_background();
    ended
}
