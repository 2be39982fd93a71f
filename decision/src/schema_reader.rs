//! From the canonical JSON form to a `Schema`.
//!
//! Checks names and types: an unknown key is an error here, a value out of range one in `limits`. Called after `normalise`.

use indexmap::IndexMap;
use serde_json::Value;

use crate::error::{Place, SchemaError};
use crate::fields::{Fields, as_text_hint, whole_number};
use crate::keys;
use crate::question::{Alternative, Kind, Question};
use crate::schema::{ChunkPrompt, Hole, Layout, Samples, Schema};
use crate::suggestion::{described, did_you_mean, quoted};

pub(crate) fn schema(value: &Value) -> Result<Schema, SchemaError> {
    let empty = serde_json::Map::new();
    // The normaliser has refused everything that is no object.
    let fields = Fields::new(Place::Schema, value.as_object().unwrap_or(&empty));
    fields.only(keys::SCHEMA_KEYS, |key| {
        let of_question = keys::QUESTION_KEYS.contains(&key);
        of_question.then(|| format!("{key:?} belongs into a question, inside \"questions\""))
    })?;
    let default = Schema::default();
    Ok(Schema {
        instructions: fields.text("instructions")?,
        questions: questions(&fields)?,
        samples: samples(&fields)?,
        auto_threshold_nats: fields.number("auto_threshold")?.unwrap_or(default.auto_threshold_nats),
        auto_max: fields.count("auto_max")?.unwrap_or(default.auto_max),
        steps: fields.count("steps")?.unwrap_or(default.steps),
        think: fields.count("think")?.unwrap_or(default.think),
        layout: fields
            .word(
                "layout",
                &[Layout::SchemaFirst, Layout::DocumentFirst].map(|layout| (layout.as_str(), layout)),
            )?
            .unwrap_or(default.layout),
        isolate: fields.flag("isolate")?,
        hole: fields
            .word("hole", &[Hole::Noise, Hole::Pad].map(|hole| (hole.as_str(), hole)))?
            .unwrap_or(default.hole),
        seed: fields.whole("seed")?,
        ask: fields.texts("ask")?,
        chunk_rows: fields.count("chunk_rows")?,
        chunk_prompt: fields
            .word(
                "chunk_prompt",
                &[ChunkPrompt::Own, ChunkPrompt::Shared].map(|prompt| (prompt.as_str(), prompt)),
            )?
            .unwrap_or(default.chunk_prompt),
        sequential: fields.flag("sequential")?,
    })
}

