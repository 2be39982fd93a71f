//! Tables in the form of the user's README: columns apart by ` | `, a rule below the header, no frame.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use comfy_table::{
    ColumnConstraint, ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle, Width,
};
use decision::Answer;
use terminal_size::{Width as Columns, terminal_size_of};

use super::Report;
use super::style::Style;
use crate::foreign::visible;
use crate::share::percent;
use crate::verdict::{Outcome, Row};

/// A column of the decision table with its least width in characters, so that tables of different policies line up.
struct Column {
    header: &'static str,
    width: u16,
    /// The cell of an answer.
    cell: fn(&Row<'_>, &Answer, &Report<'_>) -> String,
}

/// Those of the user's README, then what came later.
const COLUMNS: [Column; 5] = [
    Column { header: "VALUE / CHOICE", width: 20, cell: |_, answer, _| visible(answer.name()) },
    Column { header: "CONFIDENCE", width: 10, cell: |_, answer, _| percent(answer.confidence) },
    Column {
        header: "ENTROPY (H)",
        width: 11,
        cell: |_, answer, _| format!("{} nats", three_digits(answer.entropy_nats)),
    },
    Column { header: "AGREEMENT", width: 10, cell: |_, answer, _| agreement(answer) },
    Column { header: "HESITATION", width: 10, cell: |_, answer, _| percent(answer.hesitation) },
];
/// With several reads.
const STDERR: Column = Column { header: "STDERR", width: 7, cell: |_, answer, _| stderr(answer) };
/// With several orders of the options.
const FLIPS: Column = Column { header: "FLIPS", width: 6, cell: |row, _, report| flips(row, report) };
/// When not every answer is a slot read of the first model.
const SOURCE: Column = Column { header: "SOURCE", width: 8, cell: |_, answer, _| source(answer) };

/// Begins the first line of a row, which may take several: a character without width, taken out again.
const ROW: char = '\u{2060}';

