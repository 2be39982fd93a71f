//! Rotary position embedding: the frequencies of one kind of layer, and the tables of a batch of positions.
//!
//! Half-split form: dimensions j and j + d/2 are one pair. On full layers only the first `n` pairs rotate
//! (`partial_rotary_factor`), with exponents over the whole head width; the other pairs are left as they are.

use candle_core::{D, DType, Device, Tensor};

use crate::config::RopeConfig;
use crate::error::Result;

/// Frequencies of one kind of layer.
#[derive(Debug, Clone)]
pub(crate) struct Rope {
    /// `[head_dim / 2]`; zero where the pair does not rotate.
    inverse_frequencies: Vec<f32>,
}

/// Cosines and sines of some positions, `[rows, head_dim / 2]` each, in the compute type.
#[derive(Debug, Clone)]
pub(crate) struct RopeTable {
    pub(crate) cos: Tensor,
    pub(crate) sin: Tensor,
}

impl Rope {
    pub(crate) fn new(config: &RopeConfig, head_dim: usize) -> Self {
        let half = head_dim / 2;
        let rotating = (config.partial_rotary_factor * half as f64) as usize;
        let inverse_frequencies = (0..half)
            .map(|j| {
                if j >= rotating {
                    return 0.0;
                }
                let exponent = 2.0 * j as f64 / head_dim as f64;
                (config.theta.powf(-exponent) / config.factor) as f32
            })
            .collect();
        Self { inverse_frequencies }
    }

    /// The mistake of taking exponents over the rotating part alone; only the negative controls ask for it.
    pub(crate) fn over_rotating_part(&self, theta: f64) -> Self {
        let rotating = self.inverse_frequencies.iter().filter(|f| **f != 0.0).count();
        let wrong =
            |j: usize, f: f32| if f == 0.0 { 0.0 } else { theta.powf(-(j as f64) / rotating as f64) as f32 };
        Self {
            inverse_frequencies: self
                .inverse_frequencies
                .iter()
                .enumerate()
                .map(|(j, f)| wrong(j, *f))
                .collect(),
        }
    }

    /// Tables for these positions. Angles are f32, as in the reference implementation.
    pub(crate) fn table(&self, positions: &[u32], dtype: DType, device: &Device) -> Result<RopeTable> {
        let half = self.inverse_frequencies.len();
        let angles: Vec<f32> = positions
            .iter()
            .flat_map(|p| self.inverse_frequencies.iter().map(move |f| *p as f32 * f))
            .collect();
        let angles = Tensor::from_vec(angles, (positions.len(), half), device)?;
        Ok(RopeTable { cos: angles.cos()?.to_dtype(dtype)?, sin: angles.sin()?.to_dtype(dtype)? })
    }
}

impl RopeTable {
    /// `x: [rows, heads, head_dim]` → the same, rotated.
    pub(crate) fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let half = x.dim(D::Minus1)? / 2;
        let (first, second) = (x.narrow(D::Minus1, 0, half)?, x.narrow(D::Minus1, half, half)?);
        let (cos, sin) = (self.cos.unsqueeze(1)?, self.sin.unsqueeze(1)?);
        let rotated_first = (first.broadcast_mul(&cos)? - second.broadcast_mul(&sin)?)?;
        let rotated_second = (second.broadcast_mul(&cos)? + first.broadcast_mul(&sin)?)?;
        Ok(Tensor::cat(&[rotated_first, rotated_second], D::Minus1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_layers_rotate_the_first_quarter_of_the_pairs_with_exponents_over_the_whole_head() {
        let rope = Rope::new(&RopeConfig { theta: 1e6, partial_rotary_factor: 0.25, factor: 1.0 }, 512);
        let f = &rope.inverse_frequencies;
        assert_eq!(f.len(), 256);
        assert!((f[0] - 1.0).abs() < 1e-7);
        assert!((f64::from(f[63]) - 1e6f64.powf(-126.0 / 512.0)).abs() < 1e-7);
        assert!(f[64..].iter().all(|x| *x == 0.0));
    }
}
