//! Tolerant reading of single fields in the replies of other servers: null for absent, a list for a number, a map of entropies.
//!
//! Used by `diagnostics` and `answer_json` through serde's `deserialize_with`.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// `null` reads as the default of the type.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A number, or the first of a list of numbers; null and an empty list read as the default.
pub(crate) fn first_number<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let first = match Value::deserialize(deserializer)? {
        Value::Array(items) => items.into_iter().next().unwrap_or(Value::Null),
        value => value,
    };
    match first {
        Value::Null => Ok(T::default()),
        value => serde_json::from_value(value).map_err(D::Error::custom),
    }
}

/// A list of numbers, or one number as a list of one.
pub(crate) fn number_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    numbers(&value)
        .ok_or_else(|| D::Error::custom(format!("expected a number or a list of numbers, found {value}")))
}

/// A number, or the largest of a list or map of numbers.
pub(crate) fn largest_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let found =
        numbers(&value).ok_or_else(|| D::Error::custom(format!("expected numbers, found {value}")))?;
    Ok(found.into_iter().reduce(f64::max))
}

/// A text, or the compact JSON of whatever stands in its place.
pub(crate) fn text_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    })
}

/// The numbers in a number, a list, a map or null; `None` when something else is among them.
fn numbers(value: &Value) -> Option<Vec<f64>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::Number(number) => Some(vec![number.as_f64()?]),
        Value::Array(items) => items.iter().map(Value::as_f64).collect(),
        Value::Object(map) => map.values().map(Value::as_f64).collect(),
        Value::Bool(_) | Value::String(_) => None,
    }
}
