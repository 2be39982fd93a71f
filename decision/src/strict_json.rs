//! JSON in which no object has the same key twice.
//!
//! A plain JSON parser keeps the last of two equal keys, so two questions or two options of one name would silently become
//! one. Called by `Schema::from_json`; `StrictValue` does the same for a field of a larger body. The nesting limit is that of
//! `serde_json`, so deep input is an error and not an overflow.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

use crate::error::{Place, SchemaError};
use crate::suggestion::clipped;

/// Bytes shown before and after the place of a syntax error.
const NEAR_BEFORE: usize = 40;
const NEAR_AFTER: usize = 20;

/// A JSON value in which no object has the same key twice; deserializing one that has is an error.
#[derive(Debug, Clone, PartialEq)]
pub struct StrictValue(pub Value);

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let duplicate = RefCell::new(None);
        Seed { path: &Path::Root, duplicate: &duplicate }.deserialize(deserializer).map(StrictValue)
    }
}

/// Parses a schema text. Errors carry the line and the column.
pub(crate) fn parse(text: &str) -> Result<Value, SchemaError> {
    let duplicate = RefCell::new(None);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let parsed = Seed { path: &Path::Root, duplicate: &duplicate }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    parsed.map_err(|error| match duplicate.into_inner() {
        Some(found) => duplicate_key(text, &found, &error),
        None => syntax_error(text, &error),
    })
}

/// The way from the root to a value: a list of frames on the stack, since most values never need it.
enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

enum Step {
    Key(String),
    Item(usize),
}

struct Duplicate {
    /// From the root to the object.
    steps: Vec<Step>,
    key: String,
}

#[derive(Clone, Copy)]
struct Seed<'a> {
    path: &'a Path<'a>,
    /// Where a duplicate is noted before parsing stops: a serde error carries only text.
    duplicate: &'a RefCell<Option<Duplicate>>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) =
            access.next_element_seed(Seed { path: &Path::Item(self.path, items.len()), ..self })?
        {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                let message = format!("the key {:?} is written twice in one object", clipped(&key));
                *self.duplicate.borrow_mut() = Some(Duplicate { steps: self.path.steps(), key });
                return Err(A::Error::custom(message));
            }
            let value = access.next_value_seed(Seed { path: &Path::Key(self.path, &key), ..self })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

impl Path<'_> {
    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut at = self;
        loop {
            at = match at {
                Path::Root => break,
                Path::Key(parent, key) => {
                    steps.push(Step::Key((*key).to_owned()));
                    parent
                }
                Path::Item(parent, index) => {
                    steps.push(Step::Item(*index));
                    parent
                }
            };
        }
        steps.reverse();
        steps
    }
}

fn duplicate_key(text: &str, found: &Duplicate, error: &serde_json::Error) -> SchemaError {
    let mut place = Place::Schema;
    let mut inside = found.steps.as_slice();
    if let [Step::Key(questions), question, rest @ ..] = found.steps.as_slice()
        && questions == "questions"
    {
        place = match question {
            Step::Key(id) => Place::Question(id.clone()),
            Step::Item(index) => match id_of(text, *index) {
                Some(id) => Place::Question(id),
                None => Place::QuestionNumber(index + 1),
            },
        };
        inside = rest;
    }
    let path: Vec<String> = inside
        .iter()
        .map(|step| match step {
            Step::Key(key) => format!("{:?}", clipped(key)),
            Step::Item(index) => format!("item {}", index + 1),
        })
        .collect();
    let inside = if path.is_empty() { String::new() } else { format!(" in {}", path.join(", ")) };
    SchemaError::DuplicateKey {
        place,
        key: clipped(&found.key),
        inside,
        line: error.line(),
        column: error.column(),
    }
}

/// The id of a listed question. Parses anew, leniently: only for the message of an error.
fn id_of(text: &str, index: usize) -> Option<String> {
    let value: Value = serde_json::from_str(text).ok()?;
    let question = value.get("questions")?.get(index)?;
    Some(question.get("id").or_else(|| question.get("name"))?.as_str()?.to_owned())
}

fn syntax_error(text: &str, error: &serde_json::Error) -> SchemaError {
    let (line, column) = (error.line(), error.column());
    let full = error.to_string();
    let message = full.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&full).to_owned();
    SchemaError::Json {
        hint: syntax_hint(&message, error),
        near: near(text, line, column),
        message,
        line,
        column,
    }
}

fn syntax_hint(message: &str, error: &serde_json::Error) -> &'static str {
    const HINTS: [(&str, &str); 6] = [
        ("trailing comma", "remove the comma before the closing bracket"),
        ("key must be a string", "write keys in double quotes"),
        ("trailing characters", "write one JSON object and nothing after it"),
        ("recursion limit", "nest less deeply: a schema needs no more than five levels"),
        ("control character", "write line breaks inside a string as \\n"),
        ("number out of range", "use a smaller number"),
    ];
    if error.is_eof() {
        return "the text ends too early: close every quote, bracket and brace";
    }
    HINTS
        .iter()
        .find(|(part, _)| message.contains(part))
        .map_or("look just before this place for a missing comma, quote or bracket", |&(_, hint)| hint)
}

/// The text around a place; lines count from 1, columns in bytes.
fn near(text: &str, line: usize, column: usize) -> String {
    let line = text.split('\n').nth(line.saturating_sub(1)).unwrap_or_default();
    let boundary = |mut at: usize| {
        at = at.min(line.len());
        while !line.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let (start, end) =
        (boundary(column.saturating_sub(NEAR_BEFORE)), boundary(column.saturating_add(NEAR_AFTER)));
    line[start..end].trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_json_parses_like_serde_json() {
        let text = r#"{"a": [1, -2, 2.5, true, null, "é\n"], "b": {"c": {}}, "z": 18446744073709551615}"#;
        assert_eq!(parse(text).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn strict_value_refuses_equal_keys_in_any_depth() {
        let error = serde_json::from_str::<StrictValue>(r#"{"a": [{"b": 1, "b": 2}]}"#).unwrap_err();
        assert!(error.to_string().contains("\"b\" is written twice"), "{error}");
        assert!(serde_json::from_str::<StrictValue>(r#"{"a": {"b": 1}, "b": 2}"#).is_ok());
    }

    #[test]
    fn snippets_end_between_characters() {
        let text = format!("{}\n{}x,]", "a".repeat(10), "é".repeat(60));
        for column in 0..130 {
            assert!(near(&text, 2, column).len() <= NEAR_BEFORE + NEAR_AFTER + 1);
        }
        assert_eq!(near("", 9, 9), "");
    }
}
