//! Text from elsewhere (names, messages and replies of a server, words of a template), made safe to repeat.
//!
//! Used by everything that prints. Such a text may be megabytes long and may hold codes that drive a terminal.

/// One line: control characters become `�`.
pub(crate) fn visible(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The first `most` characters on one line, with `…` where more follow; control characters become spaces.
pub(crate) fn clipped(text: &str, most: usize) -> String {
    let text = text.trim();
    let mut short: String = text.chars().take(most).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(most).is_some() {
        short.push('…');
    }
    short
}

/// Several lines: line ends and tabs stay, other control characters become `�`. A CR alone would write over its line.
pub(crate) fn printable(text: &str) -> String {
    let shown = text.chars().filter(|c| *c != '\r');
    shown.map(|c| if c.is_control() && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(visible("a\u{1b}[31m\n"), "a\u{fffd}[31m\u{fffd}");
        assert_eq!(clipped(" a\u{1b}[31m\nb ", 99), "a [31m b");
    }

    #[test]
    fn only_a_text_that_goes_on_gets_an_ellipsis() {
        assert_eq!(clipped("東京都", 3), "東京都");
        assert_eq!(clipped("東京都民", 3), "東京都…");
        assert_eq!(clipped("東京都  \n", 3), "東京都");
    }
}
