//! `dgem template …`: everything about templates, one file per subcommand. Only `check --server` needs a server.

mod check;
mod list;
mod new;
mod render;
mod show;

use super::warn;
use crate::cli::{ConnectionFlags, TemplateCommand};
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::template::{Request, Template};
use crate::variables::Variables;

pub(super) async fn run(
    command: TemplateCommand,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    match command {
        TemplateCommand::Render(args) => render::run(&args, environment),
        TemplateCommand::List(args) => list::run(&args, environment),
        TemplateCommand::Show(args) => show::run(&args, environment),
        TemplateCommand::Check(args) => check::run(&args, connection, environment).await,
        TemplateCommand::New(args) => new::run(&args, environment),
    }
}

/// A misspelt `-v` name would silently leave the default in place.
pub(super) fn warn_unknown(template: &Template, variables: &Variables, request: &Request) {
    if request.state_holds_variables {
        return;
    }
    for name in template.unknown(variables) {
        warn(&template.does_not_use(name));
    }
}
