//! Activations as 16-bit integers, for products with weights of small integers.
//!
//! 32 neighbours share a scale, so that the largest of them has all 15 bits: an error of 1.5e-5 of the largest, far below
//! that of weights of 8 bits. Sums of a block fit into 32 bits exactly.

use rayon::prelude::*;

use super::kernels::QUANT_BLOCK;
use super::rows::wide;

/// Rows of a matmul's input.
pub(super) struct IntRows {
    pub(super) rows: usize,
    pub(super) blocks: usize,
    /// `[rows, blocks, 32]`.
    pub(super) ints: Vec<i16>,
    /// What one integer means; NaN where a value was not finite. `[rows, blocks]`.
    pub(super) scales: Vec<f32>,
    /// Sums of the values of a block, `[rows, blocks]`.
    pub(super) sums: Vec<f32>,
}

impl IntRows {
    /// `values: [rows, width]`, `width` a multiple of 32.
    pub(super) fn new(values: &[f32], rows: usize, width: usize) -> Self {
        assert!(values.len() == rows * width && width.is_multiple_of(QUANT_BLOCK));
        let blocks = width / QUANT_BLOCK;
        let mut ints = vec![0i16; rows * width];
        let (mut scales, mut sums) = (vec![0f32; rows * blocks], vec![0f32; rows * blocks]);
        // About 16k values are worth a thread.
        let piece = ((1 << 14) / width.max(1)).max(1);
        values
            .par_chunks(piece * width)
            .zip(ints.par_chunks_mut(piece * width))
            .zip(scales.par_chunks_mut(piece * blocks).zip(sums.par_chunks_mut(piece * blocks)))
            .for_each(|((values, ints), (scales, sums))| round(values, ints, scales, sums));
        Self { rows, blocks, ints, scales, sums }
    }
}

/// The largest integer.
const MOST: f32 = 32767.0;
/// Added to a number below 2²², it leaves its nearest integer in the low bits.
const ROUND: f32 = 12_582_912.0;

wide! {
    fn round(values: &[f32], ints: &mut [i16], scales: &mut [f32], sums: &mut [f32]) {
        let blocks = values.as_chunks::<QUANT_BLOCK>().0.iter().zip(ints.as_chunks_mut::<QUANT_BLOCK>().0);
        for ((x, ints), (scale, sum)) in blocks.zip(scales.iter_mut().zip(sums)) {
            let (mut most, mut total, mut poison) = ([0f32; 8], [0f32; 8], [0f32; 8]);
            for x in x.as_chunks::<8>().0 {
                for lane in 0..8 {
                    let size = x[lane].abs();
                    most[lane] = if size > most[lane] { size } else { most[lane] };
                    total[lane] += x[lane];
                    // 0 for every finite x, NaN for any other.
                    poison[lane] += x[lane] * 0.0;
                }
            }
            let most = most.iter().copied().fold(0f32, f32::max);
            // So small a block counts as zeros: its inverse would not be finite.
            let inverse = if most > 1e-30 { MOST / most } else { 0.0 };
            for (int, x) in ints.iter_mut().zip(x) {
                *int = x.mul_add(inverse, ROUND).to_bits() as i16;
            }
            *scale = most / MOST + poison.iter().sum::<f32>();
            *sum = total.iter().sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_hold_all_but_the_last_bits_and_show_what_is_not_finite() {
        let mut values: Vec<f32> = (0..128).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.031).collect();
        values[64..96].fill(0.0);
        values[100] = f32::NAN;
        let rows = IntRows::new(&values, 2, 64);
        for (block, x) in values.chunks(32).enumerate().take(3) {
            let most = x.iter().fold(0f32, |a, b| a.max(b.abs()));
            for (x, int) in x.iter().zip(&rows.ints[32 * block..]) {
                assert!((f32::from(*int) * rows.scales[block] - x).abs() <= most / 65_000.0, "{x} as {int}");
            }
            assert!((rows.sums[block] - x.iter().sum::<f32>()).abs() < 1e-5);
        }
        assert!(rows.scales[3].is_nan() && rows.scales[..3].iter().all(|s| s.is_finite()));
    }
}
