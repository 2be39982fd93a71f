//! `dgem man`: the manual, from the same definition as the help.

use std::fs;
use std::io::{self, Write};

use clap::CommandFactory;

use crate::cli::{Cli, ManArgs};
use crate::error::Error;
use crate::exit::Exit;

pub(super) fn run(args: &ManArgs) -> Result<Exit, Error> {
    if let Some(folder) = &args.dir {
        fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
            .map_err(|cause| Error::Manual { folder: folder.clone(), cause })?;
        return Ok(Exit::Done);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    io::stdout().lock().write_all(&page)?;
    Ok(Exit::Done)
}
