//! normalise
use crate::error::SchemaError;
use serde_json::Value;
/// The canonical JSON form of a schema.
pub fn normalise(value: &Value) -> Result<Value, SchemaError> {
    todo!("{value}")
}
