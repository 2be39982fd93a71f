//! Typed access to the keys of one JSON object, with errors that say where, which key, what was expected and what was found.
//!
//! Used by `schema_reader` only. `null` counts as absent. Whole numbers may be written `4` or `4.0`, since JSON has but one
//! kind of number and some writers always put the point.

use serde_json::{Map, Value};

use crate::error::{Place, SchemaError};
use crate::suggestion::{clipped, described, did_you_mean, listed, quoted};

pub(crate) struct Fields<'a> {
    pub(crate) place: Place,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(place: Place, map: &'a Map<String, Value>) -> Self {
        Self { place, map }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.map.keys().map(String::as_str)
    }

    /// Refuses every key that is not in `known`. `elsewhere` gives the hint for keys that belong to another object.
    pub(crate) fn only(
        &self,
        known: &[&str],
        elsewhere: impl Fn(&str) -> Option<String>,
    ) -> Result<(), SchemaError> {
        match self.keys().find(|key| !known.contains(key)) {
            None => Ok(()),
            Some(key) => Err(SchemaError::UnknownKey {
                place: self.place.clone(),
                key: clipped(key),
                hint: elsewhere(key)
                    .unwrap_or_else(|| did_you_mean(key, known.iter().copied(), "the keys here are")),
            }),
        }
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, SchemaError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.wrong(key, "a string", other, &as_text_hint(other))),
        }
    }

    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<String>>, SchemaError> {
        self.get(key).map(|value| self.text_list(key, value)).transpose()
    }

    /// A list of strings that stands somewhere under `key`.
    pub(crate) fn text_list(&self, key: &str, value: &Value) -> Result<Vec<String>, SchemaError> {
        let Value::Array(items) = value else {
            return Err(self.wrong(key, "an array of strings", value, "write [\"…\", \"…\"]"));
        };
        items
            .iter()
            .map(|item| match item {
                Value::String(text) => Ok(text.clone()),
                Value::Bool(flag) => {
                    let hint = format!(
                        "an answer to a boolean question is written {:?}",
                        if *flag { "yes" } else { "no" }
                    );
                    Err(self.wrong(key, "an array of strings", item, &hint))
                }
                other => Err(self.wrong(key, "an array of strings", other, &as_text_hint(other))),
            })
            .collect()
    }

    pub(crate) fn flag(&self, key: &str) -> Result<bool, SchemaError> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.wrong(key, "true or false", other, "write true or false without quotes")),
        }
    }

    pub(crate) fn count(&self, key: &'static str) -> Result<Option<u32>, SchemaError> {
        let Some(whole) = self.whole(key)? else { return Ok(None) };
        u32::try_from(whole).map(Some).map_err(|_| SchemaError::InvalidValue {
            place: self.place.clone(),
            key,
            value: whole.to_string(),
            why: "that is far more than any limit".to_owned(),
            hint: "use a small number".into(),
        })
    }

    pub(crate) fn whole(&self, key: &str) -> Result<Option<u64>, SchemaError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match whole_number(value) {
            Some(whole) => Ok(Some(whole)),
            None => Err(self.wrong(
                key,
                "a whole number, 0 or more",
                value,
                "write the number in digits, without quotes",
            )),
        }
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, SchemaError> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(key, "a number", value, "write the number in digits, without quotes")),
            },
        }
    }

    /// One of a few words.
    pub(crate) fn word<T: Copy>(
        &self,
        key: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, SchemaError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        if let Some(&(_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(Some(meaning));
        }
        let known = words.iter().map(|&(word, _)| word);
        Err(SchemaError::InvalidValue {
            place: self.place.clone(),
            key,
            value: quoted(&text),
            why: format!("it is none of {}", listed(known.clone())),
            hint: did_you_mean(&text, known, "use one of").into(),
        })
    }

    pub(crate) fn wrong(&self, key: &str, expected: &'static str, found: &Value, hint: &str) -> SchemaError {
        SchemaError::WrongType {
            place: self.place.clone(),
            key: key.to_owned(),
            expected,
            found: described(found),
            hint: hint.into(),
        }
    }
}

/// What to write instead of a value that is no text.
pub(crate) fn as_text_hint(value: &Value) -> String {
    match value {
        Value::Number(_) | Value::Bool(_) => format!("put it in quotes: {}", quoted(&value.to_string())),
        _ => "put a text in quotes here".to_owned(),
    }
}

/// The value as a whole number; `4.0` counts, `4.5`, `-1` and `"4"` do not.
pub(crate) fn whole_number(value: &Value) -> Option<u64> {
    /// Above this not every whole number has an f64 of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        (number.fract() == 0.0 && (0.0..=EXACT).contains(&number)).then_some(number as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whole_numbers_may_have_a_point_but_no_fraction() {
        for (value, whole) in [
            (json!(4), Some(4)),
            (json!(4.0), Some(4)),
            (json!(-0.0), Some(0)),
            (json!(u64::MAX), Some(u64::MAX)),
            (json!(4.5), None),
            (json!(-1), None),
            (json!(1e300), None),
            (json!("4"), None),
            (json!(true), None),
        ] {
            assert_eq!(whole_number(&value), whole, "{value}");
        }
    }
}
