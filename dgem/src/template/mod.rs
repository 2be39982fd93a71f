//! A template file: loaded, understood and rendered to a decision request or to a text, without any server.
//!
//! The walk: [`Catalogue::load`] finds it; [`Template::load`] reads the text, refuses Go syntax and what would overwhelm tera,
//! takes the metadata comment and lets tera parse it; [`Template::render`] fills it in; [`Template::request`] turns the
//! rendered JSON into a validated schema and a state (`request`). What tera does happens on a thread with limits (`limited`). `check` looks for
//! faults before they happen.

mod built_in;
mod catalogue;
mod check;
mod filters;
mod functions;
mod go_syntax;
mod macros;
mod metadata;
mod nesting;
mod quoting;
mod rendered;
mod request;
mod skeleton;
mod tags;
mod unescape;
mod usage;

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tera::{Context, Tera};

use self::macros::Calls;
use self::usage::{Usage, Use};
use crate::capped;
use crate::error::Error;
use crate::foreign::visible;
use crate::limited::{self, Limits, Stopped};
use crate::variables::Variables;

pub use catalogue::{Catalogue, Entry, is_text};
pub use check::{Checked, check};
pub use metadata::Metadata;
pub(crate) use request::MOST_OPTIONS;
pub use request::{Request, client_limits};
pub use skeleton::{SKELETON, TEXT_SKELETON};

/// One variable of a template.
#[derive(Clone, Copy, Debug)]
pub struct Variable<'a> {
    pub name: &'a str,
    /// Rendering fails without it.
    pub required: bool,
    pub sample: Option<&'a Value>,
}

/// A parsed template, ready to render any number of times. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Template(Arc<Parsed>);

#[derive(Debug)]
struct Parsed {
    path: PathBuf,
    source: String,
    engine: Tera,
    metadata: Metadata,
    usage: Usage,
}

impl Template {
    pub fn load(path: &Path) -> Result<Self, Error> {
        let bytes = capped::read_file(path, capped::TEMPLATE_BYTES)
            .map_err(|cause| Error::TemplateFile { path: path.to_owned(), cause })?;
        let source = String::from_utf8(bytes).map_err(|cause| Error::TemplateNotUtf8 {
            path: path.to_owned(),
            offset: cause.utf8_error().valid_up_to(),
        })?;
        Self::parse(path, source)
    }

