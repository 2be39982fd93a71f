//! The schema language and the answers as OpenAPI sees them. Only with the feature `openapi`, which the server switches on.
//!
//! The types here describe JSON that is read or written by hand: `schema_reader` and `schema_writer` for schemas, `answer_json`
//! for answers. They hold no data. Where serde's derive does the work, the type itself is described, as in `diagnostics`.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

/// The questions and how they shall be read. The canonical form; older spellings of keys are understood too.
#[derive(Debug, ToSchema)]
#[schema(as = DecisionSchema)]
#[serde(deny_unknown_fields)]
pub struct SchemaForm {
    /// Context for all questions. An object or a list is read as its compact JSON text.
    #[schema(value_type = Option<Value>)]
    pub instructions: Option<Value>,
    pub questions: QuestionsForm,
    /// How many noise draws are read and averaged: at least 1, or "auto". Without it 1.
    pub samples: Option<SamplesForm>,
    /// With samples "auto": read further when a slot of the first read has more entropy than this, in nats. Without it 0.1.
    #[schema(minimum = 0)]
    pub auto_threshold: Option<f64>,
    /// With samples "auto": the most reads in all. Without it 4.
    #[schema(minimum = 1)]
    pub auto_max: Option<u32>,
    /// Denoise steps of one read. Without it 1.
    #[schema(minimum = 1, maximum = 8)]
    pub steps: Option<u32>,
    /// Token budget of a thought that is written before the read. Without it 0: none.
    #[schema(maximum = 4096)]
    pub think: Option<u32>,
    /// What comes first in the prompt. Without it "schema_first", and "document_first" on /v1/systemone.
    pub layout: Option<LayoutForm>,
    /// Every question on a canvas of its own. Without it false, and true on /v1/systemone.
    pub isolate: Option<bool>,
    /// What stands in a slot before the read. Without it "noise".
    pub hole: Option<HoleForm>,
    /// Seed of the noise. Without it 0, so that the same request gets the same answer.
    pub seed: Option<u64>,
    /// Only these questions are asked.
    pub ask: Option<Vec<String>>,
    /// Most canvas rows of one chunk. Without it the model's canvas.
    #[schema(minimum = 1)]
    pub chunk_rows: Option<u32>,
    /// Which sheet a chunk is read with. Without it "own".
    pub chunk_prompt: Option<ChunkPromptForm>,
    /// Chunks of a stage run one after the other instead of as one batch. Without it false.
    pub sequential: Option<bool>,
}

/// A list of questions, or an object from id to question.
#[derive(Debug, ToSchema)]
#[schema(as = DecisionQuestions)]
#[serde(untagged)]
pub enum QuestionsForm {
    List(Vec<QuestionForm>),
    Map(BTreeMap<String, QuestionForm>),
}

/// A typed question. `criteria` belongs to a boolean, `options` to a choice, `levels` to a score.
#[derive(Debug, ToSchema)]
#[schema(as = DecisionQuestion)]
#[serde(deny_unknown_fields)]
pub struct QuestionForm {
    /// The answer is reported under it; without ":" and line breaks. In the map form the key is the id.
    pub id: Option<String>,
    #[schema(rename = "type")]
    pub kind: KindForm,
    /// What is asked, in words.
    #[schema(value_type = Option<Value>)]
    pub instructions: Option<Value>,
    /// When a boolean is true and when it is false.
    #[schema(value_type = Option<Value>)]
    pub criteria: Option<Value>,
    /// The names of a choice: a list of names or of {"name", "description"}, or an object from name to description.
    #[schema(value_type = Option<Value>)]
    pub options: Option<Value>,
    /// The levels of a score, lowest first. Without it 1 to 5.
    #[schema(value_type = Option<Vec<Value>>)]
    pub levels: Option<Vec<Value>>,
    /// Questions whose answers stand in this question's prompt.
    pub depends_on: Option<Vec<String>>,
    /// Asked only if every named question was answered with one of the listed answers.
    pub ask_if: Option<BTreeMap<String, Vec<Value>>>,
    /// Takes a read of its own instead of sharing a canvas.
    pub alone: Option<bool>,
}

#[derive(Debug, ToSchema)]
#[schema(as = DecisionQuestionType, rename_all = "snake_case")]
pub enum KindForm {
    Boolean,
    Bool,
    Noul,
    Choice,
    Score,
}

