//! What can be wrong, in words for the person who wrote the schema: where, which key, which value, why, and what to do.
//!
//! Two enums on purpose: a `SchemaError` is a mistake in the request, a `ReadingError` a fault of the engine. The server maps
//! the first to a 4xx and the second to a 500; one enum would let one pass for the other. Two hints are boxed text only to keep
//! the enum below 128 bytes, since it travels in every `Result`.

use std::fmt;

use crate::suggestion::quoted;

/// A mistake in a schema. Every message ends with a hint.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SchemaError {
    #[error(
        "the schema is not valid JSON: {message} at line {line}, column {column}, near `{near}`; hint: {hint}"
    )]
    Json { message: String, line: usize, column: usize, near: String, hint: &'static str },

    #[error(
        "{place}: the key {} is written twice{inside} (again at line {line}, column {column}), and JSON would keep only \
         the last; hint: rename one of the two or remove it", quoted(.key)
    )]
    DuplicateKey { place: Place, key: String, inside: String, line: usize, column: usize },

    #[error("{place}: unknown key {}: a misspelt key would silently change the decision; hint: {hint}", quoted(.key))]
    UnknownKey { place: Place, key: String, hint: String },

    #[error("{place}: {key:?} is missing: {why}; hint: {hint}")]
    MissingKey { place: Place, key: &'static str, why: &'static str, hint: &'static str },

    #[error(
        "{place}: {key:?} and {alias:?} are both given, but mean the same; hint: keep {key:?} and remove {alias:?}"
    )]
    BothSpellings { place: Place, key: String, alias: String },

    #[error("{place}: {} must be {expected}, found {found}; hint: {hint}", quoted(.key))]
    WrongType { place: Place, key: String, expected: &'static str, found: String, hint: Box<str> },

    #[error("{place}: {key:?} is {value}: {why}; hint: {hint}")]
    InvalidValue { place: Place, key: &'static str, value: String, why: String, hint: Box<str> },

    #[error("{place}: {key:?} names {}, which is no question of this schema; hint: {hint}", quoted(.id))]
    UnknownQuestion { place: Place, key: &'static str, id: String, hint: String },

    #[error(
        "{place}: {key:?} names {0}, which comes later in the schema, and an answer cannot be used before it is there; hint: \
         move {0} above this question", quoted(.id)
    )]
    ForwardReference { place: Place, key: &'static str, id: String },

    #[error(
        "the questions {} wait for each other in a circle, so none of them can be asked first; hint: remove one of these \
         \"depends_on\" or \"ask_if\" entries", circle(.ids)
    )]
    Cycle { ids: Vec<String> },

    #[error(
        "{place}: it needs the answer of {0} ({key}), which \"ask\" leaves out; hint: add {0} to \"ask\", or remove \
         this question from it", quoted(.needs)
    )]
    NotAsked { place: Place, key: &'static str, needs: String },
}

/// Where in the schema an error lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Schema,
    /// A question, by its id.
    Question(String),
    /// A question without a usable id, counted from 1.
    QuestionNumber(usize),
    /// An alternative of a question, counted from 1.
    Option {
        question: String,
        number: usize,
    },
}

/// A fault in what the engine reported. Never caused by a request, never turned into an answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReadingError {
    #[error(
        "label logit {index} is {value}, which is no finite number; hint: the weights or the forward pass are at fault, not the request"
    )]
    NonFinite { index: usize, value: f32 },

    #[error("there is nothing to read: {what}; hint: every slot needs at least one label and one read")]
    Empty { what: &'static str },

    #[error(
        "{found} values where {expected} are needed ({what}); hint: the reads of one slot must cover the same labels"
    )]
    WrongCount { what: &'static str, expected: usize, found: usize },

    #[error("read {read} is no probability distribution ({why}); hint: pass the output of softmax")]
    NoDistribution { read: usize, why: String },
}

impl SchemaError {
    /// The id of the question the error is about, if it is about one.
    pub fn question(&self) -> Option<&str> {
        match self.place()? {
            Place::Question(id) | Place::Option { question: id, .. } => Some(id),
            Place::Schema | Place::QuestionNumber(_) => None,
        }
    }

    /// Where the error lies; `None` for errors of the text and for circles.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::DuplicateKey { place, .. }
            | Self::UnknownKey { place, .. }
            | Self::MissingKey { place, .. }
            | Self::BothSpellings { place, .. }
            | Self::WrongType { place, .. }
            | Self::InvalidValue { place, .. }
            | Self::UnknownQuestion { place, .. }
            | Self::ForwardReference { place, .. }
            | Self::NotAsked { place, .. } => Some(place),
            Self::Json { .. } | Self::Cycle { .. } => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Schema => out.write_str("schema"),
            Self::Question(id) => write!(out, "question {}", quoted(id)),
            Self::QuestionNumber(number) => write!(out, "question number {number}"),
            Self::Option { question, number } => {
                write!(out, "question {}, option {number}", quoted(question))
            }
        }
    }
}

/// The ids of a circle; a long one is cut in the middle, since its ends are the same question.
fn circle(ids: &[String]) -> String {
    const MOST_SHOWN: usize = 12;
    let shown: Vec<String> = match ids {
        [start @ .., last] if start.len() >= MOST_SHOWN => {
            let start = start.iter().take(MOST_SHOWN - 2).map(|id| quoted(id));
            start.chain(["…".to_owned(), quoted(last)]).collect()
        }
        _ => ids.iter().map(|id| quoted(id)).collect(),
    };
    shown.join(" → ")
}
