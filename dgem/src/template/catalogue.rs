//! Where templates are found: a file, a name in the templates folder, a name among those built in. In this order.
//!
//! Every command with `-t` goes through [`Catalogue::load`], and `template list` shows exactly the names it takes.

use std::path::{Component, Path, PathBuf};

use super::{Template, built_in};
use crate::cli::CatalogueFlags;
use crate::env::{self, Environment};
use crate::error::Error;

const ENDING: &str = ".json.tmpl";
/// Of a text for `dgem ask`. Its name keeps the `.txt`, so that no decision hides behind the same name.
const TEXT_ENDING: &str = ".txt.tmpl";
const TEXT: &str = ".txt";
/// The folder when none is named.
const DEFAULT_FOLDER: &str = "templates";

/// The folder and what is built in.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    folder: PathBuf,
    /// Somebody asked for this folder, so it must be there.
    named: bool,
}

/// One template that can be loaded by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    /// The file; `None` for one that is built in.
    pub file: Option<PathBuf>,
}

impl Catalogue {
    /// `--templates` wins over `DGEM_TEMPLATES`; without both it is `./templates`, if there is such a folder.
    pub fn new(flags: &CatalogueFlags, environment: &Environment) -> Self {
        let named = flags.templates.clone().or_else(|| environment.get(env::TEMPLATES).map(PathBuf::from));
        Self { named: named.is_some(), folder: named.unwrap_or_else(|| DEFAULT_FOLDER.into()) }
    }

    /// Where a template of this name would be.
    pub fn file_for(&self, name: &str) -> Result<PathBuf, Error> {
        let plain = name_of(Path::new(name)).filter(|plain| !plain.chars().any(char::is_control));
        plain
            .map(|plain| self.folder.join(file_name(&plain)))
            .ok_or_else(|| Error::BadTemplateName { name: name.to_owned() })
    }

    /// A text by its path or name; the `.txt` of the name may be left out.
    pub fn load_text(&self, wanted: &Path) -> Result<Template, Error> {
        let mut named = wanted.as_os_str().to_owned();
        if !wanted.to_string_lossy().ends_with(TEXT) {
            named.push(TEXT);
        }
        let template = match self.load(wanted) {
            Ok(template) if template.is_text() || wanted.exists() => template,
            Err(error) if wanted.exists() => return Err(error),
            other => match (self.load(Path::new(&named)), other) {
                (Ok(template), _) | (Err(_), Ok(template)) => template,
                // Its hint knows the names of texts.
                (Err(error), Err(_)) => return Err(error),
            },
        };
        // Any file of the user's own may be a text, but not one that says what it is.
        if template.path().to_string_lossy().contains(ENDING) || (!wanted.exists() && !template.is_text()) {
            return Err(Error::NoTextTemplate { path: wanted.to_owned() });
        }
        Ok(template)
    }

    /// A template of either kind: where no decision has the name, the text that `dgem ask -t` would take.
    pub fn load_any(&self, wanted: &Path) -> Result<Template, Error> {
        self.load(wanted).or_else(|error| match error {
            Error::UnknownTemplate { .. } => {
                let mut text = wanted.as_os_str().to_owned();
                text.push(TEXT);
                self.load(Path::new(&text)).map_err(|_| error)
            }
            _ => Err(error),
        })
    }

    /// The template of this path or name.
    pub fn load(&self, wanted: &Path) -> Result<Template, Error> {
        if wanted.exists() {
            return Template::load(wanted);
        }
        let Some(name) = name_of(wanted) else { return Err(self.unknown(wanted)) };
        let file = self.folder.join(file_name(&name));
        if file.exists() {
            return Template::load(&file);
        }
        match built_in::source(&name) {
            Some(source) => {
                Template::parse(&PathBuf::from(format!("{name}{}", built_in::MARK)), source.to_owned())
            }
            None => Err(self.unknown(wanted)),
        }
    }

    /// Everything that `load` takes by name: the files of the folder, then what is built in and not hidden by one of them.
    pub fn entries(&self) -> Result<Vec<Entry>, Error> {
        let files =
            if self.named || self.folder.is_dir() { find_templates(&self.folder)? } else { Vec::new() };
        let mut entries: Vec<Entry> = files
            .into_iter()
            .map(|file| Entry { name: template_name(&self.folder, &file), file: Some(file) })
            .collect();
        for (name, _) in built_in::ALL.iter().chain(built_in::TEXTS) {
            if !entries.iter().any(|entry| entry.name == *name) {
                entries.push(Entry { name: (*name).to_owned(), file: None });
            }
        }
        Ok(entries)
    }

    fn unknown(&self, wanted: &Path) -> Error {
        let entries = self.entries().unwrap_or_default();
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        let text = wanted.to_string_lossy();
        let bare = without_ending(&text);
        let last = bare.rsplit(['/', '\\']).next().unwrap_or(bare);
        let meant = decision::closest(bare, names.iter().copied())
            .or_else(|| names.iter().copied().find(|name| name.rsplit('/').next() == Some(last)))
            .or_else(|| decision::closest(last, names.iter().copied()));
        Error::UnknownTemplate {
            name: text.clone().into_owned(),
            folder: self.folder.clone(),
            hint: match meant {
                Some(name) => format!("did you mean -t {name}?"),
                None => "`dgem template list` shows the names; anything else is a path to a file".to_owned(),
            },
        }
    }
}

/// What may be a name: parts joined by `/`, none of them special. A name with the file ending means the same.
fn name_of(wanted: &Path) -> Option<String> {
    let parts: Option<Vec<&str>> = wanted
        .components()
        .map(|part| match part {
            Component::Normal(part) => part.to_str(),
            _ => None,
        })
        .collect();
    let name = parts?.join("/");
    Some(without_ending(&name).to_owned()).filter(|name| !name.is_empty())
}

/// Of a path, or of the name of one that is built in.
pub fn is_text(path: &Path) -> bool {
    let path = path.to_string_lossy();
    let name = path.strip_suffix(built_in::MARK).unwrap_or(&path);
    name.ends_with(TEXT_ENDING) || (name.len() < path.len() && name.ends_with(TEXT))
}

fn without_ending(name: &str) -> &str {
    match name.strip_suffix(TEXT_ENDING) {
        Some(plain) => &name[..plain.len() + TEXT.len()],
        None => name.strip_suffix(ENDING).unwrap_or(name),
    }
}

fn file_name(name: &str) -> String {
    match name.strip_suffix(TEXT) {
        Some(plain) => format!("{plain}{TEXT_ENDING}"),
        None => format!("{name}{ENDING}"),
    }
}

/// All `*.json.tmpl` and `*.txt.tmpl` files below `folder`, sorted by path: those of the folder itself first, then its sub-folders.
pub(super) fn find_templates(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    let mut folders = Vec::new();
    let failed = |cause| Error::TemplateFolder { path: folder.to_owned(), cause };
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Links to folders are not followed: a link upwards would never end.
        if entry.file_type().map_err(failed)?.is_dir() {
            folders.push(entry.path());
        } else if [ENDING, TEXT_ENDING].iter().any(|e| entry.file_name().to_string_lossy().ends_with(e)) {
            files.push(entry.path());
        }
    }
    files.sort();
    folders.sort();
    for folder in folders {
        files.extend(find_templates(&folder)?);
    }
    Ok(files)
}

/// The path below `folder` without the file ending, with `/` on every system: `calibration/chaos_nli`.
pub(super) fn template_name(folder: &Path, path: &Path) -> String {
    let below = path.strip_prefix(folder).unwrap_or(path);
    let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
    without_ending(&parts.join("/")).to_owned()
}
