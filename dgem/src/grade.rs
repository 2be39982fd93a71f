//! Whether an answer is the right one: for the benchmarks, and for the rows of a batch that say what is right.
//!
//! [`Judged::new`] compares; [`Mark`] is what a line of a batch keeps of it, beside the answer itself.

use decision::statistics::Graded;
use decision::{Answer, AnswerValue, Kind, Question};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::foreign::visible;
use crate::template::MOST_OPTIONS;
use crate::verdict::Outcome;

/// One question with a known answer, and what was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Of the question: `boolean`, `choice` or `score`.
    pub kind: String,
    /// As the dataset says it.
    pub expected: String,
    /// Whether the question has such an answer. If not, nothing can be right.
    pub possible: bool,
    pub correct: bool,
    /// Of a score: at most one level off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_one: Option<bool>,
    /// Answers that the question allows, whatever the reply lists.
    pub alternatives: usize,
    /// `None`: it was skipped, missing or invalid; `fault` says which.
    pub answer: Option<Answer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl Judged {
    pub fn new(question: &Question, expected: &str, outcome: &Outcome) -> Self {
        let names = question.answer_names();
        let gold = position(question, expected);
        let (answer, fault) = match outcome {
            Outcome::Answered(answer) => (Some(answer.clone()), None),
            Outcome::Skipped(_) => (None, Some("skipped".to_owned())),
            Outcome::Missing => (None, Some("missing".to_owned())),
            Outcome::Invalid(reason) => (None, Some(visible(reason))),
        };
        let said = answer.as_ref().and_then(|answer| names.iter().position(|name| *name == answer.name()));
        let near = || said.zip(gold).is_some_and(|(said, gold)| said.abs_diff(gold) <= 1);
        Self {
            kind: question.kind.type_name().to_owned(),
            expected: gold.map_or_else(|| expected.to_owned(), |gold| names[gold].to_owned()),
            possible: gold.is_some(),
            correct: gold.is_some() && said == gold,
            within_one: matches!(question.kind, Kind::Score { .. }).then(near),
            alternatives: names.len(),
            answer,
            fault,
        }
    }

    /// What was answered, for people.
    pub fn said(&self) -> &str {
        match (&self.answer, &self.fault) {
            (Some(answer), _) => answer.name(),
            (None, Some(fault)) => fault,
            (None, None) => "missing",
        }
    }

    /// The distribution over all allowed answers with the place of the right one. What a reply left out shares what it left.
    /// `None` without an answer, or where nothing can be right.
    pub fn graded(&self) -> Option<Graded> {
        self.mark().graded(self.answer.as_ref()?)
    }

    pub fn mark(&self) -> Mark {
        let Self { expected, possible, correct, alternatives, .. } = self;
        Mark {
            expected: expected.clone(),
            possible: *possible,
            correct: *correct,
            alternatives: *alternatives,
        }
    }
}

/// A judgement without the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// As the question names it, where it has such an answer.
    pub expected: String,
    pub possible: bool,
    pub correct: bool,
    pub alternatives: usize,
}

impl Mark {
    /// For an answer without its question: it may be one of those that are listed.
    pub fn of_listed(answer: &Answer, expected: &Value) -> Self {
        let expected = expected_text(expected);
        let names: Vec<&str> = answer.probabilities.keys().map(String::as_str).collect();
        let gold = place(matches!(answer.value, AnswerValue::Boolean { .. }), &names, &expected);
        Self {
            possible: gold.is_some(),
            correct: gold.is_some_and(|gold| names[gold] == answer.name()),
            alternatives: names.len(),
            expected: gold.map_or(expected, |gold| names[gold].to_owned()),
        }
    }

    /// The distribution of the answer over all that are allowed, with the place of the right one; `None` where nothing can be right.
    pub fn graded(&self, answer: &Answer) -> Option<Graded> {
        let mut all: Vec<f64> = self.possible.then(|| answer.probabilities.values().copied().collect())?;
        let gold = answer.probabilities.get_index_of(&self.expected).unwrap_or(all.len());
        // A line of a file may say anything.
        let alternatives = self.alternatives.min(MOST_OPTIONS);
        if let Some(absent) = alternatives.checked_sub(all.len()).filter(|absent| *absent > 0) {
            let left = (1.0 - all.iter().sum::<f64>()).max(0.0);
            all.extend(std::iter::repeat_n(left / absent as f64, absent));
        }
        Graded::new(all, gold)
    }
}

