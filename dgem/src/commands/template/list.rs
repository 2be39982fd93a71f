//! `dgem template list`: one row per name that `-t` takes, broken files included.

use std::io::{self, Write};
use std::path::Path;

use super::super::warn;
use crate::cli::{CatalogueFlags, ListArgs};
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::foreign::visible;
use crate::output::{text_table, width_of};
use crate::template::{Catalogue, Template};

pub(super) fn run(args: &ListArgs, environment: &Environment) -> Result<Exit, Error> {
    let flags = match &args.folder {
        Some(folder) => CatalogueFlags { templates: Some(folder.clone()) },
        None => args.catalogue.clone(),
    };
    let catalogue = Catalogue::new(&flags, environment);
    let mut rows = Vec::new();
    for entry in catalogue.entries()? {
        let source = entry.file.as_deref().map_or_else(|| "built in".to_owned(), shown);
        let loaded = match &entry.file {
            Some(file) => Template::load(file),
            None => catalogue.load(Path::new(&entry.name)),
        };
        rows.push(match loaded {
            Ok(template) => {
                vec![entry.name, source, variables(&template), visible(&template.metadata().description)]
            }
            Err(error) => {
                warn(&error.to_string());
                vec![entry.name, source, "-".to_owned(), "(cannot be loaded)".to_owned()]
            }
        });
    }
    let table = text_table(
        &["TEMPLATE", "FROM", "VARIABLES", "DESCRIPTION"],
        &[16, 10, 10, 20],
        &rows,
        width_of(&io::stdout()),
    );
    writeln!(io::stdout().lock(), "{table}")?;
    Ok(Exit::Done)
}

fn shown(file: &Path) -> String {
    visible(&file.display().to_string())
}

/// Names, those that can be left out in brackets.
fn variables(template: &Template) -> String {
    let names = template.variables().into_iter().map(|variable| {
        if variable.required { variable.name.to_owned() } else { format!("[{}]", variable.name) }
    });
    names.collect::<Vec<_>>().join(" ")
}
