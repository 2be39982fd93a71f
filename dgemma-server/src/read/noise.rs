//! What stands in a slot before it is read: a random token, or the pad token.
//!
//! The ids of a draw depend on the seed, the number of the draw and the order of the slots, on nothing else: not on the
//! batch, the machine, or which draws are read together.

use std::sync::Arc;

use decision::Hole;

use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

use super::canvas::CanvasLayout;
use crate::engine::{Canvas, Slot};

/// Where the noise of a decision comes from, and how often a canvas needs it.
#[derive(Debug, Clone, Copy)]
pub struct Noise {
    pub hole: Hole,
    pub seed: u64,
    /// Denoise steps; every one but the last leaves slots open, which get fresh noise.
    pub steps: u32,
    /// Number of token ids.
    pub vocab_size: usize,
}

impl Noise {
    /// The canvas of one draw, directly after the prompt.
    #[must_use]
    pub fn fill(&self, layout: &CanvasLayout, draw: u32) -> Canvas {
        // The seed is mixed before the draw is added, so that neighbouring seeds and draws share no sequence.
        let mixed = SplitMix64::seed_from_u64(self.seed).next_u64();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(mixed.wrapping_add(u64::from(draw)));
        let mut fillings = (0..self.steps.max(1)).map(|_| {
            let fill = |slot: &Slot| match self.hole {
                Hole::Noise => below(random.next_u64(), self.vocab_size),
                Hole::Pad => layout.ids[slot.position],
            };
            layout.slots.iter().map(fill).collect::<Vec<u32>>()
        });
        let mut ids = layout.ids.clone();
        for (slot, id) in layout.slots.iter().zip(fillings.next().unwrap_or_default()) {
            ids[slot.position] = id;
        }
        let renoise = fillings.collect();
        Canvas { suffix: Arc::default(), ids, slots: Arc::clone(&layout.slots), renoise }
    }
}

/// A uniform id below `limit`: the high bits of a 128-bit product, with a bias below 2⁻⁴⁰ for any real vocabulary.
fn below(random: u64, limit: usize) -> u32 {
    ((u128::from(random) * limit as u128) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(slots: usize) -> CanvasLayout {
        let slots = (0..slots).map(|n| Slot { position: 2 * n + 1, label_ids: vec![1, 2] }).collect();
        CanvasLayout { ids: vec![0; 64], slots }
    }

    fn source(hole: Hole, seed: u64) -> Noise {
        Noise { hole, seed, steps: 1, vocab_size: 4096 }
    }

    fn noise(seed: u64, draw: u32, slots: usize) -> Vec<u32> {
        let layout = layout(slots);
        let canvas = source(Hole::Noise, seed).fill(&layout, draw);
        layout.slots.iter().map(|slot| canvas.ids[slot.position]).collect()
    }

    #[test]
    fn a_draw_depends_on_seed_number_and_slot_order_only() {
        assert_eq!(noise(42, 1, 8), noise(42, 1, 8));
        assert_eq!(noise(42, 1, 8)[..3], noise(42, 1, 3));
        for other in [noise(42, 2, 8), noise(43, 1, 8), noise(1, 42, 8), noise(41, 2, 8)] {
            let same = noise(42, 1, 8).iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!(same < 3, "{same} of 8 ids are the same");
        }
    }

    #[test]
    fn ids_cover_the_vocabulary_evenly() {
        let layout = layout(16);
        let mut counts = [0_u32; 4];
        for draw in 0..1000 {
            for slot in layout.slots.iter() {
                let id = source(Hole::Noise, 7).fill(&layout, draw).ids[slot.position];
                assert!(id < 4096);
                counts[id as usize / 1024] += 1;
            }
        }
        // 4000 expected in each quarter; five standard deviations are 274.
        assert!(counts.iter().all(|count| count.abs_diff(4000) < 274), "{counts:?}");
    }

    #[test]
    fn only_slots_are_filled() {
        let canvas = source(Hole::Noise, 42).fill(&layout(3), 0);
        let others = canvas.ids.iter().enumerate().filter(|(n, _)| ![1, 3, 5].contains(n));
        assert!(others.clone().all(|(_, id)| *id == 0));
        assert_eq!(source(Hole::Pad, 42).fill(&layout(3), 0).ids, [0; 64]);
    }

    #[test]
    fn further_steps_have_noise_of_their_own_and_change_nothing_of_the_first() {
        let several = Noise { steps: 3, ..source(Hole::Noise, 42) }.fill(&layout(3), 1);
        let one = source(Hole::Noise, 42).fill(&layout(3), 1);
        assert_eq!((several.ids, one.steps(), several.renoise.len()), (one.ids, 1, 2));
        assert_ne!(several.renoise[0], several.renoise[1]);
        let padded = Noise { steps: 2, ..source(Hole::Pad, 42) }.fill(&layout(3), 1);
        assert_eq!(padded.renoise, [[0; 3]]);
    }
}
