//! Which questions share a canvas, which stand on its sheet, and whose answers stand in its prompt.
//!
//! One place for `alone`, `isolate`, `ask`, the chunk keys and the dependencies. Works on indices into the schema's questions;
//! what it gives is turned into ids by `prepare` in the same file. Called by `decide`, stage by stage.

use std::collections::BTreeSet;
use std::sync::Arc;

use decision::{AnswerForm, AnswerTemplate, ChunkPrompt, Question, Schema, question_sheet};

use crate::error::Error;
use crate::read::canvas::{CanvasLayout, Layouts, Lines, rows};
use crate::read::{Text, prompt};

/// A canvas to be read. Numbers are indices into `schema.questions`, in schema order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedRead {
    /// On the canvas.
    pub(super) asked: Vec<usize>,
    /// On the sheet.
    sheet: Vec<usize>,
    /// Answered before, their answers in the prompt.
    given: Vec<usize>,
}

/// A read with its prompt and its canvas, noise still to come.
#[derive(Debug)]
pub(super) struct PreparedRead {
    pub(super) asked: Vec<usize>,
    pub(super) prompt: Vec<u32>,
    pub(super) layout: Arc<CanvasLayout>,
}

/// What planning and preparing need to know of a decision.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) text: &'a Text,
    pub(super) layouts: &'a Layouts,
    pub(super) schema: &'a Schema,
    pub(super) state: &'a str,
    /// Rows of the widest canvas the engine takes.
    pub(super) canvas_tokens: usize,
    /// Label of the winner of every question answered so far; by index.
    pub(super) answered: &'a [Option<String>],
}

impl Context<'_> {
    /// The reads of these questions: cut by `alone`, `isolate` and what fits a canvas. `rest_of_cut`: they are what an
    /// earlier, sequential chunk of the stage left.
    pub(super) fn plan(&self, stage: &[usize], rest_of_cut: bool) -> Result<Vec<PlannedRead>, Error> {
        let (alone, together): (Vec<usize>, Vec<usize>) =
            stage.iter().partition(|&&index| self.schema.isolate || self.schema.questions[index].alone);
        let mut reads = Vec::new();
        let mut rest = together.as_slice();
        while !rest.is_empty() {
            let cut = rest_of_cut || rest.len() < together.len();
            let (read, taken) = self.longest(rest, cut)?;
            reads.push(read);
            rest = &rest[taken..];
        }
        reads.extend(alone.into_iter().map(|index| self.read(&[index], false)));
        Ok(reads)
    }

    /// The read of as many of these questions, from the first on, as fit a canvas; at least one. `cut`: they are a part.
    fn longest(&self, questions: &[usize], cut: bool) -> Result<(PlannedRead, usize), Error> {
        // Not a bisection: fewer questions may need more rows, where the form of the answers changes.
        for count in (2..=questions.len()).rev() {
            let read = self.read(&questions[..count], cut || count < questions.len());
            let asked = self.questions(&read.asked);
            if rows(self.text, &self.lines(&read, &asked))? <= self.limit() {
                return Ok((read, count));
            }
        }
        Ok((self.read(&questions[..1], cut || questions.len() > 1), 1))
    }

    /// `cut`: a part of what would have stood on one canvas.
    fn read(&self, asked: &[usize], cut: bool) -> PlannedRead {
        let schema = self.schema;
        let mut given = BTreeSet::new();
        for question in asked.iter().map(|&index| &schema.questions[index]) {
            for id in question.depends_on.iter().chain(question.ask_if.keys()) {
                given.extend(schema.questions.iter().position(|other| other.id == *id));
            }
        }
        given.retain(|&index| self.answered[index].is_some());
        if schema.sequential {
            given.extend((0..self.answered.len()).filter(|&index| self.answered[index].is_some()));
        }
        let own_sheet = schema.isolate || (cut && schema.chunk_prompt == ChunkPrompt::Own);
        let sheet = if own_sheet {
            asked.iter().chain(&given).copied().collect::<BTreeSet<_>>().into_iter().collect()
        } else {
            let ids: Vec<&str> = schema.asked().into_iter().map(|question| question.id.as_str()).collect();
            (0..schema.questions.len())
                .filter(|&index| ids.contains(&schema.questions[index].id.as_str()))
                .collect()
        };
        PlannedRead { asked: asked.to_vec(), sheet, given: given.into_iter().collect() }
    }

    /// Ids of prompt and canvas.
    pub(super) fn prepare(&self, read: PlannedRead) -> Result<PreparedRead, Error> {
        let sheet = self.questions(&read.sheet);
        let form = AnswerForm::of(sheet.len());
        let sheet = question_sheet(self.schema, &sheet, read.asked.len() < read.sheet.len());
        let labels: Vec<&str> =
            read.given.iter().map(|&index| self.answered[index].as_deref().unwrap_or_default()).collect();
        let given = AnswerTemplate::with_form(form, &self.questions(&read.given)).text_with(&labels);
        let prompt = prompt::render(self.text, self.schema.layout, &sheet, self.state, form, &given)?;
        let asked = self.questions(&read.asked);
        let layout = self.layouts.get(self.text, &self.lines(&read, &asked))?;
        Ok(PreparedRead { asked: read.asked, prompt, layout })
    }

    fn lines<'q>(&self, read: &PlannedRead, asked: &'q [&'q Question]) -> Lines<'q> {
        Lines {
            questions: asked,
            form: AnswerForm::of(read.sheet.len()),
            continued: !read.given.is_empty(),
            limit: self.limit(),
        }
    }

    fn limit(&self) -> usize {
        self.schema.chunk_rows.map_or(self.canvas_tokens, |rows| self.canvas_tokens.min(rows as usize))
    }

    fn questions(&self, indices: &[usize]) -> Vec<&Question> {
        indices.iter().map(|&index| &self.schema.questions[index]).collect()
    }
}
