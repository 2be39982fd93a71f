//! The report on a terminal: facts, then tables. Pictures are left to the page.

use std::fmt::Write as _;

use super::{Body, Report};
use crate::output::{Style, text_table};

/// Every section with its heading. `width`: columns of the terminal; without it lines are as long as they are.
pub fn text(report: &Report, style: Style, width: Option<u16>) -> String {
    // Writing into a text cannot fail.
    let mut text = style.bold(&report.title);
    let widest = report.facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in &report.facts {
        let _ = write!(text, "\n  {name:widest$}  {value}");
    }
    for section in &report.sections {
        let Body::Table { header, rows } = &section.body else { continue };
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let _ = write!(text, "\n\n{}\n{}", style.bold(&section.title), text_table(&header, &[], rows, width));
        if let Some(note) = &section.note {
            let _ = write!(text, "\n{}", style.dim(note));
        }
    }
    text
}
