//! The matmul kernels, written once over vectors of any width: f32 rows times packed bf16 weights, and a small f32 product
//! for attention.
//!
//! `avx512.rs` and `avx2.rs` say what a vector is ([`Lanes`]) and compile these functions for their instructions. Sums stay
//! in registers: rows × two vectors of outputs, as many rows as there are registers for, so that a loaded weight meets them
//! all. An output is summed input by input whatever block it lies in: its bits do not depend on the rows beside it.

#![allow(unsafe_code)] // raw blocks of matrices are the point of this file

use super::activations::Activations;
use super::packed::{LANES, Line, PANEL};

/// A vector register of f32.
///
/// # Safety
/// Every method needs the instructions of its implementation, and readable or writable memory where it takes a pointer.
pub(super) trait Lanes: Copy {
    /// A register of integers of the same size.
    type Ints: Copy;
    /// Values of a vector.
    const WIDTH: usize;
    /// Rows whose sums of two vectors fit into the registers, with room for weights.
    const ROWS: usize;

    unsafe fn zero() -> Self;
    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(at: *const f32) -> Self;
    unsafe fn store(self, at: *mut f32);
    /// `self + a·b`, rounded once.
    unsafe fn plus_product(self, a: Self, b: Self) -> Self;
    /// The first of each of `WIDTH` pairs of bf16.
    unsafe fn firsts(at: *const u16) -> Self;
    /// The second of each of `WIDTH` pairs of bf16.
    unsafe fn seconds(at: *const u16) -> Self;

    /// `self · a`.
    unsafe fn times(self, a: Self) -> Self;
    /// `WIDTH` values of f16.
    unsafe fn halves(at: *const u16) -> Self;
    unsafe fn from_ints(x: Self::Ints) -> Self;
    unsafe fn no_ints() -> Self::Ints;
    /// A pair of 16-bit integers in every lane.
    unsafe fn splat_pair(at: *const i16) -> Self::Ints;
    /// `2·WIDTH` signed bytes as 16-bit integers.
    unsafe fn bytes(at: *const u8) -> Self::Ints;
    /// `sum + a₀·b₀ + a₁·b₁` of each lane's pair of 16-bit integers, 32 bits wide.
    unsafe fn plus_pairs(sum: Self::Ints, a: Self::Ints, b: Self::Ints) -> Self::Ints;
}

/// Rows of the blocks that `rows` rows are cut into, at most `most` each and as even as can be: few rows would leave the
/// arithmetic waiting for its own results.
#[inline(always)]
pub(super) fn even_blocks(rows: usize, most: usize) -> usize {
    rows.div_ceil(rows.div_ceil(most).max(1)).max(1)
}

/// Calls `$kernel::<$V, R, $n>` for the R that `$rows` is.
macro_rules! for_rows {
    ($rows:expr, $kernel:ident, $V:ident, $n:literal, $($arg:expr),*) => {
        match $rows {
            1 => $kernel::<$V, 1, $n>($($arg),*),
            2 => $kernel::<$V, 2, $n>($($arg),*),
            3 => $kernel::<$V, 3, $n>($($arg),*),
            4 => $kernel::<$V, 4, $n>($($arg),*),
            5 => $kernel::<$V, 5, $n>($($arg),*),
            6 => $kernel::<$V, 6, $n>($($arg),*),
            7 if $V::ROWS > 6 => $kernel::<$V, 7, $n>($($arg),*),
            8 if $V::ROWS > 6 => $kernel::<$V, 8, $n>($($arg),*),
            9 if $V::ROWS > 6 => $kernel::<$V, 9, $n>($($arg),*),
            10 if $V::ROWS > 6 => $kernel::<$V, 10, $n>($($arg),*),
            11 if $V::ROWS > 6 => $kernel::<$V, 11, $n>($($arg),*),
            12 if $V::ROWS > 6 => $kernel::<$V, 12, $n>($($arg),*),
            _ => unreachable!("blocks have 1 to {} rows", $V::ROWS),
        }
    };
}