    fn parse(path: &Path, source: String) -> Result<Self, Error> {
        let source = source.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(source);
        if let Some(found) = go_syntax::find(&source) {
            return Err(Error::GoTemplate {
                path: path.to_owned(),
                line: found.line,
                tag: found.tag,
                rewrite: found.rewrite,
            });
        }
        if let Some(fault) = nesting::fault(&source) {
            return Err(Error::TemplateTooDeep {
                path: path.to_owned(),
                line: fault.line,
                reason: fault.reason,
            });
        }
        let metadata = Metadata::parse(&source).map_err(|fault| Error::TemplateMetadata {
            path: path.to_owned(),
            line: fault.line,
            reason: fault.reason,
        })?;
        let (engine, usage, calls) = {
            let (path, source) = (path.to_owned(), source.clone());
            limited::run(limits(0), move || understand(&path, &source))
        }
        .map_err(|stopped| Error::TemplateLimit { path: path.to_owned(), reason: stopped.reason() })?
        .map_err(|reason| Error::TemplateSyntax { path: path.to_owned(), reason })?;
        if let Some(reason) = macros::fault(calls) {
            return Err(Error::TemplateMacros { path: path.to_owned(), reason });
        }
        Ok(Self(Arc::new(Parsed { path: path.to_owned(), source, engine, metadata, usage })))
    }

    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The text as it was read.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// The variables the template reads, required ones first.
    pub fn variables(&self) -> Vec<Variable<'_>> {
        let mut variables: Vec<_> =
            self.0.usage.iter().map(|(name, usage)| self.variable(name, usage)).collect();
        variables.sort_by_key(|variable| !variable.required);
        variables
    }

    fn variable<'a>(&'a self, name: &'a str, usage: Use) -> Variable<'a> {
        let required =
            usage == Use::Required || self.0.metadata.required.iter().any(|required| required == name);
        Variable { name, required, sample: self.0.metadata.sample.get(name) }
    }

    /// The template's own sample values.
    pub fn samples(&self) -> &Map<String, Value> {
        &self.0.metadata.sample
    }

    /// Names given that neither the template nor its metadata knows.
    pub fn unknown<'a>(&self, variables: &'a Variables) -> Vec<&'a str> {
        variables.names().filter(|name| !self.known().contains(name)).collect()
    }

    /// Every name the template reads or documents.
    pub fn known(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.variables().iter().map(|variable| variable.name).collect();
        for name in self.0.metadata.required.iter().chain(self.0.metadata.sample.keys()) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    /// Whether it makes a text for `dgem ask` instead of a decision.
    pub fn is_text(&self) -> bool {
        is_text(&self.0.path)
    }

    /// What is said of a name that the template does not use.
    pub fn does_not_use(&self, name: &str) -> String {
        let known = self.known();
        let listed = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let meant = match decision::closest(name, known.iter().copied()) {
            Some(meant) => format!("; did you mean `{meant}`? It knows"),
            None => "; it knows".to_owned(),
        };
        format!("{} does not use the variable `{}`{meant}: {listed}", self.path().display(), visible(name))
    }

    /// The text it makes of the variables, without the blank lines around it.
    pub fn text(&self, variables: &Variables) -> Result<String, Error> {
        self.render(variables).map(|text| text.trim().to_owned())
    }

    /// The rendered text, whatever it is.
    pub fn render(&self, variables: &Variables) -> Result<String, Error> {
        self.within_limits(variables, Parsed::render)
    }

    /// The validated request this template makes of the variables.
    pub fn request(&self, variables: &Variables) -> Result<Request, Error> {
        self.within_limits(variables, Parsed::request)
    }

    /// [`Self::request`] for sending: a decision about nothing is refused.
    pub fn request_with_state(&self, variables: &Variables) -> Result<Request, Error> {
        self.request(variables).and_then(|request| self.0.with_state(request))
    }

    /// [`Self::request`] for a state that comes from elsewhere: a variable may be missing that only the template's own state shows.
    pub fn request_for_other_state(&self, variables: &Variables) -> Result<Request, Error> {
        let missing = match self.request(variables) {
            Err(error @ Error::UndefinedVariable { .. }) => error,
            done => return done,
        };
        let absent: Vec<&str> = self
            .variables()
            .into_iter()
            .filter(|variable| variable.required && !variables.contains(variable.name))
            .map(|variable| variable.name)
            .collect();
        // Each is filled with a text of its own, to see where it ends up.
        let marked = |number: usize| format!("dgem-absent-variable-{number}-");
        let fill = |(number, name): (usize, &&str)| ((*name).to_owned(), Value::String(marked(number)));
        let filled = variables.clone().or_else(&absent.iter().enumerate().map(fill).collect());
        let Ok(request) = self.request(&filled) else { return Err(missing) };
        let schema = request.schema.to_value().to_string();
        let only_in_state =
            |number: usize| request.state.contains(&marked(number)) && !schema.contains(&marked(number));
        // What decides which questions there are may show nowhere.
        let decides = |number: usize| tags::in_a_statement(&self.0.source, absent[number]);
        match (0..absent.len()).find(|number| !only_in_state(*number) || decides(*number)) {
            Some(number) => Err(self.0.undefined(absent[number], variables)),
            None => Ok(request),
        }
    }

    /// [`Self::request_with_state`] for many at once: each costs a share of one thread with limits. Those with pictures need no
    /// state beside them.
    pub fn requests(&self, all: Vec<(Variables, bool)>) -> Vec<Result<Request, Error>> {
        if all.is_empty() {
            return Vec::new();
        }
        let (parsed, shared) = (Arc::clone(&self.0), Arc::new(all));
        let limits = limits(shared.iter().map(|(variables, _)| variables.weight_bytes()).sum());
        let inside = Arc::clone(&shared);
        let together = limited::run(limits, move || {
            inside.iter().map(|(variables, pictures)| parsed.for_sending(variables, *pictures)).collect()
        });
        // One of them ran into a limit: each for itself tells which.
        together.unwrap_or_else(|_| {
            let alone = |(variables, pictures): &(Variables, bool)| {
                let pictures = *pictures;
                self.within_limits(variables, move |parsed, variables| {
                    parsed.for_sending(variables, pictures)
                })
            };
            shared.iter().map(alone).collect()
        })
    }

    fn within_limits<T: Send + 'static>(
        &self,
        variables: &Variables,
        job: impl FnOnce(&Parsed, &Variables) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (parsed, variables) = (Arc::clone(&self.0), variables.clone());
        let limits = limits(variables.weight_bytes());
        limited::run(limits, move || job(&parsed, &variables)).unwrap_or_else(|stopped| {
            let path = self.0.path.clone();
            let reason = stopped.reason();
            Err(match stopped {
                Stopped::Panic(_) => Error::TemplateRender { path, reason },
                _ => Error::TemplateLimit { path, reason },
            })
        })
    }
}

