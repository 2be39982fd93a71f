//! The rules a schema must keep before it may be read.
//!
//! Client and server call `Schema::validate` with their own limits, so that a bad schema never reaches the network and a
//! schema from elsewhere never reaches the engine.

use crate::error::SchemaError;
use crate::schema::Schema;

/// What an engine and a route allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    pub max_questions: usize,
    /// Most draws of a slot.
    pub max_reads: u32,
    /// Most alternatives of one question; as many as the engine has single-token labels.
    pub max_alternatives: usize,
    pub max_steps: u32,
    pub max_think_tokens: u32,
    pub route: Route,
}

/// Whose rules for ids and order hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The ids stand on the sheet: no `:` and no newline in them. A question may refer only to earlier ones.
    Chat,
    /// Ids are replaced by neutral ones before they reach the sheet: any non-empty text. Order has no meaning.
    Systemone,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_questions: 64,
            max_reads: 32,
            max_alternatives: 26,
            max_steps: 8,
            max_think_tokens: 4096,
            route: Route::Chat,
        }
    }
}

impl Schema {
    /// Checks values, names and references. The first mistake is reported.
    pub fn validate(&self, limits: &Limits) -> Result<(), SchemaError> {
        todo!("{limits:?}")
    }
}