/// `panels`: two panels of packed weights. Writes `columns` columns of every row to `y`, rows `stride` apart.
///
/// # Safety
/// The instructions of `V` are there; `y` has room for `x.rows` rows and is nobody else's.
#[inline(always)]
pub(super) unsafe fn panel_pair<V: Lanes>(
    x: &Activations<'_>,
    panels: &[Line],
    y: *mut f32,
    stride: usize,
    columns: usize,
) {
    let block = even_blocks(x.rows, V::ROWS);
    let mut row = 0;
    while row < x.rows {
        let rows = (x.rows - row).min(block);
        let mut column = 0;
        while column < columns {
            // SAFETY: rows `row..row + rows` exist in `x` and in `y`; the vectors are columns of the two panels.
            unsafe {
                let from = x.values.as_ptr().add(row * x.width);
                let to = y.add(row * stride + column);
                // Vector n holds outputs `column + n·WIDTH ..` of the pair.
                let weights = [0, 1, 2, 3].map(|n| {
                    let output = (column + n * V::WIDTH) % (2 * PANEL);
                    let line = output / PANEL * (panels.len() / 2);
                    panels.as_ptr().add(line).cast::<u16>().add(output % PANEL * 2)
                });
                let wide = column + 4 * V::WIDTH <= 2 * PANEL && rows <= 3;
                let part = (columns - column).min(if wide { 4 } else { 2 } * V::WIDTH);
                if wide {
                    match rows {
                        1 => bf16_rows::<V, 1, 4>(from, x.width, weights, to, stride, part),
                        2 => bf16_rows::<V, 2, 4>(from, x.width, weights, to, stride, part),
                        _ => bf16_rows::<V, 3, 4>(from, x.width, weights, to, stride, part),
                    }
                } else {
                    for_rows!(rows, bf16_rows, V, 2, from, x.width, weights, to, stride, part);
                }
                column += part;
            }
        }
        row += rows;
    }
}

