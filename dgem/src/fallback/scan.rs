//! Finds where the values of a flat JSON object stand in a text, so that they can be matched with tokens.

/// One key with its value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) key: String,
    /// Without quotes and escapes.
    pub(super) value: String,
    /// Byte at which the value begins, behind its quote.
    pub(super) start: usize,
}

/// The keys and values of the first object in the text, as far as it is one and flat. Words and fences around it do not matter.
pub(super) fn flat_object(text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    let Some(open) = text.find('{') else { return found };
    let mut at = open + 1;
    while let Some((key, after_key)) = string(text, skip_space(text, at)) {
        let colon = skip_space(text, after_key);
        if text.as_bytes().get(colon) != Some(&b':') {
            break;
        }
        let from = skip_space(text, colon + 1);
        let (value, start, end) = if let Some((value, end)) = string(text, from) {
            (value, from + 1, end)
        } else {
            let end = text[from..].find([',', '}']).map_or(text.len(), |length| from + length);
            (text[from..end].trim().to_owned(), from, end)
        };
        found.push(Found { key, value, start });
        at = skip_space(text, end);
        if text.as_bytes().get(at) != Some(&b',') {
            break;
        }
        at += 1;
    }
    found
}

fn skip_space(text: &str, at: usize) -> usize {
    at + text[at..].len() - text[at..].trim_start().len()
}

/// The JSON string that begins at `at`, and the byte behind it.
fn string(text: &str, at: usize) -> Option<(String, usize)> {
    let inside = text.get(at..)?.strip_prefix('"')?;
    let mut escaped = false;
    let length = inside.find(|c| {
        let closes = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        closes
    })?;
    let end = at + length + 2;
    serde_json::from_str(&text[at..end]).ok().map(|value| (value, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_behind_words_fences_and_escapes() {
        let text = "Sure:\n```json\n{ \"a\\\"b\" : \"yes\", \"東\": \"B\",\n\"n\": 3 }\n```";
        let found = flat_object(text);
        let pairs: Vec<_> = found.iter().map(|found| (found.key.as_str(), found.value.as_str())).collect();
        assert_eq!(pairs, [("a\"b", "yes"), ("東", "B"), ("n", "3")]);
        assert!(found.iter().all(|found| text[found.start..].starts_with(&found.value)));
    }

    #[test]
    fn what_is_cut_or_no_object_gives_what_there_is() {
        assert_eq!(flat_object("{\"a\": \"yes\", \"b\": \"n").len(), 2);
        for text in ["", "no", "{", "{}", "{\"a\"", "{\"a\" 1}", "[1]", "{\"a\\"] {
            assert_eq!(flat_object(text), [], "{text}");
        }
    }
}
