//! Decisions from a server that makes none: any OpenAI-compatible one with JSON schemas and logprobs.
//!
//! The model is given the question sheet and writes one JSON object, id → label, under a schema that allows nothing else. The
//! distribution of an answer is that of the tokens at the place of ITS label (`slots`). Such probabilities are known to be
//! over-confident, so every answer says where they come from. Called by `asking`; `brackets` keeps choices within
//! `top_logprobs`.

mod reply;
mod scan;
mod slots;

use decision::{Layout, Samples, Schema, document_first_text, question_sheet};
use serde_json::{Map, Value, json};

use crate::state::State;

pub(crate) use reply::reply;

pub(crate) const ROUTE: &str = "/chat/completions";
/// `source` of the answers.
pub(crate) const SOURCE: &str = "generation_logprobs";
pub(crate) const WARNING: &str = "this server makes no decisions: it was asked to write JSON instead, and the probabilities are those of its \
    tokens, which are known to be over-confident (--api openai asks that way at once)";

/// As many alternatives of a token as servers give.
const TOP_LOGPROBS: usize = 20;
/// Room for an id, a label and what JSON puts around them.
const TOKENS_PER_QUESTION: usize = 32;

const CLOSING: &str =
    "Answer with one JSON object and nothing else: every id above is a key, its label the value.";

pub(crate) fn body(model: Option<&str>, schema: &Schema, state: &State) -> Vec<u8> {
    let sheet = sheet(schema);
    let messages = match schema.layout {
        Layout::SchemaFirst => json!([
            {"role": "system", "content": sheet},
            {"role": "user", "content": state.content(&state.text)},
        ]),
        Layout::DocumentFirst => {
            json!([{"role": "user", "content": state.content(&document_first_text(&state.text, &sheet))}])
        }
    };
    let mut body = Map::new();
    if let Some(model) = model {
        body.insert("model".to_owned(), json!(model));
    }
    body.insert("messages".to_owned(), messages);
    body.insert("temperature".to_owned(), json!(0));
    body.insert("max_tokens".to_owned(), json!(TOKENS_PER_QUESTION * (schema.asked().len() + 1)));
    if let Some(seed) = schema.seed {
        body.insert("seed".to_owned(), json!(seed));
    }
    body.insert("logprobs".to_owned(), json!(true));
    body.insert("top_logprobs".to_owned(), json!(TOP_LOGPROBS));
    let format = json!({"name": "decision", "strict": true, "schema": json_schema(schema)});
    body.insert("response_format".to_owned(), json!({"type": "json_schema", "json_schema": format}));
    Value::Object(body).to_string().into_bytes()
}

/// The question sheet, with JSON instead of lines at the end.
pub(crate) fn sheet(schema: &Schema) -> String {
    let sheet = question_sheet(schema, &schema.asked(), false);
    let questions = sheet.rsplit_once("\n\n").map_or(sheet.as_str(), |(questions, _)| questions);
    format!("{questions}\n\n{CLOSING}")
}

/// One label per question, in the order of the sheet.
fn json_schema(schema: &Schema) -> Value {
    let asked = schema.asked();
    let property = |labels: Vec<String>| json!({"type": "string", "enum": labels});
    let properties: Map<String, Value> =
        asked.iter().map(|question| (question.id.clone(), property(question.labels()))).collect();
    let required: Vec<&str> = asked.iter().map(|question| question.id.as_str()).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// What the schema asks for and a model that writes cannot do.
fn without_effect(schema: &Schema) -> Option<String> {
    let keys = [
        ("samples", !matches!(schema.samples, Samples::Fixed(1))),
        ("think", schema.think > 0),
        ("steps", schema.steps > 1),
        ("isolate", schema.isolate),
    ];
    let keys: Vec<&str> = keys.into_iter().filter(|(_, set)| *set).map(|(key, _)| key).collect();
    (!keys.is_empty())
        .then(|| format!("without effect on a server that makes no decisions: {}", keys.join(", ")))
}
