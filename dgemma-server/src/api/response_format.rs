//! `response_format`: a JSON schema whose properties are all closed sets is a decision, and its answers are the object.
//!
//! Such an object is valid by construction, and every value has a probability. Anything else is refused with what is supported:
//! a promise that text will fit a schema could not be kept. Called by `Api::chat`.

use decision::{Alternative, Answers, Kind, Question, Schema};
use serde_json::{Map, Value};

use super::chat::{ChatMessage, brief};
use crate::error::Error;

/// Most values of an integer: those of a choice.
const MOST_VALUES: i64 = 255;
/// Levels of a score that are their own labels.
const DIGITS: i64 = 9;
/// References that are followed one after the other.
const MOST_REFERENCES: usize = 8;

/// The decision behind a format, and how its answers become the object.
#[derive(Debug)]
pub struct Format {
    pub schema: Schema,
    pub state: String,
    properties: Vec<Property>,
}

#[derive(Debug)]
struct Property {
    name: String,
    /// In the order of the answers. One value needs no question.
    values: Vec<Value>,
}

impl Format {
    /// `None` when text of any form is asked for.
    pub fn new(
        format: Option<&Value>,
        messages: &[ChatMessage],
        seed: Option<i64>,
    ) -> Result<Option<Self>, Error> {
        let Some(format) = format.filter(|format| !format.is_null()) else { return Ok(None) };
        let schema = match format["type"].as_str() {
            Some("text") => return Ok(None),
            Some("json_schema") => &format["json_schema"]["schema"],
            Some(kind) => return Err(fault(&format!("the type {kind:?}"))),
            None => return Err(fault("it has no \"type\"")),
        };
        let Value::Object(root) = schema else { return Err(fault("json_schema.schema is no object")) };
        let Some(Value::Object(given)) =
            root.get("properties").filter(|_| root.get("type").is_none_or(|t| t == "object"))
        else {
            return Err(fault("the schema is not that of an object with properties"));
        };
        let (mut properties, mut questions) = (Vec::new(), Vec::new());
        for (name, outer) in given {
            let at = |reason: &str| fault(&format!("the property {name:?} {reason}"));
            let property = resolve(outer, schema).ok_or_else(|| at("refers to nothing in $defs"))?;
            let values = values(property).map_err(|reason| at(&reason))?;
            if values.len() > 1 {
                let words = |key: &str| outer[key].as_str().or(property[key].as_str());
                let instructions = words("description").or_else(|| words("title"));
                questions.push(Question {
                    id: name.clone(),
                    kind: kind(&values),
                    instructions: instructions.map(str::to_owned),
                    ..Question::default()
                });
            }
            properties.push(Property { name: name.clone(), values });
        }
        if questions.is_empty() {
            return Err(fault("no property of the schema leaves a choice"));
        }
        let (instructions, state) = conversation(messages)?;
        let schema =
            Schema { instructions, questions, seed: seed.map(|seed| seed as u64), ..Schema::default() };
        Ok(Some(Format { schema, state, properties }))
    }

    /// The object that these answers are.
    pub fn object(&self, answers: &Answers) -> Result<Value, Error> {
        let mut object = Map::new();
        for Property { name, values } in &self.properties {
            let question = self.schema.questions.iter().find(|question| question.id == *name);
            let place = match question {
                None => Some(0),
                Some(question) => answers.get(name).and_then(Option::as_ref).and_then(|answer| {
                    question.answer_names().iter().position(|other| *other == answer.name())
                }),
            };
            let value = place
                .and_then(|place| values.get(place))
                .ok_or(Error::Internal { what: "filling in a form" })?;
            object.insert(name.clone(), value.clone());
        }
        Ok(Value::Object(object))
    }
}

