//! Every accepted spelling of a schema, brought to one.
//!
//! Older templates and other servers write questions as a map, `choices` for `options`, `noul` for `boolean` and so on. All of
//! it is resolved here and nowhere else, by client and server alike; `schema_reader` knows the canonical form only. What is
//! malformed passes through untouched for the reader to name. Order is kept: labels follow it. `null` counts as absent.

use serde_json::{Map, Value, json};

use crate::error::{Place, SchemaError};
use crate::keys;
use crate::suggestion::{described, quoted, shown};

/// The canonical JSON form of a schema: questions as a list, canonical keys and types, options as `{name, description}`,
/// levels as strings.
///
/// Errors: the value is no object, or a key and its older spelling are both there.
pub fn normalise(value: &Value) -> Result<Value, SchemaError> {
    let Value::Object(map) = value else {
        return Err(SchemaError::WrongType {
            place: Place::Schema,
            key: "schema".to_owned(),
            expected: "a JSON object",
            found: described(value),
            hint: "write {\"questions\": […]}".into(),
        });
    };
    let mut map = map.clone();
    stringify(&mut map, "instructions");
    if let Some(questions) = map.get_mut("questions") {
        *questions = question_list(questions.take())?;
    }
    Ok(Value::Object(map))
}

fn question_list(questions: Value) -> Result<Value, SchemaError> {
    let list: Result<Vec<Value>, SchemaError> = match questions {
        Value::Array(items) => {
            items.into_iter().enumerate().map(|(index, item)| question(item, index + 1)).collect()
        }
        Value::Object(map) => map
            .into_iter()
            .enumerate()
            .map(|(index, (id, item))| question(with_id(item, &id)?, index + 1))
            .collect(),
        other => return Ok(other),
    };
    Ok(Value::Array(list?))
}

/// A question from the map form: the key is the id.
fn with_id(question: Value, id: &str) -> Result<Value, SchemaError> {
    let Value::Object(mut map) = question else {
        return Err(SchemaError::WrongType {
            place: Place::Schema,
            key: id.to_owned(),
            expected: "a question, which is an object",
            found: described(&question),
            hint: format!("write {}: {{\"type\": …}}", quoted(id)).into(),
        });
    };
    let place = Place::Question(id.to_owned());
    rename(&mut map, &place, "name", "id")?;
    match map.get("id") {
        None | Some(Value::Null) => {}
        Some(Value::String(inner)) if inner == id => {}
        Some(other) => {
            return Err(SchemaError::InvalidValue {
                place,
                key: "id",
                value: shown(other),
                why: "in the map form the key is the id, and this one differs from it".to_owned(),
                hint: "remove \"id\" from the question".into(),
            });
        }
    }
    map.insert("id".to_owned(), json!(id));
    Ok(Value::Object(map))
}

fn question(question: Value, number: usize) -> Result<Value, SchemaError> {
    let Value::Object(mut map) = question else { return Ok(question) };
    let place = match map.get("id").or_else(|| map.get("name")) {
        Some(Value::String(id)) if !id.is_empty() => Place::Question(id.clone()),
        _ => Place::QuestionNumber(number),
    };
    for &(alias, key) in keys::QUESTION_ALIASES {
        rename(&mut map, &place, alias, key)?;
    }
    stringify(&mut map, "instructions");
    if let Some(conditions) = map.get_mut("ask_if").and_then(Value::as_object_mut) {
        conditions.values_mut().for_each(numbers_to_strings);
    }
    let Some(type_name) = map.get("type").and_then(Value::as_str).and_then(keys::canonical_type) else {
        return Ok(Value::Object(map));
    };
    map.insert("type".to_owned(), json!(type_name));
    for &(alias, key) in keys::type_aliases(type_name) {
        rename(&mut map, &place, alias, key)?;
    }
    match type_name {
        "boolean" => {
            if let Some(Value::Object(criteria)) = map.get_mut("criteria") {
                for &(alias, key) in keys::CRITERIA_ALIASES {
                    rename(criteria, &place, alias, key)?;
                }
                for key in keys::CRITERIA_KEYS {
                    stringify_any(criteria, key);
                }
            }
        }
        "choice" => {
            if let Some(options) = map.get_mut("options") {
                *options = option_list(options.take());
            }
        }
        _ => match map.get_mut("levels") {
            None | Some(Value::Null) => {
                map.insert("levels".to_owned(), json!(["1", "2", "3", "4", "5"]));
            }
            Some(levels) => numbers_to_strings(levels),
        },
    }
    Ok(Value::Object(map))
}

/// Options as a list of objects, from a list of names and objects or from a map name → description.
fn option_list(options: Value) -> Value {
    match options {
        Value::Array(items) => items.into_iter().map(option).collect(),
        Value::Object(map) => map
            .into_iter()
            .map(|(name, description)| option(json!({"name": name, "description": description})))
            .collect(),
        other => other,
    }
}

fn option(option: Value) -> Value {
    match option {
        Value::String(name) => json!({ "name": name }),
        Value::Object(mut map) => {
            stringify_any(&mut map, "description");
            Value::Object(map)
        }
        other => other,
    }
}

/// Moves the value of an older spelling to its key.
fn rename(map: &mut Map<String, Value>, place: &Place, alias: &str, key: &str) -> Result<(), SchemaError> {
    match map.shift_remove(alias) {
        None | Some(Value::Null) => Ok(()),
        Some(_) if map.get(key).is_some_and(|value| !value.is_null()) => Err(SchemaError::BothSpellings {
            place: place.clone(),
            key: key.to_owned(),
            alias: alias.to_owned(),
        }),
        Some(value) => {
            map.insert(key.to_owned(), value);
            Ok(())
        }
    }
}

/// Instructions given as an object or an array become compact JSON text.
fn stringify(map: &mut Map<String, Value>, key: &str) {
    if matches!(map.get(key), Some(Value::Object(_) | Value::Array(_))) {
        stringify_any(map, key);
    }
}

/// A description may be any JSON; what is not text becomes compact JSON text.
fn stringify_any(map: &mut Map<String, Value>, key: &str) {
    if let Some(value) = map.get_mut(key)
        && !matches!(value, Value::String(_) | Value::Null)
    {
        *value = Value::String(value.to_string());
    }
}

/// Levels may be written as numbers; their name is the number as JSON writes it.
fn numbers_to_strings(list: &mut Value) {
    for item in list.as_array_mut().into_iter().flatten() {
        if let Value::Number(number) = item {
            *item = Value::String(number.to_string());
        }
    }
}
