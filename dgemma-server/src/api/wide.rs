//! Questions with more alternatives than there are labels of one token: which they are, and their two rounds.
//!
//! All brackets of such a question are read in one batch, then a final of the best. From then on the question has only the alternatives
//! of its final wherever it is put to the model again. Called by `walk`; the arithmetic is in `brackets`.

use std::sync::Arc;

use decision::{Answer, Kind, Question, Reading, Route, Schema, entropy_nats, hesitation};

use super::brackets;
use super::decide::Decider;
use super::walk::Walk;
use crate::error::Error;
use crate::read::readout::Readout;

impl Decider {
    /// Which questions have more alternatives than this tokenizer has labels for.
    pub(super) async fn wide(
        self: &Arc<Self>,
        schema: &Arc<Schema>,
        route: Route,
    ) -> Result<Vec<bool>, Error> {
        if schema.questions.iter().all(|question| question.alternatives() <= brackets::MOST) {
            return Ok(vec![false; schema.questions.len()]);
        }
        let (decider, schema) = (Arc::clone(self), Arc::clone(schema));
        let find = move || {
            let is_wide = |question: &Question| {
                let neutral = Question { id: "q1".into(), ..question.clone() };
                let put = if route == Route::Systemone { &neutral } else { question };
                !decider.labels.suffice(&decider.text.tokenizer, put)
            };
            Ok(schema.questions.iter().map(is_wide).collect())
        };
        self.encode(find).await
    }
}

impl Walk {
    /// Reads one question in two rounds: all its brackets in one batch, then the best of each.
    pub(super) async fn read_in_brackets(&mut self, index: usize) -> Result<(), Error> {
        let schema = Arc::clone(&self.schema);
        let question = &schema.questions[index];
        let parts = brackets::brackets(question.alternatives());
        let mut reads = Vec::with_capacity(parts.len());
        for part in &parts {
            let alternatives: Vec<usize> = part.clone().collect();
            let put = Arc::new(with_alternatives(&self.put, index, question, &alternatives));
            reads.extend(self.prepare(put, &[index], true).await?);
        }
        let mut first = Vec::with_capacity(reads.len());
        for (read, draws) in reads.iter().zip(self.sample(&reads).await?) {
            self.note(read, draws.len());
            first.push(self.readout(read, 0, &draws)?.reading.probabilities);
        }
        let finalists = brackets::finalists(&parts, &first);
        self.put = Arc::new(with_alternatives(&self.put, index, question, &finalists));
        let last = self.prepare(Arc::clone(&self.put), &[index], true).await?;
        let drawn = self.sample(&last).await?;
        let (Some(read), Some(draws)) = (last.first(), drawn.first()) else {
            return Err(Error::Internal { what: "reading the last of several rounds" });
        };
        self.note(read, draws.len());
        let Readout { reading, diagnostics } = self.readout(read, 0, draws)?;
        let probabilities = brackets::fuse(&parts, &first, &finalists, &reading.probabilities);
        let winner = finalists.get(reading.winner).copied().unwrap_or_default();
        let mut labels: Vec<String> = reads.iter().flat_map(|read| read.labels.concat()).collect();
        for (&alternative, label) in finalists.iter().zip(read.labels.concat()) {
            labels[alternative] = label;
        }
        let scale = probabilities[winner] / reading.confidence;
        let fused = Reading {
            winner,
            confidence: probabilities[winner],
            stderr: reading.stderr.map(|stderr| stderr * scale),
            agreement: reading.agreement,
            entropy_nats: entropy_nats(&probabilities),
            hesitation: hesitation(&probabilities),
            probabilities,
        };
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
