//! Generated ids to what a client gets: the answer, the thought before it, calls of tools.
//!
//! The one parser of streamed and of plain replies. Structure is read from control tokens only, so text that merely spells a marker
//! is text. State lives across blocks. Called by `api::generation`.

use diffusion_gemma::TextStream;

use super::call::{self, Call, Symbol};
use crate::read::Text;

/// The channel of thoughts.
const THOUGHT: &str = "thought";
/// A channel's name is shorter; beyond that the line is text of the thought.
const LONGEST_NAME: usize = 32;

/// A piece of a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    Content(String),
    Reasoning(String),
    Call(Call),
}

/// Where in a reply the parser is.
#[derive(Debug)]
enum Place {
    Content,
    /// The first line of a channel so far, which names it.
    Name(String),
    Thought,
    Call {
        symbols: Vec<Symbol>,
        in_thought: bool,
    },
}

/// Reads one reply, id by id.
#[derive(Debug)]
pub struct Parser {
    place: Place,
    stream: TextStream,
    /// Space before the answer, or after what a thought has so far: given out only if more follows.
    held: String,
    content_begun: bool,
    reasoning_begun: bool,
    takes_calls: bool,
    calls: usize,
    reasoning_ids: usize,
}

impl Parser {
    /// `takes_calls`: whether the model was given tools. A call of one that it made up is text.
    #[must_use]
    pub fn new(takes_calls: bool) -> Self {
        Parser {
            takes_calls,
            place: Place::Content,
            stream: TextStream::default(),
            held: String::new(),
            content_begun: false,
            reasoning_begun: false,
            calls: 0,
            reasoning_ids: 0,
        }
    }

    /// What can be given out after this id.
    pub fn push(&mut self, text: &Text, id: u32) -> Vec<Piece> {
        let (markers, id) = (text.markers, Some(id));
        let mut pieces = Vec::new();
        self.reasoning_ids += usize::from(matches!(self.place, Place::Name(_) | Place::Thought));
        if id == markers.call_open {
            self.leave(&mut pieces);
            let in_thought = matches!(self.place, Place::Name(_) | Place::Thought);
            self.place = Place::Call { symbols: Vec::new(), in_thought };
        } else if let Place::Call { symbols, .. } = &mut self.place {
            if id == markers.call_close {
                self.leave(&mut pieces);
            } else {
                // No other control token means anything in here.
                let before = if id == markers.quote { self.stream.finish() } else { String::new() };
                symbols.extend(before.chars().map(Symbol::Char));
                if id == markers.quote {
                    symbols.push(Symbol::Quote);
                } else if let Some(id) = id {
                    symbols.extend(self.stream.push(&text.tokenizer, id).chars().map(Symbol::Char));
                }
            }
        } else if id == markers.channel_open {
            self.leave(&mut pieces);
            self.place = Place::Name(String::new());
        } else if id == markers.channel_close {
            self.leave(&mut pieces);
            self.place = Place::Content;
        } else if let Some(id) = id {
            let more = self.stream.push(&text.tokenizer, id);
            self.take(&more, &mut pieces);
        }
        pieces
    }

    /// What is left at the end of the reply.
    pub fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        self.leave(&mut pieces);
        if self.calls == 0 && !self.held.is_empty() {
            pieces.push(Piece::Content(std::mem::take(&mut self.held)));
        }
        pieces
    }

    /// Whether a reader has seen nothing so far, and nothing is on its way.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        let thinking = matches!(self.place, Place::Name(_) | Place::Thought) && self.reasoning_begun;
        !self.content_begun && self.calls == 0 && !thinking && !matches!(self.place, Place::Call { .. })
    }

    /// Calls so far.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// Ids so far that belonged to thoughts.
    #[must_use]
    pub fn reasoning_ids(&self) -> usize {
        self.reasoning_ids
    }

    /// Ends what the parser is in; a call returns to where it began.
    fn leave(&mut self, pieces: &mut Vec<Piece>) {
        let rest = self.stream.finish();
        match std::mem::replace(&mut self.place, Place::Content) {
            Place::Content => self.content(&rest, pieces),
            Place::Name(mut name) => {
                name.push_str(&rest);
                // Cut off in the middle of the name, or a channel with nothing but its name.
                if !THOUGHT.starts_with(name.trim()) {
                    self.reasoning(&name, pieces);
                }
                self.held.clear();
            }
            Place::Thought => {
                self.reasoning(&rest, pieces);
                self.held.clear();
            }
            Place::Call { mut symbols, in_thought } => {
                symbols.extend(rest.chars().map(Symbol::Char));
                match call::read(&symbols).filter(|_| self.takes_calls) {
                    Some(call) => {
                        self.calls += 1;
                        pieces.push(Piece::Call(call));
                    }
                    None => self.content(&call::text(&symbols), pieces),
                }
                if in_thought {
                    self.place = Place::Thought;
                }
            }
        }
    }

    fn take(&mut self, more: &str, pieces: &mut Vec<Piece>) {
        match &mut self.place {
            Place::Content => self.content(more, pieces),
            Place::Thought => self.reasoning(more, pieces),
            Place::Name(name) => {
                name.push_str(more);
                let ended = name.find('\n');
                if ended.is_none() && name.len() <= LONGEST_NAME {
                    return;
                }
                let text = match ended {
                    Some(at) if at <= LONGEST_NAME => name.split_off(at + 1),
                    _ => std::mem::take(name),
                };
                self.place = Place::Thought;
                self.reasoning(&text, pieces);
            }
            Place::Call { .. } => {}
        }
    }

    fn content(&mut self, more: &str, pieces: &mut Vec<Piece>) {
        if !self.content_begun {
            self.held.push_str(more);
            if self.held.trim().is_empty() {
                return;
            }
            self.content_begun = true;
            pieces.push(Piece::Content(std::mem::take(&mut self.held)));
        } else if !more.is_empty() {
            pieces.push(Piece::Content(more.to_owned()));
        }
    }

    fn reasoning(&mut self, more: &str, pieces: &mut Vec<Piece>) {
        let mut text = std::mem::take(&mut self.held) + more;
        if !self.reasoning_begun {
            text.drain(..text.len() - text.trim_start().len());
        }
        let end = text.trim_end().len();
        self.held = text.split_off(end);
        if !text.is_empty() {
            self.reasoning_begun = true;
            pieces.push(Piece::Reasoning(text));
        }
    }
}
