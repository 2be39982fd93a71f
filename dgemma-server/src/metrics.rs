//! What is counted and measured, for `GET /metrics` in the OpenMetrics text format, which Prometheus reads.
//!
//! All names and buckets are constants here. The queue, the scheduler and the HTTP layer each report to the one [`Metrics`]
//! of their server; nothing is global, so that servers in one process do not mix.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::engine::Step;
use crate::{build, log_writer};

/// Media type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Stands before every name. Counters also get `_total`, the build gets `_info`.
pub const PREFIX: &str = "dgemma";
pub const REQUESTS: &str = "requests";
pub const REQUEST_SECONDS: &str = "request_seconds";
pub const REJECTED: &str = "rejected";
pub const CANCELLED: &str = "cancelled";
pub const ENCODINGS_ABANDONED: &str = "encodings_abandoned";
pub const PANICS: &str = "panics";
pub const ACCEPT_ERRORS: &str = "accept_errors";
pub const LOG_LINES_LOST: &str = "log_lines_lost";
pub const QUEUE_DEPTH: &str = "queue_depth";
pub const QUEUE_WAIT_SECONDS: &str = "queue_wait_seconds";
pub const BATCH_ROWS: &str = "batch_rows";
pub const FORWARD_SECONDS: &str = "forward_seconds";
pub const PREFILL_TOKENS: &str = "prefill_tokens";
pub const REUSED_TOKENS: &str = "reused_tokens";
pub const PREFIX_CACHE_BYTES: &str = "prefix_cache_bytes";
pub const LABEL_MASS: &str = "label_mass";
pub const GENERATED_TOKENS: &str = "generated_tokens";
pub const BLOCKS: &str = "blocks";
pub const DENOISE_STEPS: &str = "denoise_steps";
pub const UNCONVERGED_BLOCKS: &str = "unconverged_blocks";
pub const EMPTY_RETRIES: &str = "empty_retries";
pub const MODEL_LOAD_SECONDS: &str = "model_load_seconds";
pub const BUILD: &str = "build";

/// Stands for every path that is no route: such a path must not make a series of its own.
pub const OTHER_ROUTE: &str = "other";

