//! How good the answers are, when rows say which ones are right: per question and over all.

use std::fmt;

use decision::Calibration;
use indexmap::IndexMap;

use super::record::Record;
use crate::foreign::visible;
use crate::grade::Mark;
use crate::output::{counted, text_table};

/// Sums per question; empty when no row has an expected answer.
#[derive(Clone, Debug, Default)]
pub struct Report {
    questions: IndexMap<String, Question>,
    /// Of the tables, in characters; `None`: as wide as they are.
    width: Option<u16>,
}

#[derive(Clone, Debug, Default)]
struct Question {
    calibration: Calibration,
    /// Rows whose expected answer is none that the question allows.
    unknown: u64,
    /// Rows without an answer to compare.
    unanswered: u64,
}

impl Report {
    /// Counts the answers of one row.
    pub(super) fn add(&mut self, record: &Record) {
        for (id, expected) in &record.expected {
            let question = self.questions.entry(id.clone()).or_default();
            let Some(answer) = record.answers.get(id).and_then(Option::as_ref) else {
                question.unanswered += 1;
                continue;
            };
            // A line of an older version says only what was expected.
            let listed = || Mark::of_listed(answer, expected);
            let graded = record.graded.get(id).cloned().unwrap_or_else(listed).graded(answer);
            let counted =
                graded.is_some_and(|graded| question.calibration.add(graded.probabilities(), graded.gold()));
            question.unknown += u64::from(!counted);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.questions.is_empty()
    }

    /// For a screen of this width.
    #[must_use]
    pub fn within(self, width: Option<u16>) -> Self {
        Self { width, ..self }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = Calibration::default();
        let mut rows = Vec::new();
        for (id, question) in &self.questions {
            all.merge(&question.calibration);
            rows.push(row(&visible(id), &question.calibration));
        }
        if rows.len() > 1 {
            rows.push(row("all", &all));
        }
        let mut parts = Vec::new();
        // A table of nothing says nothing.
        if all.count() > 0 {
            let header = ["QUESTION", "ANSWERS", "ACCURACY", "CONFIDENCE", "BRIER", "ECE"];
            parts.push(text_table(&header, &[16, 8, 8, 10, 8, 8], &rows, self.width));
        }
        let gates: Vec<Vec<String>> = all
            .gates()
            .iter()
            .map(|gate| {
                vec![
                    format!("{:.0}%", 100.0 * gate.hesitation),
                    percent(gate.escalated),
                    gate.accuracy_of_kept.map_or("-".to_owned(), percent),
                    gate.errors_caught.map_or("-".to_owned(), percent),
                ]
            })
            .collect();
        if all.count() > 0 {
            let header = ["HESITATION FROM", "ESCALATED", "ACCURACY OF THE REST", "ERRORS CAUGHT"];
            parts.push(format!("\n{}", text_table(&header, &[16, 10, 20, 14], &gates, self.width)));
        }
        for (id, question) in &self.questions {
            let id = visible(id);
            let left_out = |count: u64, verb: &str, what: &str| {
                let (rows, they) = (counted(count, "row"), if count == 1 { "it is" } else { "they are" });
                let verb = if count == 1 { format!("{verb}s") } else { verb.to_owned() };
                (count > 0).then(|| format!("{rows} {verb} {what}; {they} not counted"))
            };
            parts.extend(left_out(
                question.unknown,
                "expect",
                &format!("an answer that `{id}` does not have"),
            ));
            parts.extend(left_out(question.unanswered, "lack", &format!("an answer to `{id}` to compare")));
        }
        f.write_str(&parts.join("\n"))
    }
}

/// `-` where no answer could be compared.
fn row(name: &str, calibration: &Calibration) -> Vec<String> {
    let figures = [
        percent(calibration.accuracy()),
        percent(calibration.confidence()),
        format!("{:.4}", calibration.brier()),
        format!("{:.4}", calibration.ece()),
    ];
    let count = calibration.count();
    let shown = figures.map(|figure| if count > 0 { figure } else { "-".to_owned() });
    [name.to_owned(), count.to_string()].into_iter().chain(shown).collect()
}

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(expected: &str, answer: &str) -> Record {
        let text =
            format!(r#"{{"id": "x", "status": "ok", "answers": {{"q": {answer}}}, "expected": {expected}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    const YES: &str = r#"{"type": "boolean", "label": "yes", "noul": 0.9, "confidence": 0.9, "probabilities": {"yes": 0.9, "no": 0.1}, "entropy": 0.325, "hesitation": 0.469}"#;
    const B: &str = r#"{"type": "choice", "label": "A", "choice": "B", "confidence": 0.8, "probabilities": {"B": 0.8, "A": 0.2}, "entropy": 0.5, "hesitation": 0.72}"#;

    #[test]
    fn case_25_answers_are_compared_by_their_names_and_not_by_their_labels() {
        for (expected, answer, correct) in [
            (r#"{"q": "yes"}"#, YES, 1),
            (r#"{"q": true}"#, YES, 1),
            (r#"{"q": "True"}"#, YES, 1),
            (r#"{"q": "no"}"#, YES, 0),
            (r#"{"q": false}"#, YES, 0),
            (r#"{"q": "B"}"#, B, 1),
            (r#"{"q": " b "}"#, B, 1),
            (r#"{"q": "A"}"#, B, 0),
        ] {
            let mut report = Report::default();
            report.add(&record(expected, answer));
            let calibration = &report.questions["q"].calibration;
            assert_eq!((calibration.count(), calibration.correct()), (1, correct), "{expected}");
        }
    }

    #[test]
    fn a_right_answer_that_the_reply_does_not_list_is_a_wrong_one_and_counts() {
        // Of 26 answers two are listed; the expected one shares what they leave.
        let mut row = record(r#"{"q": "C"}"#, B);
        row.graded.insert(
            "q".to_owned(),
            Mark { expected: "C".to_owned(), possible: true, correct: false, alternatives: 26 },
        );
        let mut report = Report::default();
        report.add(&row);
        let question = &report.questions["q"];
        assert_eq!((question.calibration.count(), question.calibration.correct()), (1, 0));
        assert_eq!((question.unknown, question.unanswered), (0, 0));
    }

    #[test]
    fn without_errors_there_is_none_to_catch() {
        let mut report = Report::default();
        report.add(&record(r#"{"q": "B"}"#, B));
        let text = report.to_string();
        let gate = text.lines().find(|line| line.starts_with("5%")).unwrap();
        assert_eq!(gate.split('|').map(str::trim).collect::<Vec<_>>(), ["5%", "100.0%", "-", "-"], "{text}");
    }

    #[test]
    fn what_cannot_be_compared_is_told_and_not_counted() {
        let mut report = Report::default();
        assert!(report.is_empty());
        report.add(&record(r#"{"q": "oos"}"#, B));
        report.add(&record(r#"{"q": "B"}"#, "null"));
        let text = report.to_string();
        assert!(text.contains("1 row expects an answer") && text.contains("1 row lacks an answer"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("ACCURACY"), "no table of nothing: {text}");
        assert_eq!(report.questions["q"].calibration.count(), 0);
        // Beside a question that can be compared, such a one has no figures.
        let mut row = record(r#"{"q": "oos", "p": "B"}"#, B);
        row.answers.insert("p".to_owned(), row.answers["q"].clone());
        report.add(&row);
        let text = report.to_string();
        let line = text.lines().find(|line| line.starts_with("q ")).unwrap();
        assert_eq!(
            line.split('|').map(str::trim).collect::<Vec<_>>(),
            ["q", "0", "-", "-", "-", "-"],
            "{text}"
        );
    }
}
