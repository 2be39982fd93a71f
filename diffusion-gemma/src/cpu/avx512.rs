//! AVX-512 kernels: f32 rows times packed bf16 weights, and a small f32 × f32 tile for attention.
//!
//! Both keep sums of up to 12 rows × 32 columns in registers (24 of 32), so that a loaded weight meets 12 rows.

#![allow(unsafe_code, clippy::wildcard_imports)] // intrinsics are the point of this file

use std::arch::x86_64::*;

use super::activations::Activations;
use super::packed::Line;

/// Rows whose sums fit into registers.
pub(super) const BLOCK: usize = 12;

/// `panels`: two panels of packed weights. Writes `columns` columns of every row to `y`, rows `stride` apart.
///
/// # Safety
/// AVX-512 is available; `y` has room for `x.rows` rows and is nobody else's.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn panel_pair(
    x: &Activations<'_>,
    panels: &[Line],
    y: *mut f32,
    stride: usize,
    columns: usize,
) {
    let (left, right) = panels.split_at(panels.len() / 2);
    let mut row = 0;
    while row < x.rows {
        let block = (x.rows - row).min(BLOCK);
        // SAFETY: rows `row..row + block` exist in `x` and in `y`.
        unsafe {
            let from = x.values.as_ptr().add(row * x.width);
            let to = y.add(row * stride);
            macro_rules! blocks {
                ($($n:literal)*) => { match block { $($n => bf16_rows::<$n>(from, x.width, left, right, to, stride, columns),)* _ => unreachable!() } };
            }
            blocks!(1 2 3 4 5 6 7 8 9 10 11 12);
        }
        row += block;
    }
}

/// `R` rows of `width` values (an even number) times a pair of panels.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn bf16_rows<const R: usize>(
    x: *const f32,
    width: usize,
    left: &[Line],
    right: &[Line],
    y: *mut f32,
    stride: usize,
    columns: usize,
) {
    let upper = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
    let mut sums = [[_mm512_setzero_ps(); 2]; R];
    for pair in 0..width / 2 {
        // SAFETY: a panel has at least `width / 2` lines; row r of x has `width` values.
        unsafe {
            let l = _mm512_load_si512(left.as_ptr().add(pair).cast());
            let r = _mm512_load_si512(right.as_ptr().add(pair).cast());
            // The first input of each pair lies in the low half of a lane, the second in the high half.
            let (l0, l1) = (
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(l)),
                _mm512_castsi512_ps(_mm512_and_si512(l, upper)),
            );
            let (r0, r1) = (
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(r)),
                _mm512_castsi512_ps(_mm512_and_si512(r, upper)),
            );
            for (row, sums) in sums.iter_mut().enumerate() {
                let at = x.add(row * width + 2 * pair);
                let (a, b) = (_mm512_set1_ps(*at), _mm512_set1_ps(*at.add(1)));
                sums[0] = _mm512_fmadd_ps(b, l1, _mm512_fmadd_ps(a, l0, sums[0]));
                sums[1] = _mm512_fmadd_ps(b, r1, _mm512_fmadd_ps(a, r0, sums[1]));
            }
        }
    }
    let (low, high) = masks(columns);
    for (row, sums) in sums.iter().enumerate() {
        // SAFETY: the masks keep to `columns` columns of row `row`.
        unsafe {
            _mm512_mask_storeu_ps(y.add(row * stride), low, sums[0]);
            _mm512_mask_storeu_ps(y.add(row * stride).wrapping_add(16), high, sums[1]);
        }
    }
}

/// A plain f32 product: `c[rows, columns] = a[rows, depth] · b[depth, columns]`, at most [`BLOCK`] rows and 32 columns.
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
    /// AVX-512 is available; the three blocks lie inside what the pointers may touch.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn run(&self, a: *const f32, b: *const f32, c: *mut f32) {
        macro_rules! blocks {
            ($($n:literal)*) => { match self.rows { $($n => unsafe { self.rows::<$n>(a, b, c) },)* _ => unreachable!() } };
        }
        // SAFETY: the caller's.
        blocks!(1 2 3 4 5 6 7 8 9 10 11 12);
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    unsafe fn rows<const R: usize>(&self, a: *const f32, b: *const f32, c: *mut f32) {
        let [a_stride, b_stride, c_stride] = self.strides;
        let (low, high) = masks(self.columns);
        let mut sums = [[_mm512_setzero_ps(); 2]; R];
        if self.accumulate {
            for (row, sums) in sums.iter_mut().enumerate() {
                // SAFETY: masked loads keep to the block.
                unsafe {
                    sums[0] = _mm512_maskz_loadu_ps(low, c.add(row * c_stride));
                    sums[1] = _mm512_maskz_loadu_ps(high, c.add(row * c_stride).wrapping_add(16));
                }
            }
        }
        for k in 0..self.depth {
            // SAFETY: masked loads touch `columns` values of row k; row r of a has `depth` values.
            unsafe {
                let b0 = _mm512_maskz_loadu_ps(low, b.add(k * b_stride));
                let b1 = _mm512_maskz_loadu_ps(high, b.add(k * b_stride).wrapping_add(16));
                for (row, sums) in sums.iter_mut().enumerate() {
                    let a = _mm512_set1_ps(*a.add(row * a_stride + k));
                    sums[0] = _mm512_fmadd_ps(a, b0, sums[0]);
                    sums[1] = _mm512_fmadd_ps(a, b1, sums[1]);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            // SAFETY: masked stores keep to the block.
            unsafe {
                _mm512_mask_storeu_ps(c.add(row * c_stride), low, sums[0]);
                _mm512_mask_storeu_ps(c.add(row * c_stride).wrapping_add(16), high, sums[1]);
            }
        }
    }
}

/// Masks of the first 16 and the second 16 of `columns` columns.
fn masks(columns: usize) -> (u16, u16) {
    let bits = if columns >= 32 { u32::MAX } else { (1 << columns) - 1 };
    (bits as u16, (bits >> 16) as u16)
}
