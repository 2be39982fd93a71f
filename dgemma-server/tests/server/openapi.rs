//! `/openapi.json` against what the server really takes and sends.

use dgemma_server::http::routes::ROUTES;
use jsonschema::Validator;
use serde_json::{Value, json};

use crate::common::{Server, fake, options, request, triage};

/// The document, with every object closed: a field that it does not name is then a fault.
struct Document(Value);

impl Document {
    async fn of(server: &Server) -> Self {
        let response = server.get("/openapi.json").await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/json");
        let mut document: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        close(&mut document["components"]["schemas"]);
        Document(document)
    }

    /// What speaks against `value` as a body of this schema.
    fn faults(&self, schema: &Value, value: &Value) -> Vec<String> {
        let mut root = schema.clone();
        root["components"] = self.0["components"].clone();
        let validator: Validator = jsonschema::draft202012::new(&root).unwrap();
        validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
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

/// Closes objects that list their properties. What `allOf` joins is closed as a whole, not piece by piece.
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

    let path = "/v1/systemone";
    assert_eq!(document.faults(document.request(path), &systemone()), [""; 0]);
    let url = format!("{}{path}", server.url);
    let reply = body(server.client.post(url).body(systemone().to_string()).send().await.unwrap()).await;
    let described = document.response(path, "post", 200, "application/json");
    assert_eq!(document.faults(described, &reply), [""; 0], "{reply}");
}

#[tokio::test]
async fn refusals_are_as_described() {
    let mut options = options();
    options.body_limit_bytes = 1000;
    options.keys = dgemma_server::http::keys::Keys::load(None, Some("alpha".into())).unwrap();
    let server = Server::start_with(fake(), options).await;
    let response = server.client.get(format!("{}/openapi.json", server.url)).bearer_auth("alpha");
    let mut document: Value =
        serde_json::from_str(&response.send().await.unwrap().text().await.unwrap()).unwrap();
    close(&mut document["components"]["schemas"]);
    let document = Document(document);
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
