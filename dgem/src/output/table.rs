//! Tables in the form of the user's README: columns apart by ` | `, a rule below the header, no frame.

use comfy_table::{
    ColumnConstraint, ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle, Width,
};
use decision::Answer;

use super::style::Style;
use crate::foreign::visible;
use crate::verdict::{Outcome, Row};

const HEADER: [&str; 6] = ["QUESTION", "TYPE", "VALUE / CHOICE", "CONFIDENCE", "ENTROPY (H)", "AGREEMENT"];
/// Least width of each column in characters, so that tables of different policies line up.
const WIDTHS: [u16; 6] = [16, 10, 20, 10, 11, 10];

/// The decision table.
pub(super) fn decision(rows: &[Row<'_>], style: Style) -> String {
    let lines: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let text = text_table(&HEADER, &WIDTHS, &lines);
    let mut painted = Vec::new();
    for (index, line) in text.lines().enumerate() {
        painted.push(match index.checked_sub(2).and_then(|index| rows.get(index)).map(|row| &row.outcome) {
            None if index == 0 => style.bold(line),
            Some(Outcome::Missing | Outcome::Invalid(_)) => style.yellow(line),
            Some(Outcome::Skipped(_)) => style.dim(line),
            _ => line.to_owned(),
        });
    }
    painted.join("\n")
}

fn cells(row: &Row<'_>) -> Vec<String> {
    let unanswered = |text: String| [text, "-".to_owned(), "-".to_owned(), "-".to_owned()];
    let result = match &row.outcome {
        Outcome::Answered(answer) => [
            visible(answer.name()),
            percent(answer.confidence),
            format!("{} nats", three_digits(answer.entropy_nats)),
            agreement(answer),
        ],
        Outcome::Skipped(Some(reason)) => unanswered(format!("skipped ({})", visible(reason))),
        Outcome::Skipped(None) => unanswered("skipped".to_owned()),
        Outcome::Missing => unanswered("missing".to_owned()),
        Outcome::Invalid(_) => unanswered("invalid".to_owned()),
    };
    [visible(row.id), row.type_name.to_owned()].into_iter().chain(result).collect()
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// Adding zero turns -0.0, which would print a minus sign, into 0.0.
fn three_digits(value: f64) -> String {
    format!("{:.3}", value + 0.0)
}

/// A single read agrees with itself.
fn agreement(answer: &Answer) -> String {
    format!("{:.2}", answer.agreement.unwrap_or(1.0))
}

/// Any table in this form. `widths` are least widths; columns beyond them are as wide as their content.
pub fn text_table(header: &[&str], widths: &[u16], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    let bar = ContentLineStyle::none().junction('|');
    let style = TableStyle::new()
        .header_lines(bar)
        .header_separator(LineStyle::none().fill('-').junction('-'))
        .content_lines(bar);
    table.load_style(style).set_content_arrangement(ContentArrangement::Disabled).set_header(header.to_vec());
    for row in rows {
        table.add_row(row.clone());
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        let left = u16::from(index > 0);
        column.set_padding((left, 1));
        if let Some(width) = widths.get(index) {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width + left + 1)));
        }
    }
    table.to_string()
}
