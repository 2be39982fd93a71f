//! Stop strings: the text before the first of them, with nothing of one given out early.
//!
//! Called by `api::generation` for every piece of content, streamed or not.

/// Watches a text for stop strings.
#[derive(Debug, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    /// May be the beginning of a stop string.
    held: String,
    hit: bool,
}

impl StopStrings {
    /// None of `stops` may be empty.
    #[must_use]
    pub fn new(stops: Vec<String>) -> Self {
        StopStrings { stops, ..StopStrings::default() }
    }

    /// Whether one was found: nothing is given out any more.
    #[must_use]
    pub fn hit(&self) -> bool {
        self.hit
    }

    /// What of the text so far can be given out now.
    pub fn push(&mut self, text: &str) -> String {
        if self.hit {
            return String::new();
        }
        self.held.push_str(text);
        let first = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(at) = first {
            self.hit = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let safe = self.held.len() - self.beginning_of_a_stop();
        let rest = self.held.split_off(safe);
        std::mem::replace(&mut self.held, rest)
    }

    /// What was held back for nothing.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Bytes at the end that begin a stop string.
    fn beginning_of_a_stop(&self) -> usize {
        let longest = |stop: &String| {
            let ends =
                stop.char_indices().map(|(at, _)| at).skip(1).filter(|&at| self.held.ends_with(&stop[..at]));
            ends.max().unwrap_or(0)
        };
        self.stops.iter().map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_stop_string_gets_out_however_the_text_is_cut() {
        for (stops, text, expected) in [
            (vec!["END"], "one EN two END three", "one EN two "),
            (vec!["aab", "b"], "aaab", "a"),
            (vec!["ab", "cabd"], "xcab", "xc"),
            (vec!["🙂é"], "a🙂🙂é", "a🙂"),
            (vec!["\n\n"], "a\n", "a\n"),
            (vec![], "free", "free"),
        ] {
            let stops: Vec<String> = stops.into_iter().map(str::to_owned).collect();
            for width in 1..=text.chars().count() {
                let mut watch = StopStrings::new(stops.clone());
                let mut out = String::new();
                let characters: Vec<char> = text.chars().collect();
                for piece in characters.chunks(width) {
                    out += &watch.push(&piece.iter().collect::<String>());
                    assert!(expected.starts_with(&out), "{text:?} by {width}: {out:?}");
                }
                let hit = watch.hit();
                out += &watch.finish();
                assert_eq!(out, expected, "{text:?} by {width}");
                assert_eq!(hit, stops.iter().any(|stop| text.contains(stop.as_str())));
            }
        }
    }
}
