//! What a receipt says, as sections that a terminal (`terminal`) and a page (`html`) show alike. `svg` draws the pictures.

mod html;
mod svg;
mod terminal;

use decision::statistics::Scores;
use indexmap::IndexMap;

use super::compare::Comparison;
use super::receipt::Receipt;
use super::record::Record;
use super::summary::{Count, Summary, times};
use crate::foreign::visible;

pub use html::page;
pub use terminal::text;

/// More cases than this are too many to read: then only those that are not right are listed.
const MOST_LISTED: usize = 60;

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

fn facts(receipt: &Receipt) -> Vec<(String, String)> {
    let origin = &receipt.origin;
    let short = |hash: &str| hash.chars().take(12).collect::<String>();
    let part = |key: &str| origin.server.get(key).and_then(serde_json::Value::as_str).map(visible);
    let server = [part("version"), part("git_revision").map(|text| format!("git {text}")), part("device")];
    let server: Vec<String> = server.into_iter().flatten().collect();
    let mut facts = vec![
        ("Server".to_owned(), visible(&origin.target_url)),
        ("Model".to_owned(), origin.target_model.as_deref().map_or("not told".to_owned(), visible)),
    ];
    if !server.is_empty() {
        facts.push(("Server version".to_owned(), server.join(", ")));
    }
    let dataset = &origin.dataset;
    facts.push((
        "Dataset".to_owned(),
        format!("{} ({} rows, sha256 {}…)", visible(&dataset.path), dataset.rows, short(&dataset.sha256)),
    ));
    let templates: Vec<String> =
        origin.templates.iter().map(|(name, hash)| format!("{} ({}…)", visible(name), short(hash))).collect();
    if !templates.is_empty() {
        facts.push(("Templates".to_owned(), templates.join(", ")));
    }
    let seed = origin.seed.map_or("the server's own".to_owned(), |seed| seed.to_string());
    let settings: Vec<String> =
        origin.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    facts.push((
        "Settings".to_owned(),
        format!("seed {seed}, workers {}, {}", origin.workers, settings.join(", ")),
    ));
    facts.push((
        "Warm-up".to_owned(),
        match &origin.warm_up {
            Some(warm_up) => format!(
                "{} decision, not counted{}",
                warm_up.decisions,
                warm_up
                    .error
                    .as_ref()
                    .map(|error| format!("; it failed: {}", visible(error)))
                    .unwrap_or_default()
            ),
            None => "none".to_owned(),
        },
    ));
    let planned = receipt.planned_cases.map(|planned| format!(" of {planned} planned")).unwrap_or_default();
    facts.push((
        "Run".to_owned(),
        format!(
            "{}, {} cases{planned}, {:.1} s, dgem {} (git {})",
            origin.timestamp,
            receipt.cases.len(),
            receipt.total_elapsed_sec,
            origin.dgem_version,
            origin.dgem_git_revision
        ),
    ));
    if let Some(stopped) = receipt.unfinished() {
        facts.push(("STOPPED".to_owned(), format!("{stopped}; every figure is of the measured cases only")));
    }
    facts
}

fn cases(records: &[Record]) -> Section {
    let listed: Vec<&Record> = records
        .iter()
        .filter(|record| records.len() <= MOST_LISTED || !record.accurate)
        .take(MOST_LISTED)
        .collect();
    let row = |record: &&Record| {
        let status = match (&record.error, record.accurate) {
            (Some(_), _) => "ERR",
            (None, true) => "PASS",
            (None, false) => "FAIL",
        };
        let wrong = record.answers.iter().filter(|(_, judged)| !judged.correct);
        let wrong: Vec<String> = wrong
            .map(|(id, judged)| {
                format!("{}: {}, not {}", visible(id), visible(judged.said()), visible(&judged.expected))
            })
            .collect();
        let optional = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
        vec![
            visible(&record.id),
            visible(&record.category),
            visible(&record.tier),
            record.samples.map_or("-".to_owned(), |samples| samples.to_string()),
            optional(record.denoise_ms),
            optional(record.wall_time_ms),
            status.to_owned(),
            record.error.as_deref().map_or(wrong.join("; "), |error| crate::foreign::clipped(error, 100)),
        ]
    };
    let header = ["ID", "CATEGORY", "TIER", "SAMPLES", "DENOISE MS", "WALL MS", "STATUS", "WRONG"];
    let section = Section::table("Cases", &header, listed.iter().map(row).collect());
    if listed.len() == records.len() {
        return section;
    }
    section.with_note(format!(
        "{} of {} cases: those that are not right, {MOST_LISTED} at most.",
        listed.len(),
        records.len()
    ))
}

