//! Prints what was decided: a table for people, one JSON document for programs. Data goes to stdout, notes to stderr.
//!
//! `rows` puts the answers into schema order and tells skipped from missing; `table`, `json` and `stats` only format.

mod json;
mod rows;
mod stats;
mod style;
mod table;

use std::io::{self, Write};

use decision::Schema;

use crate::cli::Format;
use crate::client::Decided;

pub use rows::{Outcome, Row, rows};
pub use stats::Stats;
pub use style::{Style, visible};
pub use table::text_table;

/// Writes the whole result.
pub fn write(
    out: &mut impl Write,
    format: Format,
    style: Style,
    schema: &Schema,
    decided: &Decided,
    with_stats: bool,
) -> io::Result<()> {
    let stats = with_stats.then(|| Stats::new(decided));
    let rows = rows(schema, &decided.reply);
    match format {
        Format::Table => {
            writeln!(out, "{}", table::decision(&rows, style))?;
            if let Some(stats) = stats {
                writeln!(out, "\n{stats}")?;
            }
        }
        Format::Json => writeln!(out, "{}", json::document(&decided.reply, &rows, stats.as_ref()))?,
    }
    out.flush()
}
