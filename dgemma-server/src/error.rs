//! Everything that can go wrong in this crate, in words for the person who has to act on it.
//!
//! Request errors become replies: [`Error::kind`] sorts them, and `http::error` holds the one table from kind to status.
//! Start-up errors end the program. Every message names the value at fault and ends with a hint.

use std::path::PathBuf;

use decision::{ReadingError, SchemaError};
use diffusion_gemma::Gib;

use crate::engine::EngineError;
use crate::queue::{Refused, Unanswered};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    // The request as HTTP sees it.
    #[error("no route {path:?}; hint: decisions go to POST /v1/chat/completions")]
    NoRoute { path: String },
    #[error("{path} does not take {method}; hint: see the Allow header of this reply")]
    MethodNotAllowed { method: String, path: String },
    #[error(
        "the body is larger than the limit of {limit_bytes} bytes; hint: send less, or start the server with a larger --body-limit-mib"
    )]
    BodyTooLarge { limit_bytes: usize },
    #[error(
        "{}; hint: send the header \"Content-Type: application/json\" (curl: -H 'Content-Type: application/json')",
        match found {
            Some(found) => format!("the Content-Type is {found:?}, and this route takes JSON"),
            None => "there is no Content-Type, and this route takes JSON".into(),
        }
    )]
    ContentType { found: Option<String> },
    #[error(
        "the Content-Encoding is {found:?}, and bodies are read as they are; hint: send the body uncompressed"
    )]
    ContentEncoding { found: String },
    #[error(
        "the Host {found:?} is no name of this machine, and a server without keys answers to no other on loopback; hint: ask for \
         localhost or 127.0.0.1, or start the server with --allow-host NAME or with keys"
    )]
    ForeignHost { found: String },
    #[error(
        "the web page {found:?} may not use this server, which has no keys; hint: start the server with --cors-origin ORIGIN to allow it"
    )]
    ForeignOrigin { found: String },
    #[error("the body ended early: {reason}; hint: send as many bytes as Content-Length says")]
    BodyCut { reason: String },
    #[error("the body is empty; hint: send a JSON object with \"messages\"")]
    BodyEmpty,
    #[error("the body is not UTF-8: byte {position} begins no character; hint: send the JSON in UTF-8")]
    BodyNotUtf8 { position: usize },
    #[error("the body is not JSON: {reason}; hint: send a JSON object with \"messages\"")]
    BodyNotJson { reason: String },
    #[error("{param}: {reason}; hint: the request is an OpenAI chat completion")]
    WrongType { param: String, reason: String },
    #[error("the header {name}: {reason}; hint: {hint}")]
    Header { name: &'static str, reason: String, hint: &'static str },
    #[error("the head of the request did not come within {seconds} s; hint: send the head in one piece")]
    SlowHead { seconds: f64 },
    #[error(
        "the body did not come within {seconds} s; hint: send it faster, or start the server with a larger --receive-seconds"
    )]
    SlowBody { seconds: f64 },
    #[error(
        "this is no HTTP request: its first line or a header cannot be read; hint: send HTTP/1.1 or HTTP/2, without TLS"
    )]
    BadHead,
    #[error("the path is too long; hint: send the request in the body")]
    UriTooLong,
    #[error("there are too many headers, or they are too long; hint: send fewer, such as no cookies")]
    HeadTooLarge,
    #[error("this server asks for an API key; hint: send the header \"Authorization: Bearer KEY\"")]
    NoKey,
    #[error("the API key is not one of this server's; hint: ask the operator for a key")]
    WrongKey,

    // The request as a decision.
    #[error("{param}: {reason}; hint: {hint}")]
    Messages { param: String, reason: String, hint: &'static str },
    #[error("{param}: {reason}; hint: {hint}")]
    Parameter { param: String, reason: String, hint: &'static str },
    #[error(
        "response_format: {reason}; hint: this server answers {{\"type\": \"json_schema\"}} with an object whose properties are all enums, \
         booleans or integers with minimum and maximum, from one pass; for anything else leave response_format out, or ask for JSON \
         in words"
    )]
    ResponseFormat { reason: String },
    #[error(
        "the prompt of {prompt_tokens} tokens leaves no room for a block of {canvas_tokens} in the context of {context_tokens} tokens; \
         hint: shorten the conversation, or start the server with a larger --ctx"
    )]
    NoRoom { prompt_tokens: usize, canvas_tokens: usize, context_tokens: usize },
    #[error(
        "the conversation has {bytes} bytes, at least {fewest_tokens} tokens, and the context has {context_tokens}; hint: shorten its \
         messages or tools, or start the server with a larger --ctx"
    )]
    ConversationTooLong { bytes: usize, fewest_tokens: usize, context_tokens: usize },
    #[error(
        "the chat template of this checkpoint does not write tools and their calls; hint: use the chat_template.jinja of the published \
         checkpoint, or send no tools"
    )]
    NoTools,
    /// A body of `/v1/systemone`. `path`: keys from the body inwards.
    #[error("{}: {reason}; hint: {hint}", if path.is_empty() { "body".into() } else { path.join(".") })]
    Systemone { path: Vec<String>, reason: String, hint: &'static str },
    #[error(
        "the request has {count} images, and this server does not read pixels yet; hint: leave \"images\" out and put what they show \
         into the state"
    )]
    Images { count: usize },
    #[error("{0}")]
    Schema(Box<SchemaError>),
    #[error("{key:?} is {value}, which this engine cannot do; hint: {hint}")]
    Unsupported { key: &'static str, value: String, hint: &'static str },
    #[error(
        "question {question:?}: the labels {first:?} and {second:?} cannot share one place of one token, with answers on lines or on \
         one line: {reason}; hint: the text before a label decides how the tokenizer cuts it, so rename the question"
    )]
    LabelClash { question: String, first: String, second: String, reason: &'static str },
    #[error(
        "question {question:?}: it has {needed} alternatives, and this model's vocabulary has labels of one token for {found} of \
         them; hint: merge alternatives, or ask in two steps: first the group, then the one"
    )]
    TooFewLabels { question: String, needed: usize, found: usize },
    #[error(
        "the answer template of {questions} needs {rows} canvas rows, and a canvas has {limit}; hint: give the questions shorter \
         ids, or raise \"chunk_rows\" if the schema sets it"
    )]
    CanvasTooSmall { questions: String, rows: usize, limit: usize },
    #[error(
        "the prompt of {prompt_tokens} tokens and a canvas of {canvas_tokens} rows do not fit the context of {context_tokens} \
         tokens; hint: shorten the state or the questions, or start the server with a larger --ctx"
    )]
    ContextExceeded { prompt_tokens: usize, canvas_tokens: usize, context_tokens: usize },
    #[error(
        "the state has {bytes} bytes, at least {fewest_tokens} tokens, and the context has {context_tokens}; hint: shorten the state, or \
         start the server with a larger --ctx"
    )]
    StateTooLong { bytes: usize, fewest_tokens: usize, context_tokens: usize },
    #[error(
        "the prompt has {bytes} bytes, at least {fewest_tokens} tokens, and the context has {context_tokens}; hint: shorten the \
         instructions, the questions or the state, or start the server with a larger --ctx"
    )]
    PromptTooLong { bytes: usize, fewest_tokens: usize, context_tokens: usize },
    #[error(
        "the decision needs {reads} reads at once, and the queue has {capacity} places; hint: ask less, or start the server with a larger --queue"
    )]
    TooManyReads { reads: usize, capacity: usize },

    // The state of the server.
    #[error("all {capacity} places of the queue are taken; hint: try again after the time in Retry-After")]
    Busy { capacity: usize },
    #[error(
        "nothing of the request was begun within {limit_ms} ms; hint: try again after the time in Retry-After, or start the server \
         with a larger --queue-wait-seconds"
    )]
    QueueWait { limit_ms: u128 },
    #[error(
        "there was no reply within the {timeout_ms} ms of X-Request-Timeout-Ms; hint: allow more time, or ask less at once"
    )]
    DeadlineExceeded { timeout_ms: u64 },
    #[error("the model is not ready: {phase}; hint: wait until GET /readyz answers 200")]
    NotReady { phase: &'static str },
    #[error(
        "the server is shutting down; hint: try another instance, or again after the time in Retry-After"
    )]
    Draining,
    /// Ends work for a client that has left, so nobody reads it.
    #[error("the client left while its prompt was encoded; hint: stay for the reply")]
    Unwanted,
    #[error("{0}; hint: this is a fault of the server, the request may be sent again")]
    Engine(#[from] EngineError),
    #[error(
        "the model gave a number that is not finite for the question {question:?} in draw {draw}; hint: the weights or the forward \
         pass are at fault, not the request, and no answer is made of such numbers"
    )]
    NonFinite { question: String, draw: usize },
    #[error("the engine thread has stopped; hint: restart the server")]
    EngineGone,
    #[error("{0}")]
    Reading(#[from] ReadingError),
    /// Tokenizer, chat template or checkpoint; its messages have hints of their own.
    #[error("{0}")]
    Model(#[from] diffusion_gemma::Error),
    #[error(
        "the tokenizer has no {token:?}; hint: tokenizer.json must be that of a DiffusionGemma checkpoint"
    )]
    MissingToken { token: &'static str },
    #[error(
        "the chat template of this checkpoint loses or changes the text of a {role} message; hint: no decision could be trusted \
         with it, so use the chat_template.jinja of the published checkpoint"
    )]
    TemplateDrops { role: &'static str },
    #[error("{what} stopped unexpectedly; hint: this is a fault of the server, please report it")]
    Internal { what: &'static str },

    // Start-up.
    #[error(
        "{reason}; hint: there are three ways to name a model: --model DIR, the environment variable DGEMMA_MODEL, or exactly one checkpoint folder (with a config.json) in ./model"
    )]
    NoModel { reason: String },
    #[error("{path}: no config.json, so this is no checkpoint folder; hint: pass the folder that holds config.json, tokenizer.json and the weights", path = .path.display())]
    NotACheckpoint { path: PathBuf },
    #[error(
        "API keys of {source_name}: {reason}; hint: one key is up to 256 visible ASCII characters; a file has one a line, the \
         variable separates them by commas; without both everybody is served"
    )]
    Keys { source_name: String, reason: &'static str },
    /// `what`: a device, a map of devices, or a file, as it was named.
    #[error("{what}: {reason}; hint: {hint}")]
    Setup { what: String, reason: String, hint: String },
    #[error(
        "the plan takes {}, of which {} for weights and {} for keys and values; there are {limit}; hint: {advice}",
        Gib(*needed), Gib(*weights), Gib(*kv)
    )]
    Memory { needed: u64, weights: u64, kv: u64, limit: String, advice: String },
    #[error("{what}: {source}; hint: {hint}")]
    Io { what: String, source: std::io::Error, hint: &'static str },
    #[error(
        "cold and warm decisions differ by {apart} in a probability, and {tolerance} is allowed; hint: the prefix cache or the \
         forward pass is at fault, the figures mean nothing"
    )]
    BenchDiffers { apart: f64, tolerance: f64 },
    #[error(
        "cannot use {}{}: {reason}; hint: one decision a line, as in {{\"schema\": {{…}}, \"state\": \"…\"}}", path.display(),
        if *line == 0 { String::new() } else { format!(", line {line}") }
    )]
    BenchFile { path: PathBuf, line: usize, reason: String },
    /// `what`: a file, a folder, a repository or an option.
    #[error("cannot download {what}: {reason}; hint: {hint}")]
    Download { what: String, reason: String, hint: String },
}

