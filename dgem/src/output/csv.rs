//! `-f csv`: one row per question for spreadsheets and data frames (RFC 4180, lines end in LF).
//!
//! Cells hold what they hold: a name that begins with `=` stays as it is, for a program that reads it. Control characters do not.

use crate::foreign::printable;
use crate::verdict::{Outcome, Row};

const HEADER: [&str; 11] = [
    "question",
    "type",
    "status",
    "answer",
    "confidence",
    "entropy",
    "hesitation",
    "stderr",
    "agreement",
    "probabilities",
    "source",
];

/// Empty cells where there is nothing to say; `probabilities` is a JSON object.
pub(super) fn table(rows: &[&Row<'_>]) -> String {
    let mut text = line(HEADER.map(str::to_owned));
    for row in rows {
        let head = |status: &str| [row.id.to_owned(), row.type_name.to_owned(), status.to_owned()];
        let cells = match &row.outcome {
            Outcome::Answered(answer) => {
                let optional = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
                let numbers = [answer.confidence, answer.entropy_nats, answer.hesitation];
                let probabilities = serde_json::to_string(&answer.probabilities).unwrap_or_default();
                head("answered")
                    .into_iter()
                    .chain([answer.name().to_owned()])
                    .chain(numbers.map(|number| number.to_string()))
                    .chain([optional(answer.stderr), optional(answer.agreement), probabilities])
                    .chain([answer.source.clone().unwrap_or_default()])
                    .collect()
            }
            Outcome::Skipped(_) => unanswered(head("skipped")),
            Outcome::Missing => unanswered(head("missing")),
            Outcome::Invalid(_) => unanswered(head("invalid")),
        };
        text.push_str(&line(cells));
    }
    text
}

fn unanswered(head: [String; 3]) -> Vec<String> {
    head.into_iter().chain(std::iter::repeat_n(String::new(), HEADER.len() - 3)).collect()
}

fn line(cells: impl IntoIterator<Item = String>) -> String {
    let cells: Vec<String> = cells.into_iter().map(|cell| quoted(&cell)).collect();
    format!("{}\n", cells.join(","))
}

fn quoted(cell: &str) -> String {
    let cell = printable(cell);
    // Blanks at the ends, and what a spreadsheet may take for a formula, are quoted too: then it is plain that they belong to it.
    let begins = |c: char| c.is_whitespace() || matches!(c, '=' | '+' | '-' | '@');
    if cell.contains([',', '"', '\n']) || cell.starts_with(begins) || cell.ends_with(char::is_whitespace) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be_and_drive_no_terminal() {
        for (cell, written) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("two\r\nlines", "\"two\nlines\""),
            ("=1+2", "\"=1+2\""),
            ("-x", "\"-x\""),
            ("@x", "\"@x\""),
            (" x", "\" x\""),
            ("a\u{1b}[2J", "a\u{fffd}[2J"),
            ("", ""),
        ] {
            assert_eq!(quoted(cell), written, "{cell:?}");
        }
    }
}
