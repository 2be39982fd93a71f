//! Prints what was decided: a table for people, one JSON document for programs. Data goes to stdout, notes to stderr.
//!
//! What became of each question is decided in `verdict`; `table`, `json` and `stats` only format.

mod json;
mod stats;
mod style;
mod table;

use std::io::{self, Write};

use crate::cli::Format;
use crate::client::Decided;
use crate::verdict::Verdict;

pub use stats::Stats;
pub use style::Style;
pub use table::text_table;

/// Writes the whole result.
pub fn write(
    out: &mut impl Write,
    format: Format,
    style: Style,
    decided: &Decided,
    verdict: &Verdict<'_>,
    with_stats: bool,
) -> io::Result<()> {
    let stats = with_stats.then(|| Stats::new(decided));
    match format {
        Format::Table => {
            writeln!(out, "{}", table::decision(&verdict.rows, style))?;
            if let Some(stats) = stats {
                writeln!(out, "\n{stats}")?;
            }
        }
        Format::Json => writeln!(out, "{}", json::document(&decided.reply, verdict, stats.as_ref()))?,
    }
    out.flush()
}
