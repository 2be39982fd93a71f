//! The plain sampler: one reply, straight from the formulas in f64, beside the one of `sampler/`.
//!
//! Recorded runs of the reference implementation judge it step by step. Every rule that is easy to get wrong is a field of
//! [`SamplerRules`], so that tests can break one at a time and see the comparison fail.

use std::collections::VecDeque;

use candle_core::{DType, Device, Tensor};

use super::{Cache, Reference};
use crate::error::Result;
use crate::sampler::{GenerationConfig, Noise};

/// What the sampler does at each place that is easy to get wrong. [`SamplerRules::default`] is the published sampler.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each one is an independent rule, and tests flip them one by one
pub struct SamplerRules {
    /// The entropy bound holds for the slots before a slot, not for those up to it.
    pub exclusive_bound: bool,
    /// Every step decides anew about every slot: none stays as it was once accepted.
    pub nothing_frozen: bool,
    /// Slots that are not accepted get fresh noise.
    pub renoised: bool,
    /// An accepted slot takes a sample, not its most probable id.
    pub sampled: bool,
    /// Entropies are those after temperature.
    pub scaled_entropy: bool,
    /// The next step is conditioned on the logits after temperature.
    pub scaled_conditioning: bool,
    /// Every canvas begins without conditioning.
    pub fresh_conditioning: bool,
    /// The first step runs at `t_max`, and the last one above `t_min`.
    pub counted_down: bool,
    /// What is committed is the argmax canvas, not the canvas of samples and noise.
    pub argmax_committed: bool,
    /// As many earlier steps as the threshold says must agree for a canvas to be stable.
    pub whole_history: bool,
    /// A committed block is encoded before the next one begins.
    pub encoded_blocks: bool,
}

impl Default for SamplerRules {
    fn default() -> Self {
        Self {
            exclusive_bound: true,
            nothing_frozen: true,
            renoised: true,
            sampled: true,
            scaled_entropy: true,
            scaled_conditioning: true,
            fresh_conditioning: true,
            counted_down: true,
            argmax_committed: true,
            whole_history: true,
            encoded_blocks: true,
        }
    }
}

/// What one step saw and decided.
#[derive(Debug, Clone)]
pub struct Step {
    /// Steps to go, this one included.
    pub remaining: usize,
    /// The canvas that the pass saw.
    pub canvas_in: Vec<u32>,
    /// A sample for every slot.
    pub sampled: Vec<u32>,
    /// The most probable id of every slot.
    pub argmax: Vec<u32>,
    /// Entropy of every slot, in nats.
    pub entropy_nats: Vec<f64>,
    /// Accepted slots.
    pub accepted: Vec<bool>,
    /// The canvas for the next step.
    pub canvas_out: Vec<u32>,
    /// Whether the canvas is stable and confident.
    pub finished: bool,
    /// Logits after temperature, `[canvas, V]`.
    pub scaled: Tensor,
}

