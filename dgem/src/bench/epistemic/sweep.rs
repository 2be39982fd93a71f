//! What other thresholds of the cascade would have done.

use super::super::record::Record;
use super::super::report::{Section, percent};
use super::second::Escalation;
use crate::grade::Judged;

/// Thresholds of the sweep, as shares of the most possible entropy and in nats.
const SWEEP: [(f64, bool); 12] = [
    (0.0, true),
    (0.05, true),
    (0.1, true),
    (0.16, true),
    (0.25, true),
    (0.35, true),
    (0.5, true),
    (0.1, false),
    (0.2, false),
    (0.35, false),
    (0.5, false),
    (0.7, false),
];

/// The accuracy of both models is known only where every case from the threshold on has been
/// before the second.
pub(super) fn sweep(records: &[Record]) -> Section {
    let rows = SWEEP.iter().map(|&(threshold, normalised)| {
        let unsure = |record: &&Record| {
            let judged = record.answers.values().next();
            let graded = judged.filter(|_| record.error.is_none()).and_then(Judged::graded);
            graded.is_none_or(|graded| {
                let entropy = if normalised {
                    graded.hesitation()
                } else {
                    decision::entropy_nats(graded.probabilities())
                };
                entropy >= threshold
            })
        };
        let (escalated, kept): (Vec<&Record>, Vec<&Record>) = records.iter().partition(unsure);
        let right = |records: &[&Record]| records.iter().filter(|record| record.accurate).count();
        let wrong = records.len() - right(&records.iter().collect::<Vec<_>>());
        let again: Option<Vec<bool>> = escalated
            .iter()
            .map(|record| {
                let escalation = record.get::<Escalation>("escalation")?;
                escalation.escalated.then(|| escalation.accurate.unwrap_or(record.accurate))
            })
            .collect();
        let both = again.map(|again| right(&kept) + again.iter().filter(|accurate| **accurate).count());
        let share = |part: usize, whole: usize| (whole > 0).then(|| part as f64 / whole as f64);
        let name =
            if normalised { format!("{:.0}%", 100.0 * threshold) } else { format!("{threshold} nats") };
        let dash = |share: Option<f64>| share.map_or("-".to_owned(), |share| percent(Some(share)));
        vec![
            name,
            format!("{} of {}", escalated.len(), records.len()),
            dash(share(right(&kept), kept.len())),
            dash(share(escalated.len() - right(&escalated), wrong)),
            percent(both.and_then(|both| share(both, records.len()))),
        ]
    });
    let header =
        ["THRESHOLD", "ESCALATED", "ACCURACY OF THE REST", "ERRORS CAUGHT", "ACCURACY OF BOTH MODELS"];
    Section::table("Thresholds", &header, rows.collect()).with_note(
        "Accuracy of both is not measured where a case above the threshold has not been before a second model; --cascade-threshold 0% sends all of them.",
    )
}