/// What an error means for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The request is wrong and will stay wrong.
    Invalid,
    NoRoute,
    MethodNotAllowed,
    /// No key, or a wrong one.
    Unauthorised,
    /// Not from there.
    Forbidden,
    /// A body in a form that is not read.
    MediaType,
    /// A limit is exceeded.
    TooLarge,
    UriTooLong,
    HeadTooLarge,
    /// The request took too long to come.
    TooSlow,
    /// The client's own deadline is over.
    TimedOut,
    /// Try again soon.
    Busy,
    /// Not ready yet, or shutting down.
    Unavailable,
    /// The server is at fault.
    Fault,
}

impl Error {
    /// A fault of the operating system, with the hint that fits it.
    #[must_use]
    pub fn io(what: &str, source: std::io::Error) -> Self {
        let hint = match source.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another program listens there; pass another --addr, or port 0 for a free one"
            }
            std::io::ErrorKind::PermissionDenied => "ports below 1024 need a privilege; pass another --addr",
            std::io::ErrorKind::AddrNotAvailable => "this machine has no such address; pass another --addr",
            _ => "the system refused, see its message before this hint",
        };
        Self::Io { what: what.into(), source, hint }
    }

    pub(crate) fn thread(source: std::io::Error) -> Self {
        Self::Io { what: "cannot start a thread".into(), source, hint: "raise the limit on threads" }
    }

    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::NoRoute { .. } => Kind::NoRoute,
            Self::MethodNotAllowed { .. } => Kind::MethodNotAllowed,
            Self::SlowHead { .. } | Self::SlowBody { .. } => Kind::TooSlow,
            Self::ContentType { .. } | Self::ContentEncoding { .. } => Kind::MediaType,
            Self::ForeignHost { .. } | Self::ForeignOrigin { .. } => Kind::Forbidden,
            Self::UriTooLong => Kind::UriTooLong,
            Self::HeadTooLarge => Kind::HeadTooLarge,
            Self::BodyTooLarge { .. }
            | Self::CanvasTooSmall { .. }
            | Self::ContextExceeded { .. }
            | Self::StateTooLong { .. }
            | Self::PromptTooLong { .. }
            | Self::TooManyReads { .. } => Kind::TooLarge,
            Self::BadHead
            | Self::BodyCut { .. }
            | Self::BodyEmpty
            | Self::BodyNotUtf8 { .. }
            | Self::BodyNotJson { .. }
            | Self::WrongType { .. }
            | Self::Header { .. }
            | Self::Messages { .. }
            | Self::Parameter { .. }
            | Self::ResponseFormat { .. }
            | Self::NoRoom { .. }
            | Self::ConversationTooLong { .. }
            | Self::NoTools
            | Self::Schema(_)
            | Self::Unsupported { .. }
            | Self::LabelClash { .. }
            | Self::TooFewLabels { .. }
            | Self::Systemone { .. }
            | Self::Images { .. } => Kind::Invalid,
            Self::Busy { .. } => Kind::Busy,
            Self::NoKey | Self::WrongKey => Kind::Unauthorised,
            Self::DeadlineExceeded { .. } => Kind::TimedOut,
            Self::NotReady { .. } | Self::Draining | Self::QueueWait { .. } | Self::Unwanted => {
                Kind::Unavailable
            }
            Self::Engine(_)
            | Self::NonFinite { .. }
            | Self::EngineGone
            | Self::Reading(_)
            | Self::Model(_)
            | Self::MissingToken { .. }
            | Self::TemplateDrops { .. }
            | Self::Internal { .. }
            | Self::NoModel { .. }
            | Self::NotACheckpoint { .. }
            | Self::Keys { .. }
            | Self::Setup { .. }
            | Self::Memory { .. }
            | Self::Io { .. }
            | Self::BenchDiffers { .. }
            | Self::BenchFile { .. }
            | Self::Download { .. } => Kind::Fault,
        }
    }

    /// Whether the server is at fault, and its operator has to know.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        self.kind() == Kind::Fault
    }

    /// A short name for programs, as OpenAI's `code`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoRoute { .. } => "not_found",
            Self::MethodNotAllowed { .. } => "method_not_allowed",
            Self::SlowHead { .. } => "head_timeout",
            Self::SlowBody { .. } => "body_timeout",
            Self::BadHead => "bad_request",
            Self::UriTooLong => "uri_too_long",
            Self::HeadTooLarge => "head_too_large",
            Self::BodyTooLarge { .. } => "body_too_large",
            Self::ContentType { .. } => "unsupported_content_type",
            Self::ContentEncoding { .. } => "unsupported_content_encoding",
            Self::ForeignHost { .. } => "foreign_host",
            Self::ForeignOrigin { .. } => "foreign_origin",
            Self::BodyCut { .. } => "body_cut",
            Self::BodyEmpty => "body_empty",
            Self::BodyNotUtf8 { .. } => "body_not_utf8",
            Self::BodyNotJson { .. } => "body_not_json",
            Self::WrongType { .. } => "wrong_type",
            Self::Header { .. } => "invalid_header",
            Self::NoKey => "missing_api_key",
            Self::WrongKey => "invalid_api_key",
            Self::Messages { .. } => "invalid_messages",
            Self::Parameter { .. } => "invalid_parameter",
            Self::ResponseFormat { .. } => "unsupported_response_format",
            Self::NoTools => "unsupported_tools",
            Self::Schema(_) => "invalid_schema",
            Self::Unsupported { .. } => "unsupported",
            Self::LabelClash { .. } => "label_clash",
            Self::TooFewLabels { .. } => "too_few_labels",
            Self::Systemone { .. } => "invalid_request",
            Self::Images { .. } => "images_not_read",
            Self::CanvasTooSmall { .. } => "canvas_length_exceeded",
            Self::ContextExceeded { .. }
            | Self::StateTooLong { .. }
            | Self::PromptTooLong { .. }
            | Self::NoRoom { .. }
            | Self::ConversationTooLong { .. } => "context_length_exceeded",
            Self::TooManyReads { .. } => "too_many_reads",
            Self::Busy { .. } => "queue_full",
            Self::QueueWait { .. } => "queue_timeout",
            Self::DeadlineExceeded { .. } => "deadline_exceeded",
            Self::NotReady { .. } => "not_ready",
            Self::Draining => "draining",
            Self::Unwanted => "client_left",
            Self::Engine(_) | Self::NonFinite { .. } | Self::Reading(_) => "engine_fault",
            Self::EngineGone => "engine_gone",
            Self::Model(_)
            | Self::MissingToken { .. }
            | Self::TemplateDrops { .. }
            | Self::Internal { .. }
            | Self::NoModel { .. }
            | Self::NotACheckpoint { .. }
            | Self::Keys { .. }
            | Self::Setup { .. }
            | Self::Memory { .. }
            | Self::Io { .. }
            | Self::BenchDiffers { .. }
            | Self::BenchFile { .. }
            | Self::Download { .. } => "internal_error",
        }
    }

    /// The field of the request that is at fault, as OpenAI's `param`.
    #[must_use]
    pub fn param(&self) -> Option<&str> {
        match self {
            Self::WrongType { param, .. } | Self::Messages { param, .. } | Self::Parameter { param, .. } => {
                Some(param)
            }
            Self::ResponseFormat { .. } => Some("response_format"),
            Self::NoTools => Some("tools"),
            Self::Schema(_)
            | Self::NoRoom { .. }
            | Self::ConversationTooLong { .. }
            | Self::Unsupported { .. }
            | Self::LabelClash { .. }
            | Self::TooFewLabels { .. }
            | Self::CanvasTooSmall { .. }
            | Self::ContextExceeded { .. }
            | Self::StateTooLong { .. }
            | Self::PromptTooLong { .. } => Some("messages"),
            Self::Header { name, .. } => Some(name),
            Self::ContentType { .. } => Some("Content-Type"),
            Self::ContentEncoding { .. } => Some("Content-Encoding"),
            Self::Systemone { path, .. } => path.last().map(String::as_str),
            Self::Images { .. } => Some("images"),
            _ => None,
        }
    }
}

impl From<SchemaError> for Error {
    fn from(error: SchemaError) -> Self {
        Self::Schema(Box::new(error))
    }
}

impl From<Unanswered> for Error {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Waited { limit } => Self::QueueWait { limit_ms: limit.as_millis() },
            Unanswered::Engine(error) => Self::Engine(error),
            Unanswered::Gone => Self::EngineGone,
        }
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Busy { capacity } => Self::Busy { capacity },
            Refused::TooMany { places, capacity } => Self::TooManyReads { reads: places, capacity },
            Refused::Closed => Self::EngineGone,
        }
    }
}
