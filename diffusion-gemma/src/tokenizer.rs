//! Text ↔ token ids, through the checkpoint's own tokenizer.json.
//!
//! The one rule of its own: text that came from a client never becomes a control token. A literal `<turn|>` typed
//! by a user is encoded as the seven characters it is. Only [`crate::chat_template`] writes control tokens, and
//! marks client text with a guard character so that [`Tokenizer::encode_rendered`] can tell the two apart.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::chat_template::Rendered;
use crate::error::{Error, Result};

/// A non-character (never assigned by Unicode) put into client text wherever it spells a control token.
pub(crate) const GUARD: char = '\u{FDD0}';
/// Follows [`GUARD`] when the client's text itself held that non-character.
pub(crate) const GUARD_ESCAPE: char = '\u{FDD1}';

/// The tokenizer of one checkpoint. Shared between threads behind an `Arc`.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// Control strings and their ids, longest first, so that the first match at a position is the right one.
    controls: Vec<(String, u32)>,
    longest_token_bytes: usize,
}

impl Tokenizer {
    /// Reads `tokenizer.json` and the control-token names of `tokenizer_config.json` (optional) from a checkpoint folder.
    pub fn from_dir(dir: &Path) -> Result<Self> {
        let path = dir.join("tokenizer.json");
        let bytes = fs::read(&path).map_err(Error::read(&path))?;
        let mut json: Value = serde_json::from_slice(&bytes).map_err(|e| {
            Error::checkpoint(&path, format!("not JSON: {e}"), "the file is damaged, fetch it again")
        })?;
        let named = named_controls(dir)?;
        let mut controls = Vec::new();
        if let Some(added) = json.get_mut("added_tokens").and_then(Value::as_array_mut) {
            for token in added {
                let Some(content) = token["content"].as_str().map(str::to_owned) else { continue };
                if named.contains(&content) {
                    token["special"] = Value::Bool(true);
                }
                if let (true, Some(id)) = (token["special"] == true, token["id"].as_u64()) {
                    controls.push((content, id as u32));
                }
            }
        }
        controls.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.0.cmp(&b.0)));
        let mut inner: tokenizers::Tokenizer = serde_json::from_value(json).map_err(|e| {
            Error::checkpoint(&path, e.to_string(), "use the tokenizer.json of the checkpoint")
        })?;
        // Control strings are split off here, not by the library: whatever reaches it is plain text.
        inner.set_encode_special_tokens(true);
        let longest = |token: String| token.replace('▁', " ").len();
        let longest_token_bytes = inner.get_vocab(true).into_keys().map(longest).max().unwrap_or(1).max(1);
        Ok(Self { inner, controls, longest_token_bytes })
    }

    /// Encodes client text: no begin-of-sequence token, and never a control token.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.inner.encode_fast(text, false).map_err(|e| Error::Tokenizer(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Encodes a rendered prompt: control tokens where the template wrote them, plain text elsewhere.
    pub fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<u32>> {
        let text = rendered.guarded();
        let mut ids = Vec::with_capacity(text.len() / 3);
        let mut plain_from = 0;
        let mut at = 0;
        while at < text.len() {
            let found = self.controls.iter().find(|(control, _)| text[at..].starts_with(control.as_str()));
            if let Some((control, id)) = found {
                self.encode_piece(&text[plain_from..at], &mut ids)?;
                ids.push(*id);
                at += control.len();
                plain_from = at;
            } else {
                at += text[at..].chars().next().map_or(1, char::len_utf8);
            }
        }
        self.encode_piece(&text[plain_from..], &mut ids)?;
        Ok(ids)
    }

    fn encode_piece(&self, guarded: &str, ids: &mut Vec<u32>) -> Result<()> {
        if !guarded.is_empty() {
            ids.extend(self.encode_plain(&unguard(guarded))?);
        }
        Ok(())
    }

    /// Text of generated ids; control tokens are left out, byte-fallback tokens are joined to UTF-8.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.inner.decode(ids, true).map_err(|e| Error::Tokenizer(e.to_string()))
    }

    /// What a generated id adds to a text; nothing for a control token or an id that is none. A byte-fallback token adds its
    /// byte, which alone may be no character: see [`crate::TextStream`].
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        if self.is_control(id) {
            return Vec::new();
        }
        let piece = self.inner.id_to_token(id).unwrap_or_default();
        let byte = piece.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
        match byte.filter(|hex| hex.len() == 2).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => vec![byte],
            None => piece.replace('▁', " ").into_bytes(),
        }
    }

    /// How one token reads, control tokens included; for diagnostics. Unknown ids read `<id N>`.
    pub fn token_text(&self, id: u32) -> String {
        self.inner.id_to_token(id).map_or_else(|| format!("<id {id}>"), |token| token.replace('▁', " "))
    }

    /// The id of a piece as the vocabulary spells it (control tokens, or `▁yes`).
    pub fn token_id(&self, piece: &str) -> Option<u32> {
        self.inner.token_to_id(piece)
    }

    /// The least number of tokens that a text of so many bytes can have. Costs nothing, unlike encoding it.
    pub fn fewest_tokens(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.longest_token_bytes)
    }

    /// Number of entries, added tokens included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Whether an id is a control token.
    pub fn is_control(&self, id: u32) -> bool {
        self.controls.iter().any(|(_, control)| *control == id)
    }

    /// Puts a guard into every control string that client text spells, so that a template cannot turn it into one.
    pub(crate) fn guard(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for (at, c) in text.char_indices() {
            out.push(c);
            if c == GUARD {
                out.push(GUARD_ESCAPE);
            } else if self.controls.iter().any(|(control, _)| text[at..].starts_with(control.as_str())) {
                out.push(GUARD);
            }
        }
        out
    }
}

/// Undoes [`Tokenizer::guard`].
pub(crate) fn unguard(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != GUARD {
            out.push(c);
        } else if chars.next_if_eq(&GUARD_ESCAPE).is_some() {
            out.push(GUARD);
        }
    }
    out
}

/// The strings that `tokenizer_config.json` names as tokens (`"sot_token": "<|turn>"` and so on).
fn named_controls(dir: &Path) -> Result<BTreeSet<String>> {
    let path = dir.join("tokenizer_config.json");
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(e) => return Err(Error::read(path)(e)),
    };
    let json: Value = serde_json::from_slice(&bytes).map_err(|e| {
        Error::checkpoint(&path, format!("not JSON: {e}"), "the file is damaged, fetch it again")
    })?;
    let Value::Object(map) = json else { return Ok(BTreeSet::new()) };
    Ok(map
        .into_iter()
        .filter(|(key, _)| key.ends_with("_token"))
        .filter_map(|(_, value)| match value {
            Value::String(text) => Some(text),
            Value::Object(token) => token.get("content").and_then(Value::as_str).map(str::to_owned),
            _ => None,
        })
        .filter(|text| !text.is_empty())
        .collect())
}
