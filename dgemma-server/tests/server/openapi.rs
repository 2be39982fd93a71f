//! `/openapi.json` against what the server really takes and sends.

use dgemma_server::http::routes::ROUTES;
use serde_json::{Map, Value, json};

use crate::common::talk::says;
use crate::common::{Server, fake, options, request, triage};

/// The document, with every object closed: a field that it does not name is then a fault.
struct Document(Value);

impl Document {
    async fn of(server: &Server) -> Self {
        let response = server.get("/openapi.json").await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/json");
        Document::closed(serde_json::from_str(&response.text().await.unwrap()).unwrap())
    }

    fn closed(mut document: Value) -> Self {
        let schemas = document["components"]["schemas"].as_object_mut().unwrap();
        let text = serde_json::to_string(&schemas.values().map(joined).collect::<Vec<_>>()).unwrap();
        for (name, schema) in schemas.iter_mut() {
            // What `allOf` joins is closed as a whole, not piece by piece.
            if !text.contains(&format!("\"#/components/schemas/{name}\"")) {
                close(schema);
            }
        }
        Document(document)
    }

    /// What speaks against `value` as a body of this schema.
    fn faults(&self, schema: &Value, value: &Value) -> Vec<String> {
        let mut faults = Vec::new();
        self.check(schema, value, "", &mut faults);
        faults
    }

    /// JSON Schema as far as the document uses it; a keyword that is not understood here ends the test.
    fn check(&self, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
        let Value::Object(keywords) = schema else { panic!("{at}: no schema: {schema}") };
        let fits = |schema: &Value| self.faults(schema, value).is_empty();
        for (keyword, wanted) in keywords {
            let holds = match keyword.as_str() {
                "description"
                | "format"
                | "default"
                | "title"
                | "example"
                | "propertyNames"
                | "required"
                | "additionalProperties"
                | "unevaluatedProperties" => true,
                "$ref" => {
                    let path = wanted.as_str().unwrap().trim_start_matches('#');
                    let target = self.0.pointer(path).unwrap_or_else(|| panic!("{at}: nothing at {path}"));
                    self.check(target, value, at, faults);
                    true
                }
                "type" => match wanted {
                    Value::Array(types) => types.iter().any(|name| is_a(name, value)),
                    name => is_a(name, value),
                },
                "enum" => wanted.as_array().unwrap().contains(value),
                "minimum" => value.as_f64().is_none_or(|x| x >= wanted.as_f64().unwrap()),
                "maximum" => value.as_f64().is_none_or(|x| x <= wanted.as_f64().unwrap()),
                "maxLength" => value.as_str().is_none_or(|x| x.len() as u64 <= wanted.as_u64().unwrap()),
                "minItems" => value.as_array().is_none_or(|x| x.len() as u64 >= wanted.as_u64().unwrap()),
                "maxItems" => value.as_array().is_none_or(|x| x.len() as u64 <= wanted.as_u64().unwrap()),
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(wanted, item, &format!("{at}/{index}"), faults);
                    }
                    true
                }
                "properties" => {
                    for (name, schema) in wanted.as_object().unwrap() {
                        if let Some(field) = value.get(name) {
                            self.check(schema, field, &format!("{at}/{name}"), faults);
                        }
                    }
                    true
                }
                "allOf" => {
                    wanted.as_array().unwrap().iter().for_each(|part| self.check(part, value, at, faults));
                    true
                }
                "oneOf" => wanted.as_array().unwrap().iter().filter(|schema| fits(schema)).count() == 1,
                "anyOf" => wanted.as_array().unwrap().iter().any(fits),
                other => panic!("{at}: the test does not know the keyword {other:?}"),
            };
            if !holds {
                faults.push(format!("{at}: {value} is against {keyword}: {wanted}"));
            }
        }
        let Value::Object(fields) = value else { return };
        for name in keywords.get("required").and_then(Value::as_array).into_iter().flatten() {
            if !fields.contains_key(name.as_str().unwrap()) {
                faults.push(format!("{at}: {name} is missing"));
            }
        }
        let (others, known) = match keywords.get("unevaluatedProperties") {
            Some(others) => (Some(others), self.properties(schema)),
            None => (keywords.get("additionalProperties"), own_properties(keywords)),
        };
        for (name, field) in fields.iter().filter(|(name, _)| !known.contains(name)) {
            match others {
                Some(Value::Bool(false)) => faults.push(format!("{at}: {name:?} is not described")),
                Some(schema @ Value::Object(_)) => {
                    self.check(schema, field, &format!("{at}/{name}"), faults);
                }
                _ => {}
            }
        }
    }

    /// The properties of a schema and of all that it is joined from.
    fn properties(&self, schema: &Value) -> Vec<String> {
        let Value::Object(keywords) = schema else { return Vec::new() };
        let mut all = own_properties(keywords);
        if let Some(path) = keywords.get("$ref").and_then(Value::as_str) {
            all.extend(
                self.0.pointer(path.trim_start_matches('#')).into_iter().flat_map(|s| self.properties(s)),
            );
        }
        for joined in ["allOf", "oneOf", "anyOf"] {
            let parts = keywords.get(joined).and_then(Value::as_array).into_iter().flatten();
            all.extend(parts.flat_map(|part| self.properties(part)));
        }
        all
    }

    fn response(&self, path: &str, method: &str, status: u16, content_type: &str) -> &Value {
        let response = &self.0["paths"][path][method]["responses"][status.to_string()];
        let schema = &response["content"][content_type]["schema"];
        assert!(schema.is_object(), "{method} {path} has no {status} as {content_type}: {response}");
        schema
    }

    fn request(&self, path: &str) -> &Value {
        &self.0["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    }

    fn named(name: &str) -> Value {
        json!({"$ref": format!("#/components/schemas/{name}")})
    }
}

fn own_properties(keywords: &Map<String, Value>) -> Vec<String> {
    keywords
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|all| all.keys().cloned())
        .collect()
}

