//! Which checkpoint folder to serve: `--model`, else `DGEMMA_MODEL`, else the only one in `./model`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use diffusion_gemma::weights::{BLOB, MANIFEST, is_pack};

use crate::error::Error;

/// The environment variable that names a checkpoint.
pub const VARIABLE: &str = "DGEMMA_MODEL";

/// The checkpoint folder. `flag` and `variable` are what was given, `working_dir` is where `model/` is looked for.
pub fn find(flag: Option<PathBuf>, variable: Option<OsString>, working_dir: &Path) -> Result<PathBuf, Error> {
    let named = flag.or_else(|| variable.filter(|value| !value.is_empty()).map(PathBuf::from));
    if let Some(path) = named {
        let path = folder_of(path);
        return if is_checkpoint(&path) { Ok(path) } else { Err(Error::NotACheckpoint { path }) };
    }
    let mut found: Vec<PathBuf> = std::fs::read_dir(working_dir.join("model"))
        .map(|entries| {
            entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_whole(path)).collect()
        })
        .unwrap_or_default();
    found.sort();
    match found.len() {
        1 => Ok(found.swap_remove(0)),
        0 => Err(Error::NoModel { reason: "no model is named, and ./model holds no checkpoint".into() }),
        _ => {
            let names: Vec<_> = found.iter().map(|path| name(path)).collect();
            let reason = format!("no model is named, and ./model holds several: {}", names.join(", "));
            Err(Error::NoModel { reason })
        }
    }
}

/// The name a checkpoint is served under: that of its folder.
#[must_use]
pub fn name(path: &Path) -> String {
    // `.` and `..` have no name of their own.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    path.file_name().map_or_else(|| "model".into(), |name| name.to_string_lossy().into_owned())
}

/// The folder of a pack that is named by its manifest or its blob.
fn folder_of(path: PathBuf) -> PathBuf {
    let in_pack = path.is_file() && path.file_name().is_some_and(|name| name == MANIFEST || name == BLOB);
    match path.parent() {
        Some(parent) if in_pack && parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) if in_pack => parent.to_owned(),
        _ => path,
    }
}

/// Not half of a pack, which has a manifest and as yet no blob.
fn is_whole(path: &Path) -> bool {
    is_checkpoint(path) && (!is_pack(path) || path.join(BLOB).is_file())
}

fn is_checkpoint(path: &Path) -> bool {
    path.join("config.json").is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(dir: &Path, name: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("config.json"), "{}").unwrap();
        path
    }

    #[test]
    fn flag_wins_over_variable_over_the_model_folder() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b, only) =
            (checkpoint(dir.path(), "a"), checkpoint(dir.path(), "b"), checkpoint(dir.path(), "model/only"));
        std::fs::create_dir(dir.path().join("model/no-checkpoint")).unwrap();
        let find = |flag: Option<&PathBuf>, variable: Option<&PathBuf>| {
            find(flag.cloned(), variable.map(|path| path.clone().into_os_string()), dir.path()).unwrap()
        };
        assert_eq!(find(Some(&a), Some(&b)), a);
        assert_eq!(find(None, Some(&b)), b);
        assert_eq!(find(None, None), only);
        assert_eq!(super::find(None, Some(OsString::new()), dir.path()).unwrap(), only);
    }

    #[test]
    fn without_a_choice_the_error_lists_the_three_ways() {
        let dir = tempfile::tempdir().unwrap();
        let ways = ["--model DIR", "DGEMMA_MODEL", "./model"];
        let none = find(None, None, dir.path()).unwrap_err().to_string();
        assert!(ways.iter().all(|way| none.contains(way)), "{none}");
        checkpoint(dir.path(), "model/x");
        checkpoint(dir.path(), "model/y");
        let several = find(None, None, dir.path()).unwrap_err().to_string();
        assert!(ways.iter().chain(&["x, y"]).all(|way| several.contains(way)), "{several}");
    }

    #[test]
    fn a_named_folder_without_a_config_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        checkpoint(dir.path(), "model/only");
        let error = find(Some(dir.path().join("typo")), None, dir.path()).unwrap_err().to_string();
        assert!(error.contains("typo") && error.contains("config.json"), "{error}");
    }

    #[test]
    fn a_pack_may_be_named_by_its_files_and_half_a_pack_is_not_found() {
        let dir = tempfile::tempdir().unwrap();
        let pack = checkpoint(dir.path(), "model/pack");
        std::fs::write(pack.join(MANIFEST), "{}").unwrap();
        assert!(find(None, None, dir.path()).is_err());
        std::fs::write(pack.join(BLOB), "").unwrap();
        assert_eq!(find(None, None, dir.path()).unwrap(), pack);
        for name in [MANIFEST, BLOB] {
            assert_eq!(find(Some(pack.join(name)), None, dir.path()).unwrap(), pack);
        }
    }

    #[test]
    fn a_model_is_named_after_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = checkpoint(dir.path(), "demo-model");
        assert_eq!(name(&path), "demo-model");
        assert_eq!(name(&path.join(".")), "demo-model");
    }
}
