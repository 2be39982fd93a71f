//! The program: reads the command line, runs it, and turns the end of the run into an exit code (`exit`).
//!
//! Results go to stdout; errors go to stderr as `error:` and `hint:` lines, without a dump of the usage.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use dgem::cli::Cli;
use dgem::env::Environment;
use dgem::error::Error;
use dgem::exit::Exit;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(exit) => exit.into(),
        // The reader of a pipe that has seen enough is no failure of ours.
        Err(Error::Output(cause)) if cause.kind() == io::ErrorKind::BrokenPipe => Exit::Done.into(),
        Err(error) => {
            eprintln!("error: {error}");
            error.exit().into()
        }
    }
}

fn run(cli: Cli) -> Result<Exit, Error> {
    // Fails only when a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // One request at a time needs no worker threads.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|cause| Error::HttpSetup { cause: cause.to_string() })?;
    runtime.block_on(dgem::run(cli, &Environment::from_process()))
}
