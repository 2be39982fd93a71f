//! How deep a template may nest, found in its source before tera parses it.
//!
//! The parser and the renderer call themselves for every level, and a call stack that is used up ends the program without a
//! message. Brackets are worse: the time to parse them grows by a factor with every level. All limits are far above
//! what a policy needs. Templates are single files, so tags that bring in others are refused here too.

use super::tags::{self, Kind, Tag};

/// `if`, `for`, `filter`, `block` and `macro` inside one another.
const MOST_BLOCKS: usize = 32;
/// Brackets inside one another in one tag.
const MOST_BRACKETS: u32 = 6;
/// How much longer a bracket takes to parse than the one around it, and the sum of that over a whole template.
const BRACKET_FACTOR: u32 = 4;
const MOST_BRACKET_WORK: u32 = 250_000;
/// Arithmetic and logical operators in one tag: tera makes one level of each.
const MOST_OPERATORS: usize = 256;

/// Names of tags that need an end tag.
const BLOCKS: [&str; 5] = ["if", "for", "filter", "block", "macro"];
/// Names of tags that read another template.
const OTHER_FILES: [&str; 3] = ["include", "import", "extends"];

/// What is wrong, and on which line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) reason: String,
}

/// The first fault of the source.
pub(super) fn fault(source: &str) -> Option<Fault> {
    let mut open = 0_usize;
    let mut work = 0_u32;
    tags::scan(source).into_iter().find_map(|tag| {
        let reason = match tag.kind {
            Kind::Comment => None,
            Kind::Print => expression(&tag, &mut work),
            Kind::Statement => statement(&tag, &mut open).or_else(|| expression(&tag, &mut work)),
        };
        reason.map(|reason| Fault { line: tags::line_at(source, tag.start), reason })
    })
}

fn statement(tag: &Tag<'_>, open: &mut usize) -> Option<String> {
    let name = tag.content.split_whitespace().next().unwrap_or_default();
    if OTHER_FILES.contains(&name) {
        return Some(format!("`{name}` is not supported: a template is one file; copy the text into it"));
    }
    if name.starts_with("end") {
        *open = open.saturating_sub(1);
    }
    *open += usize::from(BLOCKS.contains(&name));
    (*open > MOST_BLOCKS)
        .then(|| format!("more than {MOST_BLOCKS} tags are open inside one another; nest less deeply"))
}

/// `work`: that of the brackets so far.
fn expression(tag: &Tag<'_>, work: &mut u32) -> Option<String> {
    let bare = tags::mask_strings(tag.content);
    let mut depth = 0_u32;
    for c in bare.chars() {
        match c {
            '(' | '[' => {
                depth += 1;
                *work = work.saturating_add(BRACKET_FACTOR.saturating_pow(depth));
            }
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MOST_BRACKETS {
            return Some(format!(
                "more than {MOST_BRACKETS} brackets are open inside one another; use `set` for a part of it"
            ));
        }
    }
    if *work > MOST_BRACKET_WORK {
        return Some(
            "the brackets of this template are too many and too deep; use `set` for parts of them".to_owned(),
        );
    }
    let signs = bare.matches(['+', '-', '*', '/', '%']).count();
    let words = bare.split(|c: char| !c.is_alphanumeric() && c != '_');
    let operators = signs + words.filter(|word| matches!(*word, "and" | "or")).count();
    (operators > MOST_OPERATORS)
        .then(|| format!("more than {MOST_OPERATORS} operators are in one tag; use `set` for a part of it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(source: &str) -> String {
        fault(source).map(|fault| fault.reason).unwrap_or_default()
    }

    #[test]
    fn deep_nesting_is_found_and_length_is_none() {
        let blocks = |count: usize| "{% if a %}".repeat(count) + &"{% endif %}".repeat(count);
        assert_eq!(fault(&blocks(MOST_BLOCKS)), None);
        assert!(reason(&blocks(MOST_BLOCKS + 1)).contains("inside one another"));
        assert_eq!(fault(&"{%- for a in b -%}{% endfor %}\n".repeat(1000)), None);

        let brackets = |count: u32| {
            let count = count as usize;
            format!("{{{{ {}1{} }}}}", "(".repeat(count), ")".repeat(count))
        };
        assert_eq!(fault(&brackets(MOST_BRACKETS)), None);
        assert!(reason(&brackets(MOST_BRACKETS + 1)).contains("brackets"));
        assert!(reason(&format!("{{{{ a{} }}}}", "[a".repeat(9))).contains("brackets"));

        assert!(reason(&format!("{{{{ 1{} }}}}", "+1".repeat(MOST_OPERATORS + 1))).contains("operators"));
        assert!(reason(&format!("{{% if a{} %}}", " or a".repeat(MOST_OPERATORS + 1))).contains("operators"));
        assert_eq!(fault(&format!("{{{{ \"{}\" }}}}", "(+".repeat(1000))), None);
    }

    #[test]
    fn other_files_are_refused_with_their_line() {
        for tag in ["{% include \"t\" %}", "{%- import \"t\" as t -%}", "{% extends \"t\" %}"] {
            assert_eq!(fault(&format!("\n{tag}")).map(|fault| fault.line), Some(2), "{tag}");
        }
        assert_eq!(fault("{# {% include \"t\" %} #}{% raw %}{% include \"t\" %}{% endraw %}"), None);
    }

    #[test]
    fn text_in_a_raw_block_cannot_hide_what_follows() {
        let deep = "{% if a %}".repeat(MOST_BLOCKS + 1);
        for hidden in [
            "{% raw %}{{{% endraw %}",
            "{% raw %}{{ \"{%endraw%}",
            "{%- raw -%}{# {%- endraw -%}",
            "{% raw %}{%\u{a0}endraw %}{# {% endraw %}",
        ] {
            assert!(reason(&format!("{hidden}{deep}")).contains("inside one another"), "{hidden}");
        }
    }
}
