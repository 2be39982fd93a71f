//! Ids of the texts that come again and again: question sheets, above all.
//!
//! A text is kept once it has come a second time, so that what is sent once, as most states are, is not held on to. Called by
//! `tokenizer`.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

/// Most texts kept, and most that are remembered by their hash.
const KEPT: usize = 64;
const SEEN: usize = 1024;
/// Encoding less is as fast as looking for it; more than so much is not kept.
const LEAST_BYTES: usize = 64;
const MOST_BYTES: usize = 16 << 10;

/// The texts of one tokenizer.
#[derive(Debug, Default)]
pub(crate) struct Repeated(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Least recently used first.
    kept: Vec<(Box<str>, Arc<[u32]>)>,
    /// Hashes of texts that came lately, the oldest first.
    seen: VecDeque<u64>,
}

impl Repeated {
    /// The ids of a text that is kept.
    pub(crate) fn recall(&self, text: &str) -> Option<Arc<[u32]>> {
        let kept = &mut self.0.lock().unwrap_or_else(PoisonError::into_inner).kept;
        let place = kept.iter().rposition(|(other, _)| **other == *text)?;
        let entry = kept.remove(place);
        let ids = Arc::clone(&entry.1);
        kept.push(entry);
        Some(ids)
    }

    /// Takes note of a text that was encoded.
    pub(crate) fn note(&self, text: &str, ids: &[u32]) {
        if !(LEAST_BYTES..=MOST_BYTES).contains(&text.len()) {
            return;
        }
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let hash = hasher.finish();
        let State { kept, seen } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.contains(&hash) {
            if seen.len() == SEEN {
                seen.pop_front();
            }
            seen.push_back(hash);
        } else if !kept.iter().any(|(other, _)| **other == *text) {
            if kept.len() == KEPT {
                kept.remove(0);
            }
            kept.push((text.into(), ids.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(number: usize) -> String {
        format!("{number:100}")
    }

    #[test]
    fn a_text_is_kept_from_its_second_time_on_and_the_least_used_goes_first() {
        let repeated = Repeated::default();
        let twice = |number: usize| {
            repeated.note(&text(number), &[number as u32]);
            let once = repeated.recall(&text(number));
            repeated.note(&text(number), &[number as u32]);
            once
        };
        for number in 0..KEPT {
            assert_eq!(twice(number), None, "once is not kept");
        }
        assert_eq!(repeated.recall(&text(0)).as_deref(), Some(&[0][..]));
        twice(KEPT);
        assert!(repeated.recall(&text(0)).is_some() && repeated.recall(&text(1)).is_none());
        for other in ["short".to_owned(), "x".repeat(MOST_BYTES + 1)] {
            repeated.note(&other, &[1]);
            repeated.note(&other, &[1]);
            assert!(repeated.recall(&other).is_none());
        }
    }

    #[test]
    fn what_is_seen_once_is_forgotten_after_many_others() {
        let repeated = Repeated::default();
        (0..=SEEN).for_each(|number| repeated.note(&text(number), &[]));
        repeated.note(&text(0), &[]);
        assert!(repeated.recall(&text(0)).is_none());
        repeated.note(&text(SEEN), &[]);
        assert!(repeated.recall(&text(SEEN)).is_some());
        let state = repeated.0.lock().unwrap();
        assert!(state.kept.len() <= KEPT && state.seen.len() <= SEEN);
    }
}
