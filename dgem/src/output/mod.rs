//! Prints what was decided: a table for people, JSON or CSV for programs, bare answers for shells. Data goes to stdout, notes to
//! stderr.
//!
//! What became of each question is decided in `verdict`; everything here only formats.

mod csv;
mod explain;
mod json;
mod stats;
mod style;
mod table;

use std::io::{self, Write};

use decision::Schema;

use crate::cascade::Telemetry;
use crate::cli::{Api, Format, OutputFlags};
use crate::client::Decided;
use crate::foreign::visible;
use crate::gates::Failure;
use crate::permute::Permutation;
use crate::temper::Applied;
use crate::verdict::{Outcome, Row, Verdict};

pub use stats::Stats;
pub use style::Style;
pub use table::{text_table, width_of};

/// Everything there is to say about one decision.
#[derive(Debug)]
pub struct Report<'a> {
    pub schema: &'a Schema,
    pub decided: &'a Decided,
    pub verdict: &'a Verdict<'a>,
    /// With `--permute`.
    pub permutation: Option<&'a Permutation>,
    /// With `--cascade`.
    pub cascade: Option<&'a Telemetry>,
    /// With `--calibration`.
    pub calibration: Option<&'a Applied>,
    /// The gates that failed, when there are gates.
    pub gates: Option<&'a Vec<Failure>>,
    /// The form in which the server was asked.
    pub api: Option<Api>,
}

/// Where it is written.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    pub style: Style,
    /// Of the terminal, in characters.
    pub width: Option<u16>,
}

/// Writes the whole result.
pub fn write(out: &mut impl Write, flags: &OutputFlags, page: Page, report: &Report<'_>) -> io::Result<()> {
    let Page { style, width } = page;
    let wanted = |row: &&Row<'_>| flags.fields.is_empty() || flags.fields.iter().any(|field| field == row.id);
    let rows: Vec<&Row<'_>> = report.verdict.rows.iter().filter(wanted).collect();
    let stats = flags.stats.then(|| Stats::new(report.decided));
    match flags.format {
        _ if flags.quiet => bare(out, &rows)?,
        Format::Table => {
            writeln!(out, "{}", table::decision(&rows, report, style, width))?;
            if flags.explain {
                writeln!(out, "\n{}", explain::text(&rows, report, style))?;
            }
            if let Some(stats) = stats {
                writeln!(out, "\n{stats}")?;
            }
        }
        Format::Json | Format::Jsonl => {
            let explain = flags.explain.then(|| explain::json(report));
            let document = json::document(&rows, report, stats.as_ref(), explain);
            // Maps with text keys and finite numbers cannot fail to serialise.
            let text = match flags.format {
                Format::Json => serde_json::to_string_pretty(&document),
                _ => serde_json::to_string(&document),
            };
            writeln!(out, "{}", text.unwrap_or_default())?;
        }
        Format::Csv => write!(out, "{}", csv::table(&rows))?,
    }
    out.flush()
}

/// `1 row`, `2 rows`.
pub(crate) fn counted(count: u64, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// The answers alone; an empty line where there is none.
fn bare(out: &mut impl Write, rows: &[&Row<'_>]) -> io::Result<()> {
    rows.iter().try_for_each(|row| match &row.outcome {
        Outcome::Answered(answer) => writeln!(out, "{}", visible(answer.name())),
        Outcome::Skipped(_) | Outcome::Missing | Outcome::Invalid(_) => writeln!(out),
    })
}