/// A whole number, also as text, or "auto".
#[derive(Debug, ToSchema)]
#[schema(as = DecisionSamples)]
#[serde(untagged)]
pub enum SamplesForm {
    Count(u32),
    Text(String),
}

#[derive(Debug, ToSchema)]
#[schema(as = DecisionLayout, rename_all = "snake_case")]
pub enum LayoutForm {
    SchemaFirst,
    DocumentFirst,
}

#[derive(Debug, ToSchema)]
#[schema(as = DecisionHole, rename_all = "snake_case")]
pub enum HoleForm {
    Noise,
    Pad,
}

#[derive(Debug, ToSchema)]
#[schema(as = DecisionChunkPrompt, rename_all = "snake_case")]
pub enum ChunkPromptForm {
    Own,
    Shared,
}

/// One answer. `noul` is there for a boolean, `choice` for a choice, `level` and `score` for a score.
#[derive(Debug, ToSchema)]
#[schema(as = Answer)]
#[serde(deny_unknown_fields)]
pub struct AnswerForm {
    #[schema(rename = "type")]
    pub kind: AnswerKindForm,
    /// What won on the canvas: "yes", "A", "2".
    pub label: String,
    /// Name of the winning option.
    #[schema(required = false, nullable = false)]
    pub choice: Option<String>,
    /// Name of the winning level.
    #[schema(required = false, nullable = false)]
    pub level: Option<String>,
    /// The expected level, counted from 1.
    #[schema(required = false, nullable = false)]
    pub score: Option<f64>,
    /// Probability of the winner.
    #[schema(minimum = 0, maximum = 1)]
    pub confidence: f64,
    /// Name of an answer → its probability, in the order of the question.
    pub probabilities: BTreeMap<String, f64>,
    /// Probability of yes.
    #[schema(required = false, nullable = false)]
    pub noul: Option<f64>,
    /// Entropy over the probabilities, in nats.
    #[schema(minimum = 0)]
    pub entropy: f64,
    /// Entropy as a share of ln K, where K is the number of allowed answers.
    #[schema(minimum = 0)]
    pub hesitation: f64,
    /// Standard error of the confidence; with several reads.
    #[schema(required = false, nullable = false)]
    pub stderr: Option<f64>,
    /// Share of reads that gave the same winner; with several reads.
    #[schema(required = false, nullable = false)]
    pub agreement: Option<f64>,
    /// How the probabilities were got when it was not by a slot read.
    #[schema(required = false, nullable = false)]
    pub source: Option<String>,
}

/// An answer, or null for a question that was skipped.
#[derive(Debug, ToSchema)]
#[schema(as = OptionalAnswer)]
pub struct OptionalAnswerForm(pub Option<AnswerForm>);

#[derive(Debug, ToSchema)]
#[schema(as = AnswerType, rename_all = "snake_case")]
pub enum AnswerKindForm {
    Boolean,
    Choice,
    Score,
}

/// The rule that decided on the number of reads.
#[derive(Debug, ToSchema)]
#[schema(as = Policy)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum PolicyForm {
    Fixed {
        n: u32,
    },
    Auto {
        /// Nats.
        threshold: f64,
        /// Most reads in all.
        max: u32,
        /// Whether the first read was unsure enough for more.
        extended: bool,
        /// Largest entropy of a slot in the first read, in nats.
        #[schema(required = false, nullable = false)]
        first_read_max_entropy: Option<f64>,
    },
}

#[cfg(test)]
mod tests {
    use utoipa::PartialSchema;

    use super::*;
    use crate::keys::{QUESTION_KEYS, SCHEMA_KEYS};

    fn keys<T: PartialSchema>() -> Vec<String> {
        let described = serde_json::to_value(T::schema()).unwrap();
        let mut keys: Vec<String> = described["properties"].as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    }

    fn sorted(keys: &[&str]) -> Vec<String> {
        let mut keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        keys.sort();
        keys
    }

    #[test]
    fn every_key_of_the_language_is_described_and_no_other() {
        assert_eq!(keys::<SchemaForm>(), sorted(SCHEMA_KEYS));
        assert_eq!(keys::<QuestionForm>(), sorted(QUESTION_KEYS));
    }
}
