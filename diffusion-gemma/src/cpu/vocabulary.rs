//! What a denoise step does with a row of logits over the whole vocabulary: cap, temperature, maximum, softmax, entropy, a
//! sample. In place, one thread per row, so that a row gives the same bits whatever lies beside it.
//!
//! Called by `sampler/rows.rs`. The loops run over blocks of [`BLOCK`] values: f32 inside a block, f64 between blocks.

use rayon::prelude::*;

use super::rows::{exp, wide};
use super::{Isa, isa};

/// Values of a block: few enough for f32 sums, many enough that a sample is found by skipping.
const BLOCK: usize = 256;
/// Sums that run beside each other in a block.
const LANES: usize = 16;

/// How a row is to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowDemand {
    /// Logits are divided by this.
    pub(crate) temperature: f32,
    /// Uniform in [0, 1): decides the sample.
    pub(crate) uniform: f64,
}

/// What a row says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RowReading {
    /// The most probable id; of equals the lowest.
    pub(crate) argmax: u32,
    /// The first id at which the cumulative probability exceeds the uniform number.
    pub(crate) sampled: u32,
    /// Entropy of the distribution, in nats.
    pub(crate) entropy_nats: f32,
    /// Sum of the weights that the row now holds.
    pub(crate) total: f64,
}

/// Reads rows of `width` raw logits (before the soft cap), one demand each. Afterwards a row holds its probabilities times
/// [`RowReading::total`]. `None`: the row has a value that is not finite; it holds zeros.
pub(crate) fn read_vocabulary(
    logits: &mut [f32],
    width: usize,
    cap: f32,
    demands: &[RowDemand],
) -> Vec<Option<RowReading>> {
    logits.par_chunks_exact_mut(width).zip(demands).map(|(row, demand)| read_row(row, cap, *demand)).collect()
}

fn read_row(row: &mut [f32], cap: f32, demand: RowDemand) -> Option<RowReading> {
    let fast = isa() != Isa::Portable;
    let mut maxima = vec![f32::MIN; row.len().div_ceil(BLOCK)];
    let mut finite = true;
    if fast {
        cap_row(row, cap, demand.temperature, &mut maxima, &mut finite);
    } else {
        cap_blocks(row, cap, demand.temperature, f32::exp, &mut maxima, &mut finite);
    }
    if !finite {
        row.fill(0.0);
        return None;
    }
    let max = maxima.iter().copied().fold(f32::MIN, f32::max);
    let argmax = first(row, &maxima, max);
    let mut sums = vec![[0f32; 2]; maxima.len()];
    if fast {
        weigh_row(row, max, &mut sums);
    } else {
        weigh_blocks(row, max, f32::exp, &mut sums);
    }
    let (mut total, mut weighted) = (0f64, 0f64);
    for [weights, products] in &sums {
        total += f64::from(*weights);
        weighted += f64::from(*products);
    }
    Some(RowReading {
        argmax: argmax as u32,
        sampled: sample(row, &sums, demand.uniform * total).unwrap_or(argmax) as u32,
        entropy_nats: (total.ln() - weighted / total).max(0.0) as f32,
        total,
    })
}

/// The first place of the row that holds its maximum.
fn first(row: &[f32], maxima: &[f32], max: f32) -> usize {
    let block = maxima.iter().position(|m| *m == max).unwrap_or(0) * BLOCK;
    block + row[block..].iter().position(|x| *x == max).unwrap_or(0)
}

/// The first place whose cumulative weight exceeds `goal`; where rounding hides it, the last place with any weight.
fn sample(row: &[f32], sums: &[[f32; 2]], goal: f64) -> Option<usize> {
    let mut before = 0f64;
    for (block, [sum, _]) in row.chunks(BLOCK).zip(sums).enumerate().map(|(n, (_, sum))| (n * BLOCK, sum)) {
        if before + f64::from(*sum) > goal {
            let mut reached = before;
            let values = &row[block..(block + BLOCK).min(row.len())];
            let found = values.iter().position(|weight| {
                reached += f64::from(*weight);
                reached > goal
            });
            if let Some(place) = found {
                return Some(block + place);
            }
        }
        before += f64::from(*sum);
    }
    row.iter().rposition(|weight| *weight > 0.0)
}

/// c·tanh(x/c)/τ in place, with the maximum of every block.
#[inline(always)]
fn cap_blocks(
    row: &mut [f32],
    cap: f32,
    temperature: f32,
    exp: impl Fn(f32) -> f32,
    maxima: &mut [f32],
    finite: &mut bool,
) {
    let mut poison = 0f32;
    let capped = |x: f32| {
        // tanh by way of e^(−2|z|): no overflow, and an error of one rounding of the cap.
        let power = exp(-2.0 * (x / cap).abs());
        (cap * ((1.0 - power) / (1.0 + power))).copysign(x) / temperature
    };
    for (values, max) in row.chunks_mut(BLOCK).zip(maxima) {
        let (mut highest, mut broken) = ([f32::MIN; LANES], [0f32; LANES]);
        let mut lanes = values.chunks_exact_mut(LANES);
        for chunk in &mut lanes {
            for ((x, highest), broken) in chunk.iter_mut().zip(&mut highest).zip(&mut broken) {
                // 0 for every finite x, NaN for any other.
                *broken += *x * 0.0;
                *x = capped(*x);
                *highest = if *x > *highest { *x } else { *highest };
            }
        }
        for x in lanes.into_remainder() {
            poison += *x * 0.0;
            *x = capped(*x);
            highest[0] = if *x > highest[0] { *x } else { highest[0] };
        }
        poison += broken.iter().sum::<f32>();
        *max = highest.iter().copied().fold(f32::MIN, f32::max);
    }
    *finite = poison == 0.0;
}

