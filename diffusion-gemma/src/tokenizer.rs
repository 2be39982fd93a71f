//! Text ↔ token ids, through the checkpoint's own tokenizer.json.
//!
//! The one rule of its own: text that came from a client never becomes a control token. A literal `<turn|>` typed
//! by a user is encoded as the seven characters it is. Only [`crate::chat_template`] writes control tokens, and
//! marks client text with a guard character so that [`Tokenizer::encode_rendered`] can tell the two apart.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::chat_template::Rendered;
use crate::cuts::Cuts;
use crate::error::{Error, Result};
use crate::repeated::Repeated;

/// A non-character (never assigned by Unicode) put into client text wherever it spells a control token.
pub(crate) const GUARD: char = '\u{FDD0}';
/// A longer text is encoded in pieces of about so many bytes, if its tokenizer allows that: a fraction of a millisecond each.
const PIECE_BYTES: usize = 4096;
/// Follows [`GUARD`] when the client's text itself held that non-character.
pub(crate) const GUARD_ESCAPE: char = '\u{FDD1}';

/// The tokenizer of one checkpoint. Shared between threads behind an `Arc`.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// Control strings and their ids, longest first, so that the first match at a position is the right one.
    controls: Vec<(String, u32)>,
    /// Bytes that a control string begins with.
    begins_control: [bool; 256],
    longest_token_bytes: usize,
    cuts: Option<Cuts>,
    repeated: Repeated,
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
        let cuttable = Cuts::are_safe(&json);
        let mut begins_control = [false; 256];
        for byte in controls.iter().filter_map(|(control, _)| control.bytes().next()) {
            begins_control[usize::from(byte)] = true;
        }
        let mut inner: tokenizers::Tokenizer = serde_json::from_value(json).map_err(|e| {
            Error::checkpoint(&path, e.to_string(), "use the tokenizer.json of the checkpoint")
        })?;
        // Control strings are split off here, not by the library: whatever reaches it is plain text.
        inner.set_encode_special_tokens(true);
        let vocab = inner.get_vocab(true);
        let longest = |token: &String| token.replace('▁', " ").len();
        let longest_token_bytes = vocab.keys().map(longest).max().unwrap_or(1).max(1);
        let cuts = if cuttable { Cuts::new(vocab.keys().map(String::as_str)) } else { None };
        let repeated = Repeated::default();
        Ok(Self { inner, controls, begins_control, longest_token_bytes, cuts, repeated })
    }

    /// Encodes client text: no begin-of-sequence token, and never a control token.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        self.encode_in_pieces(text, PIECE_BYTES, &|| true, &mut ids)?;
        Ok(ids)
    }

    /// Encodes a rendered prompt: control tokens where the template wrote them, plain text elsewhere.
    pub fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<u32>> {
        Ok(self.encode_rendered_while(rendered, &|| true)?.unwrap_or_default())
    }

    /// The same, given up (`None`) as soon as `go_on` is false. It is asked before every piece of some thousand bytes.
    pub fn encode_rendered_while(
        &self,
        rendered: &Rendered,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<u32>>> {
        let text = rendered.guarded();
        let mut ids = Vec::with_capacity(text.len() / 3);
        let mut plain_from = 0;
        let mut at = 0;
        while at < text.len() {
            if let Some((control, id)) = self.control_at(text, at) {
                if !self.encode_guarded(&text[plain_from..at], go_on, &mut ids)? {
                    return Ok(None);
                }
                ids.push(*id);
                at += control.len();
                plain_from = at;
            } else {
                at += text[at..].chars().next().map_or(1, char::len_utf8);
            }
        }
        Ok(self.encode_guarded(&text[plain_from..], go_on, &mut ids)?.then_some(ids))
    }

    /// The control string that begins at a place of a text, if one does.
    fn control_at(&self, text: &str, at: usize) -> Option<&(String, u32)> {
        if !self.begins_control[usize::from(text.as_bytes()[at])] {
            return None;
        }
        self.controls.iter().find(|(control, _)| text[at..].starts_with(control.as_str()))
    }

    /// False where it was given up.
    fn encode_guarded(&self, guarded: &str, go_on: &dyn Fn() -> bool, ids: &mut Vec<u32>) -> Result<bool> {
        if let Some(known) = self.repeated.recall(guarded) {
            ids.extend_from_slice(&known);
            return Ok(true);
        }
        let first = ids.len();
        let done = self.encode_in_pieces(&unguard(guarded), PIECE_BYTES, go_on, ids)?;
        if done {
            self.repeated.note(guarded, &ids[first..]);
        }
        Ok(done)
    }

    /// False where it was given up between two pieces of at least `bytes`.
    fn encode_in_pieces(
        &self,
        text: &str,
        bytes: usize,
        go_on: &dyn Fn() -> bool,
        ids: &mut Vec<u32>,
    ) -> Result<bool> {
        let mut rest = text;
        while !rest.is_empty() {
            if !go_on() {
                return Ok(false);
            }
            let (piece, after) =
                rest.split_at(self.cuts.as_ref().map_or(rest.len(), |cuts| cuts.first(rest, bytes)));
            let encoding =
                self.inner.encode_fast(piece, false).map_err(|e| Error::Tokenizer(e.to_string()))?;
            ids.extend_from_slice(encoding.get_ids());
            rest = after;
        }
        Ok(true)
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
            } else if self.control_at(text, at).is_some() {
                out.push(GUARD);
            }
        }
        out
    }
}

