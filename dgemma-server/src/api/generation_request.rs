//! A conversation to go on with: every field of the request that matters to it, checked.
//!
//! What cannot be done is refused here, before anything is rendered. Called by `Api::chat`; `generation` runs it.

use diffusion_gemma::{Message, Part, ToolCall};
use serde_json::{Map, Value, json};

use super::chat::{ChatMessage, ChatRequest, Content, Stop, brief, fault};
use crate::chat::conversation::{Conversation, Forced};
use crate::error::Error;

/// Most stop strings.
const MOST_STOPS: usize = 16;

/// What a reply shall be.
#[derive(Debug)]
pub struct GenerationRequest {
    pub conversation: Conversation,
    /// Most tokens of the reply; absent: 4096, or what fits.
    pub max_tokens: Option<usize>,
    pub stops: Vec<String>,
    pub seed: Option<u64>,
    /// The reply ends with its first call.
    pub one_call: bool,
    pub drafts: bool,
}

impl GenerationRequest {
    pub fn new(request: ChatRequest) -> Result<Self, Error> {
        if request.n.is_some_and(|n| n != 1) {
            let reason = format!("{} replies to one request", request.n.unwrap_or_default());
            return Err(parameter(
                "n",
                &reason,
                "this server gives one; send the request several times with different seeds",
            ));
        }
        let (tools, forced) = tools(&request)?;
        Ok(GenerationRequest {
            conversation: Conversation {
                messages: messages(&request.messages)?,
                tools,
                thinking: thinks(&request),
                forced,
            },
            max_tokens: max_tokens(&request)?,
            stops: stops(request.stop)?,
            // Any whole number is as good as another.
            seed: request.seed.map(|seed| seed as u64),
            one_call: request.parallel_tool_calls == Some(false),
            drafts: request.x_diffusion_drafts.unwrap_or(false),
        })
    }
}

/// The model's name wins over the fields; none of them: no thought.
fn thinks(request: &ChatRequest) -> bool {
    let of_name =
        request.model.as_deref().and_then(|name| name.rsplit_once(':')).and_then(
            |(_, suffix)| match suffix {
                "think" | "think=true" => Some(true),
                "think=false" => Some(false),
                _ => None,
            },
        );
    let of_template = request.chat_template_kwargs.and_then(|options| options.enable_thinking);
    of_name.or(request.enable_thinking).or(of_template).unwrap_or(false)
}

fn max_tokens(request: &ChatRequest) -> Result<Option<usize>, Error> {
    let (param, given) = match (request.max_completion_tokens, request.max_tokens) {
        (Some(given), _) => ("max_completion_tokens", given),
        (None, Some(given)) => ("max_tokens", given),
        (None, None) => return Ok(None),
    };
    match usize::try_from(given) {
        Ok(tokens @ 1..) => Ok(Some(tokens)),
        _ => Err(parameter(
            param,
            &format!("it is {given}"),
            "a reply has at least 1 token; leave it out for what fits",
        )),
    }
}

fn stops(stop: Option<Stop>) -> Result<Vec<String>, Error> {
    let stops = match stop {
        None => Vec::new(),
        Some(Stop::One(stop)) => vec![stop],
        Some(Stop::Several(stops)) => stops,
    };
    if stops.iter().any(String::is_empty) {
        return Err(parameter(
            "stop",
            "a stop string is empty",
            "leave it out, or send text that ends the reply",
        ));
    }
    if stops.len() > MOST_STOPS {
        return Err(parameter("stop", &format!("{} stop strings", stops.len()), "send at most 16"));
    }
    Ok(stops)
}

/// The declarations the model sees, and the call it has to make.
fn tools(request: &ChatRequest) -> Result<(Vec<Value>, Option<Forced>), Error> {
    let given = request.tools.as_deref().unwrap_or_default();
    let mut tools = given
        .iter()
        .enumerate()
        .map(|(number, tool)| declaration(number, tool))
        .collect::<Result<Vec<_>, _>>()?;
    let name = |tool: &Value| tool["function"]["name"].as_str().map(str::to_owned);
    let forced = match &request.tool_choice {
        None | Some(Value::Null) => None,
        Some(Value::String(choice)) => match choice.as_str() {
            "auto" => None,
            "none" => {
                tools.clear();
                None
            }
            "required" => Some(Forced::Any),
            other => {
                let reason = format!("it is {other:?}");
                return Err(parameter(
                    "tool_choice",
                    &reason,
                    "send \"auto\", \"none\", \"required\" or a function",
                ));
            }
        },
        Some(choice) => match choice["function"]["name"].as_str() {
            Some(wanted) if tools.iter().any(|tool| name(tool).as_deref() == Some(wanted)) => {
                Some(Forced::Tool(wanted.to_owned()))
            }
            Some(wanted) => {
                let reason = format!("there is no tool {wanted:?}");
                return Err(parameter("tool_choice", &reason, "name one of the functions in \"tools\""));
            }
            None => {
                let hint = "write {\"type\": \"function\", \"function\": {\"name\": …}}";
                return Err(parameter("tool_choice", "it names no function", hint));
            }
        },
    };
    if forced.is_some() && tools.is_empty() {
        return Err(parameter("tool_choice", "a call is required, and there are no tools", "send \"tools\""));
    }
    Ok((tools, forced))
}

