//! The statistics of one reply in words. They go to stderr: stdout holds the answer and nothing else.

use std::fmt;
use std::time::Duration;

use super::reading::Ended;
use crate::foreign::visible;

const RULE_CHARS: usize = 71;

#[derive(Debug)]
pub(crate) struct Stats<'a> {
    pub(crate) ended: &'a Ended,
    pub(crate) url: &'a str,
    /// From the first byte of the request to the last of the reply.
    pub(crate) wall: Duration,
    /// From the first byte of the request to the first text, thought or answer; `None` where the reply came at once.
    pub(crate) first_text: Option<Duration>,
    /// Further tries.
    pub(crate) retries: u32,
}

/// A line for each thing that is known.
impl fmt::Display for Stats<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usage = self.ended.usage.unwrap_or_default();
        let generation = self.ended.generation.filter(|generation| generation.steps > 0);
        writeln!(f, "{:─^RULE_CHARS$}", " STATS ")?;
        let model = self.ended.model.as_deref().map_or("(not named by the server)".to_owned(), visible);
        writeln!(f, "  Model:              {model}")?;
        writeln!(f, "  Endpoint:           {}", self.url)?;
        writeln!(f, "  Total Wall Time:    {:.0} ms", self.wall.as_secs_f64() * 1e3)?;
        if let Some(first) = self.first_text {
            writeln!(f, "  Time To First Text: {:.0} ms", first.as_secs_f64() * 1e3)?;
        }
        if let Some(tokens) = usage.prompt_tokens {
            let cached = usage.prompt_tokens_details.and_then(|details| details.cached_tokens);
            let cached = cached.map(|cached| format!(" ({cached} reused)")).unwrap_or_default();
            writeln!(f, "  Prompt:             {tokens} tokens{cached}")?;
        }
        match usage.completion_tokens {
            Some(tokens) => {
                let thought = usage.completion_tokens_details.and_then(|details| details.reasoning_tokens);
                let thought = thought.filter(|thought| *thought > 0);
                let thought =
                    thought.map(|thought| format!(" ({thought} of them thought)")).unwrap_or_default();
                writeln!(f, "  Reply:              {tokens} tokens{thought}")?;
                let seconds = self.wall.as_secs_f64();
                if seconds > 0.0 {
                    writeln!(f, "  Speed:              {:.1} tokens/s", tokens as f64 / seconds)?;
                }
            }
            None => writeln!(f, "  Reply:              (tokens not counted by the server)")?,
        }
        if let Some(generation) = generation {
            // The steps are those of all of them.
            let blocks = (generation.blocks + generation.retries).max(1);
            let (what, per) = (plural(blocks, "block"), generation.steps as f64 / blocks as f64);
            writeln!(
                f,
                "  Denoise Steps:      {} in {blocks} {what} ({per:.1} steps per block)",
                generation.steps
            )?;
            if let Some(tokens) = usage.completion_tokens {
                let per = tokens as f64 / generation.steps as f64;
                writeln!(f, "  Tokens Per Forward: {per:.1}")?;
            }
            if generation.retries > 0 {
                let count = generation.retries;
                writeln!(f, "  Thrown Away:        {count} of these, an empty start")?;
            }
            if generation.unconverged > 0 {
                let count = generation.unconverged;
                writeln!(f, "  Not Settled:        {count} {}", plural(count, "block"))?;
            }
        }
        if self.retries > 0 {
            writeln!(f, "  Retries:            {}", self.retries)?;
        }
        write!(f, "{}", "─".repeat(RULE_CHARS))
    }
}

fn plural(count: u64, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}
