//! Reads the cases of a suite: JSONL, one object a line, of any length. Blank lines and lines that begin with `#` are left out.
//!
//! Only LF and CR LF end a line: U+2028 and its like are part of a text. A line that cannot be read is an error of the whole run, before
//! anything is sent: a benchmark with holes compares with nothing.

use std::collections::HashSet;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::hash::sha256;
use super::suite::{Label, Suite};
use crate::capped;
use crate::error::Error;

/// A file of cases; those of the full public sets are about a megabyte.
const MOST_BYTES: u64 = 256 << 20;

/// The rows of a file, and what names it in a receipt.
#[derive(Debug)]
pub struct Dataset<R> {
    pub path: String,
    pub sha256: String,
    /// In the order of the file.
    pub rows: Vec<R>,
}

/// Which rows are asked.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub category: Option<String>,
    pub tier: Option<String>,
    pub offset: usize,
    pub limit: Option<usize>,
}

/// Cases that are part of the program.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// The file of the repository.
    pub path: &'static str,
    pub text: &'static str,
}

impl<R: DeserializeOwned> Dataset<R> {
    /// Without a path the built-in cases.
    pub fn open(path: Option<&Path>, built_in: BuiltIn) -> Result<Self, Error> {
        match path {
            Some(path) => Self::load(path),
            None => Self::parse(&format!("{} (built in)", built_in.path), built_in.text.as_bytes()),
        }
    }

    pub fn load(path: &Path) -> Result<Self, Error> {
        let bytes = capped::read_file(path, MOST_BYTES)
            .map_err(|cause| Error::DatasetFile { path: path.to_owned(), cause })?;
        Self::parse(&path.display().to_string(), &bytes)
    }

    /// `path` is only its name.
    pub fn parse(path: &str, bytes: &[u8]) -> Result<Self, Error> {
        let mut rows = Vec::new();
        let lines = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).split(|byte| *byte == b'\n');
        for (index, line) in lines.enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            rows.push(serde_json::from_slice(line).map_err(|cause| Error::DatasetRow {
                path: path.into(),
                line: index + 1,
                reason: cause.to_string(),
            })?);
        }
        if rows.is_empty() {
            return Err(Error::NoCases { path: path.into(), reason: "the file holds none".to_owned() });
        }
        Ok(Self { path: path.to_owned(), sha256: sha256(bytes), rows })
    }

    /// The rows that the filter leaves, with their labels. Errors: none is left; two have one id.
    pub fn cases<S: Suite<Row = R>>(&mut self, suite: &S, filter: &Filter) -> Result<Vec<(Label, R)>, Error> {
        let mut ids = HashSet::new();
        let mut cases = Vec::new();
        for row in std::mem::take(&mut self.rows) {
            let label = suite.label(&row);
            if !ids.insert(label.id.clone()) {
                let reason = format!("two cases have the id `{}`", label.id);
                return Err(Error::DatasetFault { path: (&self.path).into(), reason });
            }
            cases.push((label, row));
        }
        let same = |wanted: &Option<String>, is: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(is))
        };
        cases.retain(|(label, _)| same(&filter.category, &label.category) && same(&filter.tier, &label.tier));
        let cases: Vec<(Label, R)> =
            cases.into_iter().skip(filter.offset).take(filter.limit.unwrap_or(usize::MAX)).collect();
        if cases.is_empty() {
            let reason = "the filters leave none".to_owned();
            return Err(Error::NoCases { path: (&self.path).into(), reason });
        }
        Ok(cases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn case_18_lines_of_any_length_comments_and_line_separators_of_unicode() {
        let long = "x".repeat(1 << 20);
        let text = format!(
            "\u{feff}# cases\n\n{{\"id\": 1, \"t\": \"a\u{2028}b\"}}\r\n   # more\n{{\"id\": 2, \"t\": \"{long}\"}}"
        );
        let rows = Dataset::<Value>::parse("d", text.as_bytes()).unwrap().rows;
        assert_eq!((rows.len(), &rows[0]["t"]), (2, &Value::from("a\u{2028}b")));
        assert_eq!(rows[1]["t"].as_str().unwrap().len(), 1 << 20);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        let message = Dataset::<Value>::parse("d.jsonl", b"{}\n\n{\"a\":}\n").unwrap_err().to_string();
        assert!(message.contains("d.jsonl, line 3") && message.contains("hint:"), "{message}");
    }

    #[test]
    fn case_47_no_cases_is_a_message() {
        let message = Dataset::<Value>::parse("d.jsonl", b"# nothing\n").unwrap_err().to_string();
        assert!(message.contains("no cases") && message.contains("d.jsonl"), "{message}");
    }
}