/// Undoes [`Tokenizer::guard`].
pub(crate) fn unguard(text: &str) -> Cow<'_, str> {
    if !text.contains(GUARD) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != GUARD {
            out.push(c);
        } else if chars.next_if_eq(&GUARD_ESCAPE).is_some() {
            out.push(GUARD);
        }
    }
    Cow::Owned(out)
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    use super::*;

    fn tokenizer(name: &str) -> Tokenizer {
        Tokenizer::from_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(name)).unwrap()
    }

    fn whole(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
        tokenizer.inner.encode_fast(text, false).unwrap().get_ids().to_vec()
    }

    fn pieces(tokenizer: &Tokenizer, text: &str, bytes: usize) -> Vec<u32> {
        let mut ids = Vec::new();
        assert!(tokenizer.encode_in_pieces(text, bytes, &|| true, &mut ids).unwrap());
        ids
    }

    /// Entries of the vocabulary, among them control strings, and what is in none of them.
    fn text(tokenizer: &Tokenizer) -> impl Strategy<Value = String> + use<> {
        let mut words: Vec<String> =
            (0..tokenizer.vocab_size() as u32).map(|id| tokenizer.token_text(id)).collect();
        words.sort();
        let word = prop_oneof![
            8 => prop::sample::select(words),
            2 => "[ \\n▁a-e0]{1,4}",
            1 => "\\PC{1,3}",
        ];
        prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
    }

    #[test]
    fn a_text_encoded_in_pieces_has_the_ids_of_the_whole() {
        for tokenizer in ["demo-model", "tiny-text"].map(tokenizer) {
            let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) };
            let texts = (text(&tokenizer), 1usize..60);
            let same = |(text, bytes): (String, usize)| {
                prop_assert_eq!(pieces(&tokenizer, &text, bytes), whole(&tokenizer, &text));
                Ok(())
            };
            TestRunner::new(config).run(&texts, same).unwrap();
        }
    }

    #[test]
    fn words_are_cut_apart_and_not_inside() {
        let tokenizer = tokenizer("demo-model");
        let text = "Our production database is down, please help! ".repeat(2000);
        let asked = Cell::new(0);
        let mut ids = Vec::new();
        let count = || {
            asked.set(asked.get() + 1);
            true
        };
        tokenizer.encode_in_pieces(&text, PIECE_BYTES, &count, &mut ids).unwrap();
        assert!(asked.get() > text.len() / PIECE_BYTES / 2, "{} pieces", asked.get());
        assert_eq!(ids, whole(&tokenizer, &text));
        // Cut anywhere, the ids are others: the comparison above means something.
        let anywhere = text.as_bytes().chunks(7).map(|piece| std::str::from_utf8(piece).unwrap());
        assert_ne!(anywhere.flat_map(|piece| whole(&tokenizer, piece)).collect::<Vec<_>>(), ids);
    }

    #[test]
    fn a_long_text_is_given_up_between_its_pieces() {
        let tokenizer = tokenizer("demo-model");
        let left = Cell::new(3);
        let mut ids = Vec::new();
        let go_on = || left.replace(left.get() - 1) > 0;
        assert!(!tokenizer.encode_in_pieces(&"word ".repeat(10_000), PIECE_BYTES, &go_on, &mut ids).unwrap());
        assert!((2 * PIECE_BYTES / 5..4 * PIECE_BYTES).contains(&ids.len()), "{} ids", ids.len());
    }

    #[test]
    fn a_text_that_came_before_has_the_same_ids() {
        let tokenizer = tokenizer("demo-model");
        let rendered = |text: &str| Rendered::of_template(format!("<|turn>{}<turn|>", tokenizer.guard(text)));
        for text in ["Question urgent: Immediate escalation required? ".repeat(3), "<turn|> ".repeat(20)] {
            let ids: Vec<Vec<u32>> =
                (0..4).map(|_| tokenizer.encode_rendered(&rendered(&text)).unwrap()).collect();
            assert_eq!(ids[0][1..ids[0].len() - 1], whole(&tokenizer, &text));
            assert!(ids.iter().all(|other| *other == ids[0]));
        }
    }
}
