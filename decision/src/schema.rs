//! The schema of a decision: the questions and how they shall be read.
//!
//! Made from the text of the system message (server) or from a rendered template (client); written back in canonical form
//! for the wire. Reading checks types and names only; `validate` (in `limits`) checks values. Next: `schema_reader`.

use serde_json::Value;

use crate::error::SchemaError;
use crate::question::Question;
use crate::{normalise, schema_reader, schema_writer, strict_json};

/// A list of typed questions with the settings of their read. Defaults are those of an absent key.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    /// Context for all questions.
    pub instructions: Option<String>,
    /// In the order of the source; the sheet, the labels and the reply follow it.
    pub questions: Vec<Question>,
    pub samples: Samples,
    /// `samples: auto` reads further when a slot of the first read has more entropy than this. Nats.
    pub auto_threshold_nats: f64,
    /// Most reads `samples: auto` takes in all.
    pub auto_max: u32,
    /// Denoise steps of one read.
    pub steps: u32,
    /// Token budget of a thought written before the read; 0 means none.
    pub think: u32,
    pub layout: Layout,
    /// Every question on a canvas of its own, so that answers do not influence each other.
    pub isolate: bool,
    pub hole: Hole,
    /// Seed of the slot noise; absent means 0, so that the same request gets the same answer.
    pub seed: Option<u64>,
    /// Only these questions are asked.
    pub ask: Option<Vec<String>>,
    /// Most canvas rows of one chunk; the model's canvas when absent.
    pub chunk_rows: Option<u32>,
    pub chunk_prompt: ChunkPrompt,
    /// Chunks of a stage run one after the other instead of as one batch.
    pub sequential: bool,
}

/// How many noise draws are read and averaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Samples {
    Fixed(u32),
    /// One read, then more only where the first was unsure.
    Auto,
}

/// What comes first in the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Questions, then state: the questions are a prefix that many states share.
    SchemaFirst,
    /// State, then questions.
    DocumentFirst,
}

/// What stands in a slot before the read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hole {
    /// A random token from the seed and the number of the draw.
    Noise,
    /// The pad token: the same read every time.
    Pad,
}

/// Which sheet a chunk is read with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkPrompt {
    /// A sheet of the chunk's own questions.
    Own,
    /// The sheet of all questions.
    Shared,
}

impl Default for Schema {
    fn default() -> Self {
        Self {
            instructions: None,
            questions: Vec::new(),
            samples: Samples::Fixed(1),
            auto_threshold_nats: 0.1,
            auto_max: 4,
            steps: 1,
            think: 0,
            layout: Layout::SchemaFirst,
            isolate: false,
            hole: Hole::Noise,
            seed: None,
            ask: None,
            chunk_rows: None,
            chunk_prompt: ChunkPrompt::Own,
            sequential: false,
        }
    }
}

impl Schema {
    /// Reads a schema from JSON text. A key written twice in one object is an error, since JSON would keep only the last.
    pub fn from_json(text: &str) -> Result<Self, SchemaError> {
        Self::from_value(&strict_json::parse(text)?)
    }

    /// Reads a schema from parsed JSON, in any of the accepted spellings (see `normalise`).
    pub fn from_value(value: &Value) -> Result<Self, SchemaError> {
        schema_reader::schema(&normalise::normalise(value)?)
    }

    /// The canonical JSON form: questions as a list, canonical key names, source order; settings at their default are left
    /// out, but `samples` is always there because other servers have another default. `from_value` gives the schema back.
    pub fn to_value(&self) -> Value {
        schema_writer::schema(self)
    }

    /// The questions to ask, in schema order: all of them, or those named by `ask`.
    pub fn asked(&self) -> Vec<&Question> {
        match &self.ask {
            None => self.questions.iter().collect(),
            Some(ids) => {
                let ids: std::collections::HashSet<&str> = ids.iter().map(String::as_str).collect();
                self.questions.iter().filter(|question| ids.contains(question.id.as_str())).collect()
            }
        }
    }

    /// The draws that make sense: a padded slot gives the same read every time, so it is read once.
    pub fn effective_samples(&self) -> Samples {
        match self.hole {
            Hole::Noise => self.samples,
            Hole::Pad => Samples::Fixed(1),
        }
    }
}

impl Layout {
    /// The spelling in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SchemaFirst => "schema_first",
            Self::DocumentFirst => "document_first",
        }
    }
}

impl Hole {
    /// The spelling in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Noise => "noise",
            Self::Pad => "pad",
        }
    }
}

impl ChunkPrompt {
    /// The spelling in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Shared => "shared",
        }
    }
}
