//! The canvas of a read: answer template, turn-close, padding, and where its slots are.
//!
//! A label is usable when it is ONE token at ONE place that all labels of its question share. How a tokenizer cuts a label
//! depends on the text around it, so the whole template is encoded once per label and compared. That is done once per
//! template: [`Layouts`] keeps the results.

use std::sync::{Arc, Mutex, PoisonError};

use decision::{AnswerForm, AnswerTemplate, Question};
use indexmap::IndexMap;

use super::Text;
use crate::engine::Slot;
use crate::error::Error;

/// A canvas is a multiple of so many rows, as far as the model's own width allows.
const ROW_MULTIPLE: usize = 16;
/// What fills a canvas after the turn-close, and a slot that is read without noise.
const PAD: u32 = 0;
/// How many layouts are kept.
const KEPT_LAYOUTS: usize = 512;

/// A canvas without noise: pinned ids everywhere, pad in the slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanvasLayout {
    pub ids: Vec<u32>,
    /// In the order of the questions.
    pub slots: Arc<[Slot]>,
}

/// The questions of one canvas and how their answers are written.
#[derive(Debug, Clone, Copy)]
pub struct Lines<'a> {
    pub questions: &'a [&'a Question],
    /// `[question][answer]`
    pub labels: &'a [Vec<String>],
    pub form: AnswerForm,
    /// Earlier answers stand in the prompt: the model's turn has begun already.
    pub continued: bool,
    /// A thought stands in the prompt: the model's turn has begun already.
    pub thought: bool,
    /// Most rows of the canvas.
    pub limit: usize,
}

/// Layouts of templates seen before, least recently used first.
#[derive(Debug, Default)]
pub struct Layouts {
    kept: Mutex<IndexMap<Key, Arc<CanvasLayout>>>,
}

/// All that a layout depends on, apart from the checkpoint.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    template: String,
    labels: Vec<Vec<String>>,
    continued: bool,
    thought: bool,
    limit: usize,
}

impl Layouts {
    /// Whether the canvas of these lines has no more rows than it may.
    pub fn fit(&self, text: &Text, lines: &Lines<'_>) -> Result<bool, Error> {
        let template = Template::new(lines);
        if self.recall(&template.key()).is_some() {
            return Ok(true);
        }
        // Opening, template and turn-close.
        Ok(lines.opening(text).len() + template.encode(text, None)?.len() < lines.limit)
    }

    /// The layout of these lines, from memory or worked out now.
    pub fn get(&self, text: &Text, lines: &Lines<'_>) -> Result<Arc<CanvasLayout>, Error> {
        let template = Template::new(lines);
        let key = template.key();
        if let Some(layout) = self.recall(&key) {
            return Ok(layout);
        }
        let layout = Arc::new(template.resolve(text)?);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_LAYOUTS {
            kept.shift_remove_index(0);
        }
        kept.insert(key, Arc::clone(&layout));
        Ok(layout)
    }

    fn recall(&self, key: &Key) -> Option<Arc<CanvasLayout>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (key, layout) = kept.shift_remove_entry(key)?;
        kept.insert(key, Arc::clone(&layout));
        Some(layout)
    }
}

impl Lines<'_> {
    fn opening<'t>(&self, text: &'t Text) -> &'t [u32] {
        if self.continued || self.thought { &[] } else { &text.turn_opening }
    }
}

/// An answer template with the labels of its questions.
struct Template<'a> {
    lines: &'a Lines<'a>,
    words: AnswerTemplate,
}

impl<'a> Template<'a> {
    fn new(lines: &'a Lines<'a>) -> Self {
        Template { lines, words: AnswerTemplate::with_form(lines.form, lines.questions) }
    }

    fn key(&self) -> Key {
        Key {
            template: self.text_with(None),
            labels: self.lines.labels.to_vec(),
            continued: self.lines.continued,
            thought: self.lines.thought,
            limit: self.lines.limit,
        }
    }

    /// The text with the first label everywhere, except that `changed` (question, label) has another.
    fn text_with(&self, changed: Option<(usize, usize)>) -> String {
        let labels = self.lines.labels.iter().enumerate().map(|(question, labels)| {
            let label = changed.filter(|(other, _)| *other == question).map_or(0, |(_, label)| label);
            labels.get(label).map_or("", String::as_str)
        });
        let text = self.words.text_with(&labels.collect::<Vec<_>>());
        // On one line the space before an id belongs to the id's token, also when the answer before it is in the prompt.
        if self.lines.continued && self.lines.form == AnswerForm::OneLine { format!(" {text}") } else { text }
    }

    fn encode(&self, text: &Text, changed: Option<(usize, usize)>) -> Result<Vec<u32>, Error> {
        Ok(text.tokenizer.encode_plain(&self.text_with(changed))?)
    }

    fn resolve(&self, text: &Text) -> Result<CanvasLayout, Error> {
        let base = self.encode(text, None)?;
        let mut ids = self.lines.opening(text).to_vec();
        let start = ids.len();
        ids.extend(&base);
        ids.push(text.turn_close);
        let limit = self.lines.limit;
        if ids.len() > limit {
            let questions: Vec<&str> =
                self.lines.questions.iter().map(|question| question.id.as_str()).collect();
            return Err(Error::CanvasTooSmall { questions: questions.join(", "), rows: ids.len(), limit });
        }
        ids.resize(ids.len().next_multiple_of(ROW_MULTIPLE).min(limit), PAD);
        let mut slots = Vec::with_capacity(self.lines.labels.len());
        for question in 0..self.lines.labels.len() {
            let mut slot = self.slot(text, &base, question)?;
            slot.position += start;
            ids[slot.position] = PAD;
            slots.push(slot);
        }
        Ok(CanvasLayout { ids, slots: slots.into() })
    }

    /// The slot of one question. `base`: ids with the first label everywhere; the position counts from their start.
    fn slot(&self, text: &Text, base: &[u32], question: usize) -> Result<Slot, Error> {
        let mut found: Option<Slot> = None;
        for label in 1..self.lines.labels[question].len() {
            let ids = self.encode(text, Some((question, label)))?;
            if ids.len() != base.len() {
                return Err(self.clash(question, 0, label, "they are not cut into equally many tokens"));
            }
            let mut differences = (0..ids.len()).filter(|&row| ids[row] != base[row]);
            let (Some(position), None) = (differences.next(), differences.next()) else {
                return Err(self.clash(
                    question,
                    0,
                    label,
                    "the template differs in more or less than one token",
                ));
            };
            let slot = found.get_or_insert_with(|| Slot { position, label_ids: vec![base[position]] });
            if slot.position != position {
                return Err(self.clash(question, label - 1, label, "their tokens are at different places"));
            }
            if let Some(other) = slot.label_ids.iter().position(|id| *id == ids[position]) {
                return Err(self.clash(question, other, label, "they are the same token"));
            }
            slot.label_ids.push(ids[position]);
        }
        found.ok_or_else(|| self.clash(question, 0, 1, "a question needs two labels"))
    }

    fn clash(&self, question: usize, first: usize, second: usize, reason: &'static str) -> Error {
        let name = |label: usize| self.lines.labels[question].get(label).cloned().unwrap_or_default();
        Error::LabelClash {
            question: self.lines.questions[question].id.clone(),
            first: name(first),
            second: name(second),
            reason,
        }
    }
}
