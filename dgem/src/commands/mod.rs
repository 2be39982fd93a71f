//! One function per command: it takes what was typed, walks through the other modules and says how the run ended.

mod ask;
mod auth;
mod batch;
mod bench;
mod calibrate;
mod completions;
mod config;
mod connect;
mod decide;
mod doctor;
mod man;
mod models;
mod template;

use std::io::{self, Write};

use clap::ValueEnum;

use crate::cli::{Cli, Color, Command};
use crate::deciding;
use crate::env::{self, Environment};
use crate::error::Error;
use crate::exit::Exit;
use crate::foreign::{printable, visible};

/// Runs the command that was typed.
pub async fn run(cli: Cli, environment: &Environment) -> Result<Exit, Error> {
    let environment = &match cli.color {
        Some(color) => environment.clone().with(env::COLOR, color.as_str()),
        None => environment.clone(),
    };
    // Clap has checked the flag.
    if let Some(value) = environment.get(env::COLOR)
        && Color::from_str(value, false).is_err()
    {
        return Err(Error::BadSetting {
            name: "--color",
            value: value.to_owned(),
            origin: env::COLOR.to_owned(),
            form: "use auto, always or never",
        });
    }
    if let Some(name) = environment.unreadable().first() {
        return Err(Error::BadSetting {
            name,
            value: "…".to_owned(),
            origin: "the environment".to_owned(),
            form: "it is not UTF-8 text; unset it, or set it to text",
        });
    }
    for (name, meant) in environment.misspelt() {
        warn(&format!("{} is set and has no effect; did you mean {meant}?", visible(name)));
    }
    match cli.command {
        Command::Decide(args) => decide::run(*args, &cli.connection, environment).await,
        Command::Ask(args) => ask::run(*args, &cli.connection, environment).await,
        Command::Batch(args) => batch::run(*args, &cli.connection, environment).await,
        Command::Bench(args) => bench::bench(*args, &cli.connection, environment).await,
        Command::BenchCalibration(args) => bench::calibration(*args, &cli.connection, environment).await,
        Command::BenchEcotone(args) => bench::ecotone(*args, &cli.connection, environment).await,
        Command::BenchIntents(args) => bench::intents(*args, &cli.connection, environment).await,
        Command::BenchPermutation(args) => bench::permutation(*args, &cli.connection, environment).await,
        Command::Calibrate(command) => calibrate::run(command, &cli.connection, environment).await,
        Command::Template(command) => template::run(command, &cli.connection, environment).await,
        Command::Models(args) => models::run(&args, &cli.connection, environment).await,
        Command::Doctor(args) => doctor::run(&args, &cli.connection, environment).await,
        Command::Config(command) => config::run(&command, &cli.connection, environment),
        Command::Auth(command) => auth::run(&command, &cli.connection, environment).await,
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}

/// What a long run tells about itself: stderr.
fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A note that is no result: stderr.
fn warn(text: &str) {
    // Not `eprintln`, which panics when nobody takes the note.
    let _ = writeln!(io::stderr(), "warning: {}", printable(text));
}

/// Tells of a model that was not asked for.
fn warn_other_model(wanted: Option<&str>, answered: Option<&str>) {
    if let Some(text) = deciding::other_model(wanted, answered) {
        warn(&text);
    }
}
