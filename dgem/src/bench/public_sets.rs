//! The whole test sets of BANKING77 and CLINC150 for `dgem bench-intents --full`: fetched from their publishers when the user asks for
//! it, brought into the form of our rows, and kept in the user's cache. They are not part of this project.
//!
//! A set counts only if it has as many rows and intents as the published one. Which bytes those are is trusted on first use: nobody has
//! fetched the sets for this project, so that it knows no SHA-256 of them. That of the first download is kept beside the rows, with that of the rows
//! themselves, and a later download with another one is refused. `--sha256` says beforehand which one it must be.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::hash::sha256;
use crate::cli::IntentSet;
use crate::client::Client;
use crate::env::{self, Environment};
use crate::error::Error;
use crate::foreign::visible;
use crate::settings::{Credential, Endpoint, Settings, shown_url};

const BANKING_TEST: &str = "/PolyAI-LDN/task-specific-datasets/master/banking_data/test.csv";
const CLINC: &str = "/clinc/oos-eval/master/data/data_full.json";
const TIMEOUT: Duration = Duration::from_secs(120);
const RETRIES: u32 = 2;
const OUT_OF_SCOPE: &str = "oos";

#[derive(Deserialize)]
struct BankingRow {
    text: String,
    category: String,
}

/// Pairs of text and intent.
#[derive(Deserialize)]
struct Clinc {
    test: Vec<(String, String)>,
    oos_test: Vec<(String, String)>,
}

/// What a publisher gave, before it is brought into the form of our rows.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Download {
    pub url: String,
    pub sha256: String,
}

/// What is known of the rows in the cache; lies beside them, and stays when they are deleted.
#[derive(Debug, Deserialize, Serialize)]
struct Kept {
    download: Download,
    rows_sha256: String,
}

/// The file with all rows and where it comes from; fetched unless it is there. `publisher`: base URL of a mirror with the same paths;
/// `pin`: the SHA-256 that the download must have.
pub async fn full(
    set: IntentSet,
    publisher: &str,
    pin: Option<&str>,
    environment: &Environment,
) -> Result<(PathBuf, Download), Error> {
    let refuse = |reason: String| Error::PublicSet { set: set.name(), reason };
    let folder =
        folder(environment).ok_or_else(|| refuse("there is no folder for it: HOME is not set".to_owned()))?;
    let path = folder.join(format!("{}_full_test.jsonl", set.name()));
    let beside = path.with_extension("download.json");
    let kept = match std::fs::read(&beside) {
        Ok(bytes) => Some(serde_json::from_slice::<Kept>(&bytes).map_err(|cause| {
            refuse(format!(
                "{} cannot be read ({cause}); delete it to trust the next download",
                beside.display()
            ))
        })?),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => None,
        // What was trusted once is not trusted anew because it cannot be read.
        Err(cause) => return Err(refuse(format!("{} cannot be read: {cause}", beside.display()))),
    };
    let pinned = |download: &Download| match pin {
        Some(pin) if !pin.eq_ignore_ascii_case(&download.sha256) => {
            Err(refuse(format!("its download has the SHA-256 {}, and --sha256 says {pin}", download.sha256)))
        }
        _ => Ok(()),
    };
    if path.exists() {
        return match (std::fs::read(&path), kept) {
            (Ok(rows), Some(kept)) if sha256(&rows) == kept.rows_sha256 => {
                pinned(&kept.download)?;
                Ok((path, kept.download))
            }
            _ => {
                Err(refuse(format!("{} is not what was fetched; delete it to fetch it anew", path.display())))
            }
        };
    }
    let endpoint = Endpoint::parse(publisher)?;
    let settings = Settings::elsewhere(endpoint, None, TIMEOUT, RETRIES, Credential::None, environment);
    let client = Client::new(settings)?;
    let route = match set {
        IntentSet::Banking77 => BANKING_TEST,
        IntentSet::Clinc150 => CLINC,
    };
    let unreachable = |cause: Error| {
        let reason = cause.headline();
        refuse(format!(
            "it cannot be fetched: {reason}; name a copy with --mirror URL, or rows of your own with --corpus FILE"
        ))
    };
    let body = client.get(route).await.map_err(unreachable)?.body;
    let url = shown_url(publisher).trim_end_matches('/').to_owned() + route;
    let download = Download { url, sha256: sha256(&body) };
    pinned(&download)?;
    if let Some(first) = kept.map(|kept| kept.download).filter(|first| first.sha256 != download.sha256) {
        return Err(refuse(format!(
            "it has changed: the first download, from {}, had the SHA-256 {}, and this one, from {}, has {}; delete {} to trust this one",
            visible(&first.url),
            visible(&first.sha256),
            download.url,
            download.sha256,
            beside.display()
        )));
    }
    let pairs = match set {
        IntentSet::Banking77 => banking(&body),
        IntentSet::Clinc150 => clinc(&body),
    };
    let text = pairs.and_then(|pairs| rows(set, &pairs)).map_err(refuse)?;
    let kept = Kept { download, rows_sha256: sha256(text.as_bytes()) };
    // Text keys.
    let about = serde_json::to_string_pretty(&kept).unwrap_or_default() + "\n";
    // The rows last: without what is known of them they are of no use.
    keep(&beside, &about).and_then(|()| keep(&path, &text)).map_err(|cause| Error::BenchOutput {
        path: path.clone(),
        reason: cause.to_string(),
        hint: "XDG_CACHE_HOME names another folder",
    })?;
    Ok((path, kept.download))
}

