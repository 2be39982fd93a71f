//! JSONL: an object on every line that is neither blank nor a comment (`#`).

use std::io::{self, BufRead};

use decision::StrictValue;
use serde_json::Value;

use super::Columns;
use super::input::Input;
use crate::capped;

#[derive(Debug)]
pub(super) struct Lines {
    input: Input,
    /// The last line read, counted from 1.
    line: u64,
}

impl Lines {
    pub(super) fn new(input: Input) -> Self {
        Self { input, line: 0 }
    }

    /// The object on the next line that has one.
    pub(super) fn next(&mut self) -> io::Result<Option<Columns>> {
        loop {
            self.line += 1;
            let line = self.line;
            let bytes = match read_line(&mut self.input, capped::VARIABLES_BYTES)? {
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
                Ok(StrictValue(Value::Object(columns))) => Ok(columns),
                Ok(_) => Err(format!("line {line} is no JSON object")),
                // Of a key that is there twice a plain parser would keep the last.
                Err(cause) if cause.is_data() => Err(format!("line {line}: {cause}")),
                Err(cause) => Err(format!("line {line} is no JSON: {cause}")),
            }));
        }
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
fn read_line(input: &mut impl BufRead, most_bytes: u64) -> io::Result<Line> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_line_is_not_kept_and_the_next_one_is_read() {
        let mut input = &b"xxxxxxxxxxxx\nshort\n"[..];
        assert_eq!(read_line(&mut input, 10).unwrap(), Line::TooLong);
        assert_eq!(read_line(&mut input, 10).unwrap(), Line::Whole(b"short".to_vec()));
        assert_eq!(read_line(&mut input, 10).unwrap(), Line::End);
    }
}
