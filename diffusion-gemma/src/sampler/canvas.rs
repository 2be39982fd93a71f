//! One canvas from noise to its last step: which slots are accepted, what the others become, and when it is done.
//!
//! Nothing is frozen: every step decides anew about every slot. Owned by [`super::Generation`], which starts canvases and
//! commits them.

use std::collections::VecDeque;

use candle_core::Tensor;

use super::config::GenerationConfig;
use super::noise::Noise;
use crate::cpu::{RowDemand, RowReading};
use crate::error::Result;

/// A canvas between two steps.
#[derive(Debug)]
pub(super) struct Canvas {
    /// What the next pass sees.
    pub(super) ids: Vec<u32>,
    /// Self-conditioning from the step before, `[rows, H]`.
    pub(super) signal: Option<Tensor>,
    /// The most probable id of every slot in the step before; the noise itself until then.
    pub(super) draft: Vec<u32>,
    /// Slots that the step before accepted.
    pub(super) accepted: Vec<bool>,
    /// Mean entropy of the step before, in nats.
    pub(super) mean_entropy_nats: f32,
    /// Steps taken.
    pub(super) steps: usize,
    /// Steps to go.
    remaining: usize,
    /// One number per slot for the samples of the next step.
    uniforms: Vec<f64>,
    /// The argmax canvases of the last steps, oldest first.
    history: VecDeque<Vec<u32>>,
}

/// How a canvas ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Stable and confident.
    Settled,
    /// Out of steps.
    OutOfSteps,
}

impl Canvas {
    pub(super) fn new(
        rows: usize,
        vocab: usize,
        config: &GenerationConfig,
        noise: &mut Noise,
    ) -> Result<Self> {
        let ids = noise.ids(rows, vocab)?;
        let uniforms = noise.uniforms(rows)?;
        Ok(Self {
            draft: ids.clone(),
            ids,
            signal: None,
            accepted: vec![false; rows],
            mean_entropy_nats: 0.0,
            steps: 0,
            remaining: config.max_denoising_steps,
            uniforms,
            history: VecDeque::new(),
        })
    }

    /// How the rows of the next step are to be read.
    pub(super) fn demands(&self, config: &GenerationConfig) -> Vec<RowDemand> {
        let temperature = config.temperature(self.remaining);
        self.uniforms.iter().map(|uniform| RowDemand { temperature, uniform: *uniform }).collect()
    }

    /// Whether a further step may follow the next one, and so need a signal from it.
    pub(super) fn continues(&self) -> bool {
        self.remaining > 1
    }

    /// Takes what a step said of every slot, and the signal it leaves. `None`: another step follows.
    pub(super) fn step(
        &mut self,
        readings: &[RowReading],
        signal: Option<Tensor>,
        vocab: usize,
        config: &GenerationConfig,
        noise: &mut Noise,
    ) -> Result<Option<End>> {
        let entropies: Vec<f32> = readings.iter().map(|r| r.entropy_nats).collect();
        self.accepted = accept(&entropies, config.entropy_bound_nats as f32);
        let fresh = noise.ids(self.ids.len(), vocab)?;
        self.ids = readings
            .iter()
            .zip(fresh)
            .zip(&self.accepted)
            .map(|((reading, fresh), accepted)| if *accepted { reading.sampled } else { fresh })
            .collect();
        self.draft = readings.iter().map(|r| r.argmax).collect();
        self.mean_entropy_nats = entropies.iter().sum::<f32>() / entropies.len().max(1) as f32;
        self.signal = signal;
        self.steps += 1;
        self.remaining -= 1;
        if self.settles(config) {
            return Ok(Some(End::Settled));
        }
        if self.remaining == 0 {
            return Ok(Some(End::OutOfSteps));
        }
        self.uniforms = noise.uniforms(self.ids.len())?;
        Ok(None)
    }

    /// Stable (the same argmax canvas as in each of the last steps) and confident. A canvas of nothing but padding is never
    /// taken for an answer.
    fn settles(&mut self, config: &GenerationConfig) -> bool {
        let stable =
            self.history.len() == config.stability_threshold && self.history.iter().all(|h| *h == self.draft);
        self.history.push_back(self.draft.clone());
        if self.history.len() > config.stability_threshold {
            self.history.pop_front();
        }
        let confident = f64::from(self.mean_entropy_nats) < config.confidence_threshold_nats;
        stable && confident && self.draft.iter().any(|id| *id != config.pad_token_id)
    }
}

