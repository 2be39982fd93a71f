//! The values for a template, from `-v key=value` and `-d file`: read, typed and merged, later ones winning.
//!
//! Every command that renders goes through [`Variables::gather`], so that `template render` shows what `decide` sends.

use std::path::Path;

use serde_json::{Map, Value};

use crate::capped;
use crate::cli::VariableFlags;
use crate::error::Error;

/// Names and values in the order in which they were first given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variables(Map<String, Value>);

impl Variables {
    /// Reads the data file first, then every `-v` in order.
    pub fn gather(flags: &VariableFlags) -> Result<Self, Error> {
        let mut stdin_used = false;
        let from_stdin = |pair: &&String| pair.split_once('=').is_some_and(|(_, value)| value == "-");
        if let (Some("-"), Some(pair)) = (flags.data.as_deref(), flags.var.iter().find(from_stdin)) {
            return Err(Error::StdinTwice { flag: format!("-v {pair}") });
        }
        let mut variables = match &flags.data {
            Some(data) => Self(read_data(data, &mut stdin_used)?),
            None => Self::default(),
        };
        for pair in &flags.var {
            let (key, value) = split_pair(pair)?;
            variables.0.insert(key.to_owned(), read_value(key, value, &mut stdin_used)?);
        }
        Ok(variables)
    }

    pub fn from_map(map: Map<String, Value>) -> Self {
        Self(map)
    }

    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    pub fn into_map(self) -> Map<String, Value> {
        self.0
    }

    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Roughly the memory they take.
    pub fn weight_bytes(&self) -> u64 {
        self.0.iter().map(|(name, value)| name.len() as u64 + weight_bytes(value)).sum()
    }

    /// These values, with those of `fallback` for names that were not given.
    #[must_use]
    pub fn or_else(mut self, fallback: &Map<String, Value>) -> Self {
        for (name, value) in fallback {
            if !self.0.contains_key(name) {
                self.0.insert(name.clone(), value.clone());
            }
        }
        self
    }
}

fn weight_bytes(value: &Value) -> u64 {
    let inside: u64 = match value {
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(weight_bytes).sum(),
        Value::Object(map) => map.iter().map(|(name, value)| name.len() as u64 + weight_bytes(value)).sum(),
        _ => 0,
    };
    size_of::<Value>() as u64 + inside
}

/// Splits at the first `=`. Spaces around the key are dropped; the value stays as typed.
fn split_pair(pair: &str) -> Result<(&str, &str), Error> {
    match pair.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim(), value)),
        _ => Err(Error::BadVariable { pair: pair.to_owned() }),
    }
}

fn read_value(key: &str, value: &str, stdin_used: &mut bool) -> Result<Value, Error> {
    if value == "-" {
        return Ok(typed_document(read_stdin(&format!("-v {key}=-"), stdin_used)?));
    }
    match value.strip_prefix('@') {
        Some(text) if text.starts_with('@') => Ok(Value::String(text.to_owned())),
        Some(path) => read_file(path).map(typed_document),
        None => Ok(typed(value)),
    }
}

/// `true` and `false` are booleans, JSON objects and lists are taken apart, everything else (numbers too) is text.
pub(crate) fn typed(text: &str) -> Value {
    match text.trim() {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        trimmed => structured(trimmed).unwrap_or_else(|| Value::String(text.to_owned())),
    }
}

/// The content of a file: a JSON object or list is taken apart, any other content stays as it is, byte for byte.
fn typed_document(text: String) -> Value {
    structured(text.trim()).unwrap_or(Value::String(text))
}

fn structured(text: &str) -> Option<Value> {
    let looks_structured = text.starts_with(['{', '[']);
    looks_structured.then(|| serde_json::from_str(text).ok()).flatten()
}

