//! CSV with a header: the names of the columns, then one row a record.

use std::collections::HashSet;
use std::io;

use super::Columns;
use super::input::{Input, Watch};
use super::quotes::Quotes;
use crate::capped;
use crate::foreign::clipped;
use crate::variables::typed;

#[derive(Debug)]
pub(super) struct Table {
    reader: csv::Reader<Input>,
    names: Vec<String>,
}

impl Table {
    /// Reads the header. Errors: a name that is there twice.
    pub(super) fn open(mut input: Input) -> io::Result<Self> {
        input.get_mut().watch = Some(Watch { left: capped::VARIABLES_BYTES, quotes: Quotes::new() });
        let mut reader = csv::Reader::from_reader(input);
        let names: Vec<String> =
            reader.headers().map_err(of_csv)?.iter().map(|name| name.trim().to_owned()).collect();
        if let [name] = &names[..]
            && name.contains([';', '\t'])
        {
            let reason = "its header has one column, and other separators than commas; save it with commas";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let mut seen = HashSet::new();
        if let Some(name) = names.iter().find(|name| !seen.insert(name.as_str())) {
            let reason = format!("two columns are named `{}`: one value would be lost", clipped(name, 60));
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(Self { reader, names })
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Columns>> {
        self.next_within(capped::VARIABLES_BYTES)
    }

    /// The next record. One of more than `most_bytes` ends the input: where the next one begins cannot be known.
    fn next_within(&mut self, most_bytes: u64) -> io::Result<Option<Columns>> {
        if let Some(watch) = &mut self.reader.get_mut().get_mut().watch {
            watch.left = most_bytes;
        }
        let mut record = csv::StringRecord::new();
        match self.reader.read_record(&mut record) {
            Ok(false) => Ok(None),
            Ok(true) => {
                let cells = self.names.iter().zip(record.iter());
                Ok(Some(Ok(cells.map(|(name, cell)| (name.clone(), typed(cell))).collect())))
            }
            Err(cause) if cause.is_io_error() => Err(of_csv(cause)),
            Err(cause) => Ok(Some(Err(match cause.kind() {
                csv::ErrorKind::UnequalLengths { expected_len, len, .. } => format!(
                    "it has {len} cells, and the header names {expected_len} columns; put quotation marks around cells that hold commas"
                ),
                _ => cause.to_string(),
            }))),
        }
    }
}

fn of_csv(cause: csv::Error) -> io::Error {
    let text = cause.to_string();
    match cause.into_kind() {
        csv::ErrorKind::Io(cause) => cause,
        _ => io::Error::new(io::ErrorKind::InvalidData, text),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::BufReader;

    use super::super::input::{Counted, Raw};
    use super::*;

    #[test]
    fn a_quotation_mark_that_is_never_closed_does_not_fill_the_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let most = 64 << 10;
        // More than the limit in all, and one record far above it at the end.
        let text = "id,t\n".to_owned() + &"1,short\n".repeat(20_000) + "2,\"" + &"x\n".repeat(100_000);
        std::fs::write(&path, text).unwrap();
        let counted = Counted::new(Raw::File(File::open(&path).unwrap()), std::sync::Arc::default());
        let mut table = Table::open(BufReader::new(counted)).unwrap();
        for _ in 0..20_000 {
            assert!(table.next_within(most).unwrap().unwrap().is_ok());
        }
        let error = table.next_within(most).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("quotation mark"), "{error}");
    }
}