/// The decision table. `width`: of the terminal, if it is for one.
pub(super) fn decision(rows: &[&Row<'_>], report: &Report<'_>, style: Style, width: Option<u16>) -> String {
    let answers = || rows.iter().filter_map(|row| row.answer());
    let optional = [
        (STDERR, answers().any(|answer| answer.stderr.is_some())),
        (FLIPS, report.permutation.is_some()),
        (SOURCE, answers().any(|answer| answer.source.is_some())),
    ];
    let extra = optional.into_iter().filter(|(_, wanted)| *wanted).map(|(column, _)| column);
    let columns: Vec<Column> = COLUMNS.into_iter().chain(extra).collect();
    let header: Vec<&str> =
        ["QUESTION", "TYPE"].into_iter().chain(columns.iter().map(|column| column.header)).collect();
    let widths: Vec<u16> = [16, 10].into_iter().chain(columns.iter().map(|column| column.width)).collect();
    let lines: Vec<Vec<String>> = rows.iter().map(|row| cells(row, &columns, report)).collect();
    let text = text_table(&header, &widths, &lines, width);
    let mut painted = Vec::new();
    let mut begun = 0;
    for (index, line) in text.lines().enumerate() {
        let begins = line.starts_with(ROW);
        begun += usize::from(begins);
        let line = line.strip_prefix(ROW).unwrap_or(line);
        let row = begun.checked_sub(1).and_then(|row| rows.get(row));
        painted.push(match row.map(|row| &row.outcome) {
            None if index == 0 => style.bold(line),
            Some(Outcome::Missing | Outcome::Invalid(_)) => style.yellow(line),
            Some(Outcome::Skipped(_)) => style.dim(line),
            _ => line.to_owned(),
        });
    }
    painted.join("\n")
}

fn cells(row: &Row<'_>, columns: &[Column], report: &Report<'_>) -> Vec<String> {
    let head = [format!("{ROW}{}", visible(row.id)), row.type_name.to_owned()];
    let status = match &row.outcome {
        Outcome::Answered(answer) => {
            return head
                .into_iter()
                .chain(columns.iter().map(|column| (column.cell)(row, answer, report)))
                .collect();
        }
        Outcome::Skipped(Some(reason)) => format!("skipped ({})", visible(reason)),
        Outcome::Skipped(None) => "skipped".to_owned(),
        Outcome::Missing => "missing".to_owned(),
        Outcome::Invalid(_) => "invalid".to_owned(),
    };
    let rest = std::iter::repeat_n("-".to_owned(), columns.len() - 1);
    head.into_iter().chain([status]).chain(rest).collect()
}

/// Adding zero turns -0.0, which would print a minus sign, into 0.0.
fn three_digits(value: f64) -> String {
    format!("{:.3}", value + 0.0)
}

/// A single read agrees with itself.
fn agreement(answer: &Answer) -> String {
    format!("{:.2}", answer.agreement.unwrap_or(1.0))
}

fn stderr(answer: &Answer) -> String {
    answer.stderr.map_or("-".to_owned(), |stderr| format!("±{stderr:.4}"))
}

fn flips(row: &Row<'_>, report: &Report<'_>) -> String {
    let rate = report.permutation.and_then(|permutation| permutation.flip_rates.get(row.id));
    rate.map_or("-".to_owned(), |rate| percent(*rate))
}

/// `slot` is the normal one: read at a place of the answer sheet.
fn source(answer: &Answer) -> String {
    answer.source.as_deref().map_or("slot".to_owned(), visible)
}

/// Any table in this form. `widths` are least widths; columns beyond them are as wide as their content. A table that is wider than
/// `width` breaks its cells into lines.
pub fn text_table(header: &[&str], widths: &[u16], rows: &[Vec<String>], width: Option<u16>) -> String {
    let wide = laid_out(header, widths, rows, None);
    match width {
        Some(width) if wide.lines().next().is_some_and(|line| line.chars().count() > usize::from(width)) => {
            laid_out(header, &[], rows, Some(width))
        }
        _ => wide,
    }
}

fn laid_out(header: &[&str], widths: &[u16], rows: &[Vec<String>], width: Option<u16>) -> String {
    let mut table = Table::new();
    let bar = ContentLineStyle::none().junction('|');
    let style = TableStyle::new()
        .header_lines(bar)
        .header_separator(LineStyle::none().fill('-').junction('-'))
        .content_lines(bar);
    let arrangement =
        if width.is_some() { ContentArrangement::Dynamic } else { ContentArrangement::Disabled };
    table.load_style(style).set_content_arrangement(arrangement).set_header(header.to_vec());
    if let Some(width) = width {
        table.set_width(width);
    }
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

/// Characters in a line of the terminal behind a stream; `None` for a file or a pipe, where nothing needs to fit.
pub fn width_of(stream: &(impl IsTerminal + AsFd)) -> Option<u16> {
    stream.is_terminal().then(|| terminal_size_of(stream).map(|(Columns(columns), _)| columns)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_the_terminal_and_is_as_wide_as_it_is_elsewhere() {
        let rows = [vec!["urgent".to_owned(), "one two three four five six seven".to_owned()]];
        let wide = text_table(&["QUESTION", "ANSWERS"], &[16, 10], &rows, None);
        assert_eq!(wide.lines().count(), 3);
        assert_eq!(text_table(&["QUESTION", "ANSWERS"], &[16, 10], &rows, Some(80)), wide);
        let narrow = text_table(&["QUESTION", "ANSWERS"], &[16, 10], &rows, Some(30));
        assert!(narrow.lines().all(|line| line.chars().count() <= 30), "{narrow}");
        let words: Vec<&str> =
            narrow.split(|c: char| c.is_whitespace() || c == '|').filter(|word| !word.is_empty()).collect();
        assert!(words.ends_with(&["four", "five", "six", "seven"]), "{narrow}");
    }
}
