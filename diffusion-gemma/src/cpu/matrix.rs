//! A packed weight matrix of either kind, and `y = x Wᵀ` with it on all threads or on the calling one.
//!
//! Called by `linear.rs` and `experts.rs`. A task is a pair of panels: 32 outputs of every row.

#![allow(unsafe_code)] // threads fill disjoint columns of one result

use std::ops::Range;

use rayon::prelude::*;

use super::activations::{Activations, TILE_ROWS};
use super::fresh::Fresh;
use super::int_rows::IntRows;
use super::packed::PANEL;
use super::{PackedBf16, PackedBlocks, Precision, Shared};

/// Outputs of a pair of panels.
pub(crate) const PART: usize = 2 * PANEL;

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

    /// `x: [rows, inputs]` → `[rows, outputs]`, on all threads; `outputs`: some of them, from a multiple of [`PART`].
    pub(crate) fn matmul(&self, x: &[f32], rows: usize, outputs: Range<usize>) -> Vec<f32> {
        self.product(x, rows, outputs, in_parallel)
    }

    /// All outputs, on the calling thread.
    pub(crate) fn matmul_here(&self, x: &[f32], rows: usize) -> Vec<f32> {
        self.product(x, rows, 0..self.outputs(), |pairs, _, run| pairs.for_each(run))
    }

    /// `each` gets numbers of pairs of panels, the multiplications of one, and what computes one; it calls that for every pair.
    fn product(
        &self,
        x: &[f32],
        rows: usize,
        outputs: Range<usize>,
        each: impl Fn(Range<usize>, usize, &(dyn Fn(usize) + Sync)),
    ) -> Vec<f32> {
        assert!(x.len() == rows * self.inputs() && outputs.end <= self.outputs());
        let mut y = Fresh::new(rows * outputs.len());
        let out = Columns::new(y.target(), outputs);
        let work = pair_work(rows, self.inputs());
        // SAFETY: a pair of panels writes its own columns of `y` and no others.
        match self {
            Self::Bf16(weight, precision) => {
                let x = Activations::new(x, rows, weight.inputs, *precision);
                each(out.pairs(), work, &|pair| unsafe { weight.pair(&x, pair, &out) });
            }
            Self::Blocks(weight) => {
                let x = IntRows::new(x, rows, weight.inputs);
                each(out.pairs(), work, &|pair| unsafe { weight.pair(&x, pair, &out) });
            }
        }
        // SAFETY: the pairs of panels have all columns of every row.
        unsafe { y.written() }
    }
}

/// Where the outputs of a product go.
pub(super) struct Columns {
    y: Shared<f32>,
    outputs: Range<usize>,
}

impl Columns {
    /// `y`: `[rows, outputs]`, outputs from a multiple of [`PART`].
    pub(super) fn new(y: Shared<f32>, outputs: Range<usize>) -> Self {
        assert!(outputs.start.is_multiple_of(PART));
        Self { y, outputs }
    }

    /// The pairs of panels that have them.
    pub(super) fn pairs(&self) -> Range<usize> {
        self.outputs.start / PART..self.outputs.end.div_ceil(PART)
    }

    /// The first of a pair's columns, the distance of rows, and how many columns there are.
    pub(super) fn of_pair(&self, pair: usize) -> (*mut f32, usize, usize) {
        let first = PART * pair;
        let columns = (self.outputs.end - first).min(PART);
        // SAFETY: the column lies in the first row of `y`.
        (unsafe { self.y.pointer().add(first - self.outputs.start) }, self.outputs.len(), columns)
    }
}

/// Multiplications of a pair of panels.
pub(super) fn pair_work(rows: usize, inputs: usize) -> usize {
    rows.next_multiple_of(TILE_ROWS) * inputs * PART
}

/// Calls `run` for every pair of panels, in pieces that are worth waking a thread for: about a million multiplications.
pub(super) fn in_parallel(pairs: Range<usize>, pair_work: usize, run: &(dyn Fn(usize) + Sync)) {
    let piece = (1_000_000 / pair_work.max(1)).max(1);
    if pairs.len() <= piece {
        pairs.for_each(run);
    } else {
        pairs.into_par_iter().with_min_len(piece).for_each(run);
    }
}
