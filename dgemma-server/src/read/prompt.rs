//! The prompt of a read: question sheet and state in the checkpoint's own chat template, as token ids.
//!
//! A later stage does not put the questions anew. It continues the prompt with the earlier answers as the beginning of the
//! model's own turn, so that everything before them is a prefix the engine already knows.

use decision::{AnswerForm, Layout, document_first_text, system_text};
use diffusion_gemma::{Message, RenderOptions};

use super::Text;
use crate::error::Error;

/// What of the model's own turn stands in the prompt.
#[derive(Debug, Clone, Copy)]
pub enum Begun<'a> {
    /// Answers to earlier questions, as the answer template writes them in the form of the sheet; may be empty. `thought`: what it
    /// thought before, without the tokens that open and close a thought.
    Answers { thought: Option<&'a [u32]>, given: &'a str },
    /// The beginning of a thought.
    Thinking,
}

/// What is put to the model, and the form in which it is to answer.
#[derive(Debug, Clone, Copy)]
pub struct Put<'a> {
    pub layout: Layout,
    pub sheet: &'a str,
    pub state: &'a str,
    pub form: AnswerForm,
}

/// Renders sheet and state up to where the model goes on. What cannot fit the context is refused unencoded; what nobody waits for
/// any more is left, by `go_on`.
pub fn render(
    text: &Text,
    put: Put<'_>,
    begun: Begun<'_>,
    context_tokens: usize,
    go_on: &dyn Fn() -> bool,
) -> Result<Vec<u32>, Error> {
    let Put { layout, sheet, state, form } = put;
    let messages = match layout {
        Layout::SchemaFirst => {
            vec![Message::text("system", system_text(sheet)), Message::text("user", state)]
        }
        Layout::DocumentFirst => vec![Message::text("user", document_first_text(state, sheet))],
    };
    let thinking = !matches!(begun, Begun::Answers { thought: None, .. });
    let options = RenderOptions { generation_prompt: true, thinking, ..RenderOptions::default() };
    let rendered = text.template.render(&text.tokenizer, &messages, &options)?;
    let mut ids = text.encode(&rendered, context_tokens, go_on)?;
    if thinking {
        ids.extend(text.markers.channel_open);
        ids.extend(text.tokenizer.encode_plain("thought\n")?);
    }
    let Begun::Answers { thought, given } = begun else { return Ok(ids) };
    if let Some(thought) = thought {
        ids.extend(thought);
        ids.extend(text.markers.channel_close);
    }
    if !given.is_empty() {
        if thought.is_none() {
            ids.extend(&text.turn_opening);
        }
        ids.extend(text.tokenizer.encode_plain(given)?);
        if form == AnswerForm::Lines {
            ids.extend(text.tokenizer.encode_plain("\n")?);
        }
    }
    Ok(ids)
}
