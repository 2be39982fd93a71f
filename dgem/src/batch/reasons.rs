//! Why rows failed: the reasons with their counts, the most frequent first.
//!
//! Reasons that differ only in numbers (a line, an id, milliseconds) are one; the first of them is shown.

use std::fmt;

use indexmap::IndexMap;

use crate::foreign::clipped;

/// Kinds that are told apart, and characters by which.
const MOST_KINDS: usize = 256;
const KEY_CHARS: usize = 200;
/// Kinds that are shown.
const SHOWN: usize = 5;

#[derive(Clone, Debug, Default)]
pub struct Reasons {
    /// The reason without its numbers → the first of the kind, and how many there are.
    kinds: IndexMap<String, (String, u64)>,
    /// Those beyond `MOST_KINDS`.
    others: u64,
}

impl Reasons {
    pub(super) fn add(&mut self, reason: &str) {
        let first = clipped(reason.lines().next().unwrap_or_default(), KEY_CHARS);
        let key = without_numbers(&first);
        if self.kinds.len() == MOST_KINDS && !self.kinds.contains_key(&key) {
            self.others += 1;
            return;
        }
        self.kinds.entry(key).or_insert((first, 0)).1 += 1;
    }

    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }
}

fn without_numbers(text: &str) -> String {
    let mut key = String::new();
    for c in text.chars() {
        if !c.is_ascii_digit() {
            key.push(c);
        } else if !key.ends_with('#') {
            key.push('#');
        }
    }
    key
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: Vec<&(String, u64)> = self.kinds.values().collect();
        // Stable: of equals the first that came is first.
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        write!(f, "why rows failed:")?;
        for (first, count) in kinds.iter().take(SHOWN) {
            write!(f, "\n{count:>7} x {first}")?;
        }
        let rest = kinds.iter().skip(SHOWN).map(|(_, count)| count).sum::<u64>() + self.others;
        if rest > 0 {
            write!(f, "\n{rest:>7} x something else")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_in_numbers_are_one_and_the_most_frequent_comes_first() {
        let mut reasons = Reasons::default();
        reasons.add("no answer within 3 s\nhint: wait");
        for line in 10..13 {
            reasons.add(&format!("line {line} is no JSON object"));
        }
        assert_eq!(
            reasons.to_string(),
            "why rows failed:\n      3 x line 10 is no JSON object\n      1 x no answer within 3 s"
        );
        for kind in 0..2_000 {
            let name: String = format!("{kind:04}").chars().map(|c| char::from(c as u8 + 17)).collect();
            reasons.add(&format!("kind {name}"));
        }
        assert!(reasons.kinds.len() == MOST_KINDS && reasons.others > 0);
        assert!(reasons.to_string().ends_with("x something else"), "{reasons}");
    }
}
