//! What a decision cost: tokens, rows and milliseconds, added up over its rounds.
//!
//! Filled by `decide` after every round; becomes `diagnostics.timing` and `usage`.

use std::time::Instant;

use decision::Timing;
use serde::Serialize;
use utoipa::ToSchema;

use super::thought::Thought;
use crate::queue::ReadDone;

/// The sums so far.
#[derive(Debug)]
pub(super) struct Cost {
    started: Instant,
    timing: Timing,
    /// Slot rows read, over all draws.
    rows: u64,
    /// Of the thought before the reads.
    thought_tokens: u64,
}

/// Token counts in OpenAI's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct Usage {
    pub prompt_tokens: u64,
    /// Tokens of a reply up to where it ended; of a decision the slot rows read and the tokens of its thought.
    pub completion_tokens: u64,
    pub total_tokens: u64,
    pub prompt_tokens_details: PromptTokensDetails,
    /// Of a reply in text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens_details: Option<CompletionTokensDetails>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct CompletionTokensDetails {
    pub reasoning_tokens: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct PromptTokensDetails {
    pub cached_tokens: u64,
}

impl Cost {
    pub(super) fn new() -> Self {
        Cost { started: Instant::now(), timing: Timing::default(), rows: 0, thought_tokens: 0 }
    }

    /// The prompt of one job. Further draws over a prompt that was counted are not counted again.
    pub(super) fn add_prompt(&mut self, prompt_tokens: usize, done: &ReadDone) {
        self.timing.prompt_tokens += prompt_tokens as u64;
        self.timing.reused_tokens += done.reused_tokens as u64;
    }

    /// A round: jobs that were submitted together and mostly ran in the same passes. So its duration is that of its
    /// longest job, split as all its jobs together were.
    pub(super) fn add_round(&mut self, done: &[ReadDone]) {
        let longest = |ms: fn(&ReadDone) -> f64| done.iter().map(ms).fold(0.0, f64::max);
        let forward_ms = longest(|done| done.timing.prefill_ms + done.timing.denoise_ms);
        let prefill_ms: f64 = done.iter().map(|done| done.timing.prefill_ms).sum();
        let denoise_ms: f64 = done.iter().map(|done| done.timing.denoise_ms).sum();
        let prefill_share = if prefill_ms > 0.0 { prefill_ms / (prefill_ms + denoise_ms) } else { 0.0 };
        self.timing.queue_ms += longest(|done| done.timing.queue_ms);
        self.timing.prefill_ms += forward_ms * prefill_share;
        self.timing.denoise_ms += forward_ms * (1.0 - prefill_share);
        self.timing.reads += done.iter().map(|done| done.canvases.len()).sum::<usize>() as u32;
        self.timing.rounds += done.iter().map(|done| done.passes).max().unwrap_or(0) as u32;
        self.rows += done.iter().flat_map(|done| &done.canvases).map(|slots| slots.len() as u64).sum::<u64>();
    }

    /// The thought before the reads; its passes are in the total only.
    pub(super) fn add_thought(&mut self, thought: &Thought) {
        self.thought_tokens += thought.ids.len() as u64;
        self.timing.queue_ms += thought.queue_ms;
    }

    /// The sums, with the time since the decision began.
    pub(super) fn timing(&self) -> Timing {
        Timing { total_ms: self.started.elapsed().as_secs_f64() * 1e3, ..self.timing.clone() }
    }

    pub(super) fn usage(&self) -> Usage {
        let completion_tokens = self.rows + self.thought_tokens;
        Usage {
            prompt_tokens: self.timing.prompt_tokens,
            completion_tokens,
            total_tokens: self.timing.prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptTokensDetails { cached_tokens: self.timing.reused_tokens },
            completion_tokens_details: None,
        }
    }
}
