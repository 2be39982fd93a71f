//! `dgem man`: the manual, from the same definition as the help.

use std::fs;
use std::io::{self, Write};

use clap::{Command, CommandFactory};

use crate::cli::{Cli, ManArgs};
use crate::error::Error;
use crate::exit::Exit;

pub(super) fn run(args: &ManArgs) -> Result<Exit, Error> {
    let command = with_all_options(Cli::command());
    if let Some(folder) = &args.dir {
        fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(command, folder))
            .map_err(|cause| Error::Manual { folder: folder.clone(), cause })?;
        return Ok(Exit::Done);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    io::stdout().lock().write_all(&page)?;
    Ok(Exit::Done)
}

/// The manual has the text of every option, also of those that the short help leaves out.
fn with_all_options(command: Command) -> Command {
    command.mut_args(|option| option.hide_short_help(false)).mut_subcommands(with_all_options)
}
