//! Which texts stand for the answers of a question: the plain labels, or further ones from the tokenizer's own vocabulary.
//!
//! Up to 26 options have letters. Past that, labels must still be ONE token each, so that a choice among hundreds is one slot
//! of one pass: the vocabulary is searched once for short words that are, and every label is checked again on the line it is
//! for. `canvas` checks them a last time, on the whole template.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use decision::{AnswerForm, AnswerTemplate, Question};
use diffusion_gemma::Tokenizer;
use indexmap::IndexMap;

use crate::error::Error;

/// Most alternatives of a question, whatever the vocabulary: the limit of the `/v1/systemone` contract.
pub const MOST_ALTERNATIVES: usize = 255;
/// Up to so many alternatives have the plain labels of the contract.
const LETTERS: usize = 26;
/// How many labels are looked for: more than are ever used at once, since not each is one token on every line.
const POOL: usize = 1024;
/// Longest label, in characters.
const LONGEST: usize = 3;
/// For how many questions the labels are kept.
const KEPT: usize = 512;

/// The labels of one tokenizer.
#[derive(Debug)]
pub struct Labels {
    /// Plain letters first; each is one token after `id: `.
    pool: Vec<String>,
    kept: Mutex<IndexMap<Key, Vec<String>>>,
}

/// All that the labels of a long question depend on.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    id: String,
    one_line: bool,
    count: usize,
}

impl Labels {
    /// Searches the vocabulary. What the tokenizer cannot encode is no label.
    #[must_use]
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let letters = (b'A'..=b'Z').map(|letter| char::from(letter).to_string());
        let mut words: Vec<String> = (0..tokenizer.vocab_size())
            .map(|id| tokenizer.token_text(id as u32).trim_start().to_owned())
            .filter(|word| {
                (2..=LONGEST).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
            })
            .collect();
        // Capitals first, as the letters are; then the shorter, which say less by themselves.
        words.sort_by_key(|word| {
            (!word.bytes().all(|byte| byte.is_ascii_uppercase()), word.len(), word.clone())
        });
        let line = Line::new(tokenizer, "q1", AnswerForm::Lines);
        let pool = line.map_or_else(Vec::new, |line| line.pick(letters.chain(words), POOL));
        Labels { pool, kept: Mutex::default() }
    }

    /// Whether a question has a label for each of its answers, in one form of the answers or the other.
    #[must_use]
    pub fn suffice(&self, tokenizer: &Tokenizer, question: &Question) -> bool {
        question.alternatives() <= LETTERS
            || [AnswerForm::Lines, AnswerForm::OneLine]
                .into_iter()
                .any(|form| self.of(tokenizer, question, form).is_ok())
    }

    /// The labels of a question as it is called on the sheet, one for each of its answers.
    pub fn of(
        &self,
        tokenizer: &Tokenizer,
        question: &Question,
        form: AnswerForm,
    ) -> Result<Vec<String>, Error> {
        let count = question.alternatives();
        if count <= LETTERS {
            return Ok(question.labels());
        }
        let letters = (b'A'..=b'Z').map(|letter| char::from(letter).to_string());
        let key = Key { id: question.id.clone(), one_line: form == AnswerForm::OneLine, count };
        if let Some(kept) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(kept.clone());
        }
        let candidates = letters.chain(self.pool.iter().cloned());
        let found = Line::new(tokenizer, &question.id, form)
            .map_or_else(Vec::new, |line| line.pick(candidates, count));
        if found.len() < count {
            let question = question.id.clone();
            return Err(Error::TooFewLabels { question, needed: count, found: found.len().max(LETTERS) });
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.shift_remove_index(0);
        }
        kept.insert(key, found.clone());
        Ok(found)
    }
}

/// The line of one question, after another one, in the ids of a tokenizer.
struct Line<'a> {
    tokenizer: &'a Tokenizer,
    words: AnswerTemplate,
    base: Vec<u32>,
    /// Where the label is.
    position: usize,
}

