//! From questions to rows and back: what a decision needs between its schema and the engine.
//!
//! `prompt` turns sheet and state into ids, `labels` chooses what stands for an answer, `canvas` lays out the answer template
//! and finds the slots, `noise` fills them,
//! `readout` turns the logits of a slot into a reading. Called by `api::walk`; knows neither HTTP nor the queue.

pub mod canvas;
pub mod labels;
pub mod noise;
pub mod prompt;
pub mod readout;

use std::path::Path;

use diffusion_gemma::{ChatTemplate, Message, RenderOptions, Rendered, Tokenizer, ToolCall};
use serde_json::json;

use crate::chat::Markers;
use crate::error::Error;

/// The text side of a checkpoint.
#[derive(Debug)]
pub struct Text {
    pub tokenizer: Tokenizer,
    pub template: ChatTemplate,
    /// What the model's turn has to begin with although the chat template leaves it out: the empty thought block, or
    /// nothing.
    pub turn_opening: Vec<u32>,
    /// Ends a turn.
    pub turn_close: u32,
    /// Structure a reply.
    pub markers: Markers,
    /// Whether the chat template can ask for a thought.
    pub thinks: bool,
    /// Whether the chat template writes declarations, calls and answers of tools.
    pub renders_tools: bool,
}

impl Text {
    /// Reads tokenizer and chat template of a checkpoint folder.
    pub fn from_dir(dir: &Path) -> Result<Self, Error> {
        let tokenizer = Tokenizer::from_dir(dir)?;
        let template = ChatTemplate::from_dir(dir)?;
        let options = RenderOptions { generation_prompt: true, ..RenderOptions::default() };
        probe(&template, &tokenizer, &options)?;
        let rendered = template.render(&tokenizer, &[Message::text("user", "")], &options)?;
        let mut turn_opening = Vec::new();
        // A template that knows thought channels and does not close one itself leaves the empty thought to the model.
        if template.mentions_channel() && !rendered.ends_with("<channel|>") {
            turn_opening.push(control(&tokenizer, "<|channel>")?);
            turn_opening.extend(tokenizer.encode_plain("thought\n")?);
            turn_opening.push(control(&tokenizer, "<channel|>")?);
        }
        let turn_close = control(&tokenizer, "<turn|>")?;
        let markers = Markers::new(&tokenizer);
        let thinking = RenderOptions { thinking: true, ..options };
        let thinks = template.render(&tokenizer, &[Message::text("user", "")], &thinking)? != rendered;
        let renders_tools = renders_tools(&template, &tokenizer);
        Ok(Text { tokenizer, template, turn_opening, turn_close, markers, thinks, renders_tools })
    }

    /// Ids of a prompt. One that is too long for the context by its bytes alone is not encoded: that would take long. `go_on`:
    /// whether anybody still waits for it; asked every few thousand bytes.
    pub fn encode(
        &self,
        rendered: &Rendered,
        context_tokens: usize,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Vec<u32>, Error> {
        let bytes = rendered.text().len();
        let fewest_tokens = self.tokenizer.fewest_tokens(bytes);
        if fewest_tokens > context_tokens {
            return Err(Error::PromptTooLong { bytes, fewest_tokens, context_tokens });
        }
        self.tokenizer.encode_rendered_while(rendered, go_on)?.ok_or(Error::Unwanted)
    }
}

/// Renders the two kinds of prompts that decisions have and looks for their texts: a template that loses one would give answers
/// about nothing.
fn probe(template: &ChatTemplate, tokenizer: &Tokenizer, options: &RenderOptions) -> Result<(), Error> {
    let texts =
        [("system", "probe A: é <b> & \"q\"\n\n- one"), ("user", "probe B: {\"k\": 'v'}\n  \\u00e9 <i>")];
    let message = |(role, text): (&str, &str)| Message::text(role, text);
    for messages in [&texts[..], &texts[1..]] {
        let asked: Vec<Message> = messages.iter().copied().map(message).collect();
        let rendered = template.render(tokenizer, &asked, options)?.text();
        if let Some((role, _)) = messages.iter().find(|(_, text)| !rendered.contains(text)) {
            return Err(Error::TemplateDrops { role });
        }
    }
    Ok(())
}

/// Renders a round of tools and looks for its three parts.
fn renders_tools(template: &ChatTemplate, tokenizer: &Tokenizer) -> bool {
    let arguments = json!({"probe_key": "probe C"});
    let call = ToolCall {
        id: "probe".into(),
        name: "probe_tool".into(),
        arguments: arguments.as_object().cloned().unwrap_or_default(),
    };
    let answers = Some((call.id.clone(), call.name.clone()));
    let messages = [
        Message::text("user", "probe"),
        Message { role: "assistant".into(), tool_calls: vec![call], ..Message::default() },
        Message { answers, ..Message::text("tool", "probe D") },
    ];
    let parameters =
        json!({"type": "object", "properties": {"probe_key": {"type": "string", "description": ""}}});
    let function = json!({"name": "probe_tool", "description": "probe E", "parameters": parameters});
    let tools = vec![json!({"type": "function", "function": function})];
    let options = RenderOptions { generation_prompt: true, tools, ..RenderOptions::default() };
    template.render(tokenizer, &messages, &options).is_ok_and(|rendered| {
        let text = rendered.text();
        ["probe C", "probe D", "probe E", "call:probe_tool"].iter().all(|part| text.contains(part))
    })
}

fn control(tokenizer: &Tokenizer, token: &'static str) -> Result<u32, Error> {
    tokenizer.token_id(token).ok_or(Error::MissingToken { token })
}