fn is_a(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other:?} is no type"),
    }
}

/// Everything that `allOf` joins, anywhere in this schema.
fn joined(schema: &Value) -> Value {
    match schema {
        Value::Array(items) => items.iter().map(joined).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| if key == "allOf" { value.clone() } else { joined(value) })
            .collect(),
        _ => Value::Null,
    }
}

/// Closes objects that list their properties.
fn close(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(close),
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                if key == "allOf" {
                    continue;
                }
                close(value);
            }
            if map.contains_key("allOf") {
                map.insert("unevaluatedProperties".into(), json!(false));
            } else if map.get("properties").is_some_and(Value::is_object) && map.contains_key("type") {
                map.entry("additionalProperties").or_insert(json!(false));
            }
        }
        _ => {}
    }
}

fn systemone() -> Value {
    json!({
        "model": "jev-latest",
        "state": {"ticket": "Our database is down."},
        "questions": {
            "n:1": {"type": "noul", "instructions": {"task": "Is it urgent?"}, "criteria": {"true": "outage", "false": null}},
            "c": {"type": "choice", "criteria": {"billing": "money", "other": null}, "depends_on": ["n:1"]},
            "s": {"type": "score", "criteria": ["calm", "furious"], "ask_if": {"n:1": ["no"]}},
        },
    })
}

