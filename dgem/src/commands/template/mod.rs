//! `dgem template …`: everything about templates that needs no server, one file per subcommand.

mod check;
mod list;
mod render;
mod show;

use super::warn;
use crate::cli::TemplateCommand;
use crate::error::Error;
use crate::exit::Exit;
use crate::template::{Request, Template};
use crate::variables::Variables;

pub(super) fn run(command: TemplateCommand) -> Result<Exit, Error> {
    match command {
        TemplateCommand::Render(args) => render::run(&args),
        TemplateCommand::List(args) => list::run(&args),
        TemplateCommand::Show(args) => show::run(&args),
        TemplateCommand::Check(args) => check::run(&args),
    }
}

/// A misspelt `-v` name would silently leave the default in place.
pub(super) fn warn_unknown(template: &Template, variables: &Variables, request: &Request) {
    if request.state_holds_variables {
        return;
    }
    for name in template.unknown(variables) {
        let known = template.known();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        warn(&format!("{} does not use the variable `{name}`; it knows: {known}", template.path().display()));
    }
}
