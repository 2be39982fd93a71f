//! A projection: `y = x Wᵀ`, weights `[out, in]` as the checkpoint stores them, no bias anywhere in this model.

use candle_core::Tensor;

use crate::error::Result;

/// One projection, or several of the same input stacked by rows (q, k and v; gate and up).
#[derive(Debug, Clone)]
pub(crate) struct Linear {
    weight: Tensor,
}

impl Linear {
    /// `weight: [out, in]`.
    pub(crate) fn new(weight: Tensor) -> Self {
        Self { weight }
    }

    /// `x: [rows, in]` → `[rows, out]`.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.matmul(&self.weight.t()?)?)
    }

    /// The weights of some of the outputs, `[len, in]`, as the plain reference path uses them.
    pub(crate) fn rows(&self, start: usize, len: usize) -> Result<Tensor> {
        Ok(self.weight.narrow(0, start, len)?)
    }
}
