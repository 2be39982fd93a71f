//! The contract between `dgem` and `dgemma-server`: what may be asked, how it is put to the model, and what comes back.
//!
//! Both sides use the same types, so a schema that the client accepts is a schema that the server understands.
//! The walk of one decision through this crate: `normalise` → `schema` → `limits` → `plan` → `sheet` →
//! (the engine reads logits) → `probability` → `reading` → `answer`. Data only: no I/O, no clock, no random numbers.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may stop at the first surprise"))]

mod answer;
mod answer_json;
mod answer_template;
mod brackets;
mod calibration;
mod diagnostics;
mod error;
mod fields;
mod keys;
mod limits;
mod lookalike;
mod normalise;
#[cfg(feature = "openapi")]
pub mod openapi;
mod plan;
mod probability;
mod question;
mod reading;
mod schema;
mod schema_reader;
mod schema_writer;
mod sheet;
pub mod statistics;
mod strict_json;
mod suggestion;
mod tolerance;

pub use answer::{Answer, AnswerValue, Answers, DecisionReply};
pub use answer_template::{AnswerForm, AnswerTemplate};
pub use brackets::{Bracket, LastRound, fuse};
pub use calibration::{BINS, Bin, Calibration, GATES, Gate};
pub use diagnostics::{Diagnostics, Policy, SamplesTaken, Skipped, SlotDiagnostics, Timing};
pub use error::{Place, ReadingError, SchemaError};
pub use keys::SCHEMA_KEYS;
pub use limits::{Limits, Route};
pub use lookalike::mistaken_schema;
pub use normalise::normalise;
pub use plan::{should_ask, stages};
pub use probability::{entropy_nats, hesitation, hesitation_over, softmax};
pub use question::{Alternative, Kind, Question};
pub use reading::Reading;
pub use schema::{ChunkPrompt, Hole, Layout, Samples, Schema};
pub use sheet::{document_first_text, question_sheet, question_sheet_with_labels, system_text};
pub use strict_json::StrictValue;
pub use suggestion::closest;
