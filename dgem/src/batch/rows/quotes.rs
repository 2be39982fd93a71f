//! Finds a quotation mark of a CSV that nobody closed: the rows behind it would be one cell, up to the next mark or the end.
//!
//! A CSV reader takes that as it comes. So the bytes go by here first: a mark is open at the end of the input, or a cell of several
//! lines ends in the middle of a line, which is where the cell of another row begins.

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the first byte of a cell.
    Start,
    Plain,
    Quoted,
    /// Behind a mark in a quoted cell: the end, or the first half of a mark that belongs to it.
    Mark,
}

#[derive(Debug)]
pub(super) struct Quotes {
    place: Place,
    /// Counted from 1.
    line: u64,
    /// Where the last quoted cell began.
    opened: u64,
    /// Bytes so far.
    seen: usize,
}

impl Quotes {
    pub(super) fn new() -> Self {
        Self { place: Place::Start, line: 1, opened: 0, seen: 0 }
    }

    /// The next bytes of the input.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        for byte in bytes {
            let at = self.seen;
            self.seen += 1;
            if BYTE_ORDER_MARK.get(at) == Some(byte) && self.line == 1 && self.place == Place::Start {
                continue;
            }
            self.place = match (self.place, byte) {
                (Place::Start, b'"') => {
                    self.opened = self.line;
                    Place::Quoted
                }
                (Place::Quoted, b'"') => Place::Mark,
                (Place::Mark, b'"') | (Place::Quoted, _) => Place::Quoted,
                (_, b',' | b'\n' | b'\r') => Place::Start,
                (Place::Mark, _) if self.line > self.opened => return Err(self.closed_in_a_cell()),
                _ => Place::Plain,
            };
            self.line += u64::from(*byte == b'\n');
        }
        Ok(())
    }

    /// The input ends here.
    pub(super) fn end(&self) -> Result<(), String> {
        if self.place == Place::Quoted {
            let line = self.opened;
            return Err(format!("the quotation mark that opens a cell on line {line} is never closed"));
        }
        Ok(())
    }

    fn closed_in_a_cell(&self) -> String {
        let Self { opened, line, .. } = self;
        format!(
            "the quotation mark that opens a cell on line {opened} is closed in the middle of a cell on line {line}: one before it is missing"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str, piece: usize) -> Option<String> {
        let mut quotes = Quotes::new();
        let taken = text.as_bytes().chunks(piece).try_for_each(|bytes| quotes.take(bytes));
        taken.and_then(|()| quotes.end()).err()
    }

    #[test]
    fn a_mark_that_nobody_closes_is_found_with_its_line_however_the_bytes_come() {
        for piece in [1, 3, 4096] {
            let open = fault("id,t\n1,\"a\nb\"\n2,\"never\n3,c\n", piece).unwrap();
            assert!(open.contains("on line 4 is never closed"), "{open}");
            let swallowed = fault("\u{feff}\"id\",t\n1,\"oops\n2,b\n3,\"c\"\n", piece).unwrap();
            assert!(
                swallowed.contains("opens a cell on line 2") && swallowed.contains("on line 4"),
                "{swallowed}"
            );
            for whole in [
                "id,t\r\n1,\"a \"\"b\"\" c\"\r\n",
                "\u{feff}\"id\",\"t\"\n1,\"a\n\nb\"\n",
                "a,5\" wide\n",
                "a,\"one line\" and more\n",
                "a,\"\"",
                "a,\"x\"",
                "",
            ] {
                assert_eq!(fault(whole, piece), None, "{whole}");
            }
        }
    }
}