/// exp(x − max) in place; per block the sum of the weights, and of weight · (x − max).
#[inline(always)]
fn weigh_blocks(row: &mut [f32], max: f32, exp: impl Fn(f32) -> f32, sums: &mut [[f32; 2]]) {
    for (values, sums) in row.chunks_mut(BLOCK).zip(sums) {
        let (mut weights, mut products) = ([0f32; LANES], [0f32; LANES]);
        let mut lanes = values.chunks_exact_mut(LANES);
        for chunk in &mut lanes {
            for ((x, weight), product) in chunk.iter_mut().zip(&mut weights).zip(&mut products) {
                let below = *x - max;
                *x = exp(below);
                *weight += *x;
                *product += *x * below;
            }
        }
        for x in lanes.into_remainder() {
            let below = *x - max;
            *x = exp(below);
            weights[0] += *x;
            products[0] += *x * below;
        }
        *sums = [weights.iter().sum(), products.iter().sum()];
    }
}

wide! {
    fn cap_row(row: &mut [f32], cap: f32, temperature: f32, maxima: &mut [f32], finite: &mut bool) {
        cap_blocks(row, cap, temperature, exp, maxima, finite);
    }
}

wide! {
    fn weigh_row(row: &mut [f32], max: f32, sums: &mut [[f32; 2]]) {
        weigh_blocks(row, max, exp, sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Straight from the formulas, f64.
    fn plainly(raw: &[f32], cap: f64, temperature: f64, uniform: f64) -> (usize, usize, f64) {
        let scaled: Vec<f64> = raw.iter().map(|x| cap * (f64::from(*x) / cap).tanh() / temperature).collect();
        let argmax = (0..scaled.len()).fold(0, |best, i| if scaled[i] > scaled[best] { i } else { best });
        let total: f64 = scaled.iter().map(|x| (x - scaled[argmax]).exp()).sum();
        let p: Vec<f64> = scaled.iter().map(|x| (x - scaled[argmax]).exp() / total).collect();
        let mut reached = 0.0;
        let sampled = p.iter().position(|p| {
            reached += p;
            reached > uniform
        });
        (argmax, sampled.unwrap(), -p.iter().map(|p| p * p.ln()).sum::<f64>())
    }

    fn logits(n: usize, spread: f32) -> Vec<f32> {
        (0..n as u32)
            .map(|i| ((i.wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0) * spread)
            .collect()
    }

    #[test]
    fn a_row_agrees_with_the_formulas() {
        for width in [1, 15, 16, 17, 255, 256, 257, 1000, 5000] {
            for (spread, temperature) in [(3.0f32, 0.8f32), (60.0, 0.4), (0.01, 0.5)] {
                // Not 0: probabilities below the range of f32 have no weight here.
                for uniform in [1e-6, 0.123, 0.5, 0.987] {
                    let raw = logits(width, spread);
                    let mut row = raw.clone();
                    let read = read_vocabulary(&mut row, width, 30.0, &[RowDemand { temperature, uniform }])
                        .remove(0)
                        .unwrap();
                    let (argmax, sampled, entropy) = plainly(&raw, 30.0, f64::from(temperature), uniform);
                    assert_eq!(
                        (read.argmax as usize, read.sampled as usize),
                        (argmax, sampled),
                        "{width} {spread}"
                    );
                    assert!((f64::from(read.entropy_nats) - entropy).abs() < 2e-5 * (1.0 + entropy));
                    let sum: f64 = row.iter().map(|w| f64::from(*w)).sum();
                    assert!((sum / read.total - 1.0).abs() < 1e-6 && row[argmax] == 1.0);
                }
            }
        }
    }

    #[test]
    fn of_equals_the_lowest_id_wins() {
        let mut row = vec![0.0; 600];
        (row[300], row[599]) = (2.0, 2.0);
        let read = read_vocabulary(&mut row, 600, 30.0, &[RowDemand { temperature: 1.0, uniform: 0.0 }]);
        assert_eq!(read[0].unwrap().argmax, 300);
    }

    #[test]
    fn a_value_that_is_not_finite_spoils_its_own_row_only() {
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for place in [0, 299] {
                let mut rows = logits(900, 5.0);
                rows[300 + place] = broken;
                let demands = [RowDemand { temperature: 0.5, uniform: 0.5 }; 3];
                let read = read_vocabulary(&mut rows, 300, 30.0, &demands);
                assert!(read[0].is_some() && read[1].is_none() && read[2].is_some());
                assert!(rows[300..600].iter().all(|x| *x == 0.0));
            }
        }
    }
}
