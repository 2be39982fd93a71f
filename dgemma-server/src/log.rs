//! The log: text for people or JSON for collectors, on standard error.
//!
//! One JSON object a line, with the names Google's collector reads (`severity`, `message`, `time`, the trace); other
//! collectors map them as easily. Fields of a span, the id of a request above all, stand in every line within it. Nobody waits
//! for the log to be written: see `log_writer`.

use std::io::{self, IsTerminal, Write};

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Scope};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use crate::log_writer::LogWriter;

/// The trace of a line, as Google's collector names it.
const CLOUD_TRACE: &str = "logging.googleapis.com/trace";

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Text,
    Json,
}

/// Starts the log. `RUST_LOG` filters it; without, everything from `info` up is shown. The text of a panic may quote what
/// was being worked on, so it is shown only with `content`. Gives the writer, for the last line.
pub fn start(format: Format, content: bool) -> io::Result<LogWriter> {
    let writer = LogWriter::to_stderr(move |lost| lost_line(format, lost))?;
    let lines = writer.clone();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        Format::Text => {
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            registry
                .with(
                    fmt::layer()
                        .with_ansi(colour)
                        .log_internal_errors(false)
                        .with_writer(move || lines.clone()),
                )
                .init();
        }
        Format::Json => {
            let project = std::env::var("GOOGLE_CLOUD_PROJECT").ok();
            // It never fails: what cannot be written is counted.
            let write = move |line: &str| drop(lines.clone().write_all(line.as_bytes()));
            registry.with(Json { project, write }).init();
        }
    }
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        if content {
            tracing::error!(place, %panic, "a thread panicked");
        } else {
            tracing::error!(place, "a thread panicked; --log-content shows the message");
        }
    }));
    Ok(writer)
}

/// The line that tells of lines that nobody took in time.
fn lost_line(format: Format, lost: u64) -> String {
    let message = format!("{lost} lines of this log were lost: it was not read as fast as it was written");
    match format {
        Format::Text => format!("WARN {message}\n"),
        Format::Json => {
            let mut time = String::new();
            // Without it, the collector sets the time.
            let _ = SystemTime.format_time(&mut Writer::new(&mut time));
            let line = json!({"time": time, "severity": "WARNING", "message": message, "lost": lost});
            format!("{line}\n")
        }
    }
}

/// Writes events as JSON.
struct Json<W> {
    /// Completes the trace to the name Google's collector links by.
    project: Option<String>,
    write: W,
}

/// The fields of a span, kept with it.
struct SpanFields(Map<String, Value>);

/// Collects fields.
struct Collect<'a>(&'a mut Map<String, Value>);

impl<S, W> Layer<S> for Json<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Fn(&str) + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Map::new();
        attributes.record(&mut Collect(&mut fields));
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(SpanFields(fields));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(SpanFields(fields)) = span.extensions_mut().get_mut()
        {
            values.record(&mut Collect(fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Map::new();
        let mut time = String::new();
        if SystemTime.format_time(&mut Writer::new(&mut time)).is_ok() {
            line.insert("time".into(), time.into());
        }
        line.insert("severity".into(), severity(*event.metadata().level()).into());
        // Keeps its place before the fields; the event overwrites it.
        line.insert("message".into(), "".into());
        line.insert("target".into(), event.metadata().target().into());
        for span in context.event_scope(event).into_iter().flat_map(Scope::from_root) {
            if let Some(SpanFields(fields)) = span.extensions().get() {
                line.extend(fields.clone());
            }
        }
        event.record(&mut Collect(&mut line));
        if let Some(Value::String(trace)) = line.get("trace_id") {
            let name = match &self.project {
                Some(project) => format!("projects/{project}/traces/{trace}"),
                None => trace.clone(),
            };
            line.insert(CLOUD_TRACE.into(), name.into());
        }
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        (self.write)(&text);
    }
}

fn severity(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARNING",
        Level::INFO => "INFO",
        Level::DEBUG | Level::TRACE => "DEBUG",
    }
}

impl Visit for Collect<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_line_is_one_object_with_the_fields_of_its_spans() {
        let lines = Arc::new(Mutex::new(Vec::<String>::new()));
        let sink = Arc::clone(&lines);
        let json = Json {
            project: Some("p".into()),
            write: move |line: &str| sink.lock().unwrap().push(line.to_owned()),
        };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(json), || {
            let span =
                tracing::error_span!("request", request_id = "r\n\"1", trace_id = tracing::field::Empty);
            span.record("trace_id", "abc");
            span.in_scope(|| tracing::warn!(status = 429_u16, ms = 0.5, "refused\nso"));
            tracing::info!("outside");
        });
        let lines = lines.lock().unwrap();
        let parsed: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.iter().all(|line| line.ends_with('\n') && line.matches('\n').count() == 1));
        for (key, value) in [
            ("severity", "WARNING"),
            ("message", "refused\nso"),
            ("request_id", "r\n\"1"),
            (CLOUD_TRACE, "projects/p/traces/abc"),
        ] {
            assert_eq!(parsed[0][key], value, "{key}");
        }
        assert_eq!((&parsed[0]["status"], &parsed[0]["ms"]), (&429.into(), &0.5.into()));
        assert_eq!((&parsed[1]["severity"], parsed[1].get("request_id")), (&"INFO".into(), None));
        assert!(parsed[1]["time"].as_str().unwrap().ends_with('Z'));
    }
}