/// `R` rows of `width` values (an even number) times `N` vectors of outputs.
#[inline(always)]
unsafe fn bf16_rows<V: Lanes, const R: usize, const N: usize>(
    x: *const f32,
    width: usize,
    weights: [*const u16; 4],
    y: *mut f32,
    stride: usize,
    columns: usize,
) {
    // SAFETY: a panel has a line of 2·16 values per pair of inputs; row r of x has `width` values.
    unsafe {
        let mut sums = [[V::zero(); N]; R];
        for pair in 0..width / 2 {
            for second in [false, true] {
                let mut w = [V::zero(); N];
                for (w, from) in w.iter_mut().zip(weights) {
                    let at = from.add(pair * LANES);
                    *w = if second { V::seconds(at) } else { V::firsts(at) };
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    let a = V::splat(*x.add(row * width + 2 * pair + usize::from(second)));
                    for (sum, w) in sums.iter_mut().zip(w) {
                        *sum = sum.plus_product(a, w);
                    }
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            store_columns(sums, y.add(row * stride), columns);
        }
    }
}

/// A plain f32 product: `c[rows, columns] = a[rows, depth] · b[depth, columns]`.
pub(super) struct Product {
    pub(super) rows: usize,
    pub(super) depth: usize,
    pub(super) columns: usize,
    /// Distance of rows of a, b and c.
    pub(super) strides: [usize; 3],
    /// Adds to what stands in c.
    pub(super) accumulate: bool,
}

impl Product {
    /// # Safety
    /// The instructions of `V` are there; the three blocks lie inside what the pointers may touch.
    #[inline(always)]
    pub(super) unsafe fn run<V: Lanes>(&self, a: *const f32, b: *const f32, c: *mut f32) {
        let [a_stride, _, c_stride] = self.strides;
        let block = even_blocks(self.rows, V::ROWS);
        let mut row = 0;
        while row < self.rows {
            let rows = (self.rows - row).min(block);
            for column in (0..self.columns).step_by(2 * V::WIDTH) {
                let part = (self.columns - column).min(2 * V::WIDTH);
                // SAFETY: the caller's; the parts lie inside the blocks.
                unsafe {
                    let (a, c) = (a.add(row * a_stride), c.add(row * c_stride + column));
                    for_rows!(rows, product_rows, V, 2, self, a, b.add(column), c, part);
                }
            }
            row += rows;
        }
    }
}

#[inline(always)]
unsafe fn product_rows<V: Lanes, const R: usize, const N: usize>(
    product: &Product,
    a: *const f32,
    b: *const f32,
    c: *mut f32,
    columns: usize,
) {
    let [a_stride, b_stride, c_stride] = product.strides;
    // SAFETY: the caller's: row r of a has `depth` values, and rows of b and c have `columns`.
    unsafe {
        let mut sums = [[V::zero(); N]; R];
        if product.accumulate {
            for (row, sums) in sums.iter_mut().enumerate() {
                *sums = load_columns(c.add(row * c_stride), columns);
            }
        }
        for k in 0..product.depth {
            let b: [V; N] = load_columns(b.add(k * b_stride), columns);
            for (row, sums) in sums.iter_mut().enumerate() {
                let a = V::splat(*a.add(row * a_stride + k));
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum = sum.plus_product(a, b);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            store_columns(sums, c.add(row * c_stride), columns);
        }
    }
}

/// `columns` values, at most `N` vectors of them; zeros after them.
#[inline(always)]
unsafe fn load_columns<V: Lanes, const N: usize>(from: *const f32, columns: usize) -> [V; N] {
    // SAFETY: the caller's: `columns` values can be read.
    unsafe {
        let mut part = [0f32; 2 * PANEL];
        let mut from = from;
        if columns < N * V::WIDTH {
            from.copy_to_nonoverlapping(part.as_mut_ptr(), columns);
            from = part.as_ptr();
        }
        let mut values = [V::zero(); N];
        for (n, value) in values.iter_mut().enumerate() {
            *value = V::load(from.add(n * V::WIDTH));
        }
        values
    }
}

/// Writes the first `columns` values of the vectors.
#[inline(always)]
unsafe fn store_columns<V: Lanes, const N: usize>(values: &[V; N], to: *mut f32, columns: usize) {
    let mut part = [0f32; 2 * PANEL];
    let whole = columns == N * V::WIDTH;
    // SAFETY: the caller's: `columns` values can be written.
    unsafe {
        let at = if whole { to } else { part.as_mut_ptr() };
        for (n, value) in values.iter().enumerate() {
            value.store(at.add(n * V::WIDTH));
        }
        if !whole {
            to.copy_from_nonoverlapping(part.as_ptr(), columns);
        }
    }
}

/// Activations and weights of a product of small integers, as the kernel reads them.
pub(super) struct BlockProduct {
    /// `[rows, 32·blocks]`.
    pub(super) ints: *const i16,
    /// What one of these integers means, and the sum of the 32 values of a block: `[rows, blocks]` each.
    pub(super) scales: *const f32,
    pub(super) sums: *const f32,
    pub(super) rows: usize,
    pub(super) blocks: usize,
    /// Two panels of blocks; see `packed_blocks.rs`.
    pub(super) panels: *const u8,
}

impl BlockProduct {
    /// Writes `columns` columns of every row to `y`, rows `stride` apart.
    ///
    /// # Safety
    /// The instructions of `V` are there; the pointers hold what their sizes say; `y` is nobody else's.
    #[inline(always)]
    pub(super) unsafe fn run<V: Lanes, const MINS: bool>(&self, y: *mut f32, stride: usize, columns: usize) {
        let block = even_blocks(self.rows, V::ROWS);
        let mut row = 0;
        while row < self.rows {
            let rows = (self.rows - row).min(block);
            let mut column = 0;
            while column < columns {
                let wide = column + 4 * V::WIDTH <= 2 * PANEL && rows <= 3;
                let part = (columns - column).min(if wide { 4 } else { 2 } * V::WIDTH);
                // SAFETY: rows `row..row + rows` and these columns exist.
                unsafe {
                    let to = y.add(row * stride + column);
                    macro_rules! blocks {
                        ($n:literal: $($r:literal)*) => { match rows {
                            $($r if $r <= V::ROWS => self.rows::<V, $r, $n, MINS>(row, column, to, stride, part),)*
                            _ => unreachable!("blocks have 1 to {} rows", V::ROWS),
                        } };
                    }
                    if wide {
                        blocks!(4: 1 2 3);
                    } else {
                        blocks!(2: 1 2 3 4 5 6 7 8 9 10 11 12);
                    }
                }
                column += part;
            }
            row += rows;
        }
    }

    #[inline(always)]
    unsafe fn rows<V: Lanes, const R: usize, const N: usize, const MINS: bool>(
        &self,
        first: usize,
        column: usize,
        y: *mut f32,
        stride: usize,
        columns: usize,
    ) {
        let bytes = block_bytes(MINS);
        // SAFETY: the caller's.
        unsafe {
            let at = |block: usize, n: usize| {
                let output = column + n * V::WIDTH;
                let panel = self.panels.add((output / PANEL * self.blocks + block) * bytes);
                (panel, 2 * (output % PANEL))
            };
            let mut sums = [[V::zero(); N]; R];
            for block in 0..if MINS { self.blocks } else { 0 } {
                for n in 0..N {
                    let (panel, lane) = at(block, n);
                    let least = V::halves(panel.add(2 * PANEL + lane).cast());
                    for (row, sums) in sums.iter_mut().enumerate() {
                        let sum = V::splat(*self.sums.add((first + row) * self.blocks + block));
                        sums[n] = sums[n].plus_product(least, sum);
                    }
                }
            }
            for block in 0..self.blocks {
                let mut ints = [[V::no_ints(); N]; R];
                for pair in 0..QUANT_BLOCK / 2 {
                    let mut w = [V::no_ints(); N];
                    for (n, w) in w.iter_mut().enumerate() {
                        let (panel, lane) = at(block, n);
                        *w = V::bytes(panel.add(head_bytes(MINS) + pair * 2 * PANEL + lane));
                    }
                    for (row, ints) in ints.iter_mut().enumerate() {
                        let of_row = (first + row) * self.blocks + block;
                        let a = V::splat_pair(self.ints.add(of_row * QUANT_BLOCK + 2 * pair));
                        for (sum, w) in ints.iter_mut().zip(w) {
                            *sum = V::plus_pairs(*sum, a, w);
                        }
                    }
                }
                let mut scales = [V::zero(); N];
                for (n, scale) in scales.iter_mut().enumerate() {
                    let (panel, lane) = at(block, n);
                    *scale = V::halves(panel.add(lane).cast());
                }
                for (row, (sums, ints)) in sums.iter_mut().zip(ints).enumerate() {
                    let of_row = V::splat(*self.scales.add((first + row) * self.blocks + block));
                    for ((sum, ints), scale) in sums.iter_mut().zip(ints).zip(scales) {
                        *sum = sum.plus_product(V::from_ints(ints).times(of_row), scale);
                    }
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                store_columns(sums, y.add(row * stride), columns);
            }
        }
    }
}

/// Weights that share a scale.
pub(super) const QUANT_BLOCK: usize = 32;

/// Bytes of the scales (and least values) of a panel's block, f16.
pub(super) const fn head_bytes(mins: bool) -> usize {
    if mins { 4 * PANEL } else { 2 * PANEL }
}

/// Bytes of 32 inputs × 16 outputs of a byte each, after their scales.
pub(super) const fn block_bytes(mins: bool) -> usize {
    head_bytes(mins) + QUANT_BLOCK * PANEL
}
