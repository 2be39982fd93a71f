//! Every way a run of the client can fail: what failed, with which value, why, and a `hint:` line with what to do.
//!
//! `main` prints the message after `error: ` and takes the exit code from [`Error::exit`]. No message holds a token.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error as ThisError;

use crate::exit::Exit;
use crate::foreign::printable;
use crate::settings::Origin;

#[derive(Debug, ThisError)]
pub enum Error {
    // What was typed
    #[error(
        "invalid variable `{pair}`: expected key=value\nhint: write -v name='the value', or -v name=@file to read it from a file"
    )]
    BadVariable { pair: String },
    #[error(
        "cannot read {path}: {cause}\nhint: -v name=@file reads a file; for a value that starts with `@` write -v name=@@…"
    )]
    VariableFile { path: String, cause: io::Error },
    #[error(
        "{flag} wants to read stdin, which an earlier flag has already read\nhint: only one value can come from stdin; put the others into files"
    )]
    StdinTwice { flag: String },
    #[error(
        "cannot use {origin} as variables: {reason}\nhint: -d takes a file with one JSON object, such as {{\"ticket\": \"…\"}}"
    )]
    BadData { origin: String, reason: String },
    #[error("invalid --samples `{value}`\nhint: use a whole number from 1 to {most}, or auto")]
    BadSamples { value: String, most: u32 },
    #[error("invalid --layout `{value}`\nhint: use schema_first or document_first")]
    BadLayout { value: String },
    #[error("invalid --permute 0\nhint: use a number of orders from 2 on, such as 4")]
    BadPermute,
    #[error(
        "{flag} `{value}` is no share\nhint: write a percentage such as 16%, or a number from 0 to 1 such as 0.16"
    )]
    BadShare { flag: &'static str, value: String },
    #[error(
        "invalid --cascade-threshold `{value}`\nhint: say the unit: 16% of the most possible entropy, or 0.35nats"
    )]
    BadThreshold { value: String },
    #[error(
        "invalid --fail-if `{condition}`: {reason}\nhint: the form is ID=ANSWER, such as injection=yes or team=billing|support"
    )]
    BadCondition { condition: String, reason: String },
    #[error("there is no question `{field}` to show with --fields\nhint: {hint}")]
    UnknownField { field: String, hint: String },
    #[error(
        "the cascade cannot work: {reason}\nhint: name the second model with --cascade-url URL and --cascade-model MODEL, or set GEMINI_API_KEY, or --cascade-project for Vertex"
    )]
    BadCascade { reason: String },
    #[error(
        "cannot use the image {name}: {reason}\nhint: -I takes a PNG, JPEG, WebP, GIF or SVG file, a data URI with one, or an https URL"
    )]
    BadImage { name: String, reason: String },
    #[error(
        "the prompt cannot be used: {reason}\nhint: write it behind `dgem ask`, pipe it into `dgem ask -`, or name a text template with -t"
    )]
    BadPrompt { reason: String },
    #[error("{} holds questions, not a text\nhint: answer them with `dgem decide -t {}`; a text template ends in .txt.tmpl", path.display(), path.display())]
    NoTextTemplate { path: PathBuf },
    #[error("cannot read the schema {}: {cause}\nhint: --schema takes a JSON file with `questions`, or the JSON itself", path.display())]
    SchemaFile { path: PathBuf, cause: io::Error },
    #[error(
        "cannot use {name} as the state: {reason}\nhint: --state takes a file, JSON that begins with {{ or [, or - for stdin (echo 'some text' | dgem decide --state - …)"
    )]
    BadState { name: String, reason: String },

    // Settings
    #[error(
        "invalid server URL `{url}`: {reason}\nhint: a base URL looks like http://127.0.0.1:8080/v1 (-u or DGEM_URL)"
    )]
    BadUrl { url: String, reason: String },
    #[error("invalid {name} `{value}`, set by {origin}\nhint: {form}")]
    BadSetting { name: &'static str, value: String, origin: String, form: &'static str },
    #[error("{}", with_note(cause, &format!("set by {origin}")))]
    SetBy { origin: String, cause: Box<Error> },
    #[error("cannot read the settings in {}: {cause}\nhint: check --config or DGEM_CONFIG, or the permissions of the file", path.display())]
    SettingsFile { path: PathBuf, cause: io::Error },
    #[error("{}, line {line}: {reason}\nhint: a settings file is TOML with one `key = value` a line; `dgem config show` prints one", path.display())]
    SettingsSyntax { path: PathBuf, line: usize, reason: String },
    #[error("cannot use the certificates in {}: {reason}\nhint: --cacert takes a PEM file with at least one certificate", path.display())]
    BadCertificates { path: PathBuf, reason: String },
    #[error("cannot read the token file {}: {cause}\nhint: check --token-file or DGEM_TOKEN_FILE", path.display())]
    TokenFile { path: PathBuf, cause: io::Error },
    #[error(
        "the token from {origin} is empty or holds spaces or control characters\nhint: it must be one line with the bare token"
    )]
    BadToken { origin: String },
    #[error(
        "refusing to send a token over plain http to {url}\nhint: use an https URL, or unset the token if this server needs none"
    )]
    TokenInTheClear { url: String },

    #[error(
        "refusing to send the token of {token_origin} to {url}, which a file of the project names ({url_origin})\nhint: if that server is the right one, say so with -u {url} or DGEM_URL"
    )]
    TokenForProjectUrl { url: String, url_origin: String, token_origin: String },
    #[error(
        "{url} is no host of Google's, so that no Google token is sent there by itself\nhint: for a domain of your own in front of Cloud Run add --audience https://SERVICE.run.app; --gcp-auth=id or =access names the kind of token"
    )]
    UnknownHost { url: String },
    #[error("no Google credentials for {url}; tried:\n{}\nhint: log in with `gcloud auth login`, name a key file in GOOGLE_APPLICATION_CREDENTIALS, or bring a token (--token-file, --token-command)", tried.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n"))]
    NoCredentials { url: String, tried: Vec<String> },
    #[error("{provider} gave no token: {reason}\nhint: {hint}")]
    NoToken { provider: String, reason: String, hint: String, transient: bool },

    // Templates
    #[error("cannot read the template {}: {cause}\nhint: -t takes a path; `dgem template list` shows the templates below ./templates", path.display())]
    TemplateFile { path: PathBuf, cause: io::Error },
    #[error("there is no template `{name}`: it is no file, not in {} and not built in\nhint: {hint}", folder.display())]
    UnknownTemplate { name: String, folder: PathBuf, hint: String },
    #[error(
        "`{name}` cannot be the name of a template\nhint: use a name such as my_policy, or family/my_policy for a sub-folder; --templates DIR chooses the folder"
    )]
    BadTemplateName { name: String },
    #[error("cannot write the template {}: {cause}\nhint: existing files are not overwritten; choose another name, or delete the file first", path.display())]
    NewTemplate { path: PathBuf, cause: io::Error },
    #[error("cannot list templates in {}: {cause}\nhint: name the folder: --templates DIR or DGEM_TEMPLATES", path.display())]
    TemplateFolder { path: PathBuf, cause: io::Error },
    #[error("the template {} is not UTF-8: invalid byte at offset {offset}\nhint: save it as UTF-8", path.display())]
    TemplateNotUtf8 { path: PathBuf, offset: usize },
    #[error("{}, line {line}: `{tag}` is Go template syntax; templates here are tera\nhint: write {rewrite}", path.display())]
    GoTemplate { path: PathBuf, line: usize, tag: String, rewrite: String },
    #[error("{}, line {line}: invalid metadata comment: {reason}\nhint: it holds one JSON object with the keys description, required, sample and image", path.display())]
    TemplateMetadata { path: PathBuf, line: usize, reason: String },
    #[error("invalid template {}: {reason}\nhint: the syntax is that of tera 1: {{{{ value | json_encode }}}}, {{% if x %}}…{{% endif %}}, {{% for o in list %}}…{{% endfor %}}", path.display())]
    TemplateSyntax { path: PathBuf, reason: String },
    #[error("{}, line {line}: {reason}\nhint: templates fill a JSON text; deep nesting and other files are not part of them", path.display())]
    TemplateTooDeep { path: PathBuf, line: usize, reason: String },
    #[error("{} is stopped: {reason}\nhint: a template fills a short JSON text; look for loops in loops and for values that grow in a loop", path.display())]
    TemplateLimit { path: PathBuf, reason: String },
    #[error("invalid macros in {}: {reason}\nhint: use {{% for … %}} to repeat something", path.display())]
    TemplateMacros { path: PathBuf, reason: String },
    #[error("{}, line {line}: the variable `{name}` is not defined\n  variables given: {given}\nhint: pass it with -v {root}=…, or give it a default in the template: {{{{ {root} | or_default(value=\"…\") | json_encode }}}}", path.display())]
    UndefinedVariable { path: PathBuf, line: usize, name: String, root: String, given: String },
    #[error("cannot render {}: {reason}\nhint: `dgem template show` lists its variables with sample values", path.display())]
    TemplateRender { path: PathBuf, reason: String },
    #[error("{} renders to invalid JSON: {reason} at line {line}, column {column} of the rendered text\n{snippet}\nhint: see the whole text with `dgem template render --raw`; print values with `| json_encode`", path.display())]
    RenderedJson { path: PathBuf, line: usize, column: usize, reason: String, snippet: String },
    #[error("{} does not render to a decision: {reason}\nhint: the form is {{\"schema\": {{\"questions\": […]}}, \"state\": …}}", path.display())]
    RenderedShape { path: PathBuf, reason: String },
    #[error("{} leaves nothing to decide on: it renders no `state`, and no variables were given\nhint: add \"state\": … beside \"schema\", or pass the state's values with -v name=…", path.display())]
    NoState { path: PathBuf },
    #[error("invalid questions in {}: {}", path.display(), hint_on_its_own_line(cause))]
    Schema { path: PathBuf, cause: Box<decision::SchemaError> },
    #[error("{failed} of {checked} templates failed the check\nhint: the lines above name what to change")]
    CheckFailed { failed: usize, checked: usize },

    // Batches
    #[error("cannot read the rows in {}: {cause}\nhint: -i takes a JSONL or CSV file, or - for stdin", path.display())]
    BatchInput { path: PathBuf, cause: io::Error },
    #[error("reading the rows broke off: {cause}\nhint: what is done stays done; go on with --resume")]
    BatchRead { cause: io::Error },
    #[error("cannot use the output {}: {reason}\nhint: {hint}", path.display())]
    BatchOutput { path: PathBuf, reason: String, hint: &'static str },
    #[error("invalid {origin} `{value}`\nhint: the form is I/N, shards counted from 0: 0/4, 1/4, 2/4, 3/4")]
    BadShard { origin: &'static str, value: String },
    #[error("{reason}")]
    Row { reason: String },

    // Benchmarks
    #[error("cannot read the cases in {}: {cause}\nhint: name a JSONL file of cases; docs/benchmarks.md tells its form", path.display())]
    DatasetFile { path: PathBuf, cause: io::Error },
    #[error("{}, line {line}: {reason}\nhint: each line is one case as a JSON object; docs/benchmarks.md tells its form", path.display())]
    DatasetRow { path: PathBuf, line: usize, reason: String },
    #[error("there are no cases in {}: {reason}\nhint: look at the file, or ask for more: --limit, --offset, --tier, --category", path.display())]
    NoCases { path: PathBuf, reason: String },
    #[error("the cases do not fit {}: {reason}\nhint: mend the dataset, or name the template that it was made for", path.display())]
    DatasetFault { path: PathBuf, reason: String },
    #[error("{flag} makes no sense with {command}: {reason}\nhint: leave it out")]
    FlagWithoutSense { flag: &'static str, command: &'static str, reason: &'static str },
    #[error("cannot use the receipt {}: {reason}\nhint: it must come from the same benchmark over the same cases and templates, written with -o", path.display())]
    BadReceipt { path: PathBuf, reason: String },
    #[error(
        "cannot use the public set {set}: {reason}\nhint: --mirror names another place to fetch it from, --corpus a file with cases"
    )]
    PublicSet { set: &'static str, reason: String },
    #[error("cannot use the calibration {}: {reason}\nhint: fit one for this template, this model and this manner of reading: dgem calibrate fit", path.display())]
    BadCalibration { path: PathBuf, reason: String },
    #[error(
        "{origin} gives no calibration: {reason}\nhint: more labelled answers help, right and wrong ones; --min-answers lowers what is needed"
    )]
    NoCalibration { origin: String, reason: String },
    #[error("cannot write {}: {reason}\nhint: {hint}", path.display())]
    BenchOutput { path: PathBuf, reason: String, hint: &'static str },
    #[error("the case was not done within {seconds} s\nhint: allow more with --case-timeout")]
    CaseTooSlow { seconds: f64 },

    // The server
    #[error(
        "cannot set up HTTP: {cause}\nhint: check the system's certificate store and the proxy variables"
    )]
    HttpSetup { cause: String },
    #[error(
        "cannot reach {origin}: {cause}\nhint: start the server (dgemma-server --model DIR), or name another with -u URL or DGEM_URL"
    )]
    Unreachable { origin: String, cause: String },
    #[error("{origin} does not speak TLS\nhint: the server is probably plain http: -u {plain}/v1")]
    NoTls { origin: String, plain: String },
    #[error(
        "the certificate of {origin} is not trusted: {cause}\nhint: name the issuer's certificate with --cacert FILE, or check the host name in the URL"
    )]
    Untrusted { origin: String, cause: String },
    /// Only seen by those who wait for the server.
    #[error("{url} answered HTTP 503: not ready yet\nhint: wait for it with --wait-ready 10m")]
    NotReady { url: String, body: Vec<u8> },
    #[error(
        "the server was not ready within {seconds} s: {state} ({url})\nhint: allow more with --wait-ready; the server's log tells what it is doing"
    )]
    NeverReady { url: String, seconds: f64, state: String },
    #[error(
        "no reply from {url} within {seconds} s\nhint: allow more with --timeout SECONDS; a server that starts may need minutes"
    )]
    DeadlinePassed { url: String, seconds: f64 },
    #[error("the connection to {url} broke: {cause}\nhint: try again; if it stays, look at the server's log")]
    Transport { url: String, cause: String },
    #[error("{url} answered HTTP {status}: {message}\nhint: {hint}")]
    Status { url: String, status: u16, message: String, hint: String },
    #[error(
        "the reply of {url} is no decision: {reason}\n  reply: {excerpt}\nhint: this server may not support decisions; dgemma-server does, without --api openai"
    )]
    NoDecision { url: String, reason: String, excerpt: String },
    #[error(
        "the reply of {url} is no chat completion: {reason}\n  reply: {excerpt}\nhint: the URL usually ends in /v1"
    )]
    NoCompletion { url: String, reason: String, excerpt: String },
    #[error("the reply of {url} broke off: {reason}\nhint: {hint}")]
    BrokeOff { url: String, reason: String, hint: &'static str },
    #[error(
        "the reply of {url} ended in an error: {message}\nhint: {}", if *refused { "the server refused the request; its message above says why" } else { "try again; if it stays, look at the server's log" }
    )]
    EndedInError {
        url: String,
        message: String,
        /** Trying again changes nothing. */
        refused: bool,
    },
    #[error(
        "the reply of {url} is no list of models: {reason}\n  reply: {excerpt}\nhint: the URL usually ends in /v1"
    )]
    NoModels { url: String, reason: String, excerpt: String },
    #[error(
        "the reply of {url} is larger than {limit_mib} MiB\nhint: this is no server of models, or it is broken"
    )]
    ReplyTooLarge { url: String, limit_mib: usize },
    #[error(
        "the score `{id}` has {count} levels, and the server reads at most {limit}\nhint: merge levels: a scale cannot be asked in parts"
    )]
    TooManyLevels { id: String, count: usize, limit: usize },
    #[error(
        "{count} options of `{id}` must be in the final, and the server reads at most {limit}\nhint: conditions (ask_if) name too many of its options; merge some"
    )]
    TooManySeeded { id: String, count: usize, limit: usize },
    #[error(
        "a group of options of `{id}` has no usable answer: {reason}\nhint: try again; if it stays, the server does not answer within the options"
    )]
    BracketLost { id: String, reason: String },

    #[error("{}", with_note(cause, &gave_up(*attempts, *waited_seconds, before.as_deref())))]
    GaveUp {
        /// Tries, the first included.
        attempts: u32,
        /// Time between them.
        waited_seconds: f64,
        /// What the try before died of, where the last one only ran out of time.
        before: Option<String>,
        cause: Box<Error>,
    },

    #[error("interrupted\nhint: nothing was written")]
    Interrupted,

    // This machine
    #[error(
        "cannot start {what}: {cause}\nhint: this machine allows no more threads or open files; raise the limits (ulimit -u, ulimit -n)"
    )]
    System { what: &'static str, cause: io::Error },
    #[error("cannot write the manual to {}: {cause}\nhint: name a folder that can be written to", folder.display())]
    Manual { folder: PathBuf, cause: io::Error },
    #[error("cannot write the output: {0}\nhint: check the disk, or what the output is piped into")]
    Output(#[from] io::Error),
}

impl Error {
    /// A mistake in the questions of a template.
    pub fn schema(path: &Path, cause: decision::SchemaError) -> Self {
        Self::Schema { path: path.to_owned(), cause: Box::new(cause) }
    }

    /// The same, with where the wrong value stands. Of a flag that is plain.
    pub(crate) fn set_by(self, origin: &Origin) -> Self {
        match origin {
            Origin::Flag(_) => self,
            origin => Self::SetBy { origin: origin.to_string(), cause: Box::new(self) },
        }
    }

    /// The HTTP status of the server's answer, if it was one that ended the run.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::GaveUp { cause, .. } => cause.status(),
            _ => None,
        }
    }

    /// What failed, without the lines below.
    pub fn headline(&self) -> String {
        self.to_string().lines().next().unwrap_or_default().to_owned()
    }

    /// For a terminal: names of files, words of templates and of servers in it drive none.
    pub fn shown(&self) -> String {
        printable(&self.to_string())
    }

    /// The exit code of each kind.
    pub fn exit(&self) -> Exit {
        match self {
            Self::GaveUp { cause, .. } | Self::SetBy { cause, .. } => cause.exit(),
            Self::HttpSetup { .. }
            | Self::NoToken { transient: true, .. }
            | Self::NoTls { .. }
            | Self::Untrusted { .. }
            | Self::NotReady { .. }
            | Self::NeverReady { .. }
            | Self::Unreachable { .. }
            | Self::DeadlinePassed { .. }
            | Self::CaseTooSlow { .. }
            | Self::Transport { .. }
            | Self::BrokeOff { .. }
            | Self::EndedInError { refused: false, .. }
            | Self::Status { status: 408 | 425 | 429 | 500.., .. } => Exit::Unavailable,
            Self::TokenFile { .. }
            | Self::BadToken { .. }
            | Self::TokenInTheClear { .. }
            | Self::TokenForProjectUrl { .. }
            | Self::UnknownHost { .. }
            | Self::NoCredentials { .. }
            | Self::NoToken { .. }
            | Self::Status { status: 401 | 403 | 407, .. } => Exit::Auth,
            Self::Status { .. }
            | Self::NoDecision { .. }
            | Self::NoCompletion { .. }
            | Self::EndedInError { .. }
            | Self::NoModels { .. }
            | Self::ReplyTooLarge { .. }
            | Self::TooManyLevels { .. }
            | Self::TooManySeeded { .. }
            | Self::BracketLost { .. } => Exit::Rejected,
            Self::Interrupted => Exit::Interrupted,
            _ => Exit::Usage,
        }
    }
}

/// The contract crate writes its hints on the same line.
fn hint_on_its_own_line(cause: &decision::SchemaError) -> String {
    cause.to_string().replace("; hint: ", "\nhint: ")
}

/// A message with one more line in front of its hint.
fn with_note(cause: &Error, note: &str) -> String {
    let text = cause.to_string();
    match text.split_once("\nhint: ") {
        Some((what, hint)) => format!("{what}\n  {note}\nhint: {hint}"),
        None => format!("{text}\n  {note}"),
    }
}

fn gave_up(attempts: u32, waited_seconds: f64, before: Option<&str>) -> String {
    let before = before.map(|cause| format!("; the one before: {cause}")).unwrap_or_default();
    format!("gave up after {attempts} attempts and {waited_seconds:.1} s of waiting between them{before}")
}
