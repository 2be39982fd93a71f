//! Finds template files below a folder and gives them their short ids.

use std::path::{Path, PathBuf};

use crate::error::Error;

const ENDING: &str = ".json.tmpl";

/// All `*.json.tmpl` files below `folder`, sorted by path: those of the folder itself first, then its sub-folders.
pub fn find_templates(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    let mut folders = Vec::new();
    let failed = |cause| Error::TemplateFolder { path: folder.to_owned(), cause };
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Links to folders are not followed: a link upwards would never end.
        if entry.file_type().map_err(failed)?.is_dir() {
            folders.push(entry.path());
        } else if entry.file_name().to_string_lossy().ends_with(ENDING) {
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
pub fn template_id(folder: &Path, path: &Path) -> String {
    let below = path.strip_prefix(folder).unwrap_or(path);
    let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
    parts.join("/").trim_end_matches(ENDING).to_owned()
}
