//! What a rendered template asks for: a validated schema for the system message and a state for the user message.
//!
//! Two forms are understood. `{"schema": {…}, "state": …}` is the normal one; without `state` all variables together are
//! the state. A flat object is a schema whose keys `input`, `context` and `state` move into the state, on top of the variables.

use std::path::Path;

use decision::{Limits, Schema};
use indexmap::IndexMap;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::rendered;
use super::unescape::unescape_non_ascii;
use crate::error::Error;
use crate::variables::Variables;

const STATE_KEYS: [&str; 3] = ["input", "context", "state"];

/// Most options of a choice. Beyond the labels of the server they are asked about in groups.
pub(crate) const MOST_OPTIONS: usize = 1024;

/// What this client takes, whatever the server allows.
pub fn client_limits() -> Limits {
    Limits { max_alternatives: MOST_OPTIONS, ..Limits::default() }
}

/// One decision, ready to be sent.
#[derive(Clone, Debug)]
pub struct Request {
    pub schema: Schema,
    /// The text of the user message, byte for byte.
    pub state: String,
    /// Whether the variables themselves are (part of) the state, so that none of them is without effect.
    pub state_holds_variables: bool,
}

impl Request {
    pub(super) fn from_rendered(text: &str, variables: &Variables, path: &Path) -> Result<Self, Error> {
        let Value::Object(object) = rendered::parse(text, path)? else {
            return Err(Error::RenderedShape {
                path: path.to_owned(),
                reason: "it renders to JSON that is no object".to_owned(),
            });
        };
        let (schema, state, state_holds_variables) = if object.contains_key("schema") {
            nested(object, text, variables, path)?
        } else {
            flat(object, variables)
        };
        let schema = Schema::from_value(&schema).map_err(|cause| Error::schema(path, cause))?;
        schema.validate(&client_limits()).map_err(|cause| Error::schema(path, cause))?;
        Ok(Self { schema, state, state_holds_variables })
    }

    /// Whether there is nothing to decide on: no state in the template and no variables to be one.
    pub fn lacks_state(&self) -> bool {
        self.state_holds_variables && self.state == "{}"
    }

    /// The text of the system message: the schema in its canonical form, on one line.
    pub fn system_text(&self) -> String {
        self.schema.to_value().to_string()
    }
}

type Parts = (Value, String, bool);

fn nested(
    mut object: Map<String, Value>,
    text: &str,
    variables: &Variables,
    path: &Path,
) -> Result<Parts, Error> {
    let schema = object.shift_remove("schema").unwrap_or_default();
    let state = object.shift_remove("state").unwrap_or_default();
    if let Some(key) = object.keys().next() {
        return Err(Error::RenderedShape {
            path: path.to_owned(),
            reason: format!("beside `schema` and `state` it has the key `{key}`, which would be lost"),
        });
    }
    Ok(match state {
        Value::Null => (schema, json_text(variables.as_map()), true),
        // A text is sent as it is; quotes and escapes around it would only be noise for the model.
        Value::String(text) => (schema, text, false),
        other => (schema, literal(text, "state").unwrap_or_else(|| other.to_string()), false),
    })
}

fn flat(mut object: Map<String, Value>, variables: &Variables) -> Parts {
    let mut state = variables.as_map().clone();
    for key in STATE_KEYS {
        match object.shift_remove(key) {
            Some(Value::Object(entries)) if key == "state" => state.extend(entries),
            Some(Value::Null) | None => {}
            Some(value) => drop(state.insert(key.to_owned(), value)),
        }
    }
    (Value::Object(object), json_text(&state), true)
}

/// The text of one value as the template wrote it: its spacing, key order and numbers are the author's. Only `\u` escapes
/// of other scripts are undone.
fn literal(text: &str, key: &str) -> Option<String> {
    let parts: IndexMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    parts.get(key).map(|raw| unescape_non_ascii(raw.get()))
}

fn json_text(map: &Map<String, Value>) -> String {
    Value::Object(map.clone()).to_string()
}
