//! When two ways to say something are the same, and whether a normalised sentence says a token as expected.

/// Lower case, words alone: punctuation and hyphens are spaces.
pub(super) fn plain(text: &str) -> String {
    let word = |c: char| if c == '-' || c == '\u{a0}' || ".,;:!?'\"`’".contains(c) { ' ' } else { c };
    let text: String = text.chars().map(word).collect::<String>().to_lowercase();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Where a token that stands twice is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Anywhere,
    FirstHalf,
    SecondHalf,
}

impl Place {
    /// `Dr. (second)` is the second of two.
    pub(super) fn of(target_token: &str) -> Self {
        match target_token.trim_end() {
            text if text.ends_with("(first)") => Self::FirstHalf,
            text if text.ends_with("(second)") => Self::SecondHalf,
            _ => Self::Anywhere,
        }
    }
}

/// Whether the sentence holds the phrase, on word boundaries, at this place. `place`: by the middle of the phrase.
pub(super) fn says(sentence: &str, phrase: &str, place: Place) -> bool {
    let (sentence, phrase) = (same(&plain(sentence)), same(&plain(phrase)));
    let words: Vec<&str> = sentence.split(' ').collect();
    let wanted: Vec<&str> = phrase.split(' ').filter(|word| !word.is_empty()).collect();
    if wanted.is_empty() || wanted.len() > words.len() {
        return false;
    }
    words.windows(wanted.len()).enumerate().filter(|(_, window)| *window == wanted).any(|(start, _)| {
        let middle = (start as f64 + wanted.len() as f64 / 2.0) / words.len() as f64;
        match place {
            Place::Anywhere => true,
            Place::FirstHalf => middle < 0.5,
            Place::SecondHalf => middle >= 0.5,
        }
    })
}

/// Readings that mean the same in American English.
fn same(text: &str) -> String {
    let text: Vec<&str> = text
        .split(' ')
        .map(|word| match word {
            "fourth" => "quarter",
            "fourths" => "quarters",
            other => other,
        })
        .collect();
    text.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn punctuation_and_case_make_no_difference() {
        assert_eq!(plain("Forty-Five\u{a0}p.m.,  please!"), "forty five p m please");
        assert_eq!(plain(" … "), "…");
    }

    #[test]
    fn a_phrase_counts_on_word_boundaries_and_at_its_place() {
        let sentence = "Doctor Lee lives on Elm Drive near the mill.";
        assert!(says(sentence, "doctor", Place::FirstHalf) && !says(sentence, "doctor", Place::SecondHalf));
        assert!(says(sentence, "Drive", Place::SecondHalf) && !says(sentence, "drive", Place::FirstHalf));
        assert!(!says(sentence, "doc", Place::Anywhere) && !says(sentence, "", Place::Anywhere));
        assert!(says("add three fourths of a cup", "three quarters", Place::Anywhere));
        assert!(!says("short", "much longer than that", Place::Anywhere) && !says("", "x", Place::Anywhere));
        assert_eq!(
            [Place::of("Dr. (second)"), Place::of("St. (first)"), Place::of("3/4")],
            [Place::SecondHalf, Place::FirstHalf, Place::Anywhere]
        );
    }
}