/// Longest time of one render. The largest shipped policy takes well under a millisecond.
const MOST_TIME: Duration = Duration::from_secs(5);
/// Memory of one render, beside what the variables need.
const BASE_BYTES: u64 = 256 << 20;
/// How many times the memory of the variables a render may need on top: a value is copied, encoded, printed and read again.
const VALUE_FACTOR: u64 = 8;

/// Of a render with variables of this many bytes.
fn limits(variables_bytes: u64) -> Limits {
    Limits { time: MOST_TIME, bytes: BASE_BYTES + VALUE_FACTOR * variables_bytes }
}

impl Parsed {
    fn request(&self, variables: &Variables) -> Result<Request, Error> {
        if is_text(&self.path) {
            let reason = "it is a text, for `dgem ask`".to_owned();
            return Err(Error::RenderedShape { path: self.path.clone(), reason });
        }
        Request::from_rendered(&self.render(variables)?, variables, &self.path)
    }

    fn for_sending(&self, variables: &Variables, pictures: bool) -> Result<Request, Error> {
        let request = self.request(variables)?;
        if pictures { Ok(request) } else { self.with_state(request) }
    }

    fn with_state(&self, request: Request) -> Result<Request, Error> {
        if request.lacks_state() { Err(Error::NoState { path: self.path.clone() }) } else { Ok(request) }
    }

    fn render(&self, variables: &Variables) -> Result<String, Error> {
        if let Some(name) = self.metadata.required.iter().find(|name| !variables.contains(name)) {
            return Err(self.undefined(name, variables));
        }
        let context = Context::from_value(Value::Object(variables.as_map().clone()))
            .map_err(|cause| self.render_error(&cause, variables))?;
        let mut text = capped::Sink { bytes: Vec::new(), most_bytes: capped::RENDERED_BYTES };
        self.engine
            .render_to(&self.path.display().to_string(), &context, &mut text)
            .map_err(|cause| self.render_error(&cause, variables))?;
        capped::text(text.bytes)
            .map_err(|cause| Error::TemplateRender { path: self.path.clone(), reason: cause.to_string() })
    }

    fn render_error(&self, cause: &tera::Error, variables: &Variables) -> Error {
        let reason = chain(cause);
        match undefined_name(&reason) {
            Some(name) => self.undefined(name, variables),
            None => Error::TemplateRender { path: self.path.clone(), reason },
        }
    }

    fn undefined(&self, name: &str, variables: &Variables) -> Error {
        let root = usage::root_of(name);
        let given: Vec<String> = variables.names().map(|name| format!("`{name}`")).collect();
        Error::UndefinedVariable {
            path: self.path.clone(),
            line: tags::line_of_name(&self.source, root),
            name: name.to_owned(),
            root: root.to_owned(),
            given: if given.is_empty() { "none".to_owned() } else { given.join(", ") },
        }
    }
}

/// What tera makes of a source, or what it says against it.
fn understand(path: &Path, source: &str) -> Result<(Tera, Usage, Calls), String> {
    let name = path.display().to_string();
    let mut engine = Tera::default();
    // The result is JSON, never HTML: nothing is escaped behind the author's back.
    engine.autoescape_on(vec![]);
    filters::register(&mut engine);
    functions::register(&mut engine);
    engine.add_raw_template(&name, source).map_err(|cause| chain(&cause))?;
    let (usage, calls) = engine.templates.get_mut(&name).map(usage::prepare).unwrap_or_default();
    Ok((engine, usage, calls))
}

/// An error of tera with everything below it; its own first line is only "Failed to render".
fn chain(error: &tera::Error) -> String {
    let mut lines = Vec::new();
    let mut next: Option<&dyn std::error::Error> = Some(error.source().unwrap_or(error));
    while let Some(cause) = next {
        lines.push(cause.to_string());
        next = cause.source();
    }
    lines.join(": ")
}

/// The name in tera's "Variable `x` not found in context".
fn undefined_name(reason: &str) -> Option<&str> {
    let (before, _) = reason.split_once("` not found in context")?;
    before.rsplit_once("Variable `").map(|(_, name)| name)
}

#[cfg(test)]
mod tests;
