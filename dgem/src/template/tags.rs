//! A plain scanner for the tags in a template's source, used where the parsed form has no positions: line numbers of
//! messages, the metadata comment, the search for Go syntax and the quoting check.

/// One tag of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `{{ … }}`
    Print,
    /// `{% … %}`
    Statement,
    /// `{# … #}`
    Comment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag<'a> {
    pub(super) kind: Kind,
    /// What is between the braces, without whitespace marks and outer spaces.
    pub(super) content: &'a str,
    /// Byte range of the whole tag in the source.
    pub(super) start: usize,
    pub(super) end: usize,
}

/// All tags in order. A tag that is never closed ends the scan; tera reports it.
pub(super) fn scan(source: &str) -> Vec<Tag<'_>> {
    let mut tags = Vec::new();
    let mut at = 0;
    while let Some(found) = source[at..].find('{') {
        let start = at + found;
        let (kind, close) = match source.as_bytes().get(start + 1) {
            Some(b'{') => (Kind::Print, "}}"),
            Some(b'%') => (Kind::Statement, "%}"),
            Some(b'#') => (Kind::Comment, "#}"),
            _ => {
                at = start + 1;
                continue;
            }
        };
        let Some(length) = find_close(&source[start + 2..], close, kind) else { break };
        let end = start + 2 + length + 2;
        let content = source[start + 2..end - 2].trim_start_matches('-').trim_end_matches('-').trim();
        at = end;
        if kind == Kind::Statement && content == "raw" {
            // Text inside a raw block only looks like tags.
            let Some(length) = raw_length(&source[at..]) else { break };
            at += length;
        } else {
            tags.push(Tag { kind, content, start, end });
        }
    }
    tags
}

/// Whether a statement (`if`, `for`, `set` and the like) has this name in it.
pub(super) fn in_a_statement(source: &str, name: &str) -> bool {
    let of_a_word = |c: char| c.is_alphanumeric() || c == '_';
    let statements = scan(source).into_iter().filter(|tag| tag.kind == Kind::Statement);
    statements.flat_map(|tag| tag.content.split(move |c| !of_a_word(c))).any(|word| word == name)
}

/// What tera takes for white space.
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// Bytes up to and with the `{% endraw %}`.
fn raw_length(text: &str) -> Option<usize> {
    text.match_indices("{%").find_map(|(start, mark)| {
        let inside = &text[start + mark.len()..];
        let rest = inside.strip_prefix('-').unwrap_or(inside).trim_start_matches(SPACES);
        let rest = rest.strip_prefix("endraw")?.trim_start_matches(SPACES);
        let rest = rest.strip_prefix('-').unwrap_or(rest).strip_prefix("%}")?;
        Some(text.len() - rest.len())
    })
}

/// The closing mark, ignoring marks inside string literals.
fn find_close(text: &str, close: &str, kind: Kind) -> Option<usize> {
    let mut quote = None;
    for (index, c) in text.char_indices() {
        if let Some(open) = quote {
            quote = quote.filter(|_| c != open);
        } else if kind != Kind::Comment && matches!(c, '"' | '\'' | '`') {
            quote = Some(c);
        } else if text[index..].starts_with(close) {
            return Some(index);
        }
    }
    // An apostrophe that is no quote must not hide the end of the tag.
    text.find(close)
}

/// Line number, from 1, of a byte offset.
pub(super) fn line_at(source: &str, offset: usize) -> usize {
    source[..offset].matches('\n').count() + 1
}

/// The line on which a variable is read; the first use without a default, else the first use, else line 1.
pub(super) fn line_of_name(source: &str, name: &str) -> usize {
    let mut first = None;
    for tag in scan(source).into_iter().filter(|tag| tag.kind != Kind::Comment) {
        if let Some(rest) = after_word(tag.content, name) {
            let line = line_at(source, tag.start);
            let guarded = rest.trim_start().strip_prefix('|').is_some_and(|filter| {
                filter.trim_start().starts_with("default") || filter.trim_start().starts_with("or_default")
            });
            if !guarded && !tag.content.starts_with("if ") {
                return line;
            }
            first.get_or_insert(line);
        }
    }
    first.unwrap_or(1)
}

/// The text behind `name` as a whole word outside string literals.
fn after_word<'a>(content: &'a str, name: &str) -> Option<&'a str> {
    let bare = mask_strings(content);
    bare.match_indices(name).map(|(index, _)| (index, index + name.len())).find_map(|(start, end)| {
        let before = bare[..start].chars().next_back();
        let after = bare[end..].chars().next();
        let inside_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        (!inside_word(before) && before != Some('.') && !inside_word(after)).then(|| &content[end..])
    })
}

/// The text with the inside of string literals blanked byte for byte, so that offsets stay valid.
pub(super) fn mask_strings(content: &str) -> String {
    let mut quote = None;
    let mut masked = String::with_capacity(content.len());
    for c in content.chars() {
        match quote {
            Some(open) if c == open => {
                quote = None;
                masked.push(c);
            }
            Some(_) => masked.extend(std::iter::repeat_n('\u{1}', c.len_utf8())),
            None => {
                if matches!(c, '"' | '\'' | '`') {
                    quote = Some(c);
                }
                masked.push(c);
            }
        }
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_found_with_their_lines_and_raw_text_is_none() {
        let source = "{# a #}\n{{ \"}}\" ~ x }}\n{%- if y -%}{% raw %}{{ z }}{% endraw %} { {{ w }}";
        let found: Vec<(Kind, &str, usize)> =
            scan(source).iter().map(|tag| (tag.kind, tag.content, line_at(source, tag.start))).collect();
        assert_eq!(
            found,
            [
                (Kind::Comment, "a", 1),
                (Kind::Print, "\"}}\" ~ x", 2),
                (Kind::Statement, "if y", 3),
                (Kind::Print, "w", 3)
            ]
        );
    }

    #[test]
    fn the_line_of_a_variable_is_that_of_its_unguarded_use() {
        let source =
            "{{ \"ticket\" }}\n{{ ticket | default(value=1) }}\n{{ my_ticket }}{{ a.ticket }}\n{{ ticket }}";
        assert_eq!(line_of_name(source, "ticket"), 4);
        assert_eq!(line_of_name(source, "my_ticket"), 3);
        assert_eq!(line_of_name(source, "absent"), 1);
    }

    #[test]
    fn an_unclosed_tag_or_quote_does_not_run_away() {
        assert!(scan("{{ a").is_empty());
        assert_eq!(scan("{{ it's }}").len(), 1);
        assert_eq!(mask_strings("a \"é\" b").len(), "a \"é\" b".len());
    }
}