fn findings(summary: &Summary) -> Section {
    let all = &summary.all;
    let mut rows = vec![
        vec![
            "Accuracy, all cases".to_owned(),
            format!(
                "{} ({} of {}, 95% interval {})",
                percent(all.accuracy()),
                all.right,
                all.cases,
                interval(all.interval())
            ),
        ],
        vec![
            "Accuracy, cases with an answer".to_owned(),
            format!("{} ({} of {})", percent(all.accuracy_of_answered()), all.right, all.cases - all.failed),
        ],
        vec!["Failed cases".to_owned(), all.failed.to_string()],
        vec!["Retries".to_owned(), summary.retries.to_string()],
    ];
    if summary.second_errors > 0 {
        let name = "Cases in which what comes after the answer failed";
        rows.push(vec![name.to_owned(), summary.second_errors.to_string()]);
    }
    let time = match &summary.latency {
        Some(l) => format!(
            "mean {:.1}, p50 {:.1}, p90 {:.1}, p95 {:.1}, p99 {:.1}, max {:.1} ms (n = {})",
            l.mean, l.p50, l.p90, l.p95, l.p99, l.most, l.count
        ),
        None => "not measured".to_owned(),
    };
    rows.push(vec!["Wall time, cases that worked".to_owned(), time]);
    rows.push(vec![
        "Denoise time, mean".to_owned(),
        summary.denoise_ms.map_or("not measured".to_owned(), |ms| format!("{ms:.2} ms")),
    ]);
    if let Some(extended) = summary.extended {
        rows.push(vec!["Cases with further draws".to_owned(), extended.to_string()]);
    }
    let section = Section::table("Findings", &["FIGURE", "VALUE"], rows);
    match summary.impossible {
        0 => section,
        n => section.with_note(format!("{n} expected answers are none that their question allows: faults of the dataset, counted as wrong.")),
    }
}

fn answers(summary: &Summary) -> Option<Section> {
    let row = |(name, answers): (&String, &super::summary::Answers)| {
        let share = |part: u64| format!("{:.1}%", 100.0 * part as f64 / answers.asked.max(1) as f64);
        let scores = answers.scores.as_ref();
        let figure = |of: &dyn Fn(&Scores) -> Option<f64>| {
            scores.and_then(of).map_or("-".to_owned(), |value| format!("{:.3}", value + 0.0))
        };
        vec![
            name.clone(),
            answers.asked.to_string(),
            share(answers.right),
            answers.within_one.map_or("-".to_owned(), share),
            answers.chance_corrected().map_or("-".to_owned(), |value| format!("{:.3}", value + 0.0)),
            figure(&|s| Some(s.confidence)),
            figure(&|s| Some(s.entropy_nats)),
            figure(&|s| Some(s.hesitation)),
            figure(&|s| Some(s.brier)),
            figure(&|s| Some(s.nll)),
            figure(&|s| Some(s.ece)),
            figure(&|s| Some(s.ece_equal_mass)),
            figure(&|s| s.auroc),
        ]
    };
    let header = [
        "TYPE",
        "ANSWERS",
        "ACCURACY",
        "WITHIN 1",
        "CHANCE-CORR.",
        "CONFIDENCE",
        "H (NATS)",
        "HESITATION",
        "BRIER",
        "NLL",
        "ECE",
        "ECE =MASS",
        "AUROC",
    ];
    (!summary.answers.is_empty()).then(|| {
        Section::table("Single answers", &header, summary.answers.iter().map(row).collect()).with_note(
            "Accuracy and what is above chance are over all answers that were asked for, the other figures over those that came. Brier: 0 is perfect, 2 is certain and wrong. NLL in nats. ECE over 10 bins of equal width, and of equal mass. AUROC: the probability that a wrong answer hesitates more than a right one; - where it cannot be measured.",
        )
    })
}

