//! The kernels for AVX-512: vectors of 16 values, 32 registers, 12 rows at a time. See `kernels.rs`.

#![allow(unsafe_code, clippy::wildcard_imports)] // intrinsics are the point of this file

use std::arch::x86_64::*;

use super::activations::Activations;
use super::kernels::{self, BlockProduct, Lanes, Product};
use super::packed::Line;

impl Lanes for __m512 {
    type Ints = __m512i;

    const WIDTH: usize = 16;
    const ROWS: usize = 12;

    #[inline(always)]
    unsafe fn zero() -> Self {
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        unsafe { _mm512_loadu_ps(at) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        unsafe { _mm512_storeu_ps(at, self) }
    }

    #[inline(always)]
    unsafe fn plus_product(self, a: Self, b: Self) -> Self {
        unsafe { _mm512_fmadd_ps(a, b, self) }
    }

    #[inline(always)]
    unsafe fn firsts(at: *const u16) -> Self {
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_loadu_si512(at.cast()))) }
    }

    #[inline(always)]
    unsafe fn seconds(at: *const u16) -> Self {
        let upper = 0xffff_0000_u32.cast_signed();
        unsafe {
            _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(at.cast()), _mm512_set1_epi32(upper)))
        }
    }

    #[inline(always)]
    unsafe fn times(self, a: Self) -> Self {
        unsafe { _mm512_mul_ps(self, a) }
    }

    #[inline(always)]
    unsafe fn halves(at: *const u16) -> Self {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
    }

    #[inline(always)]
    unsafe fn from_ints(x: Self::Ints) -> Self {
        unsafe { _mm512_cvtepi32_ps(x) }
    }

    #[inline(always)]
    unsafe fn no_ints() -> Self::Ints {
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn splat_pair(at: *const i16) -> Self::Ints {
        unsafe { _mm512_set1_epi32(at.cast::<i32>().read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn bytes(at: *const u8) -> Self::Ints {
        unsafe { _mm512_cvtepi8_epi16(_mm256_loadu_si256(at.cast())) }
    }

    #[inline(always)]
    unsafe fn plus_pairs(sum: Self::Ints, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        unsafe { _mm512_add_epi32(sum, _mm512_madd_epi16(a, b)) }
    }
}

/// [`kernels::panel_pair`].
///
/// # Safety
/// AVX-512 is available, and what the generic form asks for.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn panel_pair(
    x: &Activations<'_>,
    panels: &[Line],
    y: *mut f32,
    stride: usize,
    columns: usize,
) {
    // SAFETY: the caller's.
    unsafe { kernels::panel_pair::<__m512>(x, panels, y, stride, columns) }
}

/// [`Product::run`].
///
/// # Safety
/// As above.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn product(product: &Product, a: *const f32, b: *const f32, c: *mut f32) {
    // SAFETY: the caller's.
    unsafe { product.run::<__m512>(a, b, c) }
}

/// [`BlockProduct::run`].
///
/// # Safety
/// As above.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn block_product(
    product: &BlockProduct,
    mins: bool,
    y: *mut f32,
    stride: usize,
    columns: usize,
) {
    // SAFETY: the caller's.
    unsafe {
        if mins {
            product.run::<__m512, true>(y, stride, columns);
        } else {
            product.run::<__m512, false>(y, stride, columns);
        }
    }
}
