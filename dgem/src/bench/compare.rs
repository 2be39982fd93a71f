//! Two runs over the same cases: which answers changed, and whether that is more than luck.

use decision::statistics::mcnemar_p;
use indexmap::IndexMap;
use serde_json::{Value, json};

use super::record::Record;

/// An older run beside a newer one, case by case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    pub both_right: usize,
    pub both_wrong: usize,
    /// Wrong before, right now.
    pub mended: Vec<String>,
    /// Right before, wrong now.
    pub broken: Vec<String>,
    /// Cases that only one of the runs has, or that failed in one.
    pub only_old: usize,
    pub only_new: usize,
    pub failed: usize,
    /// Where the runs are not alike.
    pub notes: Vec<String>,
}

impl Comparison {
    pub fn new(old: &[Record], new: &[Record]) -> Self {
        let before: IndexMap<&str, &Record> = old.iter().map(|record| (record.id.as_str(), record)).collect();
        let mut comparison = Self::default();
        for record in new {
            let Some(older) = before.get(record.id.as_str()) else {
                comparison.only_new += 1;
                continue;
            };
            match (older.accurate, record.accurate) {
                _ if older.error.is_some() || record.error.is_some() => comparison.failed += 1,
                (true, true) => comparison.both_right += 1,
                (false, false) => comparison.both_wrong += 1,
                (false, true) => comparison.mended.push(record.id.clone()),
                (true, false) => comparison.broken.push(record.id.clone()),
            }
        }
        let known = |record: &&Record| new.iter().any(|newer| newer.id == record.id);
        comparison.only_old = old.iter().filter(|record| !known(record)).count();
        comparison
    }

    pub fn pairs(&self) -> usize {
        self.both_right + self.both_wrong + self.mended.len() + self.broken.len()
    }

    /// The probability of flips as one-sided as these without any real difference. `None` where nothing can be compared.
    pub fn p(&self) -> Option<f64> {
        (self.pairs() > 0).then(|| mcnemar_p(self.broken.len() as u64, self.mended.len() as u64))
    }

    pub fn json(&self) -> Value {
        json!({"pairs": self.pairs(), "both_right": self.both_right, "both_wrong": self.both_wrong, "mended": self.mended,
               "broken": self.broken, "only_old": self.only_old, "only_new": self.only_new, "failed": self.failed,
               "mcnemar_exact_p": self.p(), "notes": self.notes})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(list: &[(&str, Option<bool>)]) -> Vec<Record> {
        let record = |(id, accurate): &(&str, Option<bool>)| Record {
            id: (*id).to_owned(),
            accurate: accurate.unwrap_or(false),
            error: accurate.is_none().then(|| "down".to_owned()),
            ..Record::default()
        };
        list.iter().map(record).collect()
    }

    #[test]
    fn cases_are_paired_by_their_ids() {
        let old = records(&[
            ("a", Some(true)),
            ("b", Some(false)),
            ("c", Some(true)),
            ("d", Some(false)),
            ("e", Some(true)),
            ("f", None),
        ]);
        let new = records(&[
            ("b", Some(true)),
            ("a", Some(false)),
            ("c", Some(true)),
            ("d", Some(false)),
            ("g", Some(true)),
            ("f", Some(true)),
        ]);
        let comparison = Comparison::new(&old, &new);
        assert_eq!((comparison.both_right, comparison.both_wrong), (1, 1));
        assert_eq!(
            (comparison.mended.clone(), comparison.broken.clone()),
            (vec!["b".to_owned()], vec!["a".to_owned()])
        );
        assert_eq!(
            (comparison.only_old, comparison.only_new, comparison.failed, comparison.pairs()),
            (1, 1, 1, 4)
        );
        assert_eq!(comparison.p(), Some(1.0));
        assert_eq!(Comparison::new(&[], &new).p(), None);
    }
}
