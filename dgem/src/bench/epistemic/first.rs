//! Answers of the first model that an earlier run has: they are taken from its receipt, if that is of the same cases and templates.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::super::receipt::{Origin, Receipt};
use super::super::record::Record;
use super::super::sheet::Sheet;
use super::super::suite::Suite as _;
use super::Epistemic;
use crate::asking::Answered;
use crate::client::{Decided, Reply, Tally};
use crate::error::Error;
use crate::foreign::visible;
use crate::grade::Judged;
use crate::verdict::{Outcome, Row, Verdict};

/// Flags of the reading, as a receipt names them.
const READING: [&str; 5] = ["samples", "layout", "think", "permute", "api"];

/// Answers of the first model from a receipt.
#[derive(Debug)]
pub struct First {
    path: PathBuf,
    origin: Origin,
    cases: HashMap<String, Record>,
}

impl First {
    pub fn load(path: &Path) -> Result<Self, Error> {
        let receipt = Receipt::load_for(path, Epistemic::NAME)?;
        let cases = receipt.cases.into_iter().map(|case| (case.id.clone(), case)).collect();
        Ok(Self { path: path.to_owned(), origin: receipt.origin, cases })
    }

    /// Errors: it answered other cases or other templates, or they were read in another manner.
    pub(super) fn fits(&self, now: &Origin) -> Result<(), Error> {
        let refuse = |reason: String| Err(Error::BadReceipt { path: self.path.clone(), reason });
        let short = |hash: &str| hash.chars().take(12).collect::<String>();
        let (then, dataset) = (&self.origin.dataset, &now.dataset);
        if then.sha256 != dataset.sha256 {
            return refuse(format!(
                "it is over the cases in {} (sha256 {}…), and this run is over those in {} (sha256 {}…)",
                visible(&then.path),
                short(&then.sha256),
                visible(&dataset.path),
                short(&dataset.sha256)
            ));
        }
        for (name, hash) in &now.templates {
            let told = match self.origin.templates.get(name) {
                Some(other) if other == hash => continue,
                Some(other) => format!("was another one then (sha256 {}…)", short(other)),
                None if self.cases.values().all(|case| case.template.as_ref() != Some(name)) => continue,
                None => "has no hash in it".to_owned(),
            };
            return refuse(format!(
                "the template `{}` {told}, now it has sha256 {}…",
                visible(name),
                short(hash)
            ));
        }
        match self.difference(now) {
            Some(difference) => {
                refuse(format!("its answers were read in another manner: {}", visible(&difference)))
            }
            None => Ok(()),
        }
    }

    /// How the answers were read then and would be now; an older receipt says only which flags there were.
    fn difference(&self, now: &Origin) -> Option<String> {
        let then = &self.origin;
        if then.readings.is_empty() {
            let other = |key: &str| then.settings.get(key) != now.settings.get(key);
            return READING.iter().find(|key| other(key)).map(|key| format!("--{key} was another one"));
        }
        let pairs = now.readings.iter().filter_map(|(name, now)| Some((then.readings.get(name)?, now)));
        pairs
            .flat_map(|(then, now)| then.iter().flat_map(move |then| now.iter().map(move |now| (then, now))))
            .find_map(|(then, now)| then.difference(now))
    }

    /// Who gave these answers, and how.
    pub(super) fn settings(&self) -> Value {
        let Origin { target_url, target_model, timestamp, dgem_git_revision, seed, settings, .. } =
            &self.origin;
        let read: Map<String, Value> =
            READING.iter().filter_map(|key| Some(((*key).to_owned(), settings.get(*key)?.clone()))).collect();
        // Its name alone: folders differ from machine to machine.
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        json!({"receipt": name, "timestamp": timestamp, "dgem_git_revision": dgem_git_revision,
               "target_url": target_url, "target_model": target_model, "seed": seed, "settings": read})
    }

    /// The answer that an earlier run has, as if it had just come; `None` where that run has none.
    pub(super) fn known<'a>(&self, plan: &'a Sheet, id: &str) -> Option<(Record, Answered<'a>)> {
        let (origin, first) = (&self.origin, self.cases.get(id)?);
        let question = plan.schema.asked().into_iter().next()?;
        let judged = first.answers.get(&question.id).filter(|_| first.error.is_none())?;
        let outcome = Outcome::Answered(judged.answer.clone()?);
        let mut record = first.clone();
        // Judged anew: the labels are those of this dataset.
        let expected = plan.expected.get(&question.id)?;
        record.answers.insert(question.id.clone(), Judged::new(question, expected, &outcome));
        record.more.clear();
        record.second_error = None;
        record.model.clone_from(&origin.target_model);
        Some((record, as_if(plan, outcome)))
    }
}

/// A reply with this outcome of the one question.
pub(super) fn as_if(plan: &Sheet, outcome: Outcome) -> Answered<'_> {
    let asked = plan.schema.asked().into_iter().next();
    let row = asked.map(|question| Row { id: &question.id, type_name: question.kind.type_name(), outcome });
    let rows = row.into_iter().collect();
    let decided = Decided {
        reply: Reply::new(Map::new(), json!({}), None, None),
        wall: std::time::Duration::ZERO,
        url: String::new(),
        tally: Tally::default(),
    };
    Answered { decided, verdict: Verdict { rows, notes: Vec::new() } }
}
