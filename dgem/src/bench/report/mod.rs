//! What a receipt says, as sections that a terminal (`terminal`) and a page (`html`) show alike: `facts`, `tables`, and the
//! `charts` that `svg` draws.

mod charts;
mod facts;
mod html;
mod svg;
mod tables;
mod terminal;

use decision::statistics::Scores;

use self::charts::charts;
use self::facts::facts;
use self::tables::{answers, cases, compared, findings, gates, groups, reliability};
use super::compare::Comparison;
use super::receipt::Receipt;
use super::summary::Summary;

pub use html::page;
pub use terminal::text;

/// Everything there is to show.
#[derive(Debug)]
pub struct Report {
    pub title: String,
    /// What was measured, by whom, with what.
    pub facts: Vec<(String, String)>,
    pub sections: Vec<Section>,
}

/// One heading and what stands below.
#[derive(Debug)]
pub struct Section {
    pub title: String,
    pub body: Body,
    /// A sentence about how to read it.
    pub note: Option<String>,
}

#[derive(Debug)]
pub enum Body {
    Table {
        header: Vec<String>,
        rows: Vec<Vec<String>>,
    },
    /// Only on a page.
    Chart(Chart),
}

#[derive(Debug)]
pub enum Chart {
    /// Confidence against accuracy.
    Reliability(Box<Scores>),
    /// How often values fall between two edges: of right and of wrong answers.
    Histogram { unit: &'static str, right: Vec<f64>, wrong: Vec<f64>, most: Option<f64> },
    /// Shares with their intervals.
    Bars(Vec<Bar>),
}

/// A name, a share, and the interval in which it lies.
type Bar = (String, f64, Option<(f64, f64)>);

impl Section {
    pub fn table(title: &str, header: &[&str], rows: Vec<Vec<String>>) -> Self {
        let header = header.iter().map(|name| (*name).to_owned()).collect();
        Self { title: title.to_owned(), body: Body::Table { header, rows }, note: None }
    }

    fn chart(title: &str, chart: Chart, note: &str) -> Self {
        Self { title: title.to_owned(), body: Body::Chart(chart), note: Some(note.to_owned()) }
    }

    #[must_use]
    pub fn with_note(self, note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..self }
    }
}

impl Report {
    /// `own`: what the suite shows beyond the usual.
    pub fn new(
        receipt: &Receipt,
        summary: &Summary,
        own: Vec<Section>,
        comparison: Option<&Comparison>,
    ) -> Self {
        let mut sections = vec![cases(&receipt.cases), findings(summary)];
        sections.extend(answers(summary));
        sections.extend(groups("By tier", "TIER", &summary.tiers));
        sections.extend(groups("By category", "CATEGORY", &summary.categories));
        sections.extend(reliability(summary));
        sections.extend(gates(summary));
        sections.extend(own);
        sections.extend(comparison.map(compared));
        sections.extend(charts(&receipt.cases, summary));
        Self { title: format!("dgem {}", receipt.origin.suite), facts: facts(receipt), sections }
    }
}

/// A share as people read it; a figure that was not measured says so.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or("not measured".to_owned(), |share| format!("{:.1}%", 100.0 * share))
}

pub(super) fn digits(value: Option<f64>, digits: usize) -> String {
    value.map_or("not measured".to_owned(), |value| format!("{:.digits$}", value + 0.0))
}

pub(super) fn interval(bounds: Option<(f64, f64)>) -> String {
    bounds.map_or("-".to_owned(), |(low, high)| format!("{:.1} to {:.1}%", 100.0 * low, 100.0 * high))
}
