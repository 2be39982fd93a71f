//! Reads rows one after the other: JSONL (`lines`) or CSV (`table`), from a file or stdin, never more than one in memory.
//!
//! A row is the variables of one decision, beside `id` and `expected_QUESTION`. A row that cannot be read is an error of that row,
//! and the next one is read as if nothing had been. Where it cannot be known where the next row begins, the input ends.

mod input;
mod lines;
mod quotes;
mod table;

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde_json::{Map, Value};

use self::input::{Counted, Raw};
use self::lines::Lines;
use self::table::Table;
use crate::cli::RowFormat;
use crate::error::Error;

/// Names with this beginning hold the right answer to a question.
const EXPECTED: &str = "expected_";

/// One row of the input.
#[derive(Debug)]
pub(super) struct Row {
    /// Counted from 0, without blank lines and comments.
    pub(super) number: u64,
    /// Its `id`, or the number of the row counted from 1.
    pub(super) id: String,
    /// The variables, or why there are none.
    pub(super) content: Result<Content, String>,
}

#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) variables: Map<String, Value>,
    /// Question id → right answer.
    pub(super) expected: Map<String, Value>,
}

/// The columns of a row, or why it has none.
type Columns = Result<Map<String, Value>, String>;

/// All rows of an input.
#[derive(Debug)]
pub struct Rows {
    source: Source,
    next: u64,
    read: Arc<AtomicU64>,
    length: Option<u64>,
}

#[derive(Debug)]
enum Source {
    Jsonl(Lines),
    Csv(Table),
}

impl Rows {
    /// `-` is stdin.
    pub fn open(path: &Path, format: Option<RowFormat>) -> Result<Self, Error> {
        let failed = |cause| Error::BatchInput { path: path.to_owned(), cause };
        let (raw, length) = if path.as_os_str() == "-" {
            (Raw::Stdin(io::stdin()), None)
        } else {
            let file = File::open(path).map_err(failed)?;
            let metadata = file.metadata().map_err(failed)?;
            if metadata.is_dir() {
                return Err(failed(io::ErrorKind::IsADirectory.into()));
            }
            (Raw::File(file), metadata.is_file().then_some(metadata.len()))
        };
        let read = Arc::new(AtomicU64::new(0));
        let input = BufReader::new(Counted::new(raw, Arc::clone(&read)));
        let is_csv = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
        let source = match format.unwrap_or(if is_csv { RowFormat::Csv } else { RowFormat::Jsonl }) {
            RowFormat::Jsonl => Source::Jsonl(Lines::new(input)),
            RowFormat::Csv => Source::Csv(Table::open(input).map_err(failed)?),
        };
        Ok(Self { source, next: 0, read, length })
    }

    /// Bytes read so far, for a progress bar.
    pub fn position(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read)
    }

    /// Bytes of a file.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The next row; an error of the disk or the pipe ends the input.
    pub(super) fn next(&mut self) -> io::Result<Option<Row>> {
        let content = match &mut self.source {
            Source::Jsonl(lines) => lines.next()?,
            Source::Csv(table) => table.next()?,
        };
        Ok(content.map(|content| {
            let number = self.next;
            self.next += 1;
            let (id, content) = match content.and_then(split) {
                Ok((id, content)) => (id, Ok(content)),
                Err(reason) => (None, Err(reason)),
            };
            Row { number, id: id.unwrap_or_else(|| (number + 1).to_string()), content }
        }))
    }
}

/// Takes `id` and the expected answers out of the columns.
fn split(mut columns: Map<String, Value>) -> Result<(Option<String>, Content), String> {
    let id = match columns.shift_remove("id") {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) if id.is_empty() => None,
        Some(Value::String(id)) => Some(id),
        Some(id @ (Value::Number(_) | Value::Bool(_))) => Some(id.to_string()),
        Some(other) => return Err(format!("its `id` is neither text nor a number: {other}")),
    };
    let mut content = Content::default();
    for (name, value) in columns {
        match name.strip_prefix(EXPECTED) {
            Some(_) if value.is_null() || value == "" => {}
            Some(question) => drop(content.expected.insert(question.to_owned(), value)),
            None => drop(content.variables.insert(name, value)),
        }
    }
    Ok((id, content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(name: &str, text: &[u8]) -> Vec<Row> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let mut rows = Rows::open(&path, None).unwrap();
        let mut all = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            all.push(row);
        }
        all
    }

    #[test]
    fn jsonl_rows_have_variables_ids_and_expected_answers() {
        let rows = read(
            "a.jsonl",
            "\u{feff}{\"id\": \"a\", \"ticket\": \"東\", \"n\": 1, \"expected_team\": \"billing\", \"expected_x\": null}\n\n# note\n{\"id\": 7}\r\n{\"ticket\": \"last\"}".as_bytes(),
        );
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids, ["a", "7", "3"]);
        let first = rows[0].content.as_ref().unwrap();
        assert_eq!(Value::Object(first.variables.clone()), json!({"ticket": "東", "n": 1}));
        assert_eq!(Value::Object(first.expected.clone()), json!({"team": "billing"}));
    }

    #[test]
    fn a_row_that_cannot_be_read_does_not_end_the_others() {
        let rows = read("a.jsonl", b"{\"id\": \"a\"}\n{broken\n[1]\n\xff\n{\"id\": []}\n{\"id\": \"z\"}\n");
        assert_eq!(rows.len(), 6);
        assert!(rows[1].content.as_ref().unwrap_err().contains("line 2"));
        assert!(rows[1..5].iter().all(|row| row.content.is_err()));
        assert_eq!((rows[5].id.as_str(), rows[5].number), ("z", 5));
    }

    #[test]
    fn csv_cells_are_typed_like_variables_on_the_command_line() {
        let rows = read(
            "a.CSV",
            b"id,ticket,options,expected_team\n1,\"a \"\"quoted\"\"\nline\",\"[\"\"x\"\",\"\"y\"\"]\",billing\nonly,two\n2,true,3,\n",
        );
        let first = rows[0].content.as_ref().unwrap();
        assert_eq!(
            Value::Object(first.variables.clone()),
            json!({"ticket": "a \"quoted\"\nline", "options": ["x", "y"]})
        );
        assert_eq!(first.expected["team"], "billing");
        assert!(rows[1].content.is_err());
        let last = rows[2].content.as_ref().unwrap();
        assert_eq!(Value::Object(last.variables.clone()), json!({"ticket": true, "options": "3"}));
        assert!(last.expected.is_empty());
    }

    #[test]
    fn case_18_a_line_of_a_megabyte_is_read() {
        let long = "x".repeat(1 << 20);
        let rows = read("a.jsonl", format!("{{\"diff\": \"{long}\"}}\n").as_bytes());
        assert_eq!(rows[0].content.as_ref().unwrap().variables["diff"], long);
    }

    #[test]
    fn a_key_or_a_column_that_is_there_twice_is_refused() {
        let rows = read("a.jsonl", b"{\"t\": 1, \"t\": 2}\n{\"t\": {\"x\": 1, \"x\": 2}}\n{\"t\": 3}\n");
        for row in &rows[..2] {
            let reason = row.content.as_ref().unwrap_err();
            assert!(reason.contains("written twice"), "{reason}");
        }
        assert!(rows[2].content.is_ok());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, "id,t, t\n1,a,b\n").unwrap();
        let message = Rows::open(&path, None).unwrap_err().to_string();
        assert!(message.contains("two columns are named `t`"), "{message}");
    }
}
