//! A conversation as the checkpoint's chat template renders it, tools and thoughts included, as token ids.
//!
//! Called by `api::generation`. What a client wrote never becomes a control token; the template alone writes those.

use diffusion_gemma::{Message, RenderOptions};
use serde_json::Value;

use crate::error::Error;
use crate::read::Text;

/// What the model shall go on from.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    pub messages: Vec<Message>,
    /// Declarations in OpenAI's form.
    pub tools: Vec<Value>,
    pub thinking: bool,
    /// The reply has to begin with a call.
    pub forced: Option<Forced>,
}

/// The call that a reply has to begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forced {
    Any,
    Tool(String),
}

/// The ids of a prompt, and those at its end that belong to the reply.
#[derive(Debug, Clone)]
pub struct Prompt {
    pub ids: Vec<u32>,
    pub begun: Vec<u32>,
}

/// Ids up to where the model goes on. What cannot fit the context is refused unencoded; what nobody waits for any more is left, by
/// `go_on`.
pub fn render(
    text: &Text,
    conversation: &Conversation,
    context_tokens: usize,
    go_on: &dyn Fn() -> bool,
) -> Result<Prompt, Error> {
    let Conversation { messages, tools, thinking, forced } = conversation;
    let options = RenderOptions { thinking: *thinking, generation_prompt: true, tools: tools.clone() };
    // The templates themselves refuse what they cannot write, and none of it is this server's fault.
    let refused = |error: diffusion_gemma::Error| {
        let reason = error.to_string();
        let reason = reason.split("; hint:").next().unwrap_or_default();
        Error::Messages {
            param: "messages".to_owned(),
            reason: format!("the chat template refuses the conversation: {reason}"),
            hint: "change the order of the messages, or what the reason names",
        }
    };
    let too_long = |error| match error {
        Error::PromptTooLong { bytes, fewest_tokens, context_tokens } => {
            Error::ConversationTooLong { bytes, fewest_tokens, context_tokens }
        }
        error => error,
    };
    let rendered = text.template.render(&text.tokenizer, messages, &options).map_err(refused)?;
    let mut ids = text.encode(&rendered, context_tokens, go_on).map_err(too_long)?;
    // After the answers of tools the model's turn goes on, and its thought is over.
    let is_new_turn = messages.last().is_none_or(|message| message.role != "tool");
    if is_new_turn && (!thinking || forced.is_some()) {
        ids.extend(&text.turn_opening);
    }
    let mut begun = Vec::new();
    if let (Some(forced), Some(call_open)) = (forced, text.markers.call_open) {
        begun.push(call_open);
        let words = match forced {
            Forced::Any => "call:".to_owned(),
            Forced::Tool(name) => format!("call:{name}{{"),
        };
        begun.extend(text.tokenizer.encode_plain(&words)?);
    }
    ids.extend(&begun);
    Ok(Prompt { ids, begun })
}
