//! "Did you mean": the closest known name to a misspelt one, and short forms of values for error messages.

use serde_json::Value;

/// Longer names are not compared: nobody mistypes them by a letter, and the comparison is quadratic.
const LONGEST_COMPARED: usize = 48;
/// Most characters of a value shown in a message.
const LONGEST_SHOWN: usize = 80;

/// The candidate closest to `name`, if it is close enough to be what was meant.
pub fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed: Vec<char> = name.chars().take(LONGEST_COMPARED + 1).flat_map(char::to_lowercase).collect();
    if typed.is_empty() || typed.len() > LONGEST_COMPARED {
        return None;
    }
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= 4 * LONGEST_COMPARED)
        .map(|candidate| (distance(&typed, &candidate.to_lowercase().chars().collect::<Vec<_>>()), candidate))
        .filter(|&(distance, candidate)| distance <= (candidate.chars().count().min(typed.len()) / 3).max(1))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// `did you mean "x"?` or else the names that are possible.
pub(crate) fn did_you_mean<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str> + Clone,
    otherwise: &str,
) -> String {
    match closest(name, candidates.clone()) {
        Some(candidate) => format!("did you mean {candidate:?}?"),
        None => format!("{otherwise} {}", listed(candidates)),
    }
}

/// `"a", "b", "c"`, cut off where it gets long.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for name in names {
        if !text.is_empty() {
            text.push_str(", ");
        }
        if text.len() > 3 * LONGEST_SHOWN {
            text.push('…');
            break;
        }
        text.push_str(&quoted(name));
    }
    text
}

/// A text in quotes, cut off where it gets long.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", clipped(text))
}

/// A value as compact JSON, cut off where it gets long.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        other => clipped(&other.to_string()),
    }
}

/// What kind of value was found, in words.
pub(crate) fn described(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => format!("the boolean {flag}"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the string {}", quoted(text)),
        Value::Array(items) => format!("an array of {} items", items.len()),
        Value::Object(map) => format!("an object with {} keys", map.len()),
    }
}

pub(crate) fn clipped(text: &str) -> String {
    match text.char_indices().nth(LONGEST_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Edits (insert, delete, replace, swap of neighbours) from `a` to `b`.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &to) in b.iter().enumerate() {
            let replace = last[j] + usize::from(from != to);
            let mut best = replace.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && from == b[j - 1] && a[i - 1] == to {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses_are_found_and_strangers_are_not() {
        let known = ["samples", "steps", "seed", "layout"];
        assert_eq!(closest("sample", known), Some("samples"));
        assert_eq!(closest("Seed", known), Some("seed"));
        assert_eq!(closest("lyaout", known), Some("layout"));
        assert_eq!(closest("temperature", known), None);
        assert_eq!(closest("", known), None);
        assert_eq!(closest(&"samples".repeat(100_000), known), None);
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let shown = shown(&Value::String("ä".repeat(500)));
        assert!(shown.chars().count() < 90);
        assert!(shown.ends_with("…\""));
    }
}
