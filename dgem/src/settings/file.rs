//! Settings files: where they are, and what is in them with the line it stands on.
//!
//! Two are read: `.dgem.toml` of the project, searched from the current folder upward to the root of the repository, and
//! `dgem/config.toml` below the user's folder for settings. `--config` names another in place of both. `layers` calls this.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, Files, Key};
use crate::capped;
use crate::env::{self, Environment};
use crate::error::Error;

const PROJECT_FILE: &str = ".dgem.toml";
const USER_FILE: &str = "dgem/config.toml";

/// A file that was read. Values are texts, so that one parser serves flags, variables and files.
#[derive(Clone, Debug)]
pub struct SettingsFile {
    pub path: PathBuf,
    /// It came with a project, not from the user.
    pub of_project: bool,
    values: Vec<Written>,
}

impl SettingsFile {
    /// The value under a key and the line it stands on, counted from 1.
    pub(super) fn get(&self, key: &Key) -> Option<(&str, usize)> {
        let (_, text, line) = self.values.iter().find(|(name, ..)| *name == key.name)?;
        Some((text, *line))
    }

    /// The files that exist, the one that wins first, as far as they can be read, and the first mistake in them.
    pub(super) fn find(
        named: Option<&Path>,
        environment: &Environment,
        folder: &Path,
    ) -> (Vec<Self>, Option<Error>) {
        let named = named.map(Path::to_owned).or_else(|| environment.get(env::CONFIG).map(PathBuf::from));
        let candidates = match named {
            Some(path) => vec![(path, false)],
            None => [(project_file(folder), true), (user_file(environment), false)]
                .into_iter()
                .filter_map(|(path, of_project)| Some((path?, of_project)))
                .filter(|(path, _)| exists(path))
                .collect(),
        };
        let (mut files, mut mistake) = (Vec::new(), None);
        for (path, of_project) in candidates {
            let (values, wrong) = Self::read(&path, of_project);
            mistake = mistake.or(wrong);
            files.push(Self { path, of_project, values });
        }
        (files, mistake)
    }

    fn read(path: &Path, of_project: bool) -> (Vec<Written>, Option<Error>) {
        let text = regular(path)
            .and_then(|()| capped::read_file(path, capped::SETTINGS_BYTES))
            .and_then(capped::text);
        let text = match text {
            Ok(text) => text,
            Err(cause) => {
                return (Vec::new(), Some(Error::SettingsFile { path: path.to_owned(), cause }));
            }
        };
        let (values, mistake) = values(&text, of_project);
        let mistake =
            mistake.map(|(line, reason)| Error::SettingsSyntax { path: path.to_owned(), line, reason });
        (values, mistake)
    }
}

/// A pipe or a device may wait for ever for somebody who writes.
fn regular(path: &Path) -> io::Result<()> {
    let kind = fs::metadata(path)?.file_type();
    match () {
        () if kind.is_file() => Ok(()),
        () if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        () => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe or a device, no file")),
    }
}

/// Where the user's own settings would be.
pub(super) fn user_file(environment: &Environment) -> Option<PathBuf> {
    let folder = match environment.get(env::XDG_CONFIG_HOME).map(Path::new).filter(|path| path.is_absolute())
    {
        Some(folder) => folder.to_owned(),
        None => Path::new(environment.get(env::HOME)?).join(".config"),
    };
    Some(folder.join(USER_FILE))
}

/// The nearest project file, not above the root of the repository. Outside of a repository only the folder itself counts:
/// what lies above it may be anyone's, as in `/tmp`.
fn project_file(folder: &Path) -> Option<PathBuf> {
    let root = folder.ancestors().find(|ancestor| exists(&ancestor.join(".git"))).unwrap_or(folder);
    let within = folder.ancestors().take_while(|ancestor| ancestor.starts_with(root));
    within.map(|ancestor| ancestor.join(PROJECT_FILE)).find(|path| exists(path))
}