impl<'a> Line<'a> {
    /// `None` where not even two letters share a place.
    fn new(tokenizer: &'a Tokenizer, id: &str, form: AnswerForm) -> Option<Self> {
        let question = Question { id: id.to_owned(), ..Question::default() };
        let words = AnswerTemplate::with_form(form, &[&question, &question]);
        let [base, other] =
            ["A", "B"].map(|label| tokenizer.encode_plain(&words.text_with(&["A", label])).ok());
        let (base, other) = (base?, other?);
        let position = only_difference(&base, &other)?;
        Some(Line { tokenizer, words, base, position })
    }

    /// The first `count` of these that are one token each at the place of the label, all of them different.
    fn pick(&self, candidates: impl Iterator<Item = String>, count: usize) -> Vec<String> {
        let (mut texts, mut ids) = (HashSet::new(), HashSet::new());
        candidates
            .filter(|label| texts.insert(label.clone()) && self.token(label).is_some_and(|id| ids.insert(id)))
            .take(count)
            .collect()
    }

    fn token(&self, label: &str) -> Option<u32> {
        let ids = self.tokenizer.encode_plain(&self.words.text_with(&["A", label])).ok()?;
        let same = ids == self.base || only_difference(&self.base, &ids) == Some(self.position);
        same.then(|| ids[self.position])
    }
}

/// The only place where two lists of ids differ.
fn only_difference(a: &[u32], b: &[u32]) -> Option<usize> {
    let mut places = (0..a.len()).filter(|&place| a.len() == b.len() && a[place] != b[place]);
    places.next().filter(|_| places.next().is_none())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use decision::{Alternative, Kind};

    use super::*;

    fn tokenizer() -> Tokenizer {
        Tokenizer::from_dir(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/demo-model")))
            .unwrap()
    }

    fn choice(id: &str, count: usize) -> Question {
        let options = (0..count).map(|n| Alternative { name: format!("o{n}"), description: None }).collect();
        Question { id: id.into(), kind: Kind::Choice { options }, ..Question::default() }
    }

    #[test]
    fn a_long_question_keeps_the_letters_and_goes_on_with_single_tokens() {
        let tokenizer = tokenizer();
        let labels = Labels::new(&tokenizer);
        for id in ["team", "a b", "q1"] {
            let chosen = labels.of(&tokenizer, &choice(id, 255), AnswerForm::Lines).unwrap();
            assert_eq!(chosen.iter().collect::<HashSet<_>>().len(), 255);
            assert_eq!(chosen[..3], ["A", "B", "C"]);
            let before = tokenizer.encode_plain(&format!("{id}:")).unwrap().len();
            for label in &chosen {
                let ids = tokenizer.encode_plain(&format!("{id}: {label}")).unwrap();
                assert_eq!(ids.len(), before + 1, "{label}");
            }
        }
        assert_eq!(labels.of(&tokenizer, &choice("t", 26), AnswerForm::Lines).unwrap()[25], "Z");
    }

    #[test]
    fn a_score_has_digits_up_to_nine_levels_and_letters_beyond() {
        let (tokenizer, levels) = (tokenizer(), |count| (0..count).map(|n| format!("level {n}")).collect());
        let labels = Labels::new(&tokenizer);
        for (count, last) in [(9, "9"), (10, "J"), (26, "Z")] {
            let kind = Kind::Score { levels: levels(count) };
            let question = Question { id: "q1".into(), kind, ..Question::default() };
            let chosen = labels.of(&tokenizer, &question, AnswerForm::Lines).unwrap();
            assert_eq!((chosen.len(), chosen[count - 1].as_str()), (count, last));
            assert_eq!(chosen, question.labels(), "server and contract agree");
        }
    }

    #[test]
    fn where_the_line_leaves_too_few_the_error_names_the_numbers() {
        let tokenizer = tokenizer();
        let labels = Labels { pool: vec!["A".into(), "AB".into()], kept: Mutex::default() };
        assert!(
            labels.suffice(&tokenizer, &choice("team", 26))
                && !labels.suffice(&tokenizer, &choice("team", 200))
        );
        let error = labels.of(&tokenizer, &choice("team", 200), AnswerForm::Lines).unwrap_err().to_string();
        assert!(error.contains("team") && error.contains("200") && error.contains("hint:"), "{error}");
    }
}
