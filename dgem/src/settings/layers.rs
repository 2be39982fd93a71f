//! The layers of settings: flag > `DGEM_*` variable > project file > user file > default, each value with its origin.
//!
//! Gathered once by `settings`; `commands::config` prints them.

use std::fmt;
use std::path::{Path, PathBuf};

use super::file::{self, SettingsFile};
use super::keys::Key;
use crate::cli::ConnectionFlags;
use crate::env::{self, Environment};
use crate::error::Error;

/// Where a value comes from. The order is that of the layers: the first one wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Flag(String),
    Variable(&'static str),
    ProjectFile { path: PathBuf, line: usize },
    UserFile { path: PathBuf, line: usize },
    Default,
}

impl Origin {
    /// 0 wins.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            Self::Flag(_) => 0,
            Self::Variable(_) => 1,
            Self::ProjectFile { .. } => 2,
            Self::UserFile { .. } => 3,
            Self::Default => 4,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => f.write_str(name),
            Self::Variable(name) => f.write_str(name),
            Self::ProjectFile { path, line } | Self::UserFile { path, line } => {
                write!(f, "{}, line {line}", path.display())
            }
            Self::Default => f.write_str("default"),
        }
    }
}

/// A value as it was written.
#[derive(Clone, Debug)]
pub struct Sourced {
    pub text: String,
    pub origin: Origin,
}

/// Everything that was written, anywhere.
#[derive(Debug)]
pub struct Layers<'a> {
    flags: &'a ConnectionFlags,
    environment: &'a Environment,
    /// The files that were read, the one that wins first.
    pub files: Vec<SettingsFile>,
}

impl<'a> Layers<'a> {
    /// Reads the settings files that concern `folder`.
    pub fn gather(
        flags: &'a ConnectionFlags,
        environment: &'a Environment,
        folder: &Path,
    ) -> Result<Self, Error> {
        match Self::as_far_as_readable(flags, environment, folder) {
            (layers, None) => Ok(layers),
            (_, Some(mistake)) => Err(mistake),
        }
    }

    /// The same for showing them: what can be read, and the first mistake.
    pub fn as_far_as_readable(
        flags: &'a ConnectionFlags,
        environment: &'a Environment,
        folder: &Path,
    ) -> (Self, Option<Error>) {
        let (files, mistake) = SettingsFile::find(flags.config.as_deref(), environment, folder);
        (Self { flags, environment, files }, mistake)
    }

    /// Where the user's own settings would be.
    pub fn user_file(&self) -> Option<PathBuf> {
        file::user_file(self.environment)
    }

    pub fn environment(&self) -> &Environment {
        self.environment
    }

    /// The value that wins.
    pub fn get(&self, key: &Key) -> Option<Sourced> {
        let sourced = |text: &str, origin| Some(Sourced { text: text.to_owned(), origin });
        if let Some(text) = key.typed(self.flags) {
            return sourced(text, Origin::Flag(key.flag()));
        }
        if let Some((text, name)) = self.variable(key) {
            return sourced(text, Origin::Variable(name));
        }
        for file in &self.files {
            if let Some((text, line)) = file.get(key) {
                let path = file.path.clone();
                let origin = if file.of_project {
                    Origin::ProjectFile { path, line }
                } else {
                    Origin::UserFile { path, line }
                };
                return sourced(text, origin);
            }
        }
        sourced(key.default?, Origin::Default)
    }

    fn variable(&self, key: &Key) -> Option<(&str, &'static str)> {
        let value = |name: &'static str| Some((self.environment.get(name)?, name));
        // The public tool's name for the URL of a Vertex endpoint.
        value(key.variable).or_else(|| if key.name == "url" { value(env::VERTEX_URL) } else { None })
    }
}
