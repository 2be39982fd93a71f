//! The prompt of a read: question sheet and state in the checkpoint's own chat template, as token ids.
//!
//! A later stage does not put the questions anew. It continues the prompt with the earlier answers as the beginning of the
//! model's own turn, so that everything before them is a prefix the engine already knows.

use decision::{AnswerForm, Layout, document_first_text, system_text};
use diffusion_gemma::{Message, RenderOptions};

use super::Text;
use crate::error::Error;

/// Renders sheet and state, thinking off, up to the beginning of the model's turn.
///
/// `given`: answers that stand in the prompt, as the answer template writes them in the form of the sheet; may be empty.
pub fn render(
    text: &Text,
    layout: Layout,
    sheet: &str,
    state: &str,
    form: AnswerForm,
    given: &str,
) -> Result<Vec<u32>, Error> {
    let messages = match layout {
        Layout::SchemaFirst => {
            vec![Message::text("system", system_text(sheet)), Message::text("user", state)]
        }
        Layout::DocumentFirst => vec![Message::text("user", document_first_text(state, sheet))],
    };
    let options = RenderOptions { generation_prompt: true, ..RenderOptions::default() };
    let rendered = text.template.render(&text.tokenizer, &messages, &options)?;
    let mut ids = text.tokenizer.encode_rendered(&rendered)?;
    if !given.is_empty() {
        ids.extend(&text.turn_opening);
        ids.extend(text.tokenizer.encode_plain(given)?);
        if form == AnswerForm::Lines {
            ids.extend(text.tokenizer.encode_plain("\n")?);
        }
    }
    Ok(ids)
}