fn folder(environment: &Environment) -> Option<PathBuf> {
    let cache = match environment.get(env::XDG_CACHE_HOME) {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(environment.get(env::HOME)?).join(".cache"),
    };
    Some(cache.join("dgem").join("intents"))
}

/// All or nothing: a file that is there is whole.
fn keep(path: &Path, text: &str) -> std::io::Result<()> {
    let part = path.with_extension(format!("part{}", std::process::id()));
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
    std::fs::write(&part, text)?;
    std::fs::rename(&part, path)
}

fn banking(body: &[u8]) -> Result<Vec<(String, String)>, String> {
    csv::Reader::from_reader(body)
        .deserialize::<BankingRow>()
        .map(|row| row.map(|row| (row.text, row.category)).map_err(|cause| format!("test.csv: {cause}")))
        .collect()
}

fn clinc(body: &[u8]) -> Result<Vec<(String, String)>, String> {
    let data: Clinc = serde_json::from_slice(body).map_err(|cause| format!("data_full.json: {cause}"))?;
    Ok(data.test.into_iter().chain(data.oos_test).collect())
}

/// One line a case, every line with all intents in the order of their names, "out of scope" last.
fn rows(set: IntentSet, pairs: &[(String, String)]) -> Result<String, String> {
    let (cases, intents) = match set {
        IntentSet::Banking77 => (3_080, 77),
        IntentSet::Clinc150 => (5_500, 151),
    };
    let mut names: Vec<&str> =
        pairs.iter().map(|(_, intent)| intent.as_str()).collect::<BTreeSet<_>>().into_iter().collect();
    names.sort_by_key(|name| *name == OUT_OF_SCOPE);
    if (pairs.len(), names.len()) != (cases, intents) {
        return Err(format!(
            "it has {} rows and {} intents, and the published set has {cases} and {intents}",
            pairs.len(),
            names.len()
        ));
    }
    let row = |(index, (text, intent)): (usize, &(String, String))| {
        let id = format!("{}-{:04}", set.name(), index + 1);
        json!({"id": id, "dataset": set.name(), "text": text, "expected_intent": intent, "is_oos": intent == OUT_OF_SCOPE, "options": names})
            .to_string()
            + "\n"
    };
    Ok(pairs.iter().enumerate().map(row).collect::<Vec<_>>().concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_another_size_is_refused() {
        let pairs = banking(b"text,category\n\"a, b\",card\nc,pin\n").unwrap();
        assert_eq!(pairs, [("a, b".to_owned(), "card".to_owned()), ("c".to_owned(), "pin".to_owned())]);
        let message = rows(IntentSet::Banking77, &pairs).unwrap_err();
        assert!(message.contains("2 rows and 2 intents") && message.contains("3080 and 77"), "{message}");
        assert!(banking(b"text,category\nonly\n").is_err() && clinc(b"{}").is_err());
    }

    #[test]
    fn out_of_scope_stands_last_and_every_row_has_all_intents() {
        let mut pairs: Vec<(String, String)> =
            (0..4_500).map(|n| (format!("t{n}"), format!("z_intent_{:03}", n % 150))).collect();
        pairs.extend((0..1_000).map(|n| (format!("o{n}"), "oos".to_owned())));
        let text = rows(IntentSet::Clinc150, &pairs).unwrap();
        assert_eq!(text.lines().count(), 5_500);
        let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let options = last["options"].as_array().unwrap();
        assert_eq!((options.len(), &options[150], &last["is_oos"]), (151, &json!("oos"), &json!(true)));
    }
}
