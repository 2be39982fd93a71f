//! The body of `POST /v1/systemone`, the shape of the Jev API: independent questions about one state.
//!
//! Becomes a schema like any other, with the defaults of this route: `isolate`, and the state first. Whatever its
//! alternatives look like here, from there on one reader checks them. The way back is `systemone_reply`.

use decision::{Kind, SCHEMA_KEYS, Schema, StrictValue};
use serde_json::{Map, Value, json};

use crate::error::Error;

/// Most levels of a score.
const MOST_LEVELS: usize = 10;
/// Keys of a question.
const QUESTION_KEYS: [&str; 6] = ["type", "instructions", "criteria", "depends_on", "ask_if", "alone"];

/// Schema and state of a request.
#[derive(Debug)]
pub struct SystemoneRequest {
    pub schema: Schema,
    pub state: String,
}

impl SystemoneRequest {
    /// Reads a body. `files`: images that came beside it, as parts of a form.
    pub fn from_body(body: &[u8], files: usize) -> Result<Self, Error> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Err(Error::BodyEmpty);
        }
        let text = std::str::from_utf8(body)
            .map_err(|error| Error::BodyNotUtf8 { position: error.valid_up_to() })?;
        let StrictValue(value) =
            serde_json::from_str(text).map_err(|error| Error::BodyNotJson { reason: error.to_string() })?;
        let Value::Object(mut body) = value else {
            return Err(fault(&[], "the body is no object", "send {\"state\": …, \"questions\": {…}}"));
        };
        body.retain(|_, value| !value.is_null());
        if body.get("model").is_some_and(|model| !model.is_string()) {
            return Err(fault(&["model"], "it is no string", "any name is accepted, or leave it out"));
        }
        let images = match body.get("images") {
            None => 0,
            Some(Value::Array(images)) => images.len(),
            Some(_) => {
                return Err(fault(&["images"], "it is no list", "send a list of images, or leave it out"));
            }
        };
        if images + files > 0 {
            return Err(Error::Images { count: images + files });
        }
        let state = match body.remove("state") {
            Some(Value::String(text)) => text,
            Some(value @ (Value::Object(_) | Value::Array(_))) => value.to_string(),
            None => return Err(fault(&["state"], "it is missing", "send what is to be decided about")),
            Some(_) => {
                return Err(fault(&["state"], "it is a bare value", "send a string, an object or a list"));
            }
        };
        Ok(SystemoneRequest { schema: schema(body)?, state })
    }
}

/// The schema in canonical JSON, and from there as on every route.
fn schema(mut body: Map<String, Value>) -> Result<Schema, Error> {
    let questions = match body.remove("questions") {
        Some(Value::Object(questions)) if !questions.is_empty() => questions,
        Some(Value::Object(_)) => {
            return Err(fault(&["questions"], "there is nothing to decide", "give at least one question"));
        }
        None => {
            return Err(fault(&["questions"], "it is missing", "send {\"questions\": {id: {\"type\": …}}}"));
        }
        Some(_) => return Err(fault(&["questions"], "it is no object", "send {id: {\"type\": …}}")),
    };
    // Anything else is for other servers.
    body.retain(|key, _| SCHEMA_KEYS.contains(&key.as_str()));
    let questions: Vec<Value> =
        questions.into_iter().map(|(id, value)| question(&id, value)).collect::<Result<_, _>>()?;
    body.insert("questions".into(), Value::Array(questions));
    body.entry("isolate").or_insert(json!(true));
    body.entry("layout").or_insert(json!("document_first"));
    Ok(Schema::from_value(&Value::Object(body))?)
}

fn question(id: &str, value: Value) -> Result<Value, Error> {
    let at = ["questions", id];
    let Value::Object(mut map) = value else {
        return Err(fault(&at, "it is no object", "write {\"type\": \"noul\", \"instructions\": …}"));
    };
    map.retain(|_, value| !value.is_null());
    if let Some(unknown) = map.keys().find(|key| !QUESTION_KEYS.contains(&key.as_str())) {
        let reason = format!("unknown key {unknown:?}: a misspelt key would silently change the decision");
        return Err(fault(
            &at,
            &reason,
            "a question has type, instructions, criteria, depends_on, ask_if, alone",
        ));
    }
    if let Some(instructions) = map.get_mut("instructions") {
        if !matches!(instructions, Value::String(_) | Value::Object(_) | Value::Array(_)) {
            let at = ["questions", id, "instructions"];
            return Err(fault(&at, "it is a bare value", "send a string, an object or a list"));
        }
        *instructions = json!(text(instructions));
    }
    let at = ["questions", id, "criteria"];
    let criteria = map.remove("criteria");
    match (map.get("type").and_then(Value::as_str), criteria) {
        (Some("noul"), None) => {}
        (Some("noul"), Some(Value::Object(sides))) => {
            let sides = sides.into_iter().filter(|(_, value)| !value.is_null());
            map.insert("criteria".into(), sides.map(|(side, value)| (side, json!(text(&value)))).collect());
        }
        (Some("noul"), Some(_)) => {
            return Err(fault(&at, "it is no object", "write {\"true\": …, \"false\": …}, or leave it out"));
        }
        (Some("choice"), Some(Value::Object(options))) => {
            let option = |(name, description): (String, Value)| match description {
                Value::Null => json!({ "name": name }),
                description => json!({"name": name, "description": text(&description)}),
            };
            map.insert("options".into(), options.into_iter().map(option).collect());
        }
        (Some("choice"), _) => {
            return Err(fault(
                &at,
                "a choice needs its options there",
                "write {name: description or null, …}",
            ));
        }
        (Some("score"), Some(Value::Array(levels))) => {
            if levels.len() > MOST_LEVELS {
                let reason = format!("it has {} levels, and the most is {MOST_LEVELS}", levels.len());
                return Err(fault(&at, &reason, "merge levels"));
            }
            if levels.iter().any(Value::is_null) {
                return Err(fault(&at, "a level is null", "say what every level means"));
            }
            map.insert("levels".into(), levels.iter().map(|level| json!(text(level))).collect());
        }
        (Some("score"), _) => {
            return Err(fault(&at, "a score needs a list there", "write the levels in order, lowest first"));
        }
        (found, _) => {
            let reason = match found {
                Some(name) => format!("{name:?} is no type of question here"),
                None => "it is missing, or no string".into(),
            };
            let at = ["questions", id, "type"];
            return Err(fault(&at, &reason, "use \"noul\", \"choice\" or \"score\""));
        }
    }
    map.insert("id".into(), json!(id));
    Ok(Value::Object(map))
}

