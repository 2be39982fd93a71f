//! Reads the rendered text as JSON, and when that fails says where: line, column and the place itself.

use std::path::Path;

use decision::StrictValue;
use serde_json::Value;

use super::metadata::without_position;
use crate::error::Error;

/// Characters shown on either side of the fault; a rendered line can be as long as a whole diff.
const SNIPPET_CHARS: usize = 40;

pub(super) fn parse(text: &str, path: &Path) -> Result<Value, Error> {
    // Strict: a key written twice in one object would lose the first.
    serde_json::from_str(text).map(|StrictValue(value)| value).map_err(|cause| {
        let (line, column) = (cause.line().max(1), cause.column().max(1));
        Error::RenderedJson {
            path: path.to_owned(),
            line,
            column,
            reason: without_position(&cause),
            snippet: snippet(text, line, column),
        }
    })
}

/// The line with a caret under the fault. `column` counts bytes from 1, as `serde_json` does.
fn snippet(text: &str, line: usize, column: usize) -> String {
    let full = text.lines().nth(line - 1).unwrap_or_default();
    let mut fault = (column - 1).min(full.len());
    while !full.is_char_boundary(fault) {
        fault -= 1;
    }
    let before: Vec<char> = full[..fault].chars().rev().take(SNIPPET_CHARS).collect();
    let after: String = full[fault..].chars().take(SNIPPET_CHARS).collect();
    let shown: String = before
        .iter()
        .rev()
        .copied()
        .chain(after.chars())
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let number = line.to_string();
    let gutter = " ".repeat(number.len());
    format!("  {number} | {shown}\n  {gutter} | {}^", " ".repeat(before.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_14_a_trailing_comma_is_shown_with_line_column_and_snippet() {
        let message = parse("{\n  \"a\": [1, 2,]\n}", Path::new("t.json.tmpl")).unwrap_err().to_string();
        assert!(message.contains("line 2, column 14") && message.contains("trailing comma"), "{message}");
        assert!(message.contains("  2 |   \"a\": [1, 2,]\n    |              ^"), "{message}");
    }

    #[test]
    fn a_very_long_line_is_cut_around_the_fault_and_other_scripts_do_not_panic() {
        let text = format!("{{\"a\": \"{}\" \"東東東\"}}", "東".repeat(100_000));
        let message = parse(&text, Path::new("t")).unwrap_err().to_string();
        assert!(message.len() < 1_000, "{}", message.len());
        assert!(parse("", Path::new("t")).is_err());
    }
}
