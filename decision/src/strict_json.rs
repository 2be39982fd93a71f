//! strict
use crate::error::SchemaError;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A JSON value in which no object has the same key twice.
#[derive(Debug, Clone, PartialEq)]
pub struct StrictValue(pub Value);

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(StrictValue)
    }
}

pub(crate) fn parse(text: &str) -> Result<Value, SchemaError> {
    todo!("{text}")
}
