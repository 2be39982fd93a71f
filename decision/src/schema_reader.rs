//! reader
use crate::error::SchemaError;
use crate::schema::Schema;
use serde_json::Value;
pub(crate) fn schema(value: &Value) -> Result<Schema, SchemaError> {
    todo!("{value}")
}
