//! Colour. It only underlines what the words already say.

use std::io::IsTerminal;

use crate::env::{self, Environment};

/// Whether escape codes may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    colour: bool,
}

impl Style {
    /// What `--color` or `DGEM_COLOR` says; else colour for a terminal, unless `NO_COLOR` is set, or where `CLICOLOR_FORCE`
    /// asks for it.
    pub fn for_stream(stream: &impl IsTerminal, environment: &Environment) -> Self {
        Self::new(stream.is_terminal(), environment)
    }

    fn new(terminal: bool, environment: &Environment) -> Self {
        let forced = environment.get(env::CLICOLOR_FORCE).is_some_and(|value| value != "0");
        let colour = match environment.get(env::COLOR) {
            Some("always") => true,
            Some("never") => false,
            _ => environment.get(env::NO_COLOR).is_none() && (terminal || forced),
        };
        Self { colour }
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
        let forced = Environment::default().with(env::CLICOLOR_FORCE, "1");
        assert_eq!(Style::new(false, &forced).bold("x"), "\u{1b}[1mx\u{1b}[0m");
        assert_eq!(Style::new(true, &forced.with(env::COLOR, "never")).bold("x"), "x");
        assert_eq!(Style::new(false, &veto.with(env::COLOR, "always")).bold("x"), "\u{1b}[1mx\u{1b}[0m");
    }
}
