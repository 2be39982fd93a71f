//! What a decision is about: a text, and the images in front of it.

use serde_json::{Value, json};

use crate::image::Image;

#[derive(Clone, Debug, Default)]
pub struct State {
    /// Any text or JSON, sent byte for byte.
    pub text: String,
    pub images: Vec<Image>,
}

impl State {
    /// The content of a user message that holds this text: the text itself, or with images a list of parts, images first.
    pub fn content(&self, text: &str) -> Value {
        if self.images.is_empty() {
            return Value::String(text.to_owned());
        }
        let mut parts: Vec<Value> = self
            .images
            .iter()
            .map(|image| json!({"type": "image_url", "image_url": {"url": &*image.url}}))
            .collect();
        if !text.is_empty() {
            parts.push(json!({"type": "text", "text": text}));
        }
        Value::Array(parts)
    }
}
