//! The text side of a reply: a conversation to ids before it, ids to text, thoughts and calls after it.
//!
//! `conversation` renders messages and tools, `parser` takes generated ids apart with `call` for what stands in a call, `stop` holds
//! back what may become a stop string. Called by `api::generation`; knows neither HTTP nor the queue.

pub mod call;
pub mod conversation;
pub mod parser;
pub mod stop;

use diffusion_gemma::Tokenizer;

/// Ids of the control tokens that structure a reply; `None` where the tokenizer has no such token.
#[derive(Debug, Clone, Copy)]
pub struct Markers {
    pub channel_open: Option<u32>,
    pub channel_close: Option<u32>,
    pub call_open: Option<u32>,
    pub call_close: Option<u32>,
    pub quote: Option<u32>,
}

impl Markers {
    #[must_use]
    pub fn new(tokenizer: &Tokenizer) -> Self {
        Markers {
            channel_open: tokenizer.token_id("<|channel>"),
            channel_close: tokenizer.token_id("<channel|>"),
            call_open: tokenizer.token_id("<|tool_call>"),
            call_close: tokenizer.token_id("<tool_call|>"),
            quote: tokenizer.token_id("<|\"|>"),
        }
    }
}
