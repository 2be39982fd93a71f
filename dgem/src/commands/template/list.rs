//! `dgem template list`: one row per template file, broken ones included.

use std::io::{self, Write};

use super::super::warn;
use crate::cli::ListArgs;
use crate::error::Error;
use crate::exit::Exit;
use crate::foreign::visible;
use crate::output::text_table;
use crate::template::{Template, find_templates, template_id};

pub(super) fn run(args: &ListArgs) -> Result<Exit, Error> {
    let mut rows = Vec::new();
    for path in find_templates(&args.folder)? {
        let id = template_id(&args.folder, &path);
        rows.push(match Template::load(&path) {
            Ok(template) => vec![id, variables(&template), visible(&template.metadata().description)],
            Err(error) => {
                warn(&error.to_string());
                vec![id, "-".to_owned(), "(cannot be loaded)".to_owned()]
            }
        });
    }
    if rows.is_empty() {
        warn(&format!("there are no *.json.tmpl files below {}", args.folder.display()));
        return Ok(Exit::Done);
    }
    let table = text_table(&["TEMPLATE", "VARIABLES", "DESCRIPTION"], &[16, 10, 20], &rows);
    writeln!(io::stdout().lock(), "{table}")?;
    Ok(Exit::Done)
}

/// Names, those that can be left out in brackets.
fn variables(template: &Template) -> String {
    let names = template.variables().into_iter().map(|variable| {
        if variable.required { variable.name.to_owned() } else { format!("[{}]", variable.name) }
    });
    names.collect::<Vec<_>>().join(" ")
}
