//! One question: its id, its type, its allowed answers and the labels that stand for them on the canvas.
//!
//! Read by `sheet` (the text), `limits` (the rules) and `answer` (the names in a reply). The order of the alternatives is
//! part of the question: labels follow it, and models have an order bias. Next: `schema`.

use indexmap::IndexMap;

/// Most levels of a score that has digits for labels.
const DIGITS: usize = 9;

/// A typed question as it stands in a schema, aliases already resolved.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Question {
    /// Name of the question in the sheet, the answer template and the reply. The model sees it.
    pub id: String,
    pub kind: Kind,
    /// What is asked, in words. The sheet trims it.
    pub instructions: Option<String>,
    /// Questions whose answers stand in this question's prompt.
    pub depends_on: Vec<String>,
    /// Asked only if every named question was answered with one of the listed answer names.
    pub ask_if: IndexMap<String, Vec<String>>,
    /// Takes a read of its own instead of sharing a canvas.
    pub alone: bool,
}

/// The type of a question with its allowed answers, in the order of the source.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// Yes or no; each side may say when it applies.
    Boolean {
        yes: Option<String>,
        no: Option<String>,
    },
    Choice {
        options: Vec<Alternative>,
    },
    /// An ordered scale, lowest level first.
    Score {
        levels: Vec<String>,
    },
}

/// One option of a choice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Alternative {
    pub name: String,
    pub description: Option<String>,
}

impl Default for Kind {
    fn default() -> Self {
        Self::Boolean { yes: None, no: None }
    }
}

impl Kind {
    /// The canonical spelling of the type in JSON.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Boolean { .. } => "boolean",
            Self::Choice { .. } => "choice",
            Self::Score { .. } => "score",
        }
    }
}

impl Question {
    /// The allowed answers in order: `yes`/`no`, the option names, or the levels. These are the keys of `probabilities`.
    pub fn answer_names(&self) -> Vec<&str> {
        match &self.kind {
            Kind::Boolean { .. } => vec!["yes", "no"],
            Kind::Choice { options } => options.iter().map(|option| option.name.as_str()).collect(),
            Kind::Score { levels } => levels.iter().map(String::as_str).collect(),
        }
    }

    /// How many answers are allowed.
    pub fn alternatives(&self) -> usize {
        match &self.kind {
            Kind::Boolean { .. } => 2,
            Kind::Choice { options } => options.len(),
            Kind::Score { levels } => levels.len(),
        }
    }

    /// The plain labels, one per answer: `yes`/`no`; `A`, `B`, …; `1` … `9`, or letters for all levels of a score of more than
    /// nine: a tokenizer seldom puts digits and letters in one place.
    ///
    /// After `Z` come `AA`, `AB`, …: distinct, but hardly single tokens. An engine with other single-token labels for
    /// long questions passes its own to [`crate::question_sheet_with_labels`] and [`crate::Answer::with_labels`].
    pub fn labels(&self) -> Vec<String> {
        match &self.kind {
            Kind::Boolean { .. } => vec!["yes".to_owned(), "no".to_owned()],
            Kind::Choice { options } => (0..options.len()).map(letter_label).collect(),
            Kind::Score { levels } if levels.len() <= DIGITS => {
                (1..=levels.len()).map(|level| level.to_string()).collect()
            }
            Kind::Score { levels } => (0..levels.len()).map(letter_label).collect(),
        }
    }
}

/// Spreadsheet columns: `A` … `Z`, `AA`, `AB`, …
fn letter_label(index: usize) -> String {
    let mut letters = Vec::new();
    let mut rest = index + 1;
    while rest > 0 {
        let digit = (rest - 1) % 26;
        letters.push(char::from(b'A' + digit as u8));
        rest = (rest - 1) / 26;
    }
    letters.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(count: usize) -> Question {
        let levels = (0..count).map(|level| format!("level {level}")).collect();
        Question { id: "s".into(), kind: Kind::Score { levels }, ..Question::default() }
    }

    fn choice(count: usize) -> Question {
        let options = (0..count).map(|n| Alternative { name: format!("o{n}"), description: None }).collect();
        Question { id: "c".into(), kind: Kind::Choice { options }, ..Question::default() }
    }

    #[test]
    fn score_labels_are_digits_or_past_nine_levels_letters() {
        assert_eq!(score(3).labels(), ["1", "2", "3"]);
        assert_eq!(score(9).labels()[8], "9");
        assert_eq!(score(11).labels()[8..], ["I", "J", "K"]);
    }

    #[test]
    fn choice_labels_are_letters_and_stay_distinct_past_z() {
        let labels = choice(151).labels();
        assert_eq!(labels[0], "A");
        assert_eq!(labels[25], "Z");
        assert_eq!(labels[26], "AA");
        assert_eq!(labels[52], "BA");
        let distinct: std::collections::HashSet<_> = labels.iter().collect();
        assert_eq!(distinct.len(), 151);
    }

    #[test]
    fn boolean_answers_are_yes_and_no() {
        let question = Question { id: "b".into(), ..Question::default() };
        assert_eq!(question.answer_names(), ["yes", "no"]);
        assert_eq!(question.labels(), ["yes", "no"]);
        assert_eq!(question.kind.type_name(), "boolean");
    }
}