/// Also what cannot be read exists: that is an error, not a reason to go on without.
fn exists(path: &Path) -> bool {
    !matches!(fs::symlink_metadata(path), Err(cause) if matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
}

/// A key, its value and the line it stands on.
type Written = (&'static str, String, usize);
type Mistake = (usize, String);

/// What can be read, and the first thing that is wrong.
fn values(text: &str, of_project: bool) -> (Vec<Written>, Option<Mistake>) {
    let line = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(cause) => {
            let line = line(cause.span().map_or(0, |span| span.start));
            return (Vec::new(), Some((line, cause.message().to_owned())));
        }
    };
    let (mut values, mut mistakes) = (Vec::new(), Vec::new());
    for (name, value) in table.get_ref() {
        let line = line(name.span().start);
        let written = known(name.get_ref(), of_project).and_then(|key| {
            let text = plain(value).ok_or_else(|| {
                let found = value.get_ref().type_str();
                format!("`{}` must be a text, a number or true/false, and is of type {found}", key.name)
            })?;
            Ok((key.name, text, line))
        });
        match written {
            Ok(written) => values.push(written),
            Err(reason) => mistakes.push((line, reason)),
        }
    }
    mistakes.sort();
    (values, mistakes.into_iter().next())
}

fn known(name: &str, of_project: bool) -> Result<&'static Key, String> {
    let allowed = |key: &Key| key.files == Files::Any || (key.files == Files::User && !of_project);
    match keys::ALL.iter().find(|key| key.name == name) {
        Some(key) if allowed(key) => Ok(key),
        Some(key) if key.files == Files::None => Err(format!(
            "a {name} does not belong in a file of settings; name token_file or token_command in your own, or set {}",
            key.variable
        )),
        Some(key) => Err(format!(
            "`{name}` is not taken from a file that came with a project; put it into your own, or use {} or {}",
            key.flag(),
            key.variable
        )),
        None => {
            let names: Vec<&str> = keys::ALL.iter().filter(|key| allowed(key)).map(|key| key.name).collect();
            Err(format!(
                "there is no setting `{}`; known are {}",
                crate::foreign::clipped(name, 40),
                names.join(", ")
            ))
        }
    }
}

fn plain(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(truth) => Some(truth.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_names_its_line_and_what_is_known() {
        for (text, of_project, line, part) in [
            ("\nurl = \n", true, 2, ""),
            ("timeout = 3\nretrys = 2", true, 2, "there is no setting `retrys`; known are url, model"),
            ("url = [1]", true, 1, "of type array"),
            ("token = 'x'", false, 1, "does not belong in a file"),
            ("model = 'x'\ntoken_command = 'cat'", true, 2, "came with a project"),
            ("gcp_auth = true", true, 1, "--gcp-auth or DGEM_GCP_AUTH"),
            ("[connection]\nurl = 'x'", true, 1, "`connection`"),
        ] {
            let (found, reason) = values(text, of_project).1.unwrap();
            assert_eq!(found, line, "{text}: {reason}");
            assert!(reason.contains(part), "{text}: {reason}");
        }
    }

    #[test]
    fn values_of_several_types_are_texts() {
        let read = values("url = 'http://x/v1'\ntimeout = 2.5\n\nretries = 3\ntoken_file = \"a\"", false).0;
        let expected =
            [("url", "http://x/v1", 1), ("timeout", "2.5", 2), ("retries", "3", 4), ("token_file", "a", 5)];
        for (name, text, line) in expected {
            assert!(read.contains(&(name, text.to_owned(), line)), "{read:?}");
        }
    }

    #[test]
    fn the_search_ends_at_the_root_of_the_repository() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("repo/a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(root.path().join(PROJECT_FILE), "").unwrap();
        assert_eq!(project_file(&inner), None);
        fs::write(root.path().join("repo").join(PROJECT_FILE), "").unwrap();
        assert_eq!(project_file(&inner), None, "without a repository only the folder itself counts");
        fs::create_dir(root.path().join("repo/.git")).unwrap();
        assert_eq!(project_file(&inner), Some(root.path().join("repo").join(PROJECT_FILE)));
        fs::write(root.path().join("repo/a").join(PROJECT_FILE), "").unwrap();
        assert_eq!(project_file(&inner), Some(root.path().join("repo/a").join(PROJECT_FILE)));
    }
}
