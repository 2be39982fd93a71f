//! `dgem config show`: the settings that hold, as a settings file, with the origin of each on request.

use std::io::{self, Write};

use crate::cli::{ConfigCommand, ConfigShowArgs, ConnectionFlags};
use crate::env::Environment;
use crate::error::Error;
use crate::exit::Exit;
use crate::foreign::visible;
use crate::settings::keys::{self, Files, Key};
use crate::settings::{Layers, Settings, Sourced};

pub(super) fn run(
    command: &ConfigCommand,
    connection: &ConnectionFlags,
    environment: &Environment,
) -> Result<Exit, Error> {
    let ConfigCommand::Show(ConfigShowArgs { origin }) = command;
    let folder = std::env::current_dir().unwrap_or_default();
    let (layers, mistake) = Layers::as_far_as_readable(connection, environment, &folder);
    let mut out = io::stdout().lock();
    if *origin {
        for file in &layers.files {
            writeln!(out, "# read: {}", file.path.display())?;
        }
        if let Some(path) = layers.user_file().filter(|path| !path.exists()) {
            writeln!(out, "# not there: {}", path.display())?;
        }
    }
    for key in keys::ALL {
        writeln!(out, "{}", line(key, layers.get(key).as_ref(), *origin))?;
    }
    out.flush()?;
    // Shown first, so that one sees where a mistake comes from.
    match mistake {
        Some(mistake) => Err(mistake),
        None => Settings::from_layers(&layers).map(|_| Exit::Done),
    }
}

/// A line of TOML. What does not belong into a file, or is not set, is a comment.
fn line(key: &Key, value: Option<&Sourced>, origin: bool) -> String {
    let Some(value) = value else { return format!("# {} is not set", key.name) };
    let shown = if key.secret {
        "(hidden)".to_owned()
    } else if *key == keys::URL {
        crate::settings::shown_url(&value.text)
    } else {
        visible(&value.text)
    };
    // JSON's strings are strings of TOML too.
    let text = serde_json::to_string(&shown).unwrap_or_default();
    let comment = if key.secret || key.files == Files::None { "# " } else { "" };
    let origin = if origin { format!("  # {}", value.origin) } else { String::new() };
    format!("{comment}{} = {text}{origin}", key.name)
}
