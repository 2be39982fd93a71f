//! `dgem bench-ecotone` beside a normaliser that speaks gRPC over a Unix socket, beside one that is slow or refuses, and beside none.
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use crate::bench::Place;
use crate::support::{Server, completion, decision, stderr, stdout};
use serde_json::{Value, json};

/// The messages as the proto file has them; written here anew, so that a slip on the other side shows.
#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(string, tag = "1")]
    text: String,
    #[prost(string, tag = "2")]
    language: String,
    #[prost(bool, tag = "3")]
    show_token_links: bool,
    #[prost(bool, tag = "4")]
    split_sentences: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(string, tag = "1")]
    normalized_text: String,
    #[prost(string, tag = "2")]
    token_links: String,
    #[prost(string, repeated, tag = "3")]
    sentences: Vec<String>,
    #[prost(float, tag = "4")]
    latency_ms: f32,
}

/// What a normaliser does with a text; `Err` is a gRPC status and its message.
type Rule = fn(&str) -> Result<&'static str, (u8, &'static str)>;

/// Serves a socket until the test ends.
fn normaliser(folder: &Path, rule: Rule) -> PathBuf {
    let path = folder.join("ecotone.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::UnixListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        tokio::spawn(answer(request, respond, rule));
                    }
                });
            }
        });
    });
    path
}

async fn answer(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    rule: Rule,
) -> Option<()> {
    assert_eq!(request.uri().path(), "/ecotone.v1.NormalizationService/Normalize");
    assert_eq!(
        (&request.headers()["content-type"], &request.headers()["te"]),
        (&"application/grpc".parse().unwrap(), &"trailers".parse().unwrap())
    );
    let mut stream = request.into_body();
    let mut bytes = BytesMut::new();
    while let Some(chunk) = stream.data().await {
        let chunk = chunk.ok()?;
        stream.flow_control().release_capacity(chunk.len()).ok()?;
        bytes.extend_from_slice(&chunk);
    }
    let message = Request::decode(&bytes[5..]).unwrap();
    assert_eq!((message.language.as_str(), message.split_sentences), ("en", true));
    let head = http::Response::builder().header("content-type", "application/grpc");
    match rule(&message.text) {
        Ok("wait") => {
            tokio::time::sleep(Duration::from_secs(60)).await;
            None
        }
        Ok(text) => {
            let reply = Response { normalized_text: text.to_owned(), latency_ms: 1.5, ..Response::default() };
            let mut frame = BytesMut::new();
            frame.put_u8(0);
            frame.put_u32(u32::try_from(reply.encoded_len()).unwrap());
            reply.encode(&mut frame).unwrap();
            let mut body = respond.send_response(head.body(()).unwrap(), false).ok()?;
            // In two parts, as a network may cut it.
            let rest = frame.split_off(3);
            body.send_data(frame.freeze(), false).ok()?;
            body.send_data(rest.freeze(), false).ok()?;
            let trailers =
                http::HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
            body.send_trailers(trailers).ok()
        }
        Err((code, message)) => {
            let head = head.header("grpc-status", code.to_string()).header("grpc-message", message);
            respond.send_response(head.body(()).unwrap(), true).map(drop).ok()
        }
    }
}

const CASES: &str = r#"
{"id": "a", "category": "title_vs_street", "input": "Dr. Lee lives on Elm Dr. now.", "target_token": "Dr. (second)", "options": ["Doctor", "Drive"], "expected_spoken": "Drive"}
{"id": "b", "category": "fraction_vs_date", "input": "Add 3/4 cup.", "target_token": "3/4", "options": ["three quarters", "march fourth"], "expected_spoken": "Three quarters"}
{"id": "c", "category": "heteronym_pronunciation", "input": "The lead pipe.", "target_token": "lead", "options": ["rhymes with need", "rhymes with bed"], "expected_spoken": "rhymes with bed"}
{"id": "d", "category": "title_vs_street", "input": "St. Brigid at Mill St. here.", "target_token": "St. (second)", "options": ["Street", "Saint"], "expected_spoken": "Street"}
"#;

