//! `-f csv`: one row per question for spreadsheets and data frames (RFC 4180, lines end in LF).

use crate::verdict::{Outcome, Row};

const HEADER: [&str; 10] = [
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
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}
