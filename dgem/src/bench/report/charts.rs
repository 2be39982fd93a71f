//! The pictures of the page: how well confidence fits accuracy, doubt, time, and accuracy by group. `svg` draws them.

use indexmap::IndexMap;

use super::super::record::Record;
use super::super::summary::{Count, Summary, times};
use super::{Chart, Section};
use crate::foreign::visible;
use crate::grade::Judged;

pub(super) fn charts(records: &[Record], summary: &Summary) -> Vec<Section> {
    let mut charts = Vec::new();
    let scores = summary.answers_of_all().and_then(|answers| answers.scores.clone());
    if let Some(scores) = scores {
        let note = "A dot for every bin, as large as it has answers; on the line confidence is what it says.";
        charts.push(Section::chart("Reliability diagram", Chart::Reliability(Box::new(scores)), note));
        let hesitation = |right: bool| {
            let judged = records.iter().flat_map(|record| record.answers.values());
            judged
                .filter_map(Judged::graded)
                .filter(|graded| graded.correct() == right)
                .map(|graded| graded.hesitation())
                .collect()
        };
        let chart = Chart::Histogram {
            unit: "hesitation",
            right: hesitation(true),
            wrong: hesitation(false),
            most: Some(1.0),
        };
        let note = "Entropy as a share of the most it could be. Wrong answers should be on the right.";
        charts.push(Section::chart("Entropy of right and wrong answers", chart, note));
    }
    let of = |right: bool| {
        let some: Vec<Record> = records.iter().filter(|record| record.accurate == right).cloned().collect();
        times(&some, |record| record.wall_time_ms)
    };
    if summary.latency.is_some() {
        let chart = Chart::Histogram { unit: "ms", right: of(true), wrong: of(false), most: None };
        charts.push(Section::chart("Latency", chart, "Wall time of the cases that worked."));
    }
    let bars = |groups: &IndexMap<String, Count>| {
        groups
            .iter()
            .filter_map(|(name, count)| Some((visible(name), count.accuracy()?, count.interval())))
            .collect::<Vec<_>>()
    };
    for (title, groups) in
        [("Accuracy by tier", &summary.tiers), ("Accuracy by category", &summary.categories)]
    {
        if !groups.is_empty() {
            charts.push(Section::chart(title, Chart::Bars(bars(groups)), "With intervals of 95 % (Wilson)."));
        }
    }
    charts
}
