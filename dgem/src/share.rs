//! A share between 0 and 1 as people write it: `16%` or `0.16`.

use crate::error::Error;

/// Reads the value of `flag`. A bare number above 1 is refused: `16` may be meant as 16% or be a slip for `0.16`.
pub(crate) fn parse(flag: &'static str, text: &str) -> Result<f64, Error> {
    let refuse = || Error::BadShare { flag, value: text.to_owned() };
    let trimmed = text.trim();
    let share = match trimmed.strip_suffix('%') {
        Some(number) => number.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => trimmed.parse::<f64>(),
    };
    share.ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(refuse)
}

/// `0.1634` as `16.3%`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_read_and_what_may_be_a_slip_is_refused() {
        for (text, share) in
            [("16%", 0.16), ("0.16", 0.16), (" 2.5 %", 0.025), ("1", 1.0), ("0", 0.0), ("100%", 1.0)]
        {
            assert!((parse("--x", text).unwrap() - share).abs() < 1e-12, "{text}");
        }
        for text in ["16", "-1%", "101%", "x", "", "%", "NaN", "inf"] {
            let message = parse("--x", text).unwrap_err().to_string();
            assert!(message.contains("--x") && message.contains("16%"), "{message}");
        }
    }
}
