//! The checkpoint's own `chat_template.jinja`, rendered with minijinja as transformers would render it.
//!
//! Published templates of this model differ (one ends the generation prompt with an empty thought block, a later one
//! does not), so nothing about the layout is written down in code. Packs carry no template and get `builtin_template.jinja`. Client text is guarded before it enters the
//! template; see [`crate::tokenizer`].

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use minijinja::value::{Kwargs, Value, ValueKind, ViaDeserialize};
use minijinja::{Environment, ErrorKind, context};
use serde::Serialize;
use serde_json::json;
use serde_json::ser::{PrettyFormatter, Serializer};

use crate::error::{Error, Result};
use crate::tokenizer::{Tokenizer, unguard};
use crate::weights::is_pack;

/// One message of a conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Message {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    pub role: String,
    /// What it says.
    pub content: Vec<Part>,
    /// Calls of tools that an assistant made.
    pub tool_calls: Vec<ToolCall>,
    /// What an assistant thought before it said so.
    pub reasoning: Option<String>,
    /// Which call a tool answers, and the name of that tool.
    pub answers: Option<(String, String)>,
}

/// A call of a tool as it stands in a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Its id, to which the answer refers.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Name → value.
    pub arguments: serde_json::Map<String, serde_json::Value>,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Client text, byte for byte.
    Text(String),
    /// The place of an image.
    Image,
}

impl Message {
    /// A message of plain text.
    pub fn text(role: impl Into<String>, text: impl Into<String>) -> Self {
        Self { role: role.into(), content: vec![Part::Text(text.into())], ..Self::default() }
    }
}

/// How to render.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions {
    /// Ask the model to think first.
    pub thinking: bool,
    /// End with the beginning of the model's turn.
    pub generation_prompt: bool,
    /// Tool declarations in the OpenAI form.
    pub tools: Vec<serde_json::Value>,
}

/// A rendered prompt, in which client text still carries its guards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered(String);

impl Rendered {
    #[cfg(test)]
    pub(crate) fn of_template(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn guarded(&self) -> &str {
        &self.0
    }

    /// The prompt as a person reads it.
    pub fn text(&self) -> String {
        unguard(&self.0).into_owned()
    }

    /// Whether the template itself (not client text) ended with this.
    pub fn ends_with(&self, suffix: &str) -> bool {
        self.0.ends_with(suffix)
    }
}

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    mentions_channel: bool,
    bos_token: String,
    eos_token: String,
}

const NAME: &str = "chat_template.jinja";

/// For packs, which are made without one.
const BUILTIN: &str = include_str!("builtin_template.jinja");

impl ChatTemplate {
    /// Reads `chat_template.jinja`, or the `chat_template` entry of `tokenizer_config.json`; a pack that has neither gets the
    /// built-in one.
    pub fn from_dir(dir: &Path) -> Result<Self> {
        let config = read_json(&dir.join("tokenizer_config.json"))?;
        let path = dir.join(NAME);
        let source = match fs::read_to_string(&path) {
            Ok(source) => source,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let builtin = is_pack(dir).then_some(BUILTIN);
                config["chat_template"].as_str().or(builtin).map(str::to_owned).ok_or_else(|| {
                    Error::checkpoint(
                        dir,
                        "neither chat_template.jinja nor a chat_template in tokenizer_config.json",
                        "copy the template of the published checkpoint into the folder",
                    )
                })?
            }
            Err(e) => return Err(Error::read(path)(e)),
        };
        let named = |key: &str, default: &str| {
            let token = &config[key];
            token.as_str().or_else(|| token["content"].as_str()).unwrap_or(default).to_owned()
        };
        Self::new(source, named("bos_token", "<bos>"), named("eos_token", "<eos>"))
    }

    /// Compiles a template.
    pub fn new(source: String, bos_token: String, eos_token: String) -> Result<Self> {
        let mentions_channel = source.contains("<|channel>");
        let mut env = Environment::new();
        // transformers renders with these two set, and templates are written for them.
        env.set_trim_blocks(true);
        env.set_lstrip_blocks(true);
        env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        env.add_function(
            "raise_exception",
            |message: String| -> std::result::Result<Value, minijinja::Error> {
                Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
            },
        );
        env.add_filter("tojson", tojson);
        // Nothing at all is no list.
        env.add_test("iterable", |value: Value| !value.is_none() && value.try_iter().is_ok());
        // As Python writes them; the templates of tools give such values out as they are.
        env.set_formatter(|out, state, value| match value {
            value if value.is_none() => write_fault(out.write_str("None")),
            value if value.kind() == ValueKind::Bool => {
                write_fault(out.write_str(if value.is_true() { "True" } else { "False" }))
            }
            value => minijinja::escape_formatter(out, state, value),
        });
        env.add_template_owned(NAME, without_generation_tags(source))
            .map_err(|e| Error::Template(describe(&e)))?;
        Ok(Self { env, mentions_channel, bos_token, eos_token })
    }

    /// Whether the template knows thought channels at all (decides if a canvas starts with an empty thought).
    pub fn mentions_channel(&self) -> bool {
        self.mentions_channel
    }

    /// Renders a conversation. `tokenizer` says which strings are control tokens, so that client text keeps out of them.
    pub fn render(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<Rendered> {
        let messages: Vec<serde_json::Value> =
            messages.iter().map(|m| guarded_message(tokenizer, m)).collect();
        let tools: Vec<serde_json::Value> = options.tools.iter().map(|t| guard_value(tokenizer, t)).collect();
        let context = context! {
            messages => messages,
            // transformers defines these two whether or not there are any.
            tools => if tools.is_empty() { Value::from(()) } else { Value::from_serialize(&tools) },
            documents => Value::from(()),
            add_generation_prompt => options.generation_prompt,
            enable_thinking => options.thinking,
            bos_token => self.bos_token,
            eos_token => self.eos_token,
        };
        let template = self.env.get_template(NAME).map_err(|e| Error::Template(describe(&e)))?;
        template.render(context).map(Rendered).map_err(|e| Error::Template(describe(&e)))
    }
}

