//! generation_config.json → the constants of the sampler, checked once.
//!
//! A key that is absent or null takes the reference implementation's default; unknown keys are ignored. Used by
//! [`super::Generation`] and by the plain sampler beside the plain model.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::error::{Error, Result};

/// How a checkpoint wants to be sampled.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationConfig {
    /// Tokens of a reply whose request names no number.
    pub max_new_tokens: usize,
    /// N: most denoise steps of one canvas.
    pub max_denoising_steps: usize,
    /// What the temperature falls towards, and where it starts.
    pub t_min: f64,
    /// Temperature of the first step.
    pub t_max: f64,
    /// Entropy that the slots accepted in one step may have together, in nats, the last of them not counted.
    pub entropy_bound_nats: f64,
    /// Earlier steps with the same argmax canvas that make a canvas stable.
    pub stability_threshold: usize,
    /// Mean entropy below which a canvas is confident, in nats.
    pub confidence_threshold_nats: f64,
    /// Ids that end a reply.
    pub eos_token_ids: Vec<u32>,
    /// What stands where nothing is said.
    pub pad_token_id: u32,
}

/// The published constants.
impl Default for GenerationConfig {
    fn default() -> Self {
        Self {
            max_new_tokens: 256,
            max_denoising_steps: 48,
            t_min: 0.4,
            t_max: 0.8,
            entropy_bound_nats: 0.1,
            stability_threshold: 1,
            confidence_threshold_nats: 0.005,
            eos_token_ids: vec![1, 106, 50],
            pad_token_id: 0,
        }
    }
}

#[derive(Deserialize)]
struct Raw {
    max_new_tokens: Option<usize>,
    max_denoising_steps: Option<usize>,
    t_min: Option<f64>,
    t_max: Option<f64>,
    sampler_config: Option<RawSampler>,
    stability_threshold: Option<usize>,
    confidence_threshold: Option<f64>,
    eos_token_id: Option<Value>,
    pad_token_id: Option<u32>,
}

#[derive(Deserialize)]
struct RawSampler {
    #[serde(rename = "_cls_name")]
    class: Option<String>,
    entropy_bound: Option<f64>,
}

impl GenerationConfig {
    /// Reads and checks `generation_config.json` of a checkpoint folder; a folder without one gets the defaults.
    pub fn from_dir(dir: &Path) -> Result<Self> {
        let path = dir.join("generation_config.json");
        match fs::read_to_string(&path) {
            Ok(text) => Self::from_json(&text),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Error::read(path)(error)),
        }
    }

    /// Reads and checks the text of a `generation_config.json`.
    pub fn from_json(text: &str) -> Result<Self> {
        let raw: Raw = serde_json::from_str(text).map_err(|e| Error::GenerationConfig(e.to_string()))?;
        let known = Self::default();
        if let Some(class) = raw.sampler_config.as_ref().and_then(|s| s.class.as_deref())
            && class != "EntropyBoundSamplerConfig"
        {
            return Err(Error::GenerationConfig(format!(
                "sampler_config is a {class:?}; only EntropyBoundSamplerConfig is computed here"
            )));
        }
        let config = Self {
            max_new_tokens: raw.max_new_tokens.unwrap_or(known.max_new_tokens),
            max_denoising_steps: raw.max_denoising_steps.unwrap_or(known.max_denoising_steps),
            t_min: raw.t_min.unwrap_or(known.t_min),
            t_max: raw.t_max.unwrap_or(known.t_max),
            entropy_bound_nats: raw
                .sampler_config
                .and_then(|s| s.entropy_bound)
                .unwrap_or(known.entropy_bound_nats),
            stability_threshold: raw.stability_threshold.unwrap_or(known.stability_threshold),
            confidence_threshold_nats: raw.confidence_threshold.unwrap_or(known.confidence_threshold_nats),
            eos_token_ids: raw.eos_token_id.map_or(Ok(known.eos_token_ids), |ids| one_or_many(&ids))?,
            pad_token_id: raw.pad_token_id.unwrap_or(known.pad_token_id),
        };
        config.check()?;
        Ok(config)
    }

    /// Refuses constants that no canvas can be denoised with.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |reason: String| Err(Error::GenerationConfig(reason));
        if self.max_new_tokens == 0 || self.max_denoising_steps == 0 {
            return refuse(format!(
                "max_new_tokens is {}, max_denoising_steps {}; both must be at least 1",
                self.max_new_tokens, self.max_denoising_steps
            ));
        }
        // No history needs to be longer than the steps there are, and each entry costs a canvas of memory.
        if self.stability_threshold > self.max_denoising_steps {
            return refuse(format!(
                "stability_threshold is {}, more than the {} denoising steps",
                self.stability_threshold, self.max_denoising_steps
            ));
        }
        let finite = |x: f64| x.is_finite() && x >= 0.0;
        if !finite(self.t_min) || !finite(self.t_max) || self.t_max <= self.t_min {
            return refuse(format!(
                "t_min is {}, t_max {}; 0 ≤ t_min < t_max is needed",
                self.t_min, self.t_max
            ));
        }
        for (key, value) in [
            ("entropy_bound", self.entropy_bound_nats),
            ("confidence_threshold", self.confidence_threshold_nats),
        ] {
            if !value.is_finite() || value <= 0.0 {
                return refuse(format!("{key} is {value}, not a positive number of nats"));
            }
        }
        Ok(())
    }

    /// Temperature with `remaining` steps to go, this one included: `t_max` first, never quite `t_min`. f32, as the
    /// reference computes it.
    pub fn temperature(&self, remaining: usize) -> f32 {
        let share = remaining as f32 / self.max_denoising_steps as f32;
        self.t_min as f32 + (self.t_max - self.t_min) as f32 * share
    }
}

