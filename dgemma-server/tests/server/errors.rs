//! Bad requests through a real socket: each gets the right status in OpenAI's shape, and the server goes on.

use crate::common::talk::{says, with};
use crate::common::{CONTEXT, Server, demo_model, fake, openai_error, options, request, text, triage};
use dgemma_server::Parts;
use dgemma_server::engine::fake::Fault;
use dgemma_server::read::Text;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn message(error: &Value) -> &str {
    error["message"].as_str().unwrap()
}

fn with_schema(schema: &Value) -> String {
    request(schema, "s").to_string()
}

#[tokio::test]
async fn unknown_routes_and_methods_have_the_openai_shape() {
    let server = Server::start(fake()).await;
    let error = openai_error(server.get("/v1/nothing").await, 404).await;
    assert!(message(&error).contains("/v1/nothing"), "{error}");
    let response = server.get("/v1/chat/completions").await;
    assert_eq!(response.headers()["allow"], "POST");
    let error = openai_error(response, 405).await;
    assert!(message(&error).contains("GET"), "{error}");
    let response = server.client.delete(format!("{}/v1/models", server.url)).send().await.unwrap();
    assert_eq!(response.headers()["allow"], "GET,HEAD");
    openai_error(response, 405).await;
}

#[tokio::test]
async fn bodies_that_are_no_chat_request_are_refused_with_the_place() {
    let server = Server::start(fake()).await;
    for (body, code, piece) in [
        (b"".to_vec(), "body_empty", "empty"),
        (b" \n".to_vec(), "body_empty", "empty"),
        (b"{\"messages\": \"\xff\"}".to_vec(), "body_not_utf8", "byte 14"),
        (b"not json".to_vec(), "body_not_json", "line 1"),
        (b"{\"messages\": [}".to_vec(), "body_not_json", "line 1"),
        (b"{\"messages\": []} x".to_vec(), "body_not_json", "trailing"),
        (b"[1]".to_vec(), "wrong_type", "expected an object"),
        (b"7".to_vec(), "wrong_type", "body: "),
        (b"{}".to_vec(), "wrong_type", "messages"),
        (b"{\"messages\": 7}".to_vec(), "wrong_type", "messages"),
        (
            b"{\"messages\": [{\"role\": \"user\", \"content\": 7}]}".to_vec(),
            "wrong_type",
            "messages[0].content",
        ),
        (b"{\"messages\": [{\"content\": \"x\"}]}".to_vec(), "wrong_type", "role"),
        (b"{\"messages\": [], \"stream\": \"yes\"}".to_vec(), "wrong_type", "stream"),
        (b"{\"messages\": [], \"model\": 1}".to_vec(), "wrong_type", "model"),
        (b"{\"messages\": []}".to_vec(), "invalid_messages", "empty"),
    ] {
        let error = server.refused(body.clone(), 400).await;
        let body = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(error["code"], code, "{body}: {error}");
        assert!(message(&error).contains(piece), "{body}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
    }
    server.decide(&triage(), "still here").await;
}

/// Deeply nested JSON must end in an error, not in the end of the stack.
#[tokio::test]
async fn deep_nesting_is_an_error() {
    let server = Server::start(fake()).await;
    let deep = "[".repeat(100_000);
    server.refused(deep.clone(), 400).await;
    let body = json!({"messages": [{"role": "system", "content": format!("{{\"questions\": {deep}")}]});
    server.refused(body.to_string(), 400).await;
    server.decide(&triage(), "still here").await;
}

#[tokio::test]
async fn a_body_of_20_mb_is_refused_with_the_limit() {
    let server = Server::start(fake()).await;
    let error = server.refused(vec![b' '; 20 << 20], 413).await;
    assert!(message(&error).contains("8388608"), "{error}");
    server.decide(&triage(), "still here").await;
}

#[tokio::test]
async fn a_body_that_is_not_plain_json_is_refused_by_its_headers() {
    let server = Server::start(fake()).await;
    let send = |path: &str, headers: &[(&'static str, &'static str)]| {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut sent = client.post(format!("{}{path}", server.url));
        for (name, value) in headers {
            sent = sent.header(*name, *value);
        }
        sent.body(request(&triage(), "s").to_string()).send()
    };
    let chat = "/v1/chat/completions";
    for (headers, code, piece) in [
        (&[][..], "unsupported_content_type", "no Content-Type"),
        (&[("content-type", "application/x-www-form-urlencoded")], "unsupported_content_type", "urlencoded"),
        (&[("content-type", "text/plain;charset=UTF-8")], "unsupported_content_type", "text/plain"),
        (&[("content-type", "multipart/form-data; boundary=b")], "unsupported_content_type", "multipart"),
        (
            &[("content-type", "application/json"), ("content-encoding", "gzip")],
            "unsupported_content_encoding",
            "gzip",
        ),
    ] {
        let error = openai_error(send(chat, headers).await.unwrap(), 415).await;
        assert_eq!(error["code"], code, "{error}");
        assert!(message(&error).contains(piece), "{error}");
    }
    let plain = send("/v1/systemone", &[("content-type", "text/plain")]).await.unwrap();
    assert_eq!(plain.status(), 415);
    let identity = [("content-type", "application/json; charset=utf-8"), ("content-encoding", "identity")];
    assert_eq!(send(chat, &identity).await.unwrap().status(), 200);
    assert!(server.engine.log.passes().len() == 1, "nothing else reached the engine");
}

#[tokio::test]
async fn a_misspelt_questions_is_no_conversation() {
    let server = Server::start(says("Hello", 64)).await;
    let questions = triage()["questions"].clone();
    for (system, piece) in [
        (json!({"question": questions}), "did you mean \"questions\"?"),
        (json!({"instructions": "Triage.", "Qestions": questions}), "did you mean \"questions\"?"),
        (json!({"items": questions}), "did you mean \"questions\"?"),
        (json!({"schema": triage(), "state": "s"}), "send the schema itself"),
    ] {
        let messages =
            json!([{"role": "system", "content": system.to_string()}, {"role": "user", "content": "s"}]);
        let error = server.refused(json!({"messages": messages}).to_string(), 400).await;
        assert_eq!(error["code"], "invalid_schema", "{error}");
        assert!(message(&error).contains(piece), "{error}");
    }
    assert!(server.engine.log.calls().is_empty());
}

#[tokio::test]
async fn a_request_without_a_schema_is_a_conversation() {
    let server = Server::start(says("Hello", 64)).await;
    for body in [
        json!({"messages": [{"role": "user", "content": "Hello"}]}),
        json!({"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]}),
        json!({"messages": [{"role": "system", "content": "{\"a\": 1}"}, {"role": "user", "content": "Hello"}]}),
        json!({"messages": [{"role": "user", "content": triage().to_string()}]}),
    ] {
        assert_eq!(server.completion(&body).await["choices"][0]["message"]["content"], "Hello");
    }
}

#[tokio::test]
async fn messages_that_do_not_make_a_decision_are_named() {
    let server = Server::start(fake()).await;
    let schema = triage().to_string();
    let image = json!([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]);
    for (messages, param) in [
        (json!([{"role": "system", "content": schema}]), "messages"),
        (
            json!([{"role": "system", "content": schema}, {"role": "assistant", "content": "x"}]),
            "messages[1].role",
        ),
        (json!([{"role": "system", "content": schema}, {"role": "user"}]), "messages[1].content"),
        (
            json!([{"role": "system", "content": schema}, {"role": "user", "content": image}]),
            "messages[1].content[0].type",
        ),
        (
            json!([{"role": "system", "content": schema}, {"role": "user", "content": "a"}, {"role": "user", "content": "b"}]),
            "messages[2]",
        ),
    ] {
        let error = server.refused(json!({"messages": messages}).to_string(), 400).await;
        assert_eq!(error["param"], param, "{error}");
    }
}

#[tokio::test]
async fn mistakes_in_the_schema_name_the_question() {
    let server = Server::start(fake()).await;
    let boolean = |id: &str| json!({"id": id, "type": "boolean"});
    let choice = |count: usize| {
        let options: Vec<String> = (0..count).map(|n| format!("option{n}")).collect();
        json!({"questions": [{"id": "pick", "type": "choice", "options": options}]})
    };
    let many: Vec<Value> = (0..65).map(|n| boolean(&format!("q{n}"))).collect();
    for (schema, pieces) in [
        (json!({"questions": many}), vec!["65", "64"]),
        (json!({"questions": []}), vec!["questions"]),
        (json!({"questions": [boolean("a"), boolean("a")]}), vec!["\"a\""]),
        (json!({"questions": [boolean("a:b")]}), vec!["a:b"]),
        (json!({"questions": [boolean("a")], "smaples": 2}), vec!["smaples", "samples"]),
        (choice(1), vec!["pick"]),
        (choice(256), vec!["pick", "256", "255"]),
        (
            json!({"questions": [boolean("a"), {"id": "b", "type": "boolean", "ask_if": {"a": [true]}}]}),
            vec!["\"b\"", "yes"],
        ),
        (json!({"questions": [boolean("a")], "samples": 33}), vec!["33", "32"]),
        (json!({"questions": [boolean("a")], "steps": 9}), vec!["steps", "9"]),
    ] {
        let error = server.refused(with_schema(&schema), 400).await;
        assert_eq!(error["code"], "invalid_schema", "{error}");
        assert!(pieces.iter().all(|piece| message(&error).contains(piece)), "{pieces:?} in {error}");
    }
    // A slip in the JSON of the schema is reported as such, not as a missing schema.
    let broken = json!({"messages": [{"role": "system", "content": "{\"questions\": [{\"id\": \"a\",}]}"}]});
    let error = server.refused(broken.to_string(), 400).await;
    assert!(message(&error).contains("line 1, column"), "{error}");
}

#[tokio::test]
async fn what_the_chat_template_cannot_write_is_refused() {
    let fake = says("ok", 64);
    let server = Server::start_loading(options(), fake.controls(), move || {
        let folder = tempfile::tempdir().unwrap();
        for name in ["tokenizer.json", "tokenizer_config.json"] {
            std::fs::copy(demo_model().join(name), folder.path().join(name)).unwrap();
        }
        let plain = "{% if messages[0]['content'] == 'no' %}{{ raise_exception('not this') }}{% endif %}{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}model:";
        std::fs::write(folder.path().join("chat_template.jinja"), plain).unwrap();
        Ok(Parts { engine: fake, text: Text::from_dir(folder.path())? })
    })
    .await;
    server.wait_until_ready().await;
    let mut schema = triage();
    schema["think"] = json!(4);
    let error = server.refused(with_schema(&schema), 400).await;
    assert_eq!(error["code"], "unsupported");
    assert!(message(&error).contains("\"think\" is 4"), "{error}");
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let body = json!({"messages": [{"role": "user", "content": "Hello"}], "tools": tools});
    let error = server.refused(body.to_string(), 400).await;
    assert_eq!((&error["code"], &error["param"]), (&json!("unsupported_tools"), &json!("tools")));
    let body = json!({"messages": [{"role": "user", "content": "no"}]});
    let error = server.refused(body.to_string(), 400).await;
    assert!(message(&error).contains("not this"), "{error}");
    let body = json!({"messages": [{"role": "user", "content": "Hello"}]});
    assert_eq!(server.completion(&body).await["choices"][0]["message"]["content"], "ok");
}

#[tokio::test]
async fn a_state_beyond_the_context_is_refused_with_both_numbers() {
    let server = Server::start(fake()).await;
    let numbers = |error: &Value| -> Vec<usize> {
        message(error).split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
    };
    // A little too long: encoded, and refused with its exact length.
    let state = "word ".repeat(CONTEXT);
    let error = server.refused(request(&triage(), &state).to_string(), 413).await;
    let shortest = text().tokenizer.encode_plain(state.trim()).unwrap().len();
    assert_eq!(numbers(&error)[1..], [16, CONTEXT], "{error}");
    assert!((shortest..shortest + 400).contains(&numbers(&error)[0]), "{error}");
    assert_eq!(error["code"], "context_length_exceeded");
    // Far too long: refused by its length.
    let state = "word ".repeat(20_000);
    let error = server.refused(request(&triage(), &state).to_string(), 413).await;
    assert_eq!((numbers(&error)[0], numbers(&error)[2]), (100_000, CONTEXT), "{error}");
    assert_eq!(error["code"], "context_length_exceeded");
    assert!(server.engine.log.calls().is_empty(), "nothing is cut silently");
}

#[tokio::test]
async fn a_state_that_cannot_fit_by_its_length_is_refused_without_being_encoded() {
    let server = Server::start(fake()).await;
    let state = "a".repeat(7_000_000);
    let error = server.refused(request(&triage(), &state).to_string(), 413).await;
    // Bytes are counted; tokens would have had to be made.
    assert!(message(&error).contains("7000000 bytes"), "{error}");
    assert_eq!(error["code"], "context_length_exceeded");
    assert!(server.engine.log.calls().is_empty());
}

#[tokio::test]
async fn questions_and_conversations_that_cannot_fit_are_refused_without_being_encoded() {
    let server = Server::start(fake()).await;
    let long = "a".repeat(3_000_000);
    let mut schema = triage();
    schema["instructions"] = json!(long);
    let thinking = with(schema.clone(), &json!({"think": 16}));
    let tool = json!({"type": "function", "function": {"name": "f", "description": long, "parameters": {"type": "object"}}});
    for (body, status, what) in [
        (request(&schema, "short"), 413, "the prompt has 30"),
        (request(&thinking, "short"), 413, "the prompt has 30"),
        (json!({"messages": [{"role": "user", "content": long}]}), 400, "the conversation has 30"),
        (
            json!({"messages": [{"role": "user", "content": "Go"}], "tools": [tool]}),
            400,
            "the conversation has 30",
        ),
    ] {
        let error = server.refused(body.to_string(), status).await;
        assert_eq!(error["code"], "context_length_exceeded");
        assert!(message(&error).starts_with(what) && message(&error).contains(" bytes"), "{error}");
    }
    assert!(server.engine.log.calls().is_empty());
}

#[tokio::test]
async fn a_question_that_fits_no_canvas_is_named() {
    let server = Server::start(fake()).await;
    let id = "long_".repeat(60);
    let error =
        server.refused(with_schema(&json!({"questions": [{"id": id, "type": "boolean"}]})), 413).await;
    assert_eq!(error["code"], "canvas_length_exceeded");
    assert!(message(&error).contains(&id) && message(&error).contains("has 64"), "{error}");
}

#[tokio::test]
async fn an_engine_fault_is_a_500_and_the_server_goes_on() {
    let server = Server::start(fake()).await;
    for (fault, piece) in [
        (Fault::Error, "forward pass failed"),
        (Fault::Panic, "the forward pass panicked"),
        (Fault::NonFinite, "not finite"),
    ] {
        server.engine.fail_next(&[fault]);
        let error = server.refused(with_schema(&triage()), 500).await;
        assert_eq!((&error["type"], &error["code"]), (&json!("server_error"), &json!("engine_fault")));
        assert!(message(&error).contains(piece), "{error}");
        assert!(!error.to_string().contains("scripted panic"), "the text of a panic stays here: {error}");
        server.decide(&triage(), "still here").await;
    }
}

#[tokio::test]
async fn a_number_that_is_not_finite_is_reported_with_its_question() {
    let server = Server::start(fake()).await;
    let mut schema = triage();
    schema["samples"] = json!(3);
    schema["questions"][1]["alone"] = json!(true);
    // Six canvases over one prompt: three draws of the sheet, three of the question alone. All numbers are bad; the first is named.
    server.engine.fail_next(&[Fault::NonFinite]);
    let error = server.refused(with_schema(&schema), 500).await;
    assert_eq!(error["code"], "engine_fault");
    assert!(message(&error).contains("\"urgent\"") && message(&error).contains("draw 1"), "{error}");
    // Only what is asked alone is bad.
    let nan_for_three = fake().with_answer(|_, canvas, slot| {
        let labels = canvas.slots[slot].label_ids.len();
        vec![if labels == 3 && canvas.slots.len() == 1 { f32::NAN } else { 0.0 }; labels]
    });
    let server = Server::start(nan_for_three).await;
    let error = server.refused(with_schema(&schema), 500).await;
    assert!(message(&error).contains("\"team\"") && message(&error).contains("draw 1"), "{error}");
}

#[tokio::test]
async fn an_id_has_a_limit_that_is_reported() {
    let server = Server::start(fake()).await;
    let models: Value = serde_json::from_str(&server.get("/v1/models").await.text().await.unwrap()).unwrap();
    let most = models["data"][0]["limits"]["id_bytes"].as_u64().unwrap() as usize;
    let schema = json!({"questions": [{"id": "x".repeat(most + 1), "type": "boolean"}]});
    let error = server.refused(with_schema(&schema), 400).await;
    assert_eq!(error["code"], "invalid_schema");
    assert!(message(&error).contains(&format!("at most {most}")), "{error}");
}

#[tokio::test]
async fn a_connection_closed_half_way_does_no_harm() {
    let server = Server::start(fake()).await;
    let mut socket = TcpStream::connect(server.addr()).await.unwrap();
    socket
        .write_all(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"messages\": [",
        )
        .await
        .unwrap();
    drop(socket);
    // The same, but the client still listens: it gets an answer or an end, and no engine is asked.
    let mut socket = TcpStream::connect(server.addr()).await.unwrap();
    socket
        .write_all(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
        .await
        .unwrap();
    socket.shutdown().await.unwrap();
    let mut reply = Vec::new();
    let _ = socket.read_to_end(&mut reply).await;
    assert!(server.engine.log.calls().is_empty());
    server.decide(&triage(), "still here").await;
}

#[tokio::test]
async fn the_request_id_is_taken_from_the_client_or_made() {
    let server = Server::start(fake()).await;
    let ask = |id: &'static str| {
        server.client.get(format!("{}/livez", server.url)).header("x-request-id", id).send()
    };
    assert_eq!(ask("trace-42").await.unwrap().headers()["x-request-id"], "trace-42");
    for unusable in ["", "two words"] {
        let made = ask(unusable).await.unwrap().headers()["x-request-id"].to_str().unwrap().to_owned();
        assert!(made.starts_with("req-"), "{made}");
    }
    let (one, two) = (server.get("/livez").await, server.get("/livez").await);
    assert_ne!(one.headers()["x-request-id"], two.headers()["x-request-id"]);
}
