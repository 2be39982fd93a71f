//! What a run leaves on the disk: every case, what was asked by whom with which settings, and the figures over all of it.
//!
//! The figures can be computed again from the cases alone. A receipt is never overwritten, and none is written unless it was asked
//! for by name. It holds no token.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::record::Record;
use crate::capped;
use crate::error::Error;
use crate::foreign::visible;
use crate::manner::Manner;

/// Of the form described here.
pub const SCHEMA_VERSION: u32 = 1;
const MOST_BYTES: u64 = 256 << 20;
/// Why a run stopped that the user ended.
pub(super) const INTERRUPTED: &str = "interrupted";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Receipt {
    #[serde(flatten)]
    pub origin: Origin,
    /// Ended by the user before all cases were measured.
    #[serde(default)]
    pub interrupted: bool,
    /// Cases that were to be measured; older receipts do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_cases: Option<usize>,
    /// Why the run ended before all of them were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    pub total_cases: usize,
    pub failed_cases: usize,
    pub total_retries: u32,
    pub total_elapsed_sec: f64,
    /// Keys of the suite, and whatever else an older or newer program wrote.
    #[serde(flatten)]
    pub figures: Map<String, Value>,
    #[serde(default)]
    pub summary: Value,
    pub cases: Vec<Record>,
}

/// Where the cases of a receipt come from.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Origin {
    pub schema_version: u32,
    pub suite: String,
    /// RFC 3339, UTC: the end of the run.
    pub timestamp: String,
    pub dgem_version: String,
    pub dgem_git_revision: String,
    /// What `/health` said: version, revision, engine, device. `null` for servers without it.
    #[serde(default)]
    pub server: Value,
    pub target_url: String,
    /// By the server's own name.
    pub target_model: Option<String>,
    pub dataset: DatasetName,
    /// Name → SHA-256 of the source.
    #[serde(default)]
    pub templates: IndexMap<String, String>,
    /// Name of the template → the manners in which its answers were read; one, as a rule.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub readings: IndexMap<String, Vec<Manner>>,
    /// Of the noise; `null`: the server's own.
    pub seed: Option<u64>,
    pub workers: usize,
    #[serde(default)]
    pub settings: Map<String, Value>,
    #[serde(default)]
    pub warm_up: Option<WarmUp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetName {
    pub path: String,
    pub sha256: String,
    /// Cases in the file, also those that were not asked.
    pub rows: usize,
}

/// The decision before the clock started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WarmUp {
    pub decisions: u32,
    pub counted: bool,
    pub wall_time_ms: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Receipt {
    pub fn load(path: &Path) -> Result<Self, Error> {
        let refuse = |reason: String| Error::BadReceipt { path: path.to_owned(), reason };
        let bytes = capped::read_file(path, MOST_BYTES).map_err(|cause| refuse(cause.to_string()))?;
        let receipt: Self = serde_json::from_slice(&bytes).map_err(|cause| refuse(cause.to_string()))?;
        if receipt.origin.schema_version != SCHEMA_VERSION {
            let other = receipt.origin.schema_version;
            return Err(refuse(format!("it has the form {other}, and this program knows {SCHEMA_VERSION}")));
        }
        let mut ids = HashSet::new();
        for case in &receipt.cases {
            let fault = if ids.insert(case.id.as_str()) {
                case.impossible()
            } else {
                Some("it is there twice".to_owned())
            };
            if let Some(fault) = fault {
                return Err(refuse(format!("its case `{}` cannot be: {fault}", visible(&case.id))));
            }
        }
        Ok(receipt)
    }

    /// The same for one suite.
    pub fn load_for(path: &Path, suite: &str) -> Result<Self, Error> {
        let receipt = Self::load(path)?;
        if receipt.origin.suite != suite {
            let reason = format!("it is of `{}`, not of `{suite}`", receipt.origin.suite);
            return Err(Error::BadReceipt { path: path.to_owned(), reason });
        }
        Ok(receipt)
    }

    /// That the run ended early, and why, in words; `None` where it did not.
    pub fn unfinished(&self) -> Option<String> {
        let reason = match &self.stopped {
            Some(reason) => visible(reason),
            None if self.interrupted => INTERRUPTED.to_owned(),
            None => return None,
        };
        let planned = self.planned_cases.map(|planned| format!(" of {planned}")).unwrap_or_default();
        Some(format!("stopped after {}{planned} cases ({reason})", self.cases.len()))
    }

    /// As the file holds it.
    pub fn text(&self) -> String {
        // Text keys and finite numbers.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

/// Now, as a receipt writes it.
pub(crate) fn timestamp() -> String {
    chrono::DateTime::<chrono::Utc>::from(SystemTime::now())
        .to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

/// A new file that is held from before the run until there is something to write. Dropped without, it goes away again.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    file: Option<File>,
}

impl Output {
    /// Makes missing folders. Errors: there is such a file, or it cannot be made; both before anything is asked.
    pub fn reserve(path: &Path) -> Result<Self, Error> {
        Self::reserve_or(path, "choose another name, or move the file away")
    }

    /// The same, with what to do where the file is there already.
    pub fn reserve_or(path: &Path, where_it_exists: &'static str) -> Result<Self, Error> {
        let refuse = |reason: String, hint| Error::BenchOutput { path: path.to_owned(), reason, hint };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)
                .map_err(|cause| refuse(cause.to_string(), "name a file in a folder that can be made"))?;
        }
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(|cause| match cause
            .kind()
        {
            std::io::ErrorKind::AlreadyExists => {
                refuse("it exists, and results are never overwritten".to_owned(), where_it_exists)
            }
            _ => refuse(cause.to_string(), "name a file that can be written"),
        })?;
        Ok(Self { path: path.to_owned(), file: Some(file) })
    }

    pub fn write(mut self, text: &str) -> Result<(), Error> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|cause| {
            // Half a result is none, and would be in the way of the next run.
            let _ = std::fs::remove_file(&self.path);
            Error::BenchOutput { path: self.path.clone(), reason: cause.to_string(), hint: "check the disk" }
        })
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_never_overwritten_and_nothing_is_left_where_nothing_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/r.json");
        drop(Output::reserve(&path).unwrap());
        assert!(!path.exists() && path.parent().unwrap().is_dir());
        Output::reserve(&path).unwrap().write("one").unwrap();
        let message = Output::reserve(&path).unwrap_err().to_string();
        assert!(message.contains("never overwritten") && message.contains("r.json"), "{message}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
        let below_a_file = Output::reserve(&path.join("x.json")).unwrap_err().to_string();
        assert!(below_a_file.contains("hint:"), "{below_a_file}");
    }

    #[test]
    fn the_time_has_the_form_of_rfc_3339() {
        let text = timestamp();
        assert!(text.len() == 20 && text.ends_with('Z') && text.as_bytes()[10] == b'T', "{text}");
    }
}