/// `-d` takes a path (with or without the `@` that other tools want), `-` or, when it starts with a brace, the object itself.
fn read_data(data: &str, stdin_used: &mut bool) -> Result<Map<String, Value>, Error> {
    let text = if data == "-" {
        read_stdin("-d -", stdin_used)?
    } else if data.trim_start().starts_with('{') {
        data.to_owned()
    } else {
        let path = data.strip_prefix('@').unwrap_or(data);
        capped::read_file(Path::new(path), capped::VARIABLES_BYTES).and_then(capped::text).map_err(
            |cause| Error::BadData { origin: path.to_owned(), reason: format!("it cannot be read: {cause}") },
        )?
    };
    let source = if data.trim_start().starts_with('{') { "the JSON given to -d" } else { data };
    match serde_json::from_str(&text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(Error::BadData {
            origin: source.to_owned(),
            reason: "it is valid JSON but no object".to_owned(),
        }),
        Err(cause) => Err(Error::BadData { origin: source.to_owned(), reason: cause.to_string() }),
    }
}

fn read_file(path: &str) -> Result<String, Error> {
    capped::read_file(Path::new(path), capped::VARIABLES_BYTES)
        .and_then(capped::text)
        .map_err(|cause| Error::VariableFile { path: path.to_owned(), cause })
}

fn read_stdin(flag: &str, used: &mut bool) -> Result<String, Error> {
    if std::mem::replace(used, true) {
        return Err(Error::StdinTwice { flag: flag.to_owned() });
    }
    capped::read(std::io::stdin().lock(), capped::VARIABLES_BYTES)
        .and_then(capped::text)
        .map_err(|cause| Error::VariableFile { path: "stdin".to_owned(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn gather(pairs: &[&str], data: Option<&str>) -> Result<Variables, Error> {
        let var = pairs.iter().map(|pair| (*pair).to_owned()).collect();
        Variables::gather(&VariableFlags { var, data: data.map(str::to_owned) })
    }

    #[test]
    fn case_01_only_the_first_equals_sign_splits() {
        assert_eq!(gather(&["ticket=a=b=c"], None).unwrap().as_map()["ticket"], "a=b=c");
    }

    #[test]
    fn case_02_a_pair_without_equals_sign_is_named() {
        for pair in ["ticket", "=x", " =x"] {
            let message = gather(&[pair], None).unwrap_err().to_string();
            assert!(message.contains(&format!("`{pair}`")) && message.contains("hint:"), "{message}");
        }
    }

    #[test]
    fn values_keep_their_spaces_and_get_a_type_only_where_it_is_plain() {
        let variables = gather(
            &[
                "a= x \n",
                "b=true",
                "c=4",
                "d=[1, \"東\"]",
                "e={\"z\":1,\"y\":2}",
                "f=[URGENT] down",
                "g=@@name",
            ],
            None,
        )
        .unwrap();
        assert_eq!(
            Value::Object(variables.as_map().clone()),
            json!({"a": " x \n", "b": true, "c": "4", "d": [1, "東"], "e": {"z": 1, "y": 2}, "f": "[URGENT] down", "g": "@name"})
        );
        assert_eq!(serde_json::to_string(&variables.as_map()["e"]).unwrap(), "{\"z\":1,\"y\":2}");
    }

    #[test]
    fn case_07_a_variable_flag_wins_over_the_data_and_a_later_one_over_an_earlier() {
        let variables = gather(&["a=2", "a=3"], Some("{\"a\": \"1\", \"b\": false}")).unwrap();
        assert_eq!(Value::Object(variables.as_map().clone()), json!({"a": "3", "b": false}));
    }

    #[test]
    fn case_08_inline_data_works_and_anything_else_is_explained() {
        assert_eq!(gather(&[], Some("{\"a\":1}")).unwrap().as_map()["a"], 1);
        for (data, part) in [("[1]", "[1]"), ("no-such-file.json", "no-such-file.json"), ("{\"a\":", "-d")] {
            let message = gather(&[], Some(data)).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn a_file_is_taken_byte_for_byte_unless_it_is_json() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "true \n").unwrap();
        let pair = format!("a=@{}", path.display());
        assert_eq!(gather(&[&pair], None).unwrap().as_map()["a"], "true \n");
        std::fs::write(&path, "{\"k\": 1}\n").unwrap();
        assert_eq!(gather(&[&pair], None).unwrap().as_map()["a"], json!({"k": 1}));
        let message = gather(&["a=@/no/such/file"], None).unwrap_err().to_string();
        assert!(message.contains("/no/such/file"), "{message}");
    }
}