/// One tool with all that a chat template reads of it.
fn declaration(number: usize, tool: &Value) -> Result<Value, Error> {
    let param = format!("tools[{number}]");
    let hint = "write {\"type\": \"function\", \"function\": {\"name\": …, \"description\": …, \"parameters\": {…}}}";
    if tool["type"].as_str().is_some_and(|kind| kind != "function") {
        return Err(parameter(
            &param,
            &format!("its type is {}", tool["type"]),
            "this server knows functions only",
        ));
    }
    let function = &tool["function"];
    let Some(name) = function["name"].as_str().filter(|name| is_name(name)) else {
        return Err(parameter(&param, "its function has no name of letters, digits, _, -, . or :", hint));
    };
    let description = function["description"].as_str().unwrap_or_default();
    let parameters = match &function["parameters"] {
        Value::Null => json!({"type": "object", "properties": {}}),
        parameters @ Value::Object(_) => parameters.clone(),
        _ => return Err(parameter(&param, "its parameters are no JSON schema", hint)),
    };
    let function = json!({"name": name, "description": description, "parameters": parameters});
    Ok(json!({"type": "function", "function": function}))
}

/// A name that the grammar of calls can hold.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.:/".contains(c))
}

/// Messages as the chat template takes them.
fn messages(given: &[ChatMessage]) -> Result<Vec<Message>, Error> {
    let mut messages: Vec<Message> = Vec::with_capacity(given.len());
    for (number, message) in given.iter().enumerate() {
        let at = format!("messages[{number}]");
        let content = content(message, &at)?;
        let mut taken = Message { role: message.role.clone(), content, ..Message::default() };
        match message.role.as_str() {
            "system" | "developer" | "user" => {}
            "assistant" => {
                for (call, given) in message.tool_calls.iter().flatten().enumerate() {
                    if given.kind.as_deref().is_some_and(|kind| kind != "function") {
                        let param = format!("{at}.tool_calls[{call}].type");
                        return Err(fault(&param, "it is no function", "this server knows functions only"));
                    }
                    let arguments = arguments(&given.function.arguments).ok_or_else(|| {
                        let param = format!("{at}.tool_calls[{call}].function.arguments");
                        fault(&param, "it is no JSON object as text", "send what the server gave, unchanged")
                    })?;
                    let name = given.function.name.clone();
                    taken.tool_calls.push(ToolCall { id: given.id.clone(), name, arguments });
                }
                taken.reasoning.clone_from(&message.reasoning_content);
            }
            "tool" => {
                let id = message.tool_call_id.as_deref().ok_or_else(|| {
                    let hint = "a tool message names the call it answers";
                    fault(&format!("{at}.tool_call_id"), "it is missing", hint)
                })?;
                let mut calls = messages.iter().rev().flat_map(|message| &message.tool_calls);
                let name =
                    calls.find(|call| call.id == id).map(|call| call.name.clone()).ok_or_else(|| {
                        let reason = format!("no assistant message before it has the call {id:?}");
                        fault(
                            &format!("{at}.tool_call_id"),
                            &reason,
                            "send the assistant message with its tool_calls too",
                        )
                    })?;
                taken.answers = Some((id.to_owned(), name));
            }
            other => {
                let reason = format!("the role is {other:?}");
                let hint = "the roles are system, developer, user, assistant and tool";
                return Err(fault(&format!("{at}.role"), &reason, hint));
            }
        }
        messages.push(taken);
    }
    Ok(messages)
}

/// The text of a message; an assistant's may be absent.
fn content(message: &ChatMessage, at: &str) -> Result<Vec<Part>, Error> {
    let absent = match &message.content {
        None => true,
        Some(Content::Text(_)) => false,
        Some(Content::Parts(parts)) => parts.is_empty(),
    };
    if absent && message.role == "assistant" {
        return Ok(vec![Part::Text(String::new())]);
    }
    Ok(vec![Part::Text(message.text(&format!("{at}.content"))?)])
}

fn arguments(text: &str) -> Option<Map<String, Value>> {
    if text.trim().is_empty() {
        return Some(Map::new());
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Some(map),
        _ => None,
    }
}

pub(super) fn parameter(param: &str, reason: &str, hint: &'static str) -> Error {
    Error::Parameter { param: param.to_owned(), reason: brief(reason), hint }
}
