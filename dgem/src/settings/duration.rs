//! Durations as people type them: `30`, `2.5`, `500ms`, `30s`, `2m`. A bare number is seconds.

use std::time::Duration;

/// What a duration must look like.
pub(super) const FORM: &str =
    "use seconds above 0, such as 30 or 2.5, or a number with a unit: 500ms, 30s, 2m";

pub(super) fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, seconds_per_unit) = [("ms", 0.001), ("s", 1.0), ("m", 60.0)]
        .iter()
        .find_map(|(unit, factor)| text.strip_suffix(unit).map(|number| (number, *factor)))
        .unwrap_or((text, 1.0));
    number
        .parse::<f64>()
        .ok()
        .filter(|value| *value > 0.0)
        .and_then(|value| Duration::try_from_secs_f64(value * seconds_per_unit).ok())
        .filter(|duration| !duration.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood_and_nonsense_is_refused() {
        for (text, milliseconds) in
            [("30", 30_000), ("2.5", 2_500), ("500ms", 500), ("30s", 30_000), (" 2m ", 120_000)]
        {
            assert_eq!(parse(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "0", "-1", "s", "1h", "NaN", "inf", "1e400", "ten"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
