//! `dgemma-server bench`: how long one decision takes in this process, without HTTP.
//!
//! Cold: nothing of the prompt is known. Warm: the schema was asked before, the state is new. Both run over the same states
//! and must give the same answers: a fast wrong path is no result. Read next: `api::decide`; for the cost of a form of the
//! weights in answers `quality`.

pub mod quality;

use std::fmt;
use std::sync::Arc;

use decision::{Answers, Schema};
use serde_json::json;

use crate::api::decide::{Decider, Decision};
use crate::engine::Engine;
use crate::error::Error;
use crate::scheduler::policy::Budget;
use crate::{Parts, queue, scheduler};

/// How far probabilities may be apart between the two ways.
const TOLERANCE: f64 = 1e-3;

/// The figures of both ways, cold first.
#[derive(Debug, Clone)]
pub struct Report {
    /// Where the engine computes.
    pub device: String,
    pub series: [Series; 2],
}

/// Milliseconds of one way, and what they bought.
#[derive(Debug, Clone)]
pub struct Series {
    pub name: &'static str,
    /// Whole decisions, ascending.
    pub total_ms: Vec<f64>,
    /// The part outside the forward pass and the queue: prompt, slots, answers; ascending.
    pub around_ms: Vec<f64>,
    pub prompt_tokens: u64,
    /// Of the last decision.
    pub reused_tokens: u64,
    answers: Vec<Answers>,
}

/// Measures `runs` decisions both ways. `open` gives an engine that keeps so many bytes of prefixes.
pub async fn run<E: Engine>(
    runs: usize,
    prefix_cache_bytes: usize,
    open: impl Fn(usize) -> Result<Parts<E>, Error>,
) -> Result<Report, Error> {
    let parts = open(0)?;
    let device = parts.engine.info().device.clone();
    let cold = series("cold", runs, parts).await?;
    let warm = series("schema known", runs, open(prefix_cache_bytes)?).await?;
    let apart = largest_difference(&cold.answers, &warm.answers);
    if apart > TOLERANCE {
        return Err(Error::BenchDiffers { apart, tolerance: TOLERANCE });
    }
    Ok(Report { device, series: [cold, warm] })
}

async fn series<E: Engine>(name: &'static str, runs: usize, parts: Parts<E>) -> Result<Series, Error> {
    let info = parts.engine.info().clone();
    let (queue, jobs) = queue::bounded(1);
    let budget = Budget::default();
    scheduler::spawn(parts.engine, jobs, budget).map_err(Error::thread)?;
    let decider = Arc::new(Decider::new(info, parts.text, queue, budget.pass_rows));
    let schema = Schema::from_value(&triage())?;
    for number in 0..runs.div_ceil(10) {
        decider.decide(schema.clone(), state(runs + number)).await?;
    }
    let mut series = Series {
        name,
        total_ms: Vec::with_capacity(runs),
        around_ms: Vec::with_capacity(runs),
        prompt_tokens: 0,
        reused_tokens: 0,
        answers: Vec::with_capacity(runs),
    };
    for number in 0..runs {
        let Decision { reply, .. } = decider.decide(schema.clone(), state(number)).await?;
        let timing = reply.diagnostics.timing;
        series.total_ms.push(timing.total_ms);
        series.around_ms.push(timing.total_ms - timing.queue_ms - timing.prefill_ms - timing.denoise_ms);
        series.prompt_tokens = timing.prompt_tokens;
        series.reused_tokens = timing.reused_tokens;
        series.answers.push(reply.answers);
    }
    series.total_ms.sort_by(f64::total_cmp);
    series.around_ms.sort_by(f64::total_cmp);
    Ok(series)
}

/// The questions of the support triage policy.
fn triage() -> serde_json::Value {
    json!({
        "instructions": "You triage support tickets of a software company.",
        "questions": [
            {"id": "urgent", "type": "boolean", "instructions": "Does this ticket need action right away?",
             "criteria": {"true": "outage, money or work at stake", "false": "anything that can wait"}},
            {"id": "team", "type": "choice", "instructions": "Which team should handle it?",
             "options": [
                {"name": "billing", "description": "invoices, refunds and payments"},
                {"name": "support", "description": "how-to questions and account access"},
                {"name": "engineering", "description": "bugs, crashes and outages"}]},
            {"id": "sentiment", "type": "score", "instructions": "How upset is the writer?",
             "levels": ["calm", "frustrated", "furious"]},
        ],
    })
}

/// States of equal length that differ from their first words on.
fn state(number: usize) -> String {
    format!("{{\"ticket\": \"{number:06}: I was billed $500 twice for my annual renewal this morning!\"}}")
}

fn largest_difference(one: &[Answers], two: &[Answers]) -> f64 {
    let probabilities = |answers: &Answers| -> Vec<f64> {
        answers
            .values()
            .flatten()
            .flat_map(|answer| answer.probabilities.values().copied().collect::<Vec<_>>())
            .collect()
    };
    one.iter()
        .zip(two)
        .flat_map(|(one, two)| probabilities(one).into_iter().zip(probabilities(two)))
        .map(|(one, two)| (one - two).abs())
        .fold(0.0, f64::max)
}

/// The smallest value that a share of the values does not exceed (nearest rank). `sorted`: ascending, not empty.
#[must_use]
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1).min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "one decision, 3 questions; {}; milliseconds", self.device)?;
        writeln!(
            out,
            "{:<12} {:>4} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>7}",
            "", "n", "min", "p50", "p90", "p99", "around", "prompt", "reused"
        )?;
        for one in &self.series {
            let total = |share| percentile(&one.total_ms, share);
            writeln!(
                out,
                "{:<12} {:>4} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.3} {:>7} {:>7}",
                one.name,
                one.total_ms.len(),
                total(0.0),
                total(0.5),
                total(0.9),
                total(0.99),
                percentile(&one.around_ms, 0.5),
                one.prompt_tokens,
                one.reused_tokens
            )?;
        }
        writeln!(
            out,
            "around: p50 of the time outside queue and forward pass; both ways gave the same answers"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        let found: Vec<f64> =
            [0.0, 0.5, 0.9, 0.99, 1.0].iter().map(|&share| percentile(&values, share)).collect();
        assert_eq!(found, [1.0, 50.0, 90.0, 99.0, 100.0]);
        assert!((percentile(&[7.0], 0.99) - 7.0).abs() < f64::EPSILON);
    }
}