/// Strings as they are, anything else as compact JSON.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn fault(path: &[&str], reason: &str, hint: &'static str) -> Error {
    let path = path.iter().map(ToString::to_string).collect();
    Error::Systemone { path, reason: reason.to_owned(), hint }
}

/// Whether a question of this kind is called something else here than on the chat route.
pub(super) fn type_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Boolean { .. } => "noul",
        other => other.type_name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &Value) -> Result<SystemoneRequest, Error> {
        SystemoneRequest::from_body(body.to_string().as_bytes(), 0)
    }

    fn with(question: &Value) -> Value {
        json!({"state": "s", "questions": {"a:b\n": question}})
    }

    #[test]
    fn every_kind_becomes_a_question_of_the_schema() {
        let body = json!({
            "model": "jev-latest", "state": {"a": "é", "b": 1.0}, "x_other": 1, "seed": 7,
            "questions": {
                "n": {"type": "noul", "instructions": {"task": "t"}, "criteria": {"true": ["x"], "false": null}},
                "c": {"type": "choice", "criteria": {"B": null, "A": {"k": 1}}, "depends_on": ["n"]},
                "s": {"type": "score", "criteria": ["low", {"label": "high"}]},
            },
        });
        let SystemoneRequest { schema, state } = read(&body).unwrap();
        assert_eq!(state, "{\"a\":\"é\",\"b\":1.0}");
        assert!(schema.isolate && schema.layout == decision::Layout::DocumentFirst && schema.seed == Some(7));
        let [n, c, s] = schema.questions.as_slice() else { panic!("{schema:?}") };
        assert_eq!(n.instructions.as_deref(), Some("{\"task\":\"t\"}"));
        assert_eq!(n.kind, Kind::Boolean { yes: Some("[\"x\"]".into()), no: None });
        assert_eq!((c.answer_names(), c.depends_on.as_slice()), (vec!["B", "A"], &["n".to_owned()][..]));
        assert_eq!(s.answer_names(), ["low", "{\"label\":\"high\"}"]);
        assert_eq!([n, c, s].map(|question| type_name(&question.kind)), ["noul", "choice", "score"]);
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let wrong = [
            (json!([]), "body"),
            (json!({"questions": {"q": {"type": "noul"}}}), "state"),
            (json!({"state": 3, "questions": {"q": {"type": "noul"}}}), "state"),
            (json!({"state": "s"}), "questions"),
            (json!({"state": "s", "questions": {}}), "questions"),
            (json!({"state": "s", "questions": [1]}), "questions"),
            (with(&json!({"type": "boolean"})), "type"),
            (with(&json!({"type": "noul", "criteria": ["a"]})), "criteria"),
            (with(&json!({"type": "noul", "instructions": 3})), "instructions"),
            (with(&json!({"type": "noul", "instruction": "x"})), "instruction"),
            (with(&json!({"type": "choice"})), "criteria"),
            (with(&json!({"type": "choice", "criteria": ["a", "b"]})), "criteria"),
            (with(&json!({"type": "score", "criteria": {"0": "a", "1": "b"}})), "criteria"),
            (with(&json!({"type": "score", "criteria": vec!["x"; 11]})), "11"),
        ];
        for (body, names) in wrong {
            let error = read(&body).unwrap_err().to_string();
            assert!(error.contains(names) && error.contains("hint:"), "{body}: {error}");
        }
        let twice = br#"{"state": "s", "questions": {"q": {"type": "noul"}, "q": {"type": "noul"}}}"#;
        assert!(matches!(SystemoneRequest::from_body(twice, 0), Err(Error::BodyNotJson { .. })));
    }

    #[test]
    fn images_are_understood_and_refused() {
        let mut body = with(&json!({"type": "noul"}));
        assert!(read(&body).is_ok());
        assert!(matches!(
            SystemoneRequest::from_body(body.to_string().as_bytes(), 2),
            Err(Error::Images { count: 2 })
        ));
        body["images"] = json!(["data:image/png;base64,AA=="]);
        assert!(matches!(read(&body), Err(Error::Images { count: 1 })));
        body["images"] = json!([]);
        assert!(read(&body).is_ok());
    }
}
