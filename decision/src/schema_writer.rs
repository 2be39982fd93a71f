//! The canonical JSON form of a schema, as it goes over the wire.
//!
//! The counterpart of `schema_reader`: what is written here is read back as the same schema.

use serde_json::{Map, Value, json};

use crate::question::{Kind, Question};
use crate::schema::{Samples, Schema};

pub(crate) fn schema(schema: &Schema) -> Value {
    let default = Schema::default();
    let mut map = Map::new();
    let mut put = |key: &str, value: Value, wanted: bool| {
        if wanted {
            map.insert(key.to_owned(), value);
        }
    };
    put("instructions", json!(schema.instructions), schema.instructions.is_some());
    put("questions", schema.questions.iter().map(question).collect(), true);
    let samples = match schema.samples {
        Samples::Fixed(count) => json!(count),
        Samples::Auto => json!("auto"),
    };
    put("samples", samples, true);
    let threshold_differs = schema.auto_threshold_nats.to_bits() != default.auto_threshold_nats.to_bits();
    put("auto_threshold", json!(schema.auto_threshold_nats), threshold_differs);
    put("auto_max", json!(schema.auto_max), schema.auto_max != default.auto_max);
    put("steps", json!(schema.steps), schema.steps != default.steps);
    put("think", json!(schema.think), schema.think != default.think);
    put("layout", json!(schema.layout.as_str()), schema.layout != default.layout);
    put("isolate", json!(schema.isolate), schema.isolate);
    put("hole", json!(schema.hole.as_str()), schema.hole != default.hole);
    put("seed", json!(schema.seed), schema.seed.is_some());
    put("ask", json!(schema.ask), schema.ask.is_some());
    put("chunk_rows", json!(schema.chunk_rows), schema.chunk_rows.is_some());
    put("chunk_prompt", json!(schema.chunk_prompt.as_str()), schema.chunk_prompt != default.chunk_prompt);
    put("sequential", json!(schema.sequential), schema.sequential);
    Value::Object(map)
}

fn question(question: &Question) -> Value {
    let mut map = Map::new();
    map.insert("id".to_owned(), json!(question.id));
    map.insert("type".to_owned(), json!(question.kind.type_name()));
    if let Some(instructions) = &question.instructions {
        map.insert("instructions".to_owned(), json!(instructions));
    }
    match &question.kind {
        Kind::Boolean { yes: None, no: None } => {}
        Kind::Boolean { yes, no } => {
            let sides = [("true", yes), ("false", no)];
            let criteria =
                sides.into_iter().filter_map(|(key, text)| Some((key.to_owned(), json!(text.as_ref()?))));
            map.insert("criteria".to_owned(), Value::Object(criteria.collect()));
        }
        Kind::Choice { options } => {
            let options = options.iter().map(|option| match &option.description {
                Some(description) => json!({"name": option.name, "description": description}),
                None => json!({"name": option.name}),
            });
            map.insert("options".to_owned(), options.collect());
        }
        Kind::Score { levels } => {
            map.insert("levels".to_owned(), json!(levels));
        }
    }
    if !question.depends_on.is_empty() {
        map.insert("depends_on".to_owned(), json!(question.depends_on));
    }
    if !question.ask_if.is_empty() {
        map.insert("ask_if".to_owned(), json!(question.ask_if));
    }
    if question.alone {
        map.insert("alone".to_owned(), json!(true));
    }
    Value::Object(map)
}
