//! Where a long text can be cut so that its pieces, encoded one by one, give the ids of the whole.
//!
//! Byte-pair encoding joins neighbours only into entries of the vocabulary. Where no entry has two characters beside each other,
//! nothing is ever joined across them, whatever stands around. In the published vocabularies the end of nearly every word is
//! such a place, and so is the border between most scripts. Called by `tokenizer`.

use std::collections::HashSet;

use serde_json::Value;

/// What a space is in the vocabulary.
const SPACE: char = '▁';

/// The places of one tokenizer.
#[derive(Debug)]
pub(crate) struct Cuts {
    /// Characters that stand beside each other in some entry.
    neighbours: HashSet<(char, char)>,
}

impl Cuts {
    /// Whether a tokenizer looks at nothing but neighbours. Any other gets every text whole.
    pub(crate) fn are_safe(tokenizer: &Value) -> bool {
        let model = &tokenizer["model"];
        let absent = |value: &Value| value.is_null() || value == "";
        let plain = model["type"] == "BPE"
            && absent(&model["dropout"])
            && absent(&model["continuing_subword_prefix"])
            && absent(&model["end_of_word_suffix"]);
        // Without bytes to fall back to, unknown neighbours may become one token.
        let bytes = model["byte_fallback"] == true
            && (0..=255u8).all(|byte| model["vocab"].get(format!("<0x{byte:02X}>")).is_some());
        let normalizer = &tokenizer["normalizer"];
        let spaces = normalizer["type"] == "Replace"
            && normalizer["pattern"]["String"] == " "
            && normalizer["content"] == SPACE.to_string();
        let splitter = &tokenizer["pre_tokenizer"];
        let split = splitter.is_null() || splitter["type"] == "Split" && splitter["pattern"]["String"] == " ";
        let looks_around =
            |token: &Value| ["lstrip", "rstrip", "single_word"].iter().any(|flag| token[*flag] == true);
        let added = tokenizer["added_tokens"].as_array();
        plain && bytes && spaces && split && !added.is_some_and(|added| added.iter().any(looks_around))
    }

    /// `entries`: the vocabulary of such a tokenizer, added tokens among them. `None` where bytes are joined: what stands beside them
    /// in a text is not known then.
    pub(crate) fn new<'a>(entries: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut neighbours = HashSet::new();
        for entry in entries {
            if joins_bytes(entry) {
                return None;
            }
            neighbours.extend(entry.chars().zip(entry.chars().skip(1)).map(|(a, b)| (stored(a), stored(b))));
        }
        Some(Self { neighbours })
    }

    /// Where the first piece of `text` ends: at the first place after so many bytes, or at the end.
    pub(crate) fn first(&self, text: &str, bytes: usize) -> usize {
        let pairs = text.chars().zip(text.char_indices().skip(1)).skip_while(|(_, (at, _))| *at < bytes);
        let mut places = pairs.filter(|(a, (_, b))| !self.neighbours.contains(&(stored(*a), stored(*b))));
        places.next().map_or(text.len(), |(_, (at, _))| at)
    }
}

fn stored(c: char) -> char {
    if c == ' ' { SPACE } else { c }
}

/// Whether an entry is more than one byte out of those that unknown characters fall back to: neighbours in it say nothing then.
fn joins_bytes(entry: &str) -> bool {
    let is_byte = |part: &[u8]| {
        part.starts_with(b"<0x") && part[3..5].iter().all(u8::is_ascii_hexdigit) && part[5] == b'>'
    };
    entry.len() > 6 && entry.as_bytes().windows(6).any(is_byte)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tokenizer() -> Value {
        let bytes = (0..=255u8).map(|byte| (format!("<0x{byte:02X}>"), json!(byte)));
        json!({
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"},
            "added_tokens": [{"content": "<x>", "lstrip": false}],
            "model": {"type": "BPE", "byte_fallback": true, "vocab": bytes.collect::<serde_json::Map<_, _>>()},
        })
    }

    #[test]
    fn a_text_is_cut_where_no_entry_reaches_across() {
        let cuts = Cuts::new(["ab", "▁a", "bc", "▁▁", "é"].into_iter()).unwrap();
        let pieces = |mut text: &'static str, bytes| {
            let mut pieces = Vec::new();
            while !text.is_empty() {
                let (piece, rest) = text.split_at(cuts.first(text, bytes));
                pieces.push(piece);
                text = rest;
            }
            pieces
        };
        assert_eq!(pieces("abc ab  abab", 1), ["abc", " ab", "  ab", "ab"]);
        assert_eq!(pieces("éaéa", 3), ["éa", "éa"], "a piece has at least as many bytes as are asked for");
    }

    #[test]
    fn what_looks_beyond_its_neighbours_is_not_cut() {
        assert!(Cuts::are_safe(&tokenizer()));
        for (pointer, value) in [
            ("/normalizer", json!({"type": "NFC"})),
            ("/pre_tokenizer", json!({"type": "ByteLevel"})),
            ("/added_tokens/0/lstrip", json!(true)),
            ("/model/type", json!("Unigram")),
            ("/model/byte_fallback", json!(false)),
        ] {
            let mut json = tokenizer();
            *json.pointer_mut(pointer).unwrap() = value;
            assert!(!Cuts::are_safe(&json), "{pointer}");
        }
        assert!(Cuts::new(["<0x41><0x42>"].into_iter()).is_none());
    }
}
