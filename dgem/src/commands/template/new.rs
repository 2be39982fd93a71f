//! `dgem template new`: a file to start from. Nothing is ever overwritten.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::cli::NewArgs;
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::template::{Catalogue, SKELETON, TEXT_SKELETON, is_text};

pub(super) fn run(args: &NewArgs, environment: &Environment) -> Result<Exit, Error> {
    let catalogue = Catalogue::new(&args.catalogue, environment);
    let path = catalogue.file_for(&args.name)?;
    let source = match &args.from {
        Some(from) => catalogue.load(from)?.source().to_owned(),
        None if is_text(&path) => TEXT_SKELETON.to_owned(),
        None => SKELETON.to_owned(),
    };
    write_new(&path, &source).map_err(|cause| Error::NewTemplate { path: path.clone(), cause })?;
    writeln!(io::stdout().lock(), "{}", path.display())?;
    Ok(Exit::Done)
}

fn write_new(path: &Path, source: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(source.as_bytes())
}
