//! The tables that every benchmark has.

use decision::statistics::Scores;
use indexmap::IndexMap;

use super::super::compare::Comparison;
use super::super::record::Record;
use super::super::summary::{Answers, Count, Summary};
use super::{Section, digits, interval, percent};
use crate::foreign::visible;

/// More cases than this are too many to read: then only those that are not right are listed.
const MOST_LISTED: usize = 60;

pub(super) fn cases(records: &[Record]) -> Section {
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

pub(super) fn findings(summary: &Summary) -> Section {
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

pub(super) fn answers(summary: &Summary) -> Option<Section> {
    let row = |(name, answers): (&String, &Answers)| {
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

pub(super) fn groups(title: &str, name: &str, groups: &IndexMap<String, Count>) -> Option<Section> {
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

pub(super) fn reliability(summary: &Summary) -> Option<Section> {
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

pub(super) fn gates(summary: &Summary) -> Option<Section> {
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

pub(super) fn compared(comparison: &Comparison) -> Section {
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
