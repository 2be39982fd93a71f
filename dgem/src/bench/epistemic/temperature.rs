//! What one temperature for all answers would mend: fitted on them, and on answers that it has not seen.

use decision::statistics::{Graded, Scores, Temperature, fold, held_out};
use serde_json::{Value, json};

use super::super::hash::number;
use super::super::labelled::graded_by_type;
use super::super::record::Record;
use super::super::report::{Section, digits};

fn fit(records: &[Record]) -> Option<Temperature> {
    let all: Vec<Graded> =
        graded_by_type(records).into_values().flatten().map(|(_, graded)| graded).collect();
    Temperature::fit(&all)
}

/// For the receipt; `None` where there is nothing to fit.
pub(super) fn figures(records: &[Record]) -> Option<Value> {
    let (fit, held_out) = (fit(records)?, out_of_sample(records));
    Some(
        json!({"temperature": fit.value, "at_bound": fit.at_bound, "ece_raw": fit.before.ece, "nll_raw": fit.before.nll,
                "ece_held_out": held_out.as_ref().map(|s| s.ece), "nll_held_out": held_out.as_ref().map(|s| s.nll)}),
    )
}

/// Every answer at the temperature that the other fifths ask for.
fn out_of_sample(records: &[Record]) -> Option<Scores> {
    let folded: Vec<(Graded, usize)> = graded_by_type(records)
        .into_values()
        .flatten()
        .map(|(id, graded)| (graded, fold(number(&id))))
        .collect();
    Scores::of(&held_out(&folded)?)
}

pub(super) fn section(records: &[Record]) -> Option<Section> {
    let (fit, held_out) = (fit(records)?, out_of_sample(records));
    let bound = if fit.at_bound { ", at the end of the search" } else { "" };
    let rows = vec![
        vec![
            "as read".to_owned(),
            digits(Some(fit.before.ece), 4),
            digits(Some(fit.before.nll), 4),
            digits(Some(fit.before.brier), 4),
        ],
        vec![
            format!("T = {:.3}, fitted on these answers{bound}", fit.value),
            digits(Some(fit.after.ece), 4),
            digits(Some(fit.after.nll), 4),
            digits(Some(fit.after.brier), 4),
        ],
        vec![
            "each at the T of the other four fifths".to_owned(),
            digits(held_out.as_ref().map(|s| s.ece), 4),
            digits(held_out.as_ref().map(|s| s.nll), 4),
            digits(held_out.as_ref().map(|s| s.brier), 4),
        ],
    ];
    let note = "One temperature for all questions. Only the last row says what a temperature does to answers that it has not seen.";
    Some(Section::table("Temperature", &["ANSWERS", "ECE", "NLL", "BRIER"], rows).with_note(note))
}
