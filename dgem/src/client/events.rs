//! Server-sent events, from bytes as they come: lines end in LF, CR LF or CR, a blank line ends an event.
//!
//! `stream` feeds it. A character that is split between two pieces of the body is whole again once its line is; what a broken
//! server sends costs a bounded amount of memory.

use std::collections::VecDeque;

/// Of one line, and of the data of one event. An event holds the text of one block, or one draft of it.
const MOST_BYTES: usize = 1 << 20;

/// What a server says at a time. Events without data are comments to keep the connection alive, and are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// `error` where a server says it so; mostly empty.
    pub(crate) name: String,
    /// Several `data` lines are joined with LF.
    pub(crate) data: String,
}

/// A line or an event is longer than [`MOST_BYTES`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl TooLong {
    pub(super) const LIMIT_MIB: usize = MOST_BYTES >> 20;
}

/// The part that is not yet an event.
#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    name: String,
    data: Option<String>,
    /// The last byte was a CR: an LF behind it belongs to the same line end.
    after_cr: bool,
    /// A first line was read; a byte order mark can only stand before it.
    begun: bool,
}

impl Parser {
    /// Adds the events that these bytes complete.
    pub(super) fn push(&mut self, bytes: &[u8], events: &mut VecDeque<Event>) -> Result<(), TooLong> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_cr) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &rest[..end.unwrap_or(rest.len())];
            if self.line.len() + part.len() > MOST_BYTES {
                return Err(TooLong);
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { return Ok(()) };
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.line);
            events.extend(self.end_line(&line)?);
        }
        Ok(())
    }

    /// The event that the end of the body leaves open: some servers forget the last blank line.
    pub(super) fn finish(&mut self) -> Result<Option<Event>, TooLong> {
        let line = std::mem::take(&mut self.line);
        let last = if line.is_empty() { None } else { self.end_line(&line)? };
        Ok(last.or_else(|| self.end_event()))
    }

    fn end_line(&mut self, line: &[u8]) -> Result<Option<Event>, TooLong> {
        let text = String::from_utf8_lossy(line);
        let text = if std::mem::replace(&mut self.begun, true) {
            text.as_ref()
        } else {
            text.strip_prefix('\u{feff}').unwrap_or(&text)
        };
        if text.is_empty() {
            return Ok(self.end_event());
        }
        // A comment begins with the colon, so that its field has no name.
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.data {
                Some(data) if data.len() + value.len() >= MOST_BYTES => return Err(TooLong),
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "event" => value.clone_into(&mut self.name),
            _ => {}
        }
        Ok(None)
    }

    fn end_event(&mut self) -> Option<Event> {
        let name = std::mem::take(&mut self.name);
        self.data.take().map(|data| Event { name, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of a body that comes in pieces of this size.
    fn events(body: &[u8], piece: usize) -> Vec<(String, String)> {
        let (mut parser, mut events) = (Parser::default(), VecDeque::new());
        body.chunks(piece).for_each(|part| parser.push(part, &mut events).unwrap());
        events.extend(parser.finish().unwrap());
        events.into_iter().map(|event| (event.name, event.data)).collect()
    }

    #[test]
    fn every_form_is_read_the_same_wherever_it_is_cut() {
        let body = "\u{feff}: hello\n\ndata: é東🙂\r\n\r\nid: 7\rdata:a\rdata: b\r\revent: error\ndata\ndata:  c\n\nretry: 5\n\ndata: [DONE]";
        let expected = [("", "é東🙂"), ("", "a\nb"), ("error", "\n c"), ("", "[DONE]")]
            .map(|(name, data)| (name.to_owned(), data.to_owned()));
        for piece in 1..=body.len() {
            assert_eq!(events(body.as_bytes(), piece), expected, "pieces of {piece} bytes");
        }
    }

    #[test]
    fn what_never_ends_is_an_error_and_not_the_end_of_memory() {
        let (mut parser, mut events) = (Parser::default(), VecDeque::new());
        let long = vec![b'x'; MOST_BYTES / 4 + 1];
        let results: Vec<_> = (0..4).map(|_| parser.push(&long, &mut events)).collect();
        assert_eq!(results, [Ok(()), Ok(()), Ok(()), Err(TooLong)]);
        let mut parser = Parser::default();
        let line = [b"data: ", &long[..], b"\n"].concat();
        let results: Vec<_> = (0..4).map(|_| parser.push(&line, &mut events)).collect();
        assert_eq!((results[2].is_ok(), results[3].is_ok(), events.len()), (true, false, 0));
    }
}
