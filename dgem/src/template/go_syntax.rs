//! Recognises templates written for Go's text/template and says how the first such tag looks in tera.
//!
//! Policies written for the earlier Go tool share the file ending; without this, their author would only see tera's
//! parse error.

use super::tags::{self, Kind};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) line: usize,
    pub(super) tag: String,
    pub(super) rewrite: String,
}

/// The first tag that only makes sense in Go.
pub(super) fn find(source: &str) -> Option<Found> {
    tags::scan(source).into_iter().filter(|tag| tag.kind == Kind::Print).find_map(|tag| {
        is_go(tag.content).then(|| Found {
            line: tags::line_at(source, tag.start),
            tag: source[tag.start..tag.end].to_owned(),
            rewrite: rewrite(tag.content),
        })
    })
}

fn is_go(content: &str) -> bool {
    let bare = tags::mask_strings(content);
    let words: Vec<&str> = bare
        .split(|c: char| c.is_whitespace() || matches!(c, '|' | '(' | ')'))
        .filter(|word| !word.is_empty())
        .collect();
    let Some(first) = words.first() else { return false };
    let keyword = matches!(
        *first,
        "if" | "else"
            | "end"
            | "range"
            | "with"
            | "define"
            | "template"
            | "block"
            | "printf"
            | "toJson"
            | "toPrettyJson"
    ) && (words.len() > 1 || matches!(*first, "else" | "end"))
        && !is_call(&bare, first);
    let field = words.iter().any(|word| is_field(word) || word.starts_with('$'));
    keyword || field || first.starts_with("/*") || bare.contains(":=")
}

/// `name(`: a function of tera, such as `range`. Go writes arguments without brackets.
fn is_call(content: &str, name: &str) -> bool {
    content.trim_start().strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with('('))
}

/// `.name` or `.`, Go's way to read a variable.
fn is_field(word: &str) -> bool {
    word.strip_prefix('.')
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(|c: char| c.is_alphabetic() || c == '_'))
}

/// The tag in tera, as far as one tag can be translated alone.
fn rewrite(content: &str) -> String {
    let words: Vec<&str> = content.split_whitespace().collect();
    match words.first().copied().unwrap_or_default() {
        "range" => {
            let names: Vec<String> = content
                .split(":=")
                .next()
                .filter(|_| content.contains(":="))
                .unwrap_or("")
                .trim_start_matches("range")
                .split(',')
                .map(|name| name.trim().trim_start_matches('$').to_owned())
                .collect();
            let item = names.last().filter(|name| !name.is_empty()).map_or("item", String::as_str);
            let list = words.last().map_or("list", |word| name_of(word));
            format!(
                "{{% for {item} in {list} %}} … {{% endfor %}}, with {{% if not loop.first %}},{{% endif %}} for the commas"
            )
        }
        "if" if words.get(1).is_some_and(|word| word.starts_with('$')) => {
            "{% if not loop.first %} … {% endif %}".to_owned()
        }
        "if" | "with" => {
            format!("{{% if {} %}} … {{% endif %}}", words.last().map_or("x", |word| name_of(word)))
        }
        "else" => "{% else %}".to_owned(),
        "end" => "{% endif %} or {% endfor %}".to_owned(),
        "printf" => "{% set text = \"… \" ~ x ~ \" …\" %}{{ text | json_encode }}".to_owned(),
        "default" => {
            let default = default_of(content);
            let name = content.split_whitespace().find(|word| is_field(word)).map_or("x", name_of);
            let last = if name == "samples" { "int_or_auto" } else { "json_encode" };
            format!("{{{{ {name} | or_default(value={default}) | {last} }}}}")
        }
        word if word.starts_with("/*") => "{# … #}".to_owned(),
        _ => {
            let name = words
                .iter()
                .find(|word| is_field(word) || word.starts_with('$'))
                .map_or("x", |word| name_of(word));
            let last =
                if content.contains("toPrettyJson") { "json_encode(pretty=true)" } else { "json_encode" };
            format!("{{{{ {name} | {last} }}}}")
        }
    }
}

fn name_of(word: &str) -> &str {
    let name = word.trim_start_matches(['.', '$']).trim_end_matches(')');
    if name.is_empty() { "item" } else { name }
}

/// The literal behind `default`, which may be a text with spaces.
fn default_of(content: &str) -> &str {
    let rest = content.trim_start_matches("default").trim_start();
    match rest.strip_prefix('"').and_then(|text| text.find('"')) {
        Some(end) => &rest[..end + 2],
        None => rest.split_whitespace().next().unwrap_or("\"\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_tags_are_told_from_tera_tags() {
        for (source, part) in [
            ("{{ .ticket | toJson }}", "{{ ticket | json_encode }}"),
            ("{{.ticket}}", "{{ ticket | json_encode }}"),
            (
                "{{ default \"No text\" .ticket | toJson }}",
                "{{ ticket | or_default(value=\"No text\") | json_encode }}",
            ),
            ("{{ default 1 .samples | toJson }}", "{{ samples | or_default(value=1) | int_or_auto }}"),
            ("{{ range $i, $o := .options }}", "{% for o in options %}"),
            ("{{- if $i -}}", "loop.first"),
            ("{{ if .flag }}", "{% if flag %}"),
            ("{{ end }}", "{% endif %}"),
            ("{{/* note */}}", "{# … #}"),
            ("{{ printf \"'%s'\" .t | toJson }}", "~"),
        ] {
            let found = find(source).unwrap_or_else(|| panic!("{source} not recognised"));
            assert!(found.rewrite.contains(part), "{source}: {}", found.rewrite);
        }
        for source in [
            "{{ x }}",
            "{{ a.b | json_encode }}",
            "{{ \".x\" ~ y }}",
            "{{ 1.5 }}",
            "{{ end_date }}",
            "{{ range(start=0,end=3) }}",
            "{{ range (end=3) | json_encode }}",
            "{{ else_text | json_encode }}",
            "{% if x %}",
            "{# {{ .x }} #}",
            "{{ text | default(value=\"$5 .x\") }}",
        ] {
            assert_eq!(find(source), None, "{source}");
        }
        assert_eq!(find("{}\n\n{{ .x }}").map(|found| found.line), Some(3));
    }
}
