//! Which questions share a canvas, which stand on its sheet, and whose answers stand in its prompt.
//!
//! One place for `alone`, `isolate`, `ask`, the chunk keys and the dependencies. Works on indices into the schema's questions;
//! what it gives is turned into ids by `prepare` in the same file. Called by `walk`, stage by stage.

use std::collections::BTreeSet;
use std::sync::Arc;

use decision::{AnswerForm, AnswerTemplate, ChunkPrompt, Question, Schema, question_sheet_with_labels};

use super::wanted::Wanted;
use crate::error::Error;
use crate::read::Text;
use crate::read::canvas::{CanvasLayout, Layouts, Lines};
use crate::read::labels::Labels;
use crate::read::prompt::{self, Begun, Put};

/// A canvas to be read. Numbers are indices into `schema.questions`, in schema order; with `isolate` in an order that does not
/// depend on it.
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
    /// `[asked][answer]`
    pub(super) labels: Vec<Vec<String>>,
}

/// A sheet as it is put to the model: its questions under the names they have there, and their labels.
struct Sheet<'a> {
    read: &'a PlannedRead,
    questions: Vec<Question>,
    /// `[questions][answer]`
    labels: Vec<Vec<String>>,
    form: AnswerForm,
}

/// What planning and preparing need to know of a decision.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) text: &'a Text,
    pub(super) layouts: &'a Layouts,
    pub(super) labels: &'a Labels,
    pub(super) schema: &'a Schema,
    pub(super) state: &'a str,
    /// Most tokens of a prompt and its canvas.
    pub(super) context_tokens: usize,
    /// Rows of the widest canvas the engine takes.
    pub(super) canvas_tokens: usize,
    /// Number of the winning answer of every question answered so far; by index.
    pub(super) answered: &'a [Option<usize>],
    /// Whether a question has too many alternatives to stand on a sheet of others before it is answered; by index.
    pub(super) wide: &'a [bool],
    /// How answers are written; `None`: as usual for so many on a sheet.
    pub(super) form: Option<AnswerForm>,
    /// What the model thought before, for every read.
    pub(super) thought: Option<&'a [u32]>,
    /// On the sheet the questions are called q1, q2, …, so that their ids have no influence.
    pub(super) neutral_ids: bool,
    /// Whether somebody still waits for the reads.
    pub(super) wanted: &'a Wanted,
}

