//! Shows a reply as it comes: the answer on stdout, the thought on stderr, and drafts of a block in place.
//!
//! A draft is drawn on the other screen that terminals have, so that nothing of it stays when the block is done, whatever the size
//! of the window. A terminal never gets a control character of the model's; a file or a pipe gets the text as it is.

use std::io::{self, Write};

use super::reading::{Draft, Part};
use crate::foreign::printable;
use crate::output::Style;

const OTHER_SCREEN: &str = "\u{1b}[?1049h\u{1b}[?25l";
const OWN_SCREEN: &str = "\u{1b}[?25h\u{1b}[?1049l";
const HOME: &str = "\u{1b}[H";
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";

/// Which of the two streams is a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminals {
    pub(crate) out: bool,
    pub(crate) err: bool,
}

/// `O`: stdout, `E`: stderr, whose errors change nothing.
#[derive(Debug)]
pub(crate) struct Screen<O: Write, E: Write> {
    out: O,
    err: E,
    terminals: Terminals,
    /// Of the thought.
    style: Style,
    /// The last character of the thought, until the answer begins.
    thought: Option<char>,
    /// The last character of the answer.
    answer: Option<char>,
    /// A draft is on the other screen.
    drawn: bool,
    /// Drafts came.
    drafts: bool,
}

impl<O: Write, E: Write> Screen<O, E> {
    pub(crate) fn new(out: O, err: E, terminals: Terminals, style: Style) -> Self {
        Self { out, err, terminals, style, thought: None, answer: None, drawn: false, drafts: false }
    }

    /// Errors: stdout takes no more.
    pub(crate) fn show(&mut self, part: &Part) -> io::Result<()> {
        match part {
            Part::Draft(draft) => {
                self.draw(draft);
                Ok(())
            }
            Part::Thought(text) => {
                self.clear();
                let text = if self.terminals.err { printable(text) } else { text.clone() };
                self.thought = text.chars().next_back().or(self.thought);
                let _ = write!(self.err, "{}", self.style.dim(&text));
                let _ = self.err.flush();
                Ok(())
            }
            Part::Answer(text) => {
                self.clear();
                self.end_thought();
                let text = if self.terminals.out { printable(text) } else { text.clone() };
                self.answer = text.chars().next_back().or(self.answer);
                self.out.write_all(text.as_bytes())?;
                // Whoever reads along wants it now.
                self.out.flush()
            }
        }
    }

    /// Ends the last line of what there is.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.clear();
        self.end_thought();
        if self.answer.is_some_and(|last| last != '\n') {
            self.answer = Some('\n');
            self.out.write_all(b"\n")?;
        }
        self.out.flush()
    }

    /// Whether there was an answer.
    pub(crate) fn has_answer(&self) -> bool {
        self.answer.is_some()
    }

    /// Whether there was a draft.
    pub(crate) fn has_drafts(&self) -> bool {
        self.drafts
    }

    /// The thought ends on a line of its own, with a blank one behind it where both are read on one terminal.
    fn end_thought(&mut self) {
        let Some(last) = self.thought.take() else { return };
        let line = if last == '\n' { "" } else { "\n" };
        let blank = if self.terminals.out && self.terminals.err { "\n" } else { "" };
        let _ = write!(self.err, "{line}{blank}");
        let _ = self.err.flush();
    }

    fn draw(&mut self, draft: &Draft) {
        self.drafts = true;
        if !self.terminals.err {
            return;
        }
        let start = if std::mem::replace(&mut self.drawn, true) { "" } else { OTHER_SCREEN };
        let head =
            format!("block {}, step {}, {:.0}% taken", draft.block + 1, draft.step, draft.accepted * 100.0);
        let text = printable(&draft.text).replace('\n', &format!("{CLEAR_LINE}\r\n"));
        let head = self.style.dim(&head);
        let _ = write!(self.err, "{start}{HOME}{head}{CLEAR_LINE}\r\n{CLEAR_LINE}\r\n{text}{CLEAR_BELOW}");
        let _ = self.err.flush();
    }

    /// Back to the screen with the answer.
    fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(self.err, "{OWN_SCREEN}");
            let _ = self.err.flush();
        }
    }
}

impl<O: Write, E: Write> Drop for Screen<O, E> {
    /// However the run ends, the terminal is as it was.
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Environment;

    /// What stdout and stderr got.
    fn shown(out: bool, err: bool, parts: &[Part]) -> (String, String) {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let environment =
            Environment::default().with(crate::env::COLOR, if err { "always" } else { "never" });
        let style = Style::for_stream(&io::stderr(), &environment);
        let mut screen = Screen::new(&mut stdout, &mut stderr, Terminals { out, err }, style);
        parts.iter().for_each(|part| screen.show(part).unwrap());
        screen.end().unwrap();
        drop(screen);
        (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    }

    fn answer(text: &str) -> Part {
        Part::Answer(text.to_owned())
    }

    fn thought(text: &str) -> Part {
        Part::Thought(text.to_owned())
    }

    #[test]
    fn a_terminal_gets_no_control_character_and_a_pipe_the_text_as_it_is() {
        let text = "a\u{1b}]0;title\u{7}\tb\r\n\u{9b}31mé";
        let parts = [answer("\u{1b}"), answer(text)];
        assert_eq!(shown(true, true, &parts).0, "\u{fffd}a\u{fffd}]0;title\u{fffd}\tb\n\u{fffd}31mé\n");
        assert_eq!(shown(false, true, &parts).0, format!("\u{1b}{text}\n"));
        assert_eq!(shown(true, true, &[thought("x\u{1b}[2J")]).1, "\u{1b}[2mx\u{fffd}[2J\u{1b}[0m\n\n");
        assert_eq!(shown(true, false, &[thought("x\u{1b}[2J")]).1, "x\u{1b}[2J\n");
    }

    #[test]
    fn the_thought_goes_to_stderr_and_both_end_with_one_line_end() {
        let parts = [thought("hm"), thought("m\n"), answer("yes"), answer("\n")];
        assert_eq!(shown(false, false, &parts), ("yes\n".to_owned(), "hmm\n".to_owned()));
        assert_eq!(shown(true, true, &[thought("a"), answer("b")]).1, "\u{1b}[2ma\u{1b}[0m\n\n");
        assert_eq!(shown(false, false, &[]), (String::new(), String::new()));
    }

    #[test]
    fn drafts_are_drawn_beside_the_answer_and_leave_nothing_behind() {
        let draft =
            |step| Part::Draft(Draft { block: 0, step, text: "a\n\u{1b}c".to_owned(), accepted: 0.5 });
        let (out, err) = shown(true, true, &[draft(1), draft(2), answer("abc"), draft(3)]);
        assert_eq!(out, "abc\n");
        assert_eq!((err.matches(OTHER_SCREEN).count(), err.matches(OWN_SCREEN).count()), (2, 2));
        assert!(err.ends_with(OWN_SCREEN) && err.contains("block 1, step 2, 50% taken"), "{err:?}");
        assert!(err.contains("a\u{1b}[K\r\n\u{fffd}c"), "{err:?}");
        assert_eq!(shown(true, false, &[draft(1), answer("abc")]), ("abc\n".to_owned(), String::new()));
    }
}