async fn body(response: reqwest::Response) -> Value {
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

#[tokio::test]
async fn every_route_of_the_table_is_described_and_no_other() {
    let server = Server::start(fake()).await;
    let document = Document::of(&server).await;
    let described = document.0["paths"].as_object().unwrap();
    let count: usize = described.values().map(|item| item.as_object().unwrap().len()).sum();
    assert_eq!(count, ROUTES.len());
    for route in ROUTES {
        let operation = &described[route.path][route.method.to_ascii_lowercase()];
        assert!(!operation["summary"].as_str().unwrap().is_empty(), "{}", route.path);
        assert!(operation["responses"]["200"].is_object(), "{}", route.path);
        assert_eq!(operation["security"] == json!([]), route.open, "{}", route.path);
        assert_eq!(operation["responses"]["401"].is_null(), route.open, "{}", route.path);
        assert_eq!(operation["requestBody"].is_null(), route.method == "GET", "{}", route.path);
    }
}

#[tokio::test]
async fn requests_and_replies_are_as_described() {
    let server = Server::start(fake()).await;
    let document = Document::of(&server).await;
    for path in ["/livez", "/readyz", "/health", "/v1/models"] {
        let reply = body(server.get(path).await).await;
        let schema = document.response(path, "get", 200, "application/json");
        assert_eq!(document.faults(schema, &reply), [""; 0], "{path}: {reply}");
    }

    let (chat, schema) = ("/v1/chat/completions", triage());
    let staged = json!({"questions": [
        {"id": "a", "type": "boolean"},
        {"id": "b", "type": "score", "levels": ["low", "high"], "ask_if": {"a": ["no"]}, "alone": true},
    ], "samples": "auto", "auto_threshold": 0.0, "layout": "document_first", "hole": "noise", "seed": 7});
    for schema in [schema, staged] {
        assert_eq!(document.faults(&Document::named("DecisionSchema"), &schema), [""; 0]);
        let request = request(&schema, "text");
        assert_eq!(document.faults(document.request(chat), &request), [""; 0]);
        let reply = body(server.post(request.to_string()).await).await;
        let described = document.response(chat, "post", 200, "application/json");
        assert_eq!(document.faults(described, &reply), [""; 0], "{reply}");
        let content: Value =
            serde_json::from_str(reply["choices"][0]["message"]["content"].as_str().unwrap()).unwrap();
        assert_eq!(document.faults(&Document::named("DecisionReply"), &content), [""; 0], "{content}");
    }

    let mut streamed = request(&triage(), "text");
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({"include_usage": true});
    assert_eq!(document.faults(document.request(chat), &streamed), [""; 0]);
    let events = server.post(streamed.to_string()).await.text().await.unwrap();
    let described = document.response(chat, "post", 200, "text/event-stream");
    let chunks: Vec<Value> =
        events.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    assert_eq!(chunks.len(), 2, "{events}");
    for chunk in chunks {
        assert_eq!(document.faults(described, &chunk), [""; 0], "{chunk}");
    }

    a_conversation_is_as_described(&document).await;

    let path = "/v1/systemone";
    assert_eq!(document.faults(document.request(path), &systemone()), [""; 0]);
    let url = format!("{}{path}", server.url);
    let reply = body(server.client.post(url).body(systemone().to_string()).send().await.unwrap()).await;
    let described = document.response(path, "post", 200, "application/json");
    assert_eq!(document.faults(described, &reply), [""; 0], "{reply}");
}

/// Thought, text, calls and drafts; then a format.
async fn a_conversation_is_as_described(document: &Document) {
    let chat = "/v1/chat/completions";
    let script = "<|channel>thought\nHm.\n<channel|>So. <|tool_call>call:f{a:1}<tool_call|>";
    let server = Server::start(says(script, 8)).await;
    let properties = json!({"urgent": {"type": "boolean"}});
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": properties}}});
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let talk = json!({
        "model": "demo:think", "max_tokens": 99, "stop": ["\n\n"], "seed": 3, "n": 1, "tool_choice": "auto",
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "parallel_tool_calls": true, "chat_template_kwargs": {"enable_thinking": true}, "x_diffusion_drafts": true,
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": null, "reasoning_content": "y", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "z"}]},
        ],
    });
    let format = json!({"messages": [{"role": "user", "content": "x"}], "response_format": format});
    for mut request in [talk, format] {
        assert_eq!(document.faults(document.request(chat), &request), [""; 0]);
        let reply = server.completion(&request).await;
        let described = document.response(chat, "post", 200, "application/json");
        assert_eq!(document.faults(described, &reply), [""; 0], "{reply}");
        request["stream"] = json!(true);
        request["stream_options"] = json!({"include_usage": true});
        let described = document.response(chat, "post", 200, "text/event-stream");
        for chunk in server.events(&request).await {
            assert_eq!(document.faults(described, &chunk), [""; 0], "{chunk}");
        }
    }
}

#[tokio::test]
async fn refusals_are_as_described() {
    let mut options = options();
    options.body_limit_bytes = 1000;
    options.keys = dgemma_server::http::keys::Keys::load(None, Some("alpha".into())).unwrap();
    let server = Server::start_with(fake(), options).await;
    let response = server.client.get(format!("{}/openapi.json", server.url)).bearer_auth("alpha");
    let document = body(response.send().await.unwrap()).await;
    let document = Document::closed(document);
    for path in ["/v1/chat/completions", "/v1/systemone"] {
        let invalid = if path == "/v1/systemone" { 422 } else { 400 };
        for (key, text, status) in [
            ("wrong", "{}".to_owned(), 401),
            ("alpha", "{".to_owned(), invalid),
            ("alpha", "{}".to_owned(), invalid),
            ("alpha", " ".repeat(1001), 413),
        ] {
            let sent = server.client.post(format!("{}{path}", server.url)).bearer_auth(key).body(text);
            let response = sent.send().await.unwrap();
            assert_eq!(response.status(), status, "{path}");
            let reply = body(response).await;
            let described = document.response(path, "post", status, "application/json");
            assert_eq!(document.faults(described, &reply), [""; 0], "{path}: {reply}");
        }
    }
}

#[tokio::test]
async fn what_is_wrong_is_not_described() {
    let server = Server::start(fake()).await;
    let document = Document::of(&server).await;
    let schema = Document::named("DecisionSchema");
    for wrong in [
        json!([]),
        json!({"questions": [], "sample": 3}),
        json!({"questions": [], "steps": 9}),
        json!({"questions": [], "layout": "state_first"}),
        json!({"questions": [{"id": "a", "type": "bolean"}]}),
        json!({"questions": [{"id": "a", "type": "boolean", "instruction": "x"}]}),
        json!({"questions": [{"id": "a"}]}),
    ] {
        assert_ne!(document.faults(&schema, &wrong), [""; 0], "{wrong}");
    }
    let reply = json!({"answers": {"a": {"type": "boolean"}}});
    assert_ne!(document.faults(&Document::named("DecisionReply"), &reply), [""; 0]);
    let mut request = systemone();
    request["questions"]["c"]["type"] = json!("boolean");
    assert_ne!(document.faults(document.request("/v1/systemone"), &request), [""; 0]);
}