fn groups(title: &str, name: &str, groups: &IndexMap<String, Count>) -> Option<Section> {
    let row = |(name, count): (&String, &Count)| {
        vec![
            visible(name),
            count.cases.to_string(),
            count.failed.to_string(),
            percent(count.accuracy()),
            interval(count.interval()),
        ]
    };
    let header = [name, "CASES", "FAILED", "ACCURACY", "95% INTERVAL"];
    (!groups.is_empty()).then(|| Section::table(title, &header, groups.iter().map(row).collect()))
}

fn reliability(summary: &Summary) -> Option<Section> {
    let scores = summary.answers_of_all()?.scores.as_ref()?;
    let row = |(index, bin): (usize, &decision::Bin)| {
        let filled = |value: f64| if bin.count == 0 { "-".to_owned() } else { format!("{value:.3}") };
        vec![
            format!("{:.1} to {:.1}", index as f64 / 10.0, (index + 1) as f64 / 10.0),
            bin.count.to_string(),
            filled(bin.confidence()),
            filled(bin.accuracy()),
            filled((bin.accuracy() - bin.confidence()).abs()),
        ]
    };
    let header = ["CONFIDENCE", "ANSWERS", "MEAN CONFIDENCE", "ACCURACY", "GAP"];
    Some(Section::table("Reliability", &header, scores.bins.iter().enumerate().map(row).collect()))
}

fn gates(summary: &Summary) -> Option<Section> {
    let share = |share: Option<f64>| share.map_or("-".to_owned(), |share| percent(Some(share)));
    let row = |gate: &decision::Gate| {
        vec![
            format!("{:.0}%", 100.0 * gate.hesitation),
            percent(Some(gate.escalated)),
            share(gate.accuracy_of_kept),
            share(gate.errors_caught),
        ]
    };
    let header = ["HESITATION FROM", "ESCALATED", "ACCURACY OF THE REST", "ERRORS CAUGHT"];
    (!summary.gates.is_empty()).then(|| {
        Section::table("What a gate on hesitation would do", &header, summary.gates.iter().map(row).collect())
            .with_note("- where nothing is left, or where there are no errors to catch.")
    })
}

fn compared(comparison: &Comparison) -> Section {
    let names = |ids: &[String]| ids.iter().map(|id| visible(id)).collect::<Vec<_>>().join(", ");
    let rows = vec![
        vec!["Cases in both, measured in both".to_owned(), comparison.pairs().to_string()],
        vec!["Right in both".to_owned(), comparison.both_right.to_string()],
        vec!["Wrong in both".to_owned(), comparison.both_wrong.to_string()],
        vec![
            "Mended: wrong before, right now".to_owned(),
            format!("{} {}", comparison.mended.len(), names(&comparison.mended)),
        ],
        vec![
            "Broken: right before, wrong now".to_owned(),
            format!("{} {}", comparison.broken.len(), names(&comparison.broken)),
        ],
        vec!["Failed in one of them".to_owned(), comparison.failed.to_string()],
        vec!["Only before, only now".to_owned(), format!("{}, {}", comparison.only_old, comparison.only_new)],
        vec!["McNemar, exact, two-sided p".to_owned(), digits(comparison.p(), 4)],
    ];
    let mut notes = vec![
        "p is the probability of flips as one-sided as these if both runs were equally good.".to_owned(),
    ];
    notes.extend(comparison.notes.iter().map(|note| format!("Mind: {note}.")));
    Section::table("Compared with the older run", &["FIGURE", "VALUE"], rows).with_note(notes.join(" "))
}

fn charts(records: &[Record], summary: &Summary) -> Vec<Section> {
    let mut charts = Vec::new();
    let scores = summary.answers_of_all().and_then(|answers| answers.scores.clone());
    if let Some(scores) = scores {
        let note = "A dot for every bin, as large as it has answers; on the line confidence is what it says.";
        charts.push(Section::chart("Reliability diagram", Chart::Reliability(Box::new(scores)), note));
        let hesitation = |right: bool| {
            let judged = records.iter().flat_map(|record| record.answers.values());
            judged
                .filter_map(crate::grade::Judged::graded)
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
