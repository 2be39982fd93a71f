//! Where the random numbers of a generation come from: its own seeded generator, or a recording.
//!
//! A generation draws in a fixed order (ids of a canvas; then per step the uniform numbers of all slots and new ids for all
//! slots, whether they are used or not), so the numbers depend on the seed and on the steps taken, never on what else runs.

use std::collections::VecDeque;

use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

use crate::error::{Error, Result};

/// A source of random ids and of uniform numbers.
#[derive(Debug, Clone)]
pub enum Noise {
    /// A generator of this generation alone.
    Seeded(Xoshiro256PlusPlus),
    /// Recorded numbers, for comparisons step by step.
    Recorded {
        /// Random ids, one entry per canvas and one per step, in order.
        ids: VecDeque<Vec<u32>>,
        /// Numbers in [0, 1), one entry per step.
        uniforms: VecDeque<Vec<f64>>,
    },
}

impl Noise {
    /// The noise of a seed.
    pub fn seeded(seed: u64) -> Self {
        // Neighbouring seeds are mixed apart first.
        let mixed = SplitMix64::seed_from_u64(seed).next_u64();
        Self::Seeded(Xoshiro256PlusPlus::seed_from_u64(mixed))
    }

    /// `slots` ids below `vocab`.
    pub(crate) fn ids(&mut self, slots: usize, vocab: usize) -> Result<Vec<u32>> {
        match self {
            // The high bits of a 128-bit product: a bias below 2⁻⁴⁰ for any real vocabulary.
            Self::Seeded(random) => Ok((0..slots)
                .map(|_| ((u128::from(random.next_u64()) * vocab as u128) >> 64) as u32)
                .collect()),
            Self::Recorded { ids, .. } => recorded(ids.pop_front(), slots, "ids"),
        }
    }

    /// `slots` numbers in [0, 1).
    pub(crate) fn uniforms(&mut self, slots: usize) -> Result<Vec<f64>> {
        match self {
            Self::Seeded(random) => {
                let unit = 1.0 / (1u64 << 53) as f64;
                Ok((0..slots).map(|_| (random.next_u64() >> 11) as f64 * unit).collect())
            }
            Self::Recorded { uniforms, .. } => recorded(uniforms.pop_front(), slots, "uniform numbers"),
        }
    }
}

fn recorded<T>(entry: Option<Vec<T>>, slots: usize, what: &str) -> Result<Vec<T>> {
    entry.filter(|entry| entry.len() == slots).ok_or_else(|| {
        Error::Input(format!(
            "the recorded noise has no {slots} {what} here; hint: record one entry of the canvas's length per canvas and step"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_depend_on_the_seed_and_cover_their_range() {
        let draw = |seed| {
            let mut noise = Noise::seeded(seed);
            (noise.ids(4000, 1024).unwrap(), noise.uniforms(4000).unwrap())
        };
        assert_eq!(draw(7), draw(7));
        let ((ids, uniforms), (others, _)) = (draw(7), draw(8));
        assert!(ids.iter().zip(&others).filter(|(a, b)| a == b).count() < 30);
        let mut quarters = [[0u32; 4]; 2];
        for (id, u) in ids.iter().zip(&uniforms) {
            quarters[0][*id as usize / 256] += 1;
            quarters[1][(u * 4.0) as usize] += 1;
        }
        // 1000 expected in each quarter; five standard deviations are 137.
        assert!(quarters.iter().flatten().all(|n| n.abs_diff(1000) < 137), "{quarters:?}");
    }

    #[test]
    fn a_recording_that_ends_or_does_not_fit_is_an_error() {
        let mut noise = Noise::Recorded { ids: [vec![1, 2]].into(), uniforms: VecDeque::new() };
        assert!(noise.clone().ids(3, 9).unwrap_err().to_string().contains("3 ids"));
        assert_eq!(noise.ids(2, 9).unwrap(), [1, 2]);
        assert!(noise.ids(2, 9).is_err() && noise.uniforms(2).is_err());
    }
}
