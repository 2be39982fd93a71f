//! A packed weight matrix of either kind, and `y = x Wᵀ` with it on all threads or on the calling one.
//!
//! Called by `linear.rs` and `experts.rs`. A task is a pair of panels: 32 outputs of every row.

#![allow(unsafe_code)] // threads fill disjoint columns of one result

use rayon::prelude::*;

use super::activations::{Activations, TILE_ROWS};
use super::fresh::Fresh;
use super::int_rows::IntRows;
use super::packed::PANEL;
use super::{PackedBf16, PackedBlocks, Precision, Shared};

/// Packed weights, `[outputs, inputs]`.
#[derive(Debug)]
pub(crate) enum Matrix {
    /// As published.
    Bf16(PackedBf16, Precision),
    /// Small integers with scales.
    Blocks(PackedBlocks),
}

impl Matrix {
    pub(crate) fn outputs(&self) -> usize {
        match self {
            Self::Bf16(weight, _) => weight.outputs,
            Self::Blocks(weight) => weight.outputs,
        }
    }

    pub(crate) fn inputs(&self) -> usize {
        match self {
            Self::Bf16(weight, _) => weight.inputs,
            Self::Blocks(weight) => weight.inputs,
        }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Bf16(weight, _) => weight.bytes(),
            Self::Blocks(weight) => weight.bytes(),
        }
    }

    /// The weights of some outputs, f32, `[ids, inputs]`.
    pub(crate) fn read_rows(&self, ids: &[u32]) -> Vec<f32> {
        let mut rows = vec![0f32; ids.len() * self.inputs()];
        rows.par_chunks_exact_mut(self.inputs()).with_min_len(8).zip(ids).for_each(|(row, id)| match self {
            Self::Bf16(weight, _) => weight.read_row(*id as usize, row),
            Self::Blocks(weight) => weight.read_row(*id as usize, row),
        });
        rows
    }

    /// `x: [rows, inputs]` → `[rows, outputs]`, on all threads.
    pub(crate) fn matmul(&self, x: &[f32], rows: usize) -> Vec<f32> {
        self.product(x, rows, |work, run| in_parallel(self.outputs(), work, run))
    }

    /// The same on the calling thread.
    pub(crate) fn matmul_here(&self, x: &[f32], rows: usize) -> Vec<f32> {
        self.product(x, rows, |_, run| (0..self.outputs().div_ceil(2 * PANEL)).for_each(run))
    }

    /// `each` gets the multiplications of a pair of panels, and what computes pair n; it calls that for every pair.
    fn product(&self, x: &[f32], rows: usize, each: impl Fn(usize, &(dyn Fn(usize) + Sync))) -> Vec<f32> {
        assert_eq!(x.len(), rows * self.inputs());
        let mut y = Fresh::new(rows * self.outputs());
        let out: Shared<f32> = y.target();
        // SAFETY: a pair of panels writes its own columns of `y` and no others.
        match self {
            Self::Bf16(weight, precision) => {
                let x = Activations::new(x, rows, weight.inputs, *precision);
                each(pair_work(rows, weight.inputs), &|pair| unsafe { weight.pair(&x, pair, out.pointer()) });
            }
            Self::Blocks(weight) => {
                let x = IntRows::new(x, rows, weight.inputs);
                each(pair_work(rows, weight.inputs), &|pair| unsafe { weight.pair(&x, pair, out.pointer()) });
            }
        }
        // SAFETY: the pairs of panels have all columns of every row.
        unsafe { y.written() }
    }
}

/// Multiplications of a pair of panels.
pub(super) fn pair_work(rows: usize, inputs: usize) -> usize {
    rows.next_multiple_of(TILE_ROWS) * inputs * 2 * PANEL
}

/// Calls `run` for every pair of panels, in pieces that are worth waking a thread for: about a million multiplications.
pub(super) fn in_parallel(outputs: usize, pair_work: usize, run: impl Fn(usize) + Sync + Send) {
    let pairs = outputs.div_ceil(2 * PANEL);
    let piece = (1_000_000 / pair_work.max(1)).max(1);
    if pairs <= piece {
        (0..pairs).for_each(run);
    } else {
        (0..pairs).into_par_iter().with_min_len(piece).for_each(run);
    }
}