impl Context<'_> {
    /// The reads of these questions, ready but for the noise: all of them, or the first of a sequential schema. Where the usual
    /// form of the answers gives a question no labels of one token each, the other form is taken; `form` says so then.
    pub(super) fn reads(&mut self, stage: &[usize], rest_of_cut: bool) -> Result<Vec<PreparedRead>, Error> {
        let usual = self.form;
        let first = self.reads_as_it_is(stage, rest_of_cut);
        if usual.is_some() || !matches!(first, Err(Error::LabelClash { .. } | Error::TooFewLabels { .. })) {
            return first;
        }
        for form in [AnswerForm::Lines, AnswerForm::OneLine] {
            self.form = Some(form);
            if let Ok(reads) = self.reads_as_it_is(stage, rest_of_cut) {
                return Ok(reads);
            }
        }
        self.form = usual;
        first
    }

    fn reads_as_it_is(&self, stage: &[usize], rest_of_cut: bool) -> Result<Vec<PreparedRead>, Error> {
        let mut reads = self.plan(stage, rest_of_cut)?;
        if self.schema.sequential {
            reads.truncate(1);
        }
        let prepare = |read| self.wanted.check().and_then(|()| self.prepare(read));
        reads.into_iter().map(prepare).collect()
    }

    /// The reads of these questions: cut by `alone`, `isolate` and what fits a canvas. `rest_of_cut`: they are what an
    /// earlier, sequential chunk of the stage left.
    fn plan(&self, stage: &[usize], rest_of_cut: bool) -> Result<Vec<PlannedRead>, Error> {
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
        let read = |count: usize| self.read(&questions[..count], cut || count < questions.len());
        // More questions need more rows as long as the form is one; it changes at most once, from lines to one line.
        let one_line = (2..=questions.len())
            .find(|&count| self.form_of(&read(count)) == AnswerForm::OneLine)
            .unwrap_or(questions.len() + 1);
        for counts in [one_line..questions.len() + 1, 2..one_line] {
            if counts.is_empty() {
                continue;
            }
            // Mostly all of them fit.
            let (mut fitting, mut beyond) = (counts.start - 1, counts.end);
            let mut tried = counts.end - 1;
            while fitting + 1 < beyond {
                if self.fits(&read(tried))? {
                    fitting = tried;
                } else {
                    beyond = tried;
                }
                tried = usize::midpoint(fitting, beyond);
            }
            if fitting >= counts.start {
                return Ok((read(fitting), fitting));
            }
        }
        Ok((read(1), 1))
    }

    /// `cut`: a part of what would have stood on one canvas.
    fn read(&self, asked: &[usize], cut: bool) -> PlannedRead {
        let schema = self.schema;
        let mut named = Vec::new();
        for question in asked.iter().map(|&index| &schema.questions[index]) {
            for id in question.depends_on.iter().chain(question.ask_if.keys()) {
                named.extend(schema.questions.iter().position(|other| other.id == *id));
            }
        }
        let is_answered = |index: &usize| self.answered[*index].is_some();
        named.retain(is_answered);
        if schema.isolate {
            // In the order in which the question names them: where they stand in the schema must not matter.
            let mut seen = BTreeSet::new();
            named.retain(|&index| seen.insert(index));
            let sheet = named.iter().chain(asked).copied().collect();
            return PlannedRead { asked: asked.to_vec(), sheet, given: named };
        }
        let mut given: BTreeSet<usize> = named.into_iter().collect();
        if schema.sequential {
            given.extend((0..self.answered.len()).filter(is_answered));
        }
        let sheet = if cut && schema.chunk_prompt == ChunkPrompt::Own {
            asked.iter().chain(&given).copied().collect::<BTreeSet<_>>().into_iter().collect()
        } else {
            let ids: Vec<&str> = schema.asked().into_iter().map(|question| question.id.as_str()).collect();
            (0..schema.questions.len())
                .filter(|&index| ids.contains(&schema.questions[index].id.as_str()))
                .filter(|index| !self.wide[*index] || is_answered(index) || asked.contains(index))
                .collect()
        };
        PlannedRead { asked: asked.to_vec(), sheet, given: given.into_iter().collect() }
    }

    /// Ids of prompt and canvas.
    fn prepare(&self, read: PlannedRead) -> Result<PreparedRead, Error> {
        let sheet = self.sheet(&read)?;
        let all: Vec<&Question> = sheet.questions.iter().collect();
        let partial = read.asked.len() < read.sheet.len();
        let words = question_sheet_with_labels(self.schema, &all, &sheet.labels, sheet.form, partial);
        let (given, labels) = sheet.part(&read.given);
        let winners: Vec<&str> = labels
            .iter()
            .zip(&read.given)
            .filter_map(|(labels, &index)| labels.get(self.answered[index]?).map(String::as_str))
            .collect();
        let given = AnswerTemplate::with_form(sheet.form, &given).text_with(&winners);
        let begun = Begun::Answers { thought: self.thought, given: &given };
        let put = Put { layout: self.schema.layout, sheet: &words, state: self.state, form: sheet.form };
        let prompt = prompt::render(self.text, put, begun, self.context_tokens, &|| self.wanted.is_wanted())?;
        let (asked, labels) = sheet.part(&read.asked);
        let layout = self.layouts.get(self.text, &self.lines(&sheet, &asked, &labels))?;
        drop(asked);
        drop(sheet);
        Ok(PreparedRead { asked: read.asked, prompt, layout, labels })
    }

    fn sheet<'r>(&self, read: &'r PlannedRead) -> Result<Sheet<'r>, Error> {
        let form = self.form_of(read);
        let questions: Vec<Question> = read
            .sheet
            .iter()
            .zip(1..)
            .map(|(&index, place)| {
                let question = self.schema.questions[index].clone();
                if self.neutral_ids { Question { id: format!("q{place}"), ..question } } else { question }
            })
            .collect();
        let labels = questions.iter().map(|question| self.labels.of(&self.text.tokenizer, question, form));
        Ok(Sheet { read, labels: labels.collect::<Result<_, _>>()?, questions, form })
    }

    fn form_of(&self, read: &PlannedRead) -> AnswerForm {
        self.form.unwrap_or_else(|| AnswerForm::of(read.sheet.len()))
    }

    fn fits(&self, read: &PlannedRead) -> Result<bool, Error> {
        let sheet = self.sheet(read)?;
        let (asked, labels) = sheet.part(&read.asked);
        self.layouts.fit(self.text, &self.lines(&sheet, &asked, &labels))
    }

    fn lines<'q>(
        &self,
        sheet: &Sheet<'_>,
        questions: &'q [&'q Question],
        labels: &'q [Vec<String>],
    ) -> Lines<'q> {
        let continued = !sheet.read.given.is_empty();
        Lines {
            questions,
            labels,
            form: sheet.form,
            continued,
            thought: self.thought.is_some(),
            limit: self.limit(),
        }
    }

    fn limit(&self) -> usize {
        self.schema.chunk_rows.map_or(self.canvas_tokens, |rows| self.canvas_tokens.min(rows as usize))
    }
}

impl Sheet<'_> {
    /// These of its questions, with their labels. All of them stand on it.
    fn part(&self, indices: &[usize]) -> (Vec<&Question>, Vec<Vec<String>>) {
        let places =
            indices.iter().filter_map(|index| self.read.sheet.iter().position(|other| other == index));
        places.map(|place| (&self.questions[place], self.labels[place].clone())).unzip()
    }
}