/// transformers knows a block around what the model wrote, for training: `{% generation %}`. It changes nothing in a prompt.
fn without_generation_tags(source: String) -> String {
    if !source.contains("endgeneration") {
        return source;
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source.as_str();
    while let Some((before, tag)) = rest.split_once("{%") {
        let Some((inner, after)) = tag.split_once("%}") else { break };
        let tag = match inner.trim_matches(|c: char| c.is_whitespace() || matches!(c, '-' | '+')) {
            "generation" => inner.replace("generation", "if true"),
            "endgeneration" => inner.replace("endgeneration", "endif"),
            _ => inner.to_owned(),
        };
        out.extend([before, "{%", &tag, "%}"]);
        rest = after;
    }
    out + rest
}

/// Text alone goes in as a string (what most templates expect), anything with an image as a list of parts.
fn guarded_message(tokenizer: &Tokenizer, message: &Message) -> serde_json::Value {
    let content = match message.content.as_slice() {
        [Part::Text(text)] => json!(tokenizer.guard(text)),
        parts => parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => json!({"type": "text", "text": tokenizer.guard(text)}),
                Part::Image => json!({"type": "image"}),
            })
            .collect(),
    };
    let mut guarded = json!({"role": message.role, "content": content});
    if !message.tool_calls.is_empty() {
        let calls = message.tool_calls.iter().map(|call| {
            let arguments = guard_value(tokenizer, &serde_json::Value::Object(call.arguments.clone()));
            let function = json!({"name": tokenizer.guard(&call.name), "arguments": arguments});
            json!({"id": tokenizer.guard(&call.id), "type": "function", "function": function})
        });
        guarded["tool_calls"] = calls.collect();
    }
    if let Some(reasoning) = &message.reasoning {
        // Templates name it one way or the other.
        guarded["reasoning"] = json!(tokenizer.guard(reasoning));
        guarded["reasoning_content"] = guarded["reasoning"].clone();
    }
    if let Some((id, name)) = &message.answers {
        guarded["tool_call_id"] = json!(tokenizer.guard(id));
        guarded["name"] = json!(tokenizer.guard(name));
    }
    guarded
}

fn write_fault(written: std::fmt::Result) -> std::result::Result<(), minijinja::Error> {
    written.map_err(|_| minijinja::Error::new(ErrorKind::WriteFailure, "the prompt was not written"))
}

fn guard_value(tokenizer: &Tokenizer, value: &serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::String(text) => json!(tokenizer.guard(text)),
        serde_json::Value::Array(items) => items.iter().map(|v| guard_value(tokenizer, v)).collect(),
        serde_json::Value::Object(map) => {
            map.iter().map(|(k, v)| (tokenizer.guard(k), guard_value(tokenizer, v))).collect()
        }
        other => other.clone(),
    }
}

/// JSON on one line as Python's `json.dumps` writes it: a space after every comma and colon.
struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

/// `tojson` as transformers defines it: no HTML escapes, non-ASCII as it is, optional `indent`.
#[allow(clippy::needless_pass_by_value)] // the engine's filter signature
fn tojson(
    value: ViaDeserialize<serde_json::Value>,
    kwargs: Kwargs,
) -> std::result::Result<String, minijinja::Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    kwargs.assert_all_used()?;
    let fault = |e: serde_json::Error| minijinja::Error::new(ErrorKind::BadSerialization, e.to_string());
    let mut out = Vec::new();
    match indent {
        None => value.0.serialize(&mut Serializer::with_formatter(&mut out, Spaced)),
        Some(width) => {
            let pad = " ".repeat(width);
            value.0.serialize(&mut Serializer::with_formatter(
                &mut out,
                PrettyFormatter::with_indent(pad.as_bytes()),
            ))
        }
    }
    .map_err(fault)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// The whole chain of causes: minijinja's top message alone seldom says what went wrong.
fn describe(error: &minijinja::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn read_json(path: &Path) -> Result<serde_json::Value> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| {
            Error::checkpoint(path, format!("not JSON: {e}"), "the file is damaged, fetch it again")
        }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(serde_json::Value::Null),
        Err(e) => Err(Error::read(path)(e)),
    }
}