/// A file may name one id or a list of them.
fn one_or_many(ids: &Value) -> Result<Vec<u32>> {
    let list = ids.as_array().map_or(std::slice::from_ref(ids), Vec::as_slice);
    list.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect::<Option<_>>().ok_or_else(
        || Error::GenerationConfig(format!("eos_token_id is {ids}, neither a token id nor a list of them")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_and_null_keys_take_the_published_constants() {
        let config =
            GenerationConfig::from_json(r#"{"t_min": null, "pad_token_id": null, "top_k": 5}"#).unwrap();
        assert_eq!(config, GenerationConfig::default());
        let other = GenerationConfig::from_json(
            r#"{"eos_token_id": 7, "sampler_config": {"_cls_name": "EntropyBoundSamplerConfig", "entropy_bound": 2.5}}"#,
        );
        let other = other.unwrap();
        assert_eq!((other.eos_token_ids, other.entropy_bound_nats), (vec![7], 2.5));
        let none = GenerationConfig::from_json(r#"{"eos_token_id": []}"#).unwrap();
        assert!(none.eos_token_ids.is_empty());
    }

    #[test]
    fn the_temperature_starts_at_t_max_and_never_reaches_t_min() {
        let config = GenerationConfig::default();
        assert_eq!(config.temperature(48), 0.8);
        assert!((config.temperature(1) - 0.408_333_3).abs() < 1e-6);
        let eight = GenerationConfig { max_denoising_steps: 8, ..config };
        // As recorded from the reference implementation.
        let recorded = [0.8f32, 0.75, 0.700_000_05, 0.65, 0.6, 0.55, 0.5, 0.450_000_02];
        let found: Vec<f32> = (1..=8).rev().map(|remaining| eight.temperature(remaining)).collect();
        assert!(found.iter().zip(recorded).all(|(a, b)| (a - b).abs() < 1e-7), "{found:?}");
    }

    #[test]
    fn constants_that_cannot_work_are_refused_by_name() {
        for (text, names) in [
            (r#"{"max_denoising_steps": 0}"#, "max_denoising_steps"),
            (r#"{"max_new_tokens": 0}"#, "max_new_tokens"),
            (r#"{"t_min": 0.8}"#, "t_max"),
            (r#"{"t_min": -1}"#, "t_min"),
            (r#"{"confidence_threshold": 0}"#, "confidence_threshold"),
            (r#"{"sampler_config": {"entropy_bound": -1}}"#, "entropy_bound"),
            (r#"{"sampler_config": {"_cls_name": "TopKSampler"}}"#, "TopKSampler"),
            (r#"{"stability_threshold": 49}"#, "stability_threshold"),
            (r#"{"eos_token_id": "</s>"}"#, "eos_token_id"),
            ("{", "EOF"),
        ] {
            let message = GenerationConfig::from_json(text).unwrap_err().to_string();
            assert!(message.contains("generation_config.json") && message.contains("hint:"), "{message}");
            assert!(message.contains(names), "{text}: {message}");
        }
    }
}
