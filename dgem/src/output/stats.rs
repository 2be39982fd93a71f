//! The statistics of one decision: as the block of the user's README, or as the `stats` object of the JSON document.

use std::fmt;

use decision::Policy;
use serde::Serialize;
use serde_json::Value;

use crate::client::{Decided, Reply};
use crate::foreign::visible;

const RULE_CHARS: usize = 71;

#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// `None` when the server does not name its model.
    pub model: Option<String>,
    pub endpoint: String,
    pub wall_ms: f64,
    /// `None` when the server does not count them.
    pub prompt_tokens: Option<u64>,
    /// Prompt tokens whose computation was saved by the server's prefix cache.
    pub reused_tokens: u64,
    /// `reused_tokens / prompt_tokens`; `None` without a prompt length to divide by.
    pub cache_hit_rate: Option<f64>,
    pub denoise_steps: u32,
    /// Number of noise draws.
    pub samples: u32,
    /// How that number was chosen.
    pub policy: String,
    /// Further tries, because the server was busy or the connection failed.
    pub retries: u32,
}

impl Stats {
    pub fn new(decided: &Decided) -> Self {
        let reply = &decided.reply;
        let diagnostics = &reply.diagnostics;
        let samples = diagnostics.samples.n.max(1);
        let reused_tokens = diagnostics.timing.reused_tokens;
        Self {
            model: reply.model.clone(),
            endpoint: decided.url.clone(),
            wall_ms: rounded(decided.wall.as_secs_f64() * 1e3),
            prompt_tokens: reply.prompt_tokens,
            reused_tokens,
            cache_hit_rate: reply
                .prompt_tokens
                .filter(|tokens| *tokens > 0)
                .map(|tokens| rounded(reused_tokens as f64 / tokens as f64)),
            denoise_steps: steps(reply),
            samples,
            policy: policy(&diagnostics.samples.policy, samples),
            retries: decided.tally.retries,
        }
    }
}

/// To thousandths: more digits of a measured time say nothing.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Some servers count the steps in the timing instead. A decision takes at least one.
fn steps(reply: &Reply) -> u32 {
    let counted = reply.diagnostics_json.pointer("/timing/steps_run").and_then(Value::as_u64);
    let steps =
        if reply.diagnostics.steps > 0 { reply.diagnostics.steps } else { counted.unwrap_or(1) as u32 };
    steps.max(1)
}

fn policy(policy: &Policy, samples: u32) -> String {
    match policy {
        Policy::Auto { threshold, max, extended, .. } => {
            let reads = if *extended {
                format!("extended to {samples} of {max}")
            } else {
                format!("{samples} of {max}")
            };
            format!("samples=auto, threshold {threshold:.2} nats, reads {reads}")
        }
        Policy::Fixed { .. } | Policy::Other(_) => format!("samples={samples}"),
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hit_rate = self
            .cache_hit_rate
            .map_or("hit rate unknown".to_owned(), |rate| format!("{:.1}% hit rate", rate * 100.0));
        let steps = if self.denoise_steps == 1 { "step" } else { "steps" };
        writeln!(f, "{:─^RULE_CHARS$}", " STATS ")?;
        writeln!(
            f,
            "  Model:             {}",
            self.model.as_deref().map_or("(not named by the server)".to_owned(), visible)
        )?;
        writeln!(f, "  Endpoint:          {}", self.endpoint)?;
        writeln!(f, "  Total Wall Time:   {:.0} ms", self.wall_ms)?;
        writeln!(f, "  KV Cache Reused:   {} tokens ({hit_rate})", self.reused_tokens)?;
        writeln!(f, "  Denoise Steps:     {} {steps} (policy: {})", self.denoise_steps, self.policy)?;
        if self.retries > 0 {
            writeln!(f, "  Retries:           {}", self.retries)?;
        }
        write!(f, "{}", "─".repeat(RULE_CHARS))
    }
}