/// The place of the expected answer: by its name, whatever the case; of a boolean also true and false; of names that are numbers
/// also by the number.
pub(crate) fn position(question: &Question, expected: &str) -> Option<usize> {
    place(matches!(question.kind, Kind::Boolean { .. }), &question.answer_names(), expected)
}

fn place(boolean: bool, names: &[&str], expected: &str) -> Option<usize> {
    let wanted = expected.trim();
    if let Some(index) = names.iter().position(|name| *name == wanted) {
        return Some(index);
    }
    let lower = wanted.to_lowercase();
    let wanted = match lower.as_str() {
        "true" | "1" if boolean => "yes",
        "false" | "0" if boolean => "no",
        other => other,
    };
    let number: Option<f64> = wanted.parse().ok();
    let same = |name: &&str| {
        name.to_lowercase() == wanted || (number.is_some() && name.parse::<f64>().ok() == number)
    };
    names.iter().position(same)
}

/// An expected answer as text: datasets write `true` and `4` as well as `"yes"`.
pub(crate) fn expected_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(json: &str) -> Question {
        let schema = format!(r#"{{"questions": [{json}]}}"#);
        decision::Schema::from_json(&schema).unwrap().questions.remove(0)
    }

    fn answer(json: &str) -> Outcome {
        Outcome::Answered(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn names_count_whatever_their_case_and_booleans_and_numbers_by_their_value() {
        let yes = question(r#"{"id": "q", "type": "boolean"}"#);
        for (expected, place) in [("yes", 0), ("TRUE", 0), ("1", 0), ("No", 1), ("false", 1), (" no ", 1)] {
            assert_eq!(position(&yes, expected), Some(place), "{expected}");
        }
        assert_eq!(position(&yes, "maybe"), None);
        let rate = question(r#"{"id": "q", "type": "score", "levels": ["0.0", "0.2", "1"]}"#);
        assert_eq!(
            (position(&rate, "0"), position(&rate, ".2"), position(&rate, "1.0")),
            (Some(0), Some(1), Some(2))
        );
        // By the name, not the label: this option is called as another one's label.
        let letters = question(r#"{"id": "q", "type": "choice", "options": ["B", "A"]}"#);
        assert_eq!(position(&letters, "a"), Some(1));
        assert_eq!(expected_text(&serde_json::json!(true)), "true");
    }

    #[test]
    fn a_score_may_be_one_off() {
        let scale = question(r#"{"id": "q", "type": "score", "levels": ["low", "mid", "high"]}"#);
        let said = answer(
            r#"{"type": "score", "level": "mid", "probabilities": {"low": 0.1, "mid": 0.8, "high": 0.1}}"#,
        );
        for (expected, correct, near) in [("mid", true, true), ("low", false, true), ("none", false, false)] {
            let judged = Judged::new(&scale, expected, &said);
            assert_eq!((judged.correct, judged.within_one), (correct, Some(near)), "{expected}");
        }
        let missing = Judged::new(&scale, "mid", &Outcome::Missing);
        assert_eq!((missing.correct, missing.said(), missing.graded()), (false, "missing", None));
    }

    #[test]
    fn case_52_answers_that_a_reply_left_out_share_what_is_left() {
        let names: Vec<String> = (0..26).map(|n| format!("\"o{n}\"")).collect();
        let wide = question(&format!(r#"{{"id": "q", "type": "choice", "options": [{}]}}"#, names.join(",")));
        let said = answer(r#"{"type": "choice", "choice": "o3", "probabilities": {"o3": 0.6, "o1": 0.2}}"#);
        let graded = Judged::new(&wide, "o9", &said).graded().unwrap();
        assert_eq!((graded.probabilities().len(), graded.correct()), (26, false));
        assert!((graded.probabilities()[graded.gold()] - 0.2 / 24.0).abs() < 1e-12);
        assert!((graded.probabilities().iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!(Judged::new(&wide, "o3", &said).graded().unwrap().correct());
        // Case 57: what the question does not have cannot be right.
        let judged = Judged::new(&wide, "oos", &said);
        assert_eq!((judged.possible, judged.correct, judged.graded()), (false, false, None));
    }
}
