//! Gemini as the second model, through the Gemini API or Vertex AI: the same body on two addresses.

use decision::Question;
use serde::Deserialize;
use serde_json::{Value, json};

use super::prompt::reply_schema;
use crate::state::State;

pub(super) const MODEL: &str = "gemini-3.8-flash";
pub(super) const API_URL: &str = "https://generativelanguage.googleapis.com";
pub(super) const VERTEX_URL: &str = "https://aiplatform.googleapis.com";
pub(super) const KEY_HEADER: &str = "x-goog-api-key";

pub(super) fn api_route(model: &str) -> String {
    format!("/v1beta/models/{model}:generateContent")
}

pub(super) fn vertex_route(project: &str, model: &str) -> String {
    format!("/v1/projects/{project}/locations/global/publishers/google/models/{model}:generateContent")
}

/// Errors: an image that is only an address, which Gemini does not fetch.
pub(super) fn body(text: &str, questions: &[&Question], state: &State) -> Result<Vec<u8>, String> {
    let mut parts: Vec<Value> = Vec::new();
    for image in &state.images {
        let (mime, data) = image
            .inline()
            .ok_or_else(|| format!("Gemini does not fetch images from other servers ({})", image.shown()))?;
        parts.push(json!({"inlineData": {"mimeType": mime, "data": data}}));
    }
    parts.push(json!({ "text": text }));
    let body = json!({
        "contents": [{"role": "user", "parts": parts}],
        "generationConfig": {
            "temperature": 0,
            "responseMimeType": "application/json",
            "responseSchema": reply_schema(questions, true),
        },
    });
    Ok(body.to_string().into_bytes())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Generated {
    #[serde(default)]
    candidates: Vec<Candidate>,
    model_version: Option<String>,
}

#[derive(Deserialize)]
struct Candidate {
    content: Content,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    parts: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
    /// A thought is no part of the answer.
    #[serde(default)]
    thought: bool,
}

/// The text that was written, and by which model.
pub(super) fn written(body: &[u8]) -> Option<(String, Option<String>)> {
    let generated: Generated = serde_json::from_slice(body).ok()?;
    let parts = generated.candidates.into_iter().next()?.content.parts;
    let text = parts.into_iter().filter(|part| !part.thought).map(|part| part.text).collect();
    Some((text, generated.model_version))
}
