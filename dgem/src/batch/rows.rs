//! Reads rows one after the other: JSONL or CSV, from a file or stdin, never more than one in memory.
//!
//! A row is the variables of one decision, beside `id` and `expected_QUESTION`. A row that cannot be read is an error of that row,
//! and the next one is read as if nothing had been.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value};

use crate::capped;
use crate::cli::RowFormat;
use crate::error::Error;
use crate::variables::typed;

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

/// All rows of an input.
#[derive(Debug)]
pub struct Rows {
    source: Source,
    next: u64,
    read: Arc<AtomicU64>,
    length: Option<u64>,
}

type Input = BufReader<Counted>;

#[derive(Debug)]
enum Source {
    Jsonl { input: Input, line: u64 },
    Csv { reader: csv::Reader<Input>, names: csv::StringRecord },
}

/// Counts the bytes that go by, and ends where one record would take too many.
#[derive(Debug)]
struct Counted {
    input: Raw,
    read: Arc<AtomicU64>,
    /// Bytes that may still come before the next record; lines are measured elsewhere.
    left: Option<u64>,
}

#[derive(Debug)]
enum Raw {
    File(File),
    Stdin(io::Stdin),
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match &mut self.input {
            Raw::File(file) => file.read(buffer),
            Raw::Stdin(stdin) => stdin.read(buffer),
        }?;
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(count as u64).ok_or_else(|| {
                let reason = "a CSV record is too large: a quotation mark that is never closed takes in the rest of the file";
                io::Error::new(io::ErrorKind::FileTooLarge, reason)
            })?;
        }
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
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
        let mut input = BufReader::new(Counted { input: raw, read: Arc::clone(&read), left: None });
        let is_csv = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv"));
        let source = match format.unwrap_or(if is_csv { RowFormat::Csv } else { RowFormat::Jsonl }) {
            RowFormat::Jsonl => Source::Jsonl { input, line: 0 },
            RowFormat::Csv => {
                input.get_mut().left = Some(capped::VARIABLES_BYTES);
                let mut reader = csv::Reader::from_reader(input);
                let names = reader.headers().map_err(|cause| failed(of_csv(cause)))?.clone();
                Source::Csv { reader, names }
            }
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
            Source::Jsonl { input, line } => next_line(input, line)?,
            Source::Csv { reader, names } => next_record(reader, names, capped::VARIABLES_BYTES)?,
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

type Columns = Result<Map<String, Value>, String>;

/// The object on the next line that is neither blank nor a comment.
fn next_line(input: &mut Input, line: &mut u64) -> io::Result<Option<Columns>> {
    loop {
        *line += 1;
        let bytes = match read_line(input, capped::VARIABLES_BYTES)? {
            Line::Whole(bytes) => bytes,
            Line::TooLong => {
                let most = capped::VARIABLES_BYTES >> 20;
                return Ok(Some(Err(format!("line {line} is longer than {most} MiB"))));
            }
            Line::End => return Ok(None),
        };
        let text = bytes.trim_ascii();
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        if text.is_empty() || text.starts_with(b"#") {
            continue;
        }
        return Ok(Some(match serde_json::from_slice(text) {
            Ok(Value::Object(columns)) => Ok(columns),
            Ok(_) => Err(format!("line {line} is no JSON object")),
            Err(cause) => Err(format!("line {line} is no JSON: {cause}")),
        }));
    }
}

/// What a file has next.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// Without its end.
    Whole(Vec<u8>),
    TooLong,
    End,
}

/// The next line; no more than `most_bytes` is ever kept.
fn read_line(input: &mut Input, most_bytes: u64) -> io::Result<Line> {
    let mut line = Vec::new();
    let mut too_long = false;
    let mut any = false;
    loop {
        let available = match input.fill_buf() {
            Ok(available) => available,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
            Err(cause) => return Err(cause),
        };
        if available.is_empty() {
            break;
        }
        any = true;
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        if (line.len() + part.len()) as u64 > most_bytes {
            too_long = true;
            line = Vec::new();
        } else if !too_long {
            line.extend_from_slice(part);
        }
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            break;
        }
    }
    Ok(match (any, too_long) {
        (false, _) => Line::End,
        (true, true) => Line::TooLong,
        (true, false) => Line::Whole(line),
    })
}

/// The next record. One of more than `most_bytes` ends the input: where the next one begins cannot be known.
fn next_record(
    reader: &mut csv::Reader<Input>,
    names: &csv::StringRecord,
    most_bytes: u64,
) -> io::Result<Option<Columns>> {
    reader.get_mut().get_mut().left = Some(most_bytes);
    let mut record = csv::StringRecord::new();
    match reader.read_record(&mut record) {
        Ok(false) => Ok(None),
        Ok(true) => {
            let cells = names.iter().zip(record.iter());
            Ok(Some(Ok(cells.map(|(name, cell)| (name.trim().to_owned(), typed(cell))).collect())))
        }
        Err(cause) if cause.is_io_error() => Err(of_csv(cause)),
        Err(cause) => Ok(Some(Err(cause.to_string()))),
    }
}

fn of_csv(cause: csv::Error) -> io::Error {
    let text = cause.to_string();
    match cause.into_kind() {
        csv::ErrorKind::Io(cause) => cause,
        _ => io::Error::new(io::ErrorKind::InvalidData, text),
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
    fn case_18_a_line_of_a_megabyte_is_read_and_an_endless_one_is_not_kept() {
        let long = "x".repeat(1 << 20);
        let rows = read("a.jsonl", format!("{{\"diff\": \"{long}\"}}\n").as_bytes());
        assert_eq!(rows[0].content.as_ref().unwrap().variables["diff"], long);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, format!("{long}\nshort\n")).unwrap();
        let counted =
            Counted { input: Raw::File(File::open(&path).unwrap()), read: Arc::default(), left: None };
        let mut input = BufReader::new(counted);
        assert_eq!(read_line(&mut input, 1_000).unwrap(), Line::TooLong);
        assert_eq!(read_line(&mut input, 1_000).unwrap(), Line::Whole(b"short".to_vec()));
        assert_eq!(read_line(&mut input, 1_000).unwrap(), Line::End);
    }

    #[test]
    fn a_quotation_mark_that_is_never_closed_does_not_fill_the_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let most = 64 << 10;
        // More than the limit in all, and one record far above it at the end.
        let text = "id,t\n".to_owned() + &"1,short\n".repeat(20_000) + "2,\"" + &"x\n".repeat(100_000);
        std::fs::write(&path, text).unwrap();
        let Source::Csv { mut reader, names } = Rows::open(&path, None).unwrap().source else { panic!() };
        for _ in 0..20_000 {
            assert!(next_record(&mut reader, &names, most).unwrap().unwrap().is_ok());
        }
        let error = next_record(&mut reader, &names, most).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("quotation mark"), "{error}");
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
}