/// The second of two options.
fn server() -> Server {
    Server::answering(|request| {
        if request.head.starts_with("GET") {
            return (404, String::new());
        }
        let schema = request.schema();
        let second = schema["questions"][0]["options"][1]["name"].as_str().unwrap().to_owned();
        (200, completion(&decision(&schema, |_, name| if name == second { 0.9 } else { 0.1 }).to_string()))
    })
}

fn run(place: &Place, address: &str, file: &str) -> std::process::Output {
    let server = server();
    place.run(&server.url, &["bench-ecotone", "-c", "c.jsonl", "--ecotone-addr", address, "-o", file])
}

#[test]
fn model_and_normaliser_are_counted_side_by_side() {
    let place = Place::new(&[("c.jsonl", CASES)]);
    let socket = normaliser(place.folder.path(), |text| match text {
        "Add 3/4 cup." => Ok("add three fourths cup."),
        "Dr. Lee lives on Elm Dr. now." => Ok("Doctor Lee lives on Elm Drive now."),
        "The lead pipe." => Ok("the lead pipe."),
        "St. Brigid at Mill St. here." => Err((13, "no grammar")),
        _ => Ok("warm up one two three."),
    });
    // A bare path means the same as unix://.
    let output = run(&place, socket.to_str().unwrap(), "r.json");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    for (key, value) in [
        ("ecotone_live", json!(true)),
        ("dgem_correct", json!(2)),
        ("dgem_accuracy_pct", json!(50.0)),
        ("compared_cases", json!(2)),
        ("dgem_compared_correct", json!(1)),
        ("dgem_compared_accuracy_pct", json!(50.0)),
        ("ecotone_correct", json!(2)),
        ("cascaded_correct", json!(2)),
        ("ecotone_p50_server_ms", json!(1.5)),
    ] {
        assert_eq!(receipt[key], value, "{key}");
    }
    let cases = receipt["cases"].as_array().unwrap();
    assert_eq!(
        (&cases[0]["ecotone"]["actual"], &cases[1]["ecotone"]["accurate"]),
        (&json!("Drive"), &json!(true))
    );
    assert_eq!(cases[2]["ecotone"]["accurate"], Value::Null);
    assert!(cases[3]["ecotone_error"].as_str().unwrap().contains("13: no grammar"), "{}", cases[3]);
    assert!(receipt["ecotone_avg_round_trip_ms"].as_f64().unwrap() > 0.0);
    let again = place.run("http://127.0.0.1:1/v1", &["bench-ecotone", "--from-receipt", "r.json"]);
    assert_eq!(stdout(&again), stdout(&output));
}

#[test]
fn case_54_without_a_normaliser_its_figures_are_not_measured_and_the_model_is_all_the_same() {
    let place = Place::new(&[("c.jsonl", CASES), ("not_a_socket", "")]);
    let slow = normaliser(place.folder.path(), |_| Ok("wait"));
    let slow = format!("unix://{}", slow.display());
    for (index, (address, part)) in [
        ("unix:///no/such.sock", "nobody listens"),
        ("not_a_socket", "nobody listens"),
        (&slow, "within 2 s"),
    ]
    .into_iter()
    .enumerate()
    {
        let file = format!("{index}.json");
        let output = run(&place, address, &file);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("ecotone is not measured") && stderr(&output).contains(part),
            "{}",
            stderr(&output)
        );
        assert!(stdout(&output).contains("not measured"), "{}", stdout(&output));
        let receipt = place.receipt(&file);
        assert_eq!((&receipt["ecotone_live"], &receipt["dgem_correct"]), (&json!(false), &json!(2)));
        let keys: Vec<&String> =
            receipt.as_object().unwrap().keys().filter(|key| key.starts_with("ecotone_")).collect();
        assert_eq!(keys, ["ecotone_live"]);
        assert!(["cascaded_correct", "compared_cases"].iter().all(|key| receipt.get(*key).is_none()));
    }
}

#[test]
fn the_49_built_in_cases_run() {
    let (place, server) = (Place::new(&[]), server());
    let output = place
        .run(&server.url, &["bench-ecotone", "--ecotone-addr", "/no/such.sock", "-o", "r.json", "-w", "4"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let receipt = place.receipt("r.json");
    assert_eq!((&receipt["total_cases"], &receipt["summary"]["all"]["right"]), (&json!(49), &json!(26)));
}