impl Reference<'_> {
    /// Commits whole blocks until one holds a stop id or there are enough for `config.max_new_tokens`; nothing is cut off.
    /// `trace` gets every step, and ends the run with an error.
    pub fn generate(
        &self,
        prompt: &[u32],
        config: &GenerationConfig,
        rules: &SamplerRules,
        noise: &mut Noise,
        trace: &mut dyn FnMut(&Step) -> Result<()>,
    ) -> Result<Vec<u32>> {
        let (rows, vocab) = (self.model.config.canvas_length, self.model.config.vocab_size);
        let mut cache = Cache::default();
        self.encode(prompt, &mut cache, &mut |_, _| ())?;
        let (mut committed, mut previous): (Vec<u32>, Option<Tensor>) = (Vec::new(), None);
        while committed.len() < config.max_new_tokens {
            if rules.encoded_blocks && !committed.is_empty() {
                let block = committed[committed.len() - rows..].to_vec();
                self.encode(&block, &mut cache, &mut |_, _| ())?;
            }
            let mut canvas = noise.ids(rows, vocab)?;
            if rules.fresh_conditioning {
                previous = None;
            }
            let (mut frozen, mut history) = (vec![false; rows], VecDeque::new());
            let mut block = Vec::new();
            for remaining in (1..=config.max_denoising_steps).rev() {
                let logits = self.decode(&canvas, &cache, previous.as_ref(), &mut |_, _| ())?;
                let counted = if rules.counted_down { remaining } else { remaining - 1 };
                let temperature = f64::from(config.temperature(counted));
                let uniforms = noise.uniforms(rows)?;
                let mut step = read(&logits, temperature, &uniforms, rules)?;
                step.remaining = remaining;
                step.canvas_in.clone_from(&canvas);
                step.accepted = accept(&step.entropy_nats, config.entropy_bound_nats, rules);
                let fresh = noise.ids(rows, vocab)?;
                for slot in 0..rows {
                    if !rules.nothing_frozen && frozen[slot] {
                        step.accepted[slot] = true;
                        continue;
                    }
                    if step.accepted[slot] {
                        canvas[slot] = if rules.sampled { step.sampled[slot] } else { step.argmax[slot] };
                        frozen[slot] = true;
                    } else if rules.renoised {
                        canvas[slot] = fresh[slot];
                    }
                }
                step.canvas_out.clone_from(&canvas);
                let wanted = config.stability_threshold.saturating_sub(usize::from(!rules.whole_history));
                let stable =
                    history.len() >= wanted && history.iter().rev().take(wanted).all(|h| *h == step.argmax);
                history.push_back(step.argmax.clone());
                let mean = step.entropy_nats.iter().sum::<f64>() / rows as f64;
                step.finished = stable && mean < config.confidence_threshold_nats;
                trace(&step)?;
                previous = Some(if rules.scaled_conditioning { step.scaled } else { logits });
                block = if rules.argmax_committed { step.argmax } else { step.canvas_out };
                if step.finished {
                    break;
                }
            }
            let stopped = block.iter().any(|id| config.eos_token_ids.contains(id));
            committed.extend(block);
            if stopped {
                break;
            }
        }
        Ok(committed)
    }
}

/// Samples, argmax and entropy of every row.
fn read(logits: &Tensor, temperature: f64, uniforms: &[f64], rules: &SamplerRules) -> Result<Step> {
    let scaled = (logits / temperature)?;
    let (mut sampled, mut argmax, mut entropy_nats) = (Vec::new(), Vec::new(), Vec::new());
    for ((row, raw), uniform) in scaled.to_vec2::<f32>()?.iter().zip(logits.to_vec2::<f32>()?).zip(uniforms) {
        let p = softmax(row);
        let mut reached = 0.0;
        let place = p.iter().position(|p| {
            reached += p;
            reached > *uniform
        });
        sampled.push(place.unwrap_or(p.len() - 1) as u32);
        argmax.push((0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best }) as u32);
        let judged = if rules.scaled_entropy { p } else { softmax(&raw) };
        entropy_nats.push(-judged.iter().map(|p| if *p > 0.0 { p * p.ln() } else { 0.0 }).sum::<f64>());
    }
    Ok(Step {
        remaining: 0,
        canvas_in: Vec::new(),
        sampled,
        argmax,
        entropy_nats,
        accepted: Vec::new(),
        canvas_out: Vec::new(),
        finished: false,
        scaled: scaled.to_dtype(DType::F32)?.to_device(&Device::Cpu)?,
    })
}

fn softmax(row: &[f32]) -> Vec<f64> {
    let max = row.iter().copied().fold(f32::MIN, f32::max);
    let powers: Vec<f64> = row.iter().map(|x| f64::from(x - max).exp()).collect();
    let total: f64 = powers.iter().sum();
    powers.into_iter().map(|p| p / total).collect()
}

/// Slots in the order of their entropy, as long as what stands before them stays within the bound.
fn accept(entropies: &[f64], bound: f64, rules: &SamplerRules) -> Vec<bool> {
    let mut order: Vec<usize> = (0..entropies.len()).collect();
    order.sort_by(|a, b| entropies[*a].total_cmp(&entropies[*b]));
    let (mut accepted, mut before) = (vec![false; entropies.len()], 0.0);
    for slot in order {
        let own = if rules.exclusive_bound { 0.0 } else { entropies[slot] };
        accepted[slot] = before + own <= bound;
        before += entropies[slot];
    }
    accepted
}
