//! The text on the canvas: every question's id with a place for its label.
//!
//! It knows no tokens. A caller with a tokenizer writes the text once per label and compares the ids: the one place where
//! they differ is the slot. Called by the server's slot resolution.

use crate::question::Question;

/// Most questions that get a line each; more are written on one line to save canvas rows.
const MOST_LINES: usize = 10;

/// How the answers are laid out. The sheet announces the form and the template must keep to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerForm {
    /// `id: LABEL`, a line per question.
    Lines,
    /// `idLABEL`, separated by spaces.
    OneLine,
}

/// The answer template of one canvas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerTemplate {
    ids: Vec<String>,
    form: AnswerForm,
}

impl AnswerForm {
    /// The form for a sheet of so many questions.
    pub fn of(questions_on_sheet: usize) -> Self {
        if questions_on_sheet <= MOST_LINES { Self::Lines } else { Self::OneLine }
    }
}

impl AnswerTemplate {
    /// The template for a read of every question on its sheet.
    pub fn new(asked: &[&Question]) -> Self {
        Self::with_form(AnswerForm::of(asked.len()), asked)
    }

    /// The template for a read of a part of its sheet: the form is the one the sheet announces.
    pub fn with_form(form: AnswerForm, asked: &[&Question]) -> Self {
        Self { ids: asked.iter().map(|question| question.id.clone()).collect(), form }
    }

    /// The text with a label in every place. `labels: [asked]`; a place without a label stays empty.
    pub fn text_with(&self, labels: &[&str]) -> String {
        let (before_label, between) = match self.form {
            AnswerForm::Lines => (": ", '\n'),
            AnswerForm::OneLine => ("", ' '),
        };
        let mut text = String::new();
        for (index, id) in self.ids.iter().enumerate() {
            if index > 0 {
                text.push(between);
            }
            text.push_str(id);
            text.push_str(before_label);
            text.push_str(labels.get(index).copied().unwrap_or_default());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn questions(count: usize) -> Vec<Question> {
        (1..=count).map(|n| Question { id: format!("q{n}"), ..Question::default() }).collect()
    }

    #[test]
    fn ten_questions_get_a_line_each() {
        let questions = questions(10);
        let template = AnswerTemplate::new(&questions.iter().collect::<Vec<_>>());
        let text = template.text_with(&["yes"; 10]);
        assert!(text.starts_with("q1: yes\nq2: yes\n"));
        assert!(text.ends_with("\nq10: yes"));
    }

    #[test]
    fn eleven_questions_share_one_line() {
        let questions = questions(11);
        let template = AnswerTemplate::new(&questions.iter().collect::<Vec<_>>());
        let text = template.text_with(&["no"; 11]);
        assert_eq!(text, "q1no q2no q3no q4no q5no q6no q7no q8no q9no q10no q11no");
    }

    #[test]
    fn a_part_of_a_long_sheet_keeps_the_form_of_the_sheet() {
        let questions = questions(2);
        let asked: Vec<_> = questions.iter().collect();
        let template = AnswerTemplate::with_form(AnswerForm::of(12), &asked);
        assert_eq!(template.text_with(&["yes", "no"]), "q1yes q2no");
    }
}
