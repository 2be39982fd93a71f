//! Colour. It only underlines what the words already say.

use std::io::IsTerminal;

use crate::env::{self, Environment};

/// Whether escape codes may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    colour: bool,
}

impl Style {
    /// Colour for a terminal, unless `NO_COLOR` is set.
    pub fn for_stream(stream: &impl IsTerminal, environment: &Environment) -> Self {
        Self::new(stream.is_terminal(), environment)
    }

    fn new(terminal: bool, environment: &Environment) -> Self {
        Self { colour: terminal && environment.get(env::NO_COLOR).is_none() }
    }

    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_needs_a_terminal_and_no_veto() {
        let silent = Environment::default();
        let veto = Environment::from_lookup(|name| (name == env::NO_COLOR).then(|| "1".to_owned()));
        assert_eq!(Style::new(true, &silent).bold("x"), "\u{1b}[1mx\u{1b}[0m");
        assert_eq!(Style::new(true, &veto).bold("x"), "x");
        assert_eq!(Style::new(false, &silent).yellow("x"), "x");
    }
}