/// The schema that a property is, references followed.
fn resolve<'v>(mut property: &'v Value, root: &'v Value) -> Option<&'v Value> {
    for _ in 0..MOST_REFERENCES {
        let only =
            property["allOf"].as_array().filter(|parts| parts.len() == 1).and_then(|parts| parts.first());
        property = match (property["$ref"].as_str(), only) {
            (Some(path), _) => root.pointer(path.strip_prefix('#')?)?,
            (None, Some(part)) => part,
            (None, None) => return Some(property),
        };
    }
    None
}

/// The closed set of values of a property, or why it is none.
fn values(property: &Value) -> Result<Vec<Value>, String> {
    if let Some(value) = property.get("const") {
        return Ok(vec![value.clone()]);
    }
    if let Some(values) = property.get("enum") {
        let values = values
            .as_array()
            .filter(|values| !values.is_empty())
            .ok_or("has an enum that is no list of values")?;
        if values.iter().any(|value| value.is_object() || value.is_array()) {
            return Err("has an enum with an object or a list in it".into());
        }
        let mut names: Vec<String> = values.iter().map(name).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() < values.len() {
            return Err("has an enum with two values of the same text".into());
        }
        return Ok(values.clone());
    }
    match property["type"].as_str() {
        Some("boolean") => Ok(vec![Value::Bool(true), Value::Bool(false)]),
        Some("integer") => {
            let bound = |inclusive: &str, exclusive: &str, inwards: i64| {
                let beyond = property[exclusive].as_i64().and_then(|bound| bound.checked_add(inwards));
                property[inclusive].as_i64().or(beyond)
            };
            let (least, most) =
                (bound("minimum", "exclusiveMinimum", 1), bound("maximum", "exclusiveMaximum", -1));
            let (Some(least), Some(most)) = (least, most) else {
                return Err("is an integer without minimum and maximum".into());
            };
            match most.checked_sub(least) {
                Some(0..MOST_VALUES) => Ok((least..=most).map(Value::from).collect()),
                _ => Err(format!(
                    "is an integer of {least} to {most}, and 1 to {MOST_VALUES} values can be read"
                )),
            }
        }
        Some(kind) => Err(format!("has the type {kind:?} and no enum")),
        None => Err("has neither an enum nor one type".into()),
    }
}

/// How a set of values is asked for.
fn kind(values: &[Value]) -> Kind {
    match values {
        [Value::Bool(true), Value::Bool(false)] => Kind::Boolean { yes: None, no: None },
        // From 1 on the labels of a score are the values.
        [first, .., last]
            if first.as_i64() == Some(1)
                && last.as_i64().is_some_and(|last| last <= DIGITS)
                && is_range(values) =>
        {
            Kind::Score { levels: values.iter().map(name).collect() }
        }
        values => {
            let option = |value| Alternative { name: name(value), description: None };
            Kind::Choice { options: values.iter().map(option).collect() }
        }
    }
}

fn is_range(values: &[Value]) -> bool {
    values.iter().zip(1..).all(|(value, expected)| value.as_i64() == Some(expected))
}

fn name(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What stands in the system messages, and the rest: the text of the user, or a dialogue.
fn conversation(messages: &[ChatMessage]) -> Result<(Option<String>, String), Error> {
    let (mut instructions, mut rest) = (Vec::new(), Vec::new());
    for (number, message) in messages.iter().enumerate() {
        let text = message.text(&format!("messages[{number}].content"))?;
        if message.is_system() { instructions.push(text) } else { rest.push((message.role.as_str(), text)) }
    }
    let state = match rest.as_mut_slice() {
        [] => String::new(),
        [(_, text)] => std::mem::take(text),
        several => {
            several.iter().map(|(role, text)| format!("{role}: {text}")).collect::<Vec<_>>().join("\n\n")
        }
    };
    let instructions = instructions.join("\n\n");
    Ok(((!instructions.trim().is_empty()).then_some(instructions), state))
}

fn fault(reason: &str) -> Error {
    Error::ResponseFormat { reason: brief(reason) }
}
