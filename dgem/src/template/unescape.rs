//! Turns `\uXXXX` escapes of printable non-ASCII characters in JSON text into the characters themselves.
//!
//! The state keeps the author's own spelling of JSON, but escaped text is unreadable for a model. Escapes that JSON
//! needs (quotes, control characters) and those of ASCII stay as they are.

/// `json` must be valid JSON text; every other byte stays the same.
pub(super) fn unescape_non_ascii(json: &str) -> String {
    let mut plain = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let (text, length) = match escaped_char(rest) {
            Some((c, length)) if !c.is_ascii() && !c.is_control() => (c.to_string(), length),
            // A backslash and the character it escapes, so that `\\u` is not taken for an escape.
            _ => (rest.chars().take(2).collect(), rest.chars().take(2).map(char::len_utf8).sum()),
        };
        plain.push_str(&text);
        rest = &rest[length..];
    }
    plain.push_str(rest);
    plain
}

/// The character of an escape at the start of the text and the length of that escape, two of them for a surrogate pair.
fn escaped_char(text: &str) -> Option<(char, usize)> {
    const LENGTH: usize = 6;
    let unit = |text: &str| u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok();
    let first = unit(text)?;
    if let Some(c) = char::from_u32(u32::from(first)) {
        return Some((c, LENGTH));
    }
    let second = unit(text.get(LENGTH..)?)?;
    let c = char::decode_utf16([first, second]).next()?.ok()?;
    Some((c, 2 * LENGTH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_scripts_become_readable_and_everything_else_stays() {
        for (json, plain) in [
            (r#"{"a": "\u6771\u4eac \ud83d\ude42 \u00e9"}"#, r#"{"a": "東京 🙂 é"}"#),
            (r#""\\u6771 \" \n \u0000 \u0041 \u0085""#, r#""\\u6771 \" \n \u0000 \u0041 \u0085""#),
            ("\"東\\\\\"", "\"東\\\\\""),
        ] {
            assert_eq!(unescape_non_ascii(json), plain);
        }
    }
}