/// Seconds: from a health check to a long prompt on a slow machine.
pub const SECONDS_BUCKETS: [f64; 16] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0];
/// Rows of a pass: prompt tokens and canvas rows together.
pub const ROWS_BUCKETS: [f64; 10] = [16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0];
/// Probability. Fine at the top: a good prompt leaves little outside the labels.
pub const MASS_BUCKETS: [f64; 10] = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteAndStatus {
    route: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// The metrics of one server.
pub struct Metrics {
    registry: Registry,
    requests: Family<RouteAndStatus, Counter>,
    request_seconds: Family<Route, Histogram, fn() -> Histogram>,
    rejected: Family<Reason, Counter>,
    cancelled: Counter,
    encodings_abandoned: Counter,
    panics: Counter,
    accept_errors: Counter,
    /// Of the process, as the log is.
    log_lines_lost: Counter,
    queue_depth: Gauge,
    queue_wait_seconds: Histogram,
    batch_rows: Histogram,
    forward_seconds: Histogram,
    prefill_tokens: Counter,
    reused_tokens: Counter,
    prefix_cache_bytes: Gauge,
    label_mass: Histogram,
    generated_tokens: Counter,
    blocks: Counter,
    denoise_steps: Counter,
    unconverged_blocks: Counter,
    empty_retries: Counter,
    model_load_seconds: Gauge<f64, AtomicU64>,
}

fn seconds() -> Histogram {
    Histogram::new(SECONDS_BUCKETS)
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Metrics {
            registry: Registry::with_prefix(PREFIX),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(seconds),
            rejected: Family::default(),
            cancelled: Counter::default(),
            encodings_abandoned: Counter::default(),
            panics: Counter::default(),
            accept_errors: Counter::default(),
            log_lines_lost: Counter::default(),
            queue_depth: Gauge::default(),
            queue_wait_seconds: seconds(),
            batch_rows: Histogram::new(ROWS_BUCKETS),
            forward_seconds: seconds(),
            prefill_tokens: Counter::default(),
            reused_tokens: Counter::default(),
            prefix_cache_bytes: Gauge::default(),
            label_mass: Histogram::new(MASS_BUCKETS),
            generated_tokens: Counter::default(),
            blocks: Counter::default(),
            denoise_steps: Counter::default(),
            unconverged_blocks: Counter::default(),
            empty_retries: Counter::default(),
            model_load_seconds: Gauge::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(REQUESTS, "Requests answered, by route and status", self.requests.clone());
        registry.register(REQUEST_SECONDS, "Time to the reply, by route", self.request_seconds.clone());
        registry.register(REJECTED, "Requests answered with an error, by its code", self.rejected.clone());
        registry.register(CANCELLED, "Requests whose client left before the reply", self.cancelled.clone());
        registry.register(
            ENCODINGS_ABANDONED,
            "Prompts that were being encoded when their client left",
            self.encodings_abandoned.clone(),
        );
        registry.register(PANICS, "Panics of request handlers and of forward passes", self.panics.clone());
        registry.register(
            ACCEPT_ERRORS,
            "Connections that the system could not accept, such as for want of file descriptors",
            self.accept_errors.clone(),
        );
        registry.register(
            LOG_LINES_LOST,
            "Lines of the log that nobody read in time",
            self.log_lines_lost.clone(),
        );
        registry.register(QUEUE_DEPTH, "Places of the queue taken now", self.queue_depth.clone());
        registry.register(QUEUE_WAIT_SECONDS, "Time a job waited", self.queue_wait_seconds.clone());
        registry.register(BATCH_ROWS, "Rows of one forward pass", self.batch_rows.clone());
        registry.register(FORWARD_SECONDS, "Time of one forward pass", self.forward_seconds.clone());
        registry.register(PREFILL_TOKENS, "Prompt tokens computed", self.prefill_tokens.clone());
        registry.register(
            REUSED_TOKENS,
            "Prompt tokens taken from the prefix cache",
            self.reused_tokens.clone(),
        );
        registry.register(
            PREFIX_CACHE_BYTES,
            "Bytes of encoded prefixes kept for reuse",
            self.prefix_cache_bytes.clone(),
        );
        registry.register(
            LABEL_MASS,
            "Probability of all labels of a slot together, before the restriction to them",
            self.label_mass.clone(),
        );
        registry.register(GENERATED_TOKENS, "Tokens of replies in text", self.generated_tokens.clone());
        registry.register(BLOCKS, "Blocks of replies in text", self.blocks.clone());
        registry.register(DENOISE_STEPS, "Denoise steps of replies in text", self.denoise_steps.clone());
        registry.register(
            UNCONVERGED_BLOCKS,
            "Blocks that were given out although they had not settled",
            self.unconverged_blocks.clone(),
        );
        registry.register(
            EMPTY_RETRIES,
            "Empty first blocks of replies that were thrown away",
            self.empty_retries.clone(),
        );
        registry.register(
            MODEL_LOAD_SECONDS,
            "Time from the start until the model was loaded",
            self.model_load_seconds.clone(),
        );
        let build = Info::new(vec![("version", build::VERSION), ("git_revision", build::GIT_REVISION)]);
        registry.register(BUILD, "Which build this is", build);
    }

    /// A reply went out.
    pub(crate) fn answered(&self, route: &'static str, status: u16, took: Duration) {
        self.requests.get_or_create(&RouteAndStatus { route, status }).inc();
        self.request_seconds.get_or_create(&Route { route }).observe(took.as_secs_f64());
    }

    /// A reply to bytes that never became a request.
    pub(crate) fn refused_head(&self, status: u16, reason: &'static str) {
        self.requests.get_or_create(&RouteAndStatus { route: OTHER_ROUTE, status }).inc();
        self.rejected(reason);
    }

    /// The reply was an error with this code.
    pub(crate) fn rejected(&self, reason: &'static str) {
        self.rejected.get_or_create(&Reason { reason }).inc();
    }

    pub(crate) fn cancelled(&self) {
        self.cancelled.inc();
    }

    /// A client left while its prompt was encoded.
    pub(crate) fn encoding_abandoned(&self) {
        self.encodings_abandoned.inc();
    }

    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }

    pub(crate) fn not_accepted(&self) {
        self.accept_errors.inc();
    }

    pub(crate) fn places_taken(&self, places: usize) {
        self.queue_depth.inc_by(places as i64);
    }

    pub(crate) fn places_freed(&self, places: usize) {
        self.queue_depth.dec_by(places as i64);
    }

    /// A job left the queue for the engine.
    pub(crate) fn begun(&self, waited: Duration, reused_tokens: usize) {
        self.queue_wait_seconds.observe(waited.as_secs_f64());
        self.reused_tokens.inc_by(reused_tokens as u64);
    }

    /// One pass over so many prompt tokens and rows of canvases.
    pub(crate) fn passed(&self, prompt_rows: usize, canvas_rows: usize, took: Duration) {
        self.batch_rows.observe((prompt_rows + canvas_rows) as f64);
        self.prefill_tokens.inc_by(prompt_rows as u64);
        self.forward_seconds.observe(took.as_secs_f64());
    }

    /// So many bytes are kept for reuse now.
    pub(crate) fn keeps(&self, bytes: usize) {
        self.prefix_cache_bytes.set(bytes as i64);
    }

    pub(crate) fn label_mass(&self, mass: f32) {
        self.label_mass.observe(f64::from(mass));
    }

    /// A step of a reply in text.
    pub(crate) fn stepped(&self, step: &Step) {
        self.denoise_steps.inc();
        match step {
            Step::Denoising { .. } => {}
            Step::Retrying => {
                self.empty_retries.inc();
            }
            Step::Committed { block, .. } => {
                self.blocks.inc();
                self.generated_tokens.inc_by(block.ids.len() as u64);
                self.unconverged_blocks.inc_by(u64::from(!block.converged));
            }
        }
    }

    pub(crate) fn loaded(&self, took: Duration) {
        self.model_load_seconds.set(took.as_secs_f64());
    }

    /// The text of `GET /metrics`.
    pub(crate) fn render(&self) -> Result<String, fmt::Error> {
        self.log_lines_lost.inner().store(log_writer::lost_lines(), Ordering::Relaxed);
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Metrics").finish_non_exhaustive()
    }
}