/// The slots of least entropy, as long as those before them have no more than `bound` together; the surest always. Sums in
/// f32; of equals the lower slot comes first.
fn accept(entropies: &[f32], bound: f32) -> Vec<bool> {
    let mut order: Vec<usize> = (0..entropies.len()).collect();
    order.sort_by(|a, b| entropies[*a].total_cmp(&entropies[*b]));
    let (mut accepted, mut sum) = (vec![false; entropies.len()], 0f32);
    for slot in order {
        sum += entropies[slot];
        accepted[slot] = sum - entropies[slot] <= bound;
    }
    accepted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_of_equally_sure_slots_fit_under_the_published_bound() {
        let accepted = accept(&[0.005; 256], 0.1);
        assert_eq!(accepted.iter().filter(|a| **a).count(), 20);
        assert!(accepted[..20].iter().all(|a| *a), "of equals the lower slot comes first");
    }

    #[test]
    fn the_surest_slot_is_accepted_whatever_its_entropy() {
        assert_eq!(accept(&[9.0, 7.5, 8.0], 0.1), [false, true, false]);
        assert_eq!(accept(&[0.09, 0.02, 5.0, 0.0], 0.1), [true, true, false, true]);
        assert_eq!(accept(&[0.06, 0.05, 5.0], 0.1), [true, true, false]);
        assert_eq!(accept(&[], 0.1), [false; 0]);
    }

    fn reading(argmax: u32, entropy_nats: f32) -> RowReading {
        RowReading { argmax, sampled: argmax + 100, entropy_nats, total: 1.0 }
    }

    /// Steps of a canvas of two slots until it ends.
    fn run(config: &GenerationConfig, steps: &[[RowReading; 2]]) -> (usize, Option<End>) {
        let mut noise = Noise::seeded(1);
        let mut canvas = Canvas::new(2, 1000, config, &mut noise).unwrap();
        for readings in steps {
            assert!(canvas.continues() == (canvas.steps + 1 < config.max_denoising_steps));
            let end = canvas.step(readings, None, 1000, config, &mut noise).unwrap();
            if end.is_some() {
                return (canvas.steps, end);
            }
        }
        (canvas.steps, None)
    }

    #[test]
    fn a_canvas_ends_when_it_is_stable_and_confident_and_not_before() {
        let config = GenerationConfig { max_denoising_steps: 6, ..GenerationConfig::default() };
        let sure = [reading(5, 0.001), reading(6, 0.001)];
        let unsure = [reading(5, 0.1), reading(6, 0.1)];
        let other = [reading(5, 0.001), reading(7, 0.001)];
        assert_eq!(run(&config, &[sure; 9]), (2, Some(End::Settled)));
        assert_eq!(run(&config, &[unsure; 9]), (6, Some(End::OutOfSteps)));
        assert_eq!(run(&config, &[sure, other, sure, other, other]), (5, Some(End::Settled)));
        assert_eq!(run(&config, &[unsure, sure]), (2, Some(End::Settled)));
        let at_once = GenerationConfig { stability_threshold: 0, ..config.clone() };
        assert_eq!(run(&at_once, &[unsure, sure]), (2, Some(End::Settled)));
        assert_eq!(run(&at_once, &[sure]), (1, Some(End::Settled)));
        let twice = GenerationConfig { stability_threshold: 2, ..config };
        assert_eq!(run(&twice, &[sure; 9]), (3, Some(End::Settled)));
    }

    #[test]
    fn nothing_but_padding_never_settles() {
        let config = GenerationConfig { max_denoising_steps: 5, ..GenerationConfig::default() };
        assert_eq!(run(&config, &[[reading(0, 0.0); 2]; 9]), (5, Some(End::OutOfSteps)));
        assert_eq!(run(&config, &[[reading(0, 0.0), reading(1, 0.0)]; 9]), (2, Some(End::Settled)));
    }

    #[test]
    fn accepted_slots_take_the_sample_and_compete_again() {
        let config = GenerationConfig::default();
        let mut noise = Noise::seeded(1);
        let mut canvas = Canvas::new(2, 50, &config, &mut noise).unwrap();
        canvas.step(&[reading(5, 0.01), reading(6, 3.0)], None, 50, &config, &mut noise).unwrap();
        // The second slot comes right after so little entropy that it is accepted as well.
        assert_eq!((canvas.ids.as_slice(), canvas.draft.as_slice()), (&[105, 106][..], &[5, 6][..]));
        canvas.step(&[reading(5, 2.0), reading(6, 1.0)], None, 50, &config, &mut noise).unwrap();
        assert_eq!((canvas.accepted.as_slice(), canvas.ids[1]), (&[false, true][..], 106));
        assert!(canvas.ids[0] < 50, "a slot accepted before gets fresh noise again");
    }
}
