//! Questions with more alternatives than there are labels of one token: which they are, and their two rounds.
//!
//! All brackets of such a question are read in one batch, then a final of the best. From then on the question has only the alternatives
//! of its final wherever it is put to the model again. Called by `walk`; the arithmetic is `decision::Bracket`.

use std::sync::Arc;

use decision::{Answer, Bracket, Kind, LastRound, Question, Reading, Route, Schema, fuse};

use super::decide::Decider;
use super::walk::Walk;
use super::wanted::Wanted;
use crate::error::Error;
use crate::read::readout::Readout;

/// Alternatives of one bracket: so many letters there are.
const MOST: usize = 26;

impl Decider {
    /// Which questions have more alternatives than this tokenizer has labels for.
    pub(super) async fn wide(
        self: &Arc<Self>,
        schema: &Arc<Schema>,
        route: Route,
    ) -> Result<Vec<bool>, Error> {
        if schema.questions.iter().all(|question| question.alternatives() <= MOST) {
            return Ok(vec![false; schema.questions.len()]);
        }
        let (decider, schema) = (Arc::clone(self), Arc::clone(schema));
        let find = move |wanted: &Wanted| {
            let is_wide = |question: &Question| {
                wanted.check()?;
                let neutral = Question { id: "q1".into(), ..question.clone() };
                let put = if route == Route::Systemone { &neutral } else { question };
                Ok(!decider.labels.suffice(&decider.text.tokenizer, put))
            };
            schema.questions.iter().map(is_wide).collect()
        };
        self.encode(find).await
    }
}

impl Walk {
    /// Reads one question in two rounds: all its brackets in one batch, then the best of each.
    pub(super) async fn read_in_brackets(&mut self, index: usize) -> Result<(), Error> {
        let schema = Arc::clone(&self.schema);
        let question = &schema.questions[index];
        let all: Vec<usize> = (0..question.alternatives()).collect();
        let mut brackets = Bracket::split(&all, MOST);
        let mut reads = Vec::with_capacity(brackets.len());
        for bracket in &brackets {
            let put = Arc::new(with_alternatives(&self.put, index, question, &bracket.members));
            reads.extend(self.prepare(put, &[index], true).await?);
        }
        for ((read, draws), bracket) in reads.iter().zip(self.sample(&reads).await?).zip(&mut brackets) {
            self.note(read, draws.len());
            bracket.probabilities = self.readout(read, 0, &draws)?.reading.probabilities;
        }
        let mut finalists: Vec<usize> = brackets.iter().flat_map(Bracket::kept).collect();
        finalists.sort_unstable();
        self.put = Arc::new(with_alternatives(&self.put, index, question, &finalists));
        let last = self.prepare(Arc::clone(&self.put), &[index], true).await?;
        let drawn = self.sample(&last).await?;
        let (Some(read), Some(draws)) = (last.first(), drawn.first()) else {
            return Err(Error::Internal { what: "reading the last of several rounds" });
        };
        self.note(read, draws.len());
        let Readout { reading, diagnostics } = self.readout(read, 0, draws)?;
        let mut in_final = vec![0.0; all.len()];
        for (&alternative, p) in finalists.iter().zip(&reading.probabilities) {
            in_final[alternative] = *p;
        }
        let mut labels: Vec<String> = reads.iter().flat_map(|read| read.labels.concat()).collect();
        for (&alternative, label) in finalists.iter().zip(read.labels.concat()) {
            labels[alternative] = label;
        }
        let Reading { confidence, stderr, agreement, .. } = reading;
        let fused =
            Reading::of_rounds(fuse(&[brackets], &in_final), &LastRound { confidence, stderr, agreement });
        self.answered[index] = Some(reading.winner);
        self.answers.insert(question.id.clone(), Some(Answer::with_labels(question, &labels, &fused)?));
        self.diagnostics.questions.insert(question.id.clone(), diagnostics);
        Ok(())
    }
}

/// The schema with only these alternatives of one question, which has all of them in `whole`.
fn with_alternatives(schema: &Schema, index: usize, whole: &Question, alternatives: &[usize]) -> Schema {
    let mut schema = schema.clone();
    schema.questions[index].kind = match &whole.kind {
        Kind::Choice { options } => {
            Kind::Choice { options: alternatives.iter().filter_map(|&n| options.get(n).cloned()).collect() }
        }
        Kind::Score { levels } => {
            Kind::Score { levels: alternatives.iter().filter_map(|&n| levels.get(n).cloned()).collect() }
        }
        kind @ Kind::Boolean { .. } => kind.clone(),
    };
    schema
}
