//! The quoting check: a value printed without the right filter breaks the JSON as soon as it holds a quote or a newline.

use super::tags::{self, Kind, Tag};

/// Filters whose result is safe inside a JSON string.
const INSIDE: [&str; 4] = ["json_str", "int_or_auto", "length", "round"];
/// Filters whose result is JSON by itself.
const OUTSIDE: [&str; 4] = ["json_encode", "int_or_auto", "length", "round"];

/// One message per suspicious tag, with its line.
pub(super) fn faults(source: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut in_string = false;
    let mut at = 0;
    for tag in tags::scan(source) {
        in_string = in_string_after(&source[at..tag.start], in_string);
        at = tag.end;
        if tag.kind == Kind::Print {
            faults.extend(fault(source, &tag, in_string));
        }
    }
    faults
}

fn fault(source: &str, tag: &Tag<'_>, in_string: bool) -> Option<String> {
    let masked = tags::mask_strings(tag.content);
    let last = masked
        .rsplit('|')
        .next()
        .filter(|_| masked.contains('|'))
        .map(|filter| filter.split('(').next().unwrap_or_default().trim().to_owned());
    let filter = last.as_deref().unwrap_or_default();
    let harmless = masked.starts_with("loop.") || masked.contains("::") || masked.parse::<f64>().is_ok();
    let (allowed, advice) = if in_string {
        (INSIDE, "end it with `| json_str`")
    } else {
        (OUTSIDE, "end it with `| json_encode`")
    };
    (!harmless && !allowed.contains(&filter)).then(|| {
        let place = if in_string { "inside a JSON string" } else { "as a JSON value" };
        format!(
            "line {}: {{{{ {} }}}} is printed {place} without escaping; {advice}",
            tags::line_at(source, tag.start),
            tag.content
        )
    })
}

/// Whether a JSON string is open at the end of a piece of text.
fn in_string_after(text: &str, mut in_string: bool) -> bool {
    let mut escaped = false;
    for c in text.chars() {
        match c {
            '\\' if in_string && !escaped => {
                escaped = true;
                continue;
            }
            '"' if !escaped => in_string = !in_string,
            _ => {}
        }
        escaped = false;
    }
    in_string
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_values_are_found_inside_and_outside_of_strings() {
        assert!(faults("{\"a\": {{ x | json_encode }}, \"b\": \"x {{ y | json_str }}\", \"c\": {{ n | default(value=1) | int_or_auto }}}").is_empty());
        let found = faults("{\"a\": \"{{ x }}\",\n\"b\": {{ y | upper }}, \"c\\\"{{ z }}\": 1}");
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("line 1") && found[0].contains("json_str"), "{found:?}");
        assert!(found[1].contains("line 2") && found[1].contains("json_encode"), "{found:?}");
    }
}
