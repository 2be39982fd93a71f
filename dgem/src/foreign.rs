//! Text from elsewhere (names, messages and replies of a server, words of a template), made safe to repeat.
//!
//! Used by everything that prints. Such a text may be megabytes long and may hold codes that drive a terminal.

/// One line: control characters become `�`.
pub(crate) fn visible(text: &str) -> String {
    text.chars().map(|c| if is_control(c) { '\u{fffd}' } else { c }).collect()
}

/// Also what turns the direction of the text around it, ends a line in ways of its own, or is a text that nobody sees: with these
/// an answer can look like another one. The marks of right-to-left scripts (U+200E, U+200F) turn nothing around and stay.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}' | '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}')
        || matches!(c, '\u{e0000}'..='\u{e007f}')
}

/// The first `most` characters on one line, with `…` where more follow; control characters become spaces.
pub(crate) fn clipped(text: &str, most: usize) -> String {
    let text = text.trim();
    let mut short: String = text.chars().take(most).map(|c| if is_control(c) { ' ' } else { c }).collect();
    if text.chars().nth(most).is_some() {
        short.push('…');
    }
    short
}

/// Several lines: line ends and tabs stay, other control characters become `�`. A CR alone would write over its line.
pub(crate) fn printable(text: &str) -> String {
    let shown = text.chars().filter(|c| *c != '\r');
    shown.map(|c| if is_control(c) && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(visible("a\u{1b}[31m\n"), "a\u{fffd}[31m\u{fffd}");
        assert_eq!(clipped(" a\u{1b}[31m\nb ", 99), "a [31m b");
        // U+202E shows `txt.exe` for `exe.txt`, U+2066 hides where it begins, tags are a text that nobody sees.
        for c in ['\u{202e}', '\u{2066}', '\u{2028}', '\u{e0041}'] {
            assert_eq!(visible(&format!("a{c}b")), "a\u{fffd}b", "{c:?}");
            assert_eq!(printable(&format!("a{c}\nb")), "a\u{fffd}\nb", "{c:?}");
            assert_eq!(clipped(&format!("a{c}b"), 9), "a b", "{c:?}");
        }
        assert_eq!(visible("שלום\u{200f} é 👩‍💻"), "שלום\u{200f} é 👩‍💻");
    }

    #[test]
    fn only_a_text_that_goes_on_gets_an_ellipsis() {
        assert_eq!(clipped("東京都", 3), "東京都");
        assert_eq!(clipped("東京都民", 3), "東京都…");
        assert_eq!(clipped("東京都  \n", 3), "東京都");
    }
}
