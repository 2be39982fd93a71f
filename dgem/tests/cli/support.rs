//! A tiny HTTP server on loopback that records what it gets and answers what it is told, and the program beside it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use assert_cmd::Command;
use serde_json::{Value, json};

/// One request as it came over the wire.
pub(crate) struct Recorded {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Recorded {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The schema in the system message.
    pub(crate) fn schema(&self) -> Value {
        serde_json::from_str(self.json()["messages"][0]["content"].as_str().unwrap()).unwrap()
    }

    /// The text of the user message.
    pub(crate) fn state(&self) -> String {
        self.json()["messages"][1]["content"].as_str().unwrap().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let prefix = format!("{}:", name.to_ascii_lowercase());
        self.head
            .lines()
            .find(|line| line.to_ascii_lowercase().starts_with(&prefix))
            .map(|line| line[prefix.len()..].trim().to_owned())
    }
}

pub(crate) struct Server {
    pub(crate) url: String,
    requests: Receiver<Recorded>,
}

impl Server {
    /// Answers every request with this status and body.
    pub(crate) fn new(status: u16, body: impl Into<String>) -> Self {
        Self::with_headers(status, "", body)
    }

    /// `headers`: whole lines, each ending in CR LF.
    pub(crate) fn with_headers(status: u16, headers: &'static str, body: impl Into<String>) -> Self {
        let body = body.into();
        Self::serving(headers, move |_| (status, body.clone()))
    }

    /// Answers each request with the status and the body that the function gives it.
    pub(crate) fn answering(answer: impl Fn(&Recorded) -> (u16, String) + Send + 'static) -> Self {
        Self::serving("", answer)
    }

    /// Both: lines of the head, and an answer to each request.
    pub(crate) fn serving(
        headers: &'static str,
        answer: impl Fn(&Recorded) -> (u16, String) + Send + 'static,
    ) -> Self {
        Self::writing(move |request, stream| {
            let (status, body) = answer(request);
            let answer = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes());
        })
    }

    /// Answers each request with whatever the function writes. The connection closes behind it.
    pub(crate) fn writing(answer: impl Fn(&Recorded, &mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (sender, requests) = channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if let Some(request) = read(&mut stream) {
                    // Before the answer: whoever has that may look for the request.
                    let copy = Recorded { head: request.head.clone(), body: request.body.clone() };
                    let _ = sender.send(copy);
                    answer(&request, &mut stream);
                }
            }
        });
        Self { url, requests }
    }

    /// A server that decides: the content is this object.
    pub(crate) fn deciding(content: &Value) -> Self {
        Self::new(200, completion(&content.to_string()))
    }

    /// The one request so far.
    pub(crate) fn request(&self) -> Recorded {
        self.requests.try_recv().unwrap()
    }

    /// Every request so far that was not asked for before.
    pub(crate) fn all(&self) -> Vec<Recorded> {
        self.requests.try_iter().collect()
    }

    pub(crate) fn got_nothing(&self) -> bool {
        self.requests.try_recv().is_err()
    }
}

fn read(stream: &mut TcpStream) -> Option<Recorded> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let length = head
        .lines()
        .find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length:")
                .and_then(|value| value.trim().parse().ok())
        })
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Recorded { head, body })
}

/// A decision about any schema: `weight` says how likely an answer of a question is, before all are brought to the sum 1.
pub(crate) fn decision(schema: &Value, weight: impl Fn(&str, &str) -> f64) -> Value {
    let mut answers = serde_json::Map::new();
    for question in schema["questions"].as_array().unwrap() {
        let (id, kind) = (question["id"].as_str().unwrap(), question["type"].as_str().unwrap());
        let listed = question.get("options").or(question.get("levels")).and_then(Value::as_array);
        let names: Vec<&str> = match listed {
            Some(list) => {
                list.iter().map(|entry| entry.as_str().or(entry["name"].as_str()).unwrap()).collect()
            }
            None => vec!["yes", "no"],
        };
        let sum: f64 = names.iter().map(|name| weight(id, name)).sum();
        let probabilities: serde_json::Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!(weight(id, name) / sum))).collect();
        answers.insert(id.to_owned(), json!({"type": kind, "probabilities": probabilities}));
    }
    json!({ "answers": answers })
}

/// A chat completion around a content.
pub(crate) fn completion(content: &str) -> String {
    json!({"id": "1", "object": "chat.completion", "model": "tiny-model", "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}],
           "usage": {"prompt_tokens": 204, "completion_tokens": 3, "total_tokens": 207}})
    .to_string()
}

/// A reply to the support policy, in an order that is not the schema's.
pub(crate) fn support_reply() -> Value {
    json!({"answers": {
        "sentiment": {"type": "score", "label": "2", "level": "frustrated", "score": 2.0, "confidence": 0.998, "probabilities": {"calm": 0.001, "frustrated": 0.998, "furious": 0.001}, "entropy": 0.002, "hesitation": 0.0018},
        "team": {"type": "choice", "label": "A", "choice": "billing", "confidence": 1.0, "probabilities": {"billing": 1.0, "support": 0.0, "engineering": 0.0}, "entropy": 0.0, "hesitation": 0.0},
        "urgent": {"type": "boolean", "label": "yes", "confidence": 0.999, "probabilities": {"yes": 0.999, "no": 0.001}, "noul": 0.999, "entropy": 0.001, "hesitation": 0.0014}},
      "diagnostics": {"engine": "diffusion", "steps": 1, "layout": "schema_first", "prompt_tokens": 204, "skipped": {}, "samples": {"n": 1, "policy": {"mode": "fixed", "n": 1}},
        "timing": {"total_ms": 41.2, "reads": 1, "prompt_tokens": 204, "reused_tokens": 169}, "questions": {"urgent": {"pos": 6, "entropy": [0.01], "label_mass": 0.998, "argmax_is_label": true}}}})
}

/// The questions of a schema in one line: `id type names…; id type names…`.
pub(crate) fn summary(schema: &Value) -> String {
    let questions = schema["questions"].as_array().unwrap().iter().map(|question| {
        let names = question["options"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|option| option["name"].as_str().unwrap())
            .chain(question["levels"].as_array().into_iter().flatten().map(|level| level.as_str().unwrap()));
        let parts: Vec<&str> = [question["id"].as_str().unwrap(), question["type"].as_str().unwrap()]
            .into_iter()
            .chain(names)
            .collect();
        parts.join(" ")
    });
    questions.collect::<Vec<_>>().join("; ")
}

/// The program, in an environment without settings or proxies.
pub(crate) fn dgem() -> Command {
    let mut command = Command::cargo_bin("dgem").unwrap();
    command.env_clear();
    command
}

/// A template of this project.
pub(crate) fn shipped(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../templates").join(name)
}

/// A template of the test's own. The folder goes away with the second value.
pub(crate) fn template(source: &str) -> (PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json.tmpl");
    std::fs::write(&path, source).unwrap();
    (path, folder)
}

pub(crate) fn stdout(output: &std::process::Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &std::process::Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
