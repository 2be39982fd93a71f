//! Macros that call macros: a chain of calls must end, and soon, since the renderer calls itself for each of them.

use indexmap::{IndexMap, IndexSet};

/// Longest chain of macros that call each other.
const MOST_CALLS: usize = 8;

/// Macro → the macros its body calls.
pub(super) type Calls = IndexMap<String, IndexSet<String>>;

/// What is wrong with the calls, if anything.
pub(super) fn fault(mut calls: Calls) -> Option<String> {
    // Calls of macros that do not exist are reported by tera.
    let names: IndexSet<String> = calls.keys().cloned().collect();
    calls.values_mut().for_each(|called| called.retain(|name| names.contains(name)));
    // Macros that call none are taken away round by round: the rounds are the longest chain, what stays is a circle.
    for _ in 0..MOST_CALLS {
        let ends: Vec<String> =
            calls.iter().filter(|(_, called)| called.is_empty()).map(|(name, _)| name.clone()).collect();
        calls.retain(|_, called| !called.is_empty());
        for called in calls.values_mut() {
            called.retain(|name| !ends.contains(name));
        }
        if calls.is_empty() {
            return None;
        }
        if ends.is_empty() {
            return Some(format!("the macro `{}` calls itself, directly or through others", circle(&calls)));
        }
    }
    Some(format!("more than {MOST_CALLS} macros call each other in a chain"))
}

/// A macro on a circle: every macro left calls another one left, so following the first call of each leads into one.
fn circle(calls: &Calls) -> &str {
    let mut at = calls.keys().next().map_or("", String::as_str);
    for _ in 0..calls.len() {
        at = calls.get(at).and_then(IndexSet::first).map_or(at, String::as_str);
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(pairs: &[(&str, &[&str])]) -> Calls {
        pairs
            .iter()
            .map(|(name, called)| {
                ((*name).to_owned(), called.iter().map(|name| (*name).to_owned()).collect())
            })
            .collect()
    }

    #[test]
    fn circles_of_any_length_are_found_and_named() {
        assert_eq!(fault(calls(&[])), None);
        assert_eq!(fault(calls(&[("a", &["b", "c", "absent"]), ("b", &["c"]), ("c", &[])])), None);
        assert!(fault(calls(&[("a", &["a"])])).unwrap().contains("`a` calls itself"));
        let mutual = fault(calls(&[("x", &["a"]), ("a", &["b"]), ("b", &["a"]), ("c", &[])])).unwrap();
        assert!(mutual.contains("`a` calls itself") || mutual.contains("`b` calls itself"), "{mutual}");
    }

    #[test]
    fn a_chain_is_limited() {
        let chain = |count: usize| -> Calls {
            let called = |index: usize| (index + 1 < count).then(|| format!("m{}", index + 1));
            (0..count).map(|index| (format!("m{index}"), called(index).into_iter().collect())).collect()
        };
        assert_eq!(fault(chain(MOST_CALLS)), None);
        assert!(fault(chain(MOST_CALLS + 1)).unwrap().contains("chain"));
    }
}