/// `"auto"`, a whole number, or one in quotes, since templates fill in variables as text.
fn samples(fields: &Fields<'_>) -> Result<Samples, SchemaError> {
    let Some(value) = fields.get("samples") else { return Ok(Schema::default().samples) };
    let count = match value {
        Value::String(text) if text == "auto" => return Ok(Samples::Auto),
        Value::String(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        other => whole_number(other).and_then(|whole| u32::try_from(whole).ok()),
    };
    count.map(Samples::Fixed).ok_or_else(|| {
        let expected = "a whole number of at least 1, or \"auto\"";
        fields.wrong("samples", expected, value, "write \"samples\": 4 or \"samples\": \"auto\"")
    })
}

fn questions(fields: &Fields<'_>) -> Result<Vec<Question>, SchemaError> {
    match fields.get("questions") {
        None => Err(SchemaError::MissingKey {
            place: Place::Schema,
            key: "questions",
            why: "a decision needs something to decide",
            hint: "write \"questions\": [{\"id\": …, \"type\": …, \"instructions\": …}]",
        }),
        Some(Value::Array(items)) => {
            items.iter().enumerate().map(|(index, item)| question(item, index + 1)).collect()
        }
        Some(other) => Err(fields.wrong(
            "questions",
            "an array of questions, or an object from id to question",
            other,
            "write \"questions\": […]",
        )),
    }
}

fn question(value: &Value, number: usize) -> Result<Question, SchemaError> {
    let Value::Object(map) = value else {
        return Err(SchemaError::WrongType {
            place: Place::QuestionNumber(number),
            key: "question".to_owned(),
            expected: "an object",
            found: described(value),
            hint: "write {\"id\": …, \"type\": …, \"instructions\": …}".into(),
        });
    };
    let numbered = Fields::new(Place::QuestionNumber(number), map);
    let id = numbered.text("id")?.ok_or(SchemaError::MissingKey {
        place: Place::QuestionNumber(number),
        key: "id",
        why: "the answer is reported under it",
        hint: "give the question a short \"id\"",
    })?;
    let fields = Fields::new(Place::Question(id.clone()), map);
    let type_name = type_name(&fields)?;
    check_keys(&fields, type_name)?;
    Ok(Question {
        id,
        kind: match type_name {
            "boolean" => boolean(&fields)?,
            "choice" => Kind::Choice { options: options(&fields)? },
            _ => Kind::Score { levels: fields.texts("levels")?.unwrap_or_default() },
        },
        instructions: fields.text("instructions")?,
        depends_on: fields.texts("depends_on")?.unwrap_or_default(),
        ask_if: conditions(&fields)?,
        alone: fields.flag("alone")?,
    })
}

fn type_name(fields: &Fields<'_>) -> Result<&'static str, SchemaError> {
    let Some(name) = fields.text("type")? else {
        return Err(SchemaError::MissingKey {
            place: fields.place.clone(),
            key: "type",
            why: "the allowed answers depend on it",
            hint: "write \"type\": \"boolean\", \"choice\" or \"score\"",
        });
    };
    keys::canonical_type(&name).ok_or_else(|| SchemaError::InvalidValue {
        place: fields.place.clone(),
        key: "type",
        value: quoted(&name),
        why: "it is no type of question".to_owned(),
        hint: did_you_mean(&name, ["boolean", "choice", "score"], "use one of").into(),
    })
}

/// Refuses unknown keys, and alternatives under the key of another type.
fn check_keys(fields: &Fields<'_>, type_name: &'static str) -> Result<(), SchemaError> {
    let own = keys::alternatives_key(type_name);
    let foreign =
        |key: &str| ["criteria", "options", "choices", "levels", "items"].contains(&key) && key != own;
    let known: Vec<&str> = keys::QUESTION_KEYS
        .iter()
        .copied()
        .filter(|key| !foreign(key) || fields.get(key).is_none())
        .collect();
    fields.only(&known, |key| {
        if foreign(key) {
            Some(match type_name {
                "boolean" => {
                    "a boolean has the answers yes and no; say what they mean in \"criteria\"".to_owned()
                }
                _ => format!("the answers of a {type_name} go into {own:?}"),
            })
        } else {
            keys::SCHEMA_KEYS
                .contains(&key)
                .then(|| format!("{key:?} belongs to the schema, beside \"questions\""))
        }
    })
}

fn boolean(fields: &Fields<'_>) -> Result<Kind, SchemaError> {
    match fields.get("criteria") {
        None => Ok(Kind::default()),
        Some(Value::Object(map)) => {
            let criteria = Fields::new(fields.place.clone(), map);
            criteria.only(keys::CRITERIA_KEYS, |_| {
                Some("the criteria of a boolean are \"true\" and \"false\"".to_owned())
            })?;
            Ok(Kind::Boolean { yes: criteria.text("true")?, no: criteria.text("false")? })
        }
        Some(other) => {
            Err(fields.wrong("criteria", "an object", other, "write {\"true\": \"…\", \"false\": \"…\"}"))
        }
    }
}

fn options(fields: &Fields<'_>) -> Result<Vec<Alternative>, SchemaError> {
    let items = match fields.get("options") {
        Some(Value::Array(items)) => items,
        Some(other) => {
            return Err(fields.wrong(
                "options",
                "an array of names or objects, or an object from name to description",
                other,
                "write \"options\": [\"…\", \"…\"]",
            ));
        }
        None => {
            return Err(SchemaError::MissingKey {
                place: fields.place.clone(),
                key: "options",
                why: "a choice needs something to choose from",
                hint: "write \"options\": [\"…\", \"…\"]",
            });
        }
    };
    items.iter().enumerate().map(|(index, item)| option(fields, item, index + 1)).collect()
}

fn option(question: &Fields<'_>, value: &Value, number: usize) -> Result<Alternative, SchemaError> {
    let id = match &question.place {
        Place::Question(id) => id.clone(),
        other => other.to_string(),
    };
    let place = Place::Option { question: id, number };
    let Value::Object(map) = value else {
        return Err(SchemaError::WrongType {
            place,
            key: "option".to_owned(),
            expected: "a name or an object",
            found: described(value),
            hint: as_text_hint(value).into(),
        });
    };
    let fields = Fields::new(place.clone(), map);
    fields.only(keys::OPTION_KEYS, |_| None)?;
    let name = fields.text("name")?.ok_or(SchemaError::MissingKey {
        place,
        key: "name",
        why: "the answer is reported by it",
        hint: "write {\"name\": \"…\", \"description\": \"…\"}",
    })?;
    Ok(Alternative { name, description: fields.text("description")? })
}

fn conditions(fields: &Fields<'_>) -> Result<IndexMap<String, Vec<String>>, SchemaError> {
    match fields.get("ask_if") {
        None => Ok(IndexMap::new()),
        Some(Value::Object(map)) => {
            map.iter().map(|(id, wanted)| Ok((id.clone(), fields.text_list("ask_if", wanted)?))).collect()
        }
        Some(other) => Err(fields.wrong(
            "ask_if",
            "an object from id to answers",
            other,
            "write {\"id\": [\"answer\", …]}",
        )),
    }
}
