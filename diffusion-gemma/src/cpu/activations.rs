//! Activations in the form a packed matmul reads: f32 rows, and (for AMX) the same rows as bf16 planes.
//!
//! A bf16 plane holds the first 8 bits of every mantissa; a second and a third plane hold what is left. Three planes carry
//! the 24 bits of an f32 exactly, so a product with a bf16 weight summed in f32 is an f32 matmul, on bf16 tiles.

use rayon::prelude::*;

use super::fresh::Fresh;
use super::packed::{LANES, Line, Precision};
use super::rows::wide;
use super::{Isa, Shared, isa};

/// Rows of a matmul's input.
#[derive(Debug)]
pub(crate) struct Activations<'a> {
    /// `[rows, width]`.
    pub(crate) values: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) width: usize,
    /// Planes in tile order, `[rows / 16, lines, 16]` lines; empty where no tiles are used. A tile lies in one piece: rows a
    /// power of two apart would fight for the same few sets of the cache.
    planes: Vec<Vec<Line>>,
    /// Lines (of 32 values) of one plane row.
    pub(crate) lines: usize,
}

/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 16;

impl<'a> Activations<'a> {
    /// `values: [rows, width]`.
    pub(crate) fn new(values: &'a [f32], rows: usize, width: usize, precision: Precision) -> Self {
        assert_eq!(values.len(), rows * width);
        let lines = width.div_ceil(LANES);
        let planes = if isa() == Isa::Amx { planes(values, rows, width, precision) } else { Vec::new() };
        Self { values, rows, width, planes, lines }
    }

    pub(crate) fn planes(&self) -> &[Vec<Line>] {
        &self.planes
    }
}

/// Splits rows into bf16 planes, zero-padded to whole tiles and lines.
#[allow(unsafe_code)]
fn planes(values: &[f32], rows: usize, width: usize, precision: Precision) -> Vec<Vec<Line>> {
    let lines = width.div_ceil(LANES);
    let padded = rows.next_multiple_of(TILE_ROWS);
    let mut planes: Vec<Fresh<Line>> = (0..precision.planes()).map(|_| Fresh::new(padded * lines)).collect();
    let targets: Vec<Shared<Line>> = planes.iter_mut().map(Fresh::target).collect();
    let convert = |row: usize| {
        for line in 0..lines {
            let from = row * width + line * LANES;
            // Rows beyond the last are zeros.
            let source = values.get(from..(from + LANES).min((row + 1) * width)).unwrap_or_default();
            let at = (row / TILE_ROWS * lines + line) * TILE_ROWS + row % TILE_ROWS;
            let mut rest = [0f32; LANES];
            rest[..source.len()].copy_from_slice(source);
            for target in &targets {
                // SAFETY: `at` lies inside the padded plane, and each (row, line) is written by one thread.
                unsafe { target.pointer().add(at).write(split_off(&mut rest)) };
            }
        }
    };
    if rows * width < 1 << 14 {
        (0..padded).for_each(convert);
    } else {
        (0..padded).into_par_iter().with_min_len(8).for_each(convert);
    }
    // SAFETY: every line of every padded row has been written.
    planes.into_iter().map(|plane| unsafe { plane.written() }).collect()
}

/// Takes the bf16 part out of each value; what is left stays.
#[inline(always)]
fn split_off(rest: &mut [f32; LANES]) -> Line {
    let mut part = Line::ZERO;
    split_into(rest, &mut part);
    part
}

wide! {
    fn split_into(rest: &mut [f32; LANES], part: &mut Line) {
        for (rest, bits) in rest.iter_mut().zip(&mut part.0) {
            *bits = round_to_bf16(*rest);
            *rest -= f32::from_bits(u32::from(*bits) << 16);
        }
    }
}

/// Nearest bf16, ties to even; NaN stays NaN.
#[inline(always)]
pub(crate) fn round_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
    if x.is_nan() { 0x7fc0 } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_planes_hold_an_f32_exactly() {
        for x in [1.0f32, -0.333_333_34, 1234.567, 1e-20, -7.9e19, 0.0] {
            let mut rest = x;
            let mut sum = 0f64;
            for _ in 0..Precision::F32.planes() {
                let part = f32::from_bits(u32::from(round_to_bf16(rest)) << 16);
                sum += f64::from(part);
                rest -= part;
            }
            assert_eq!(sum as f32, x);
        }
        assert!(f32::from_bits(u32::from(round_to_bf16(f32::NAN)) << 16).is_nan());
        assert_eq!(round_to_bf16(f32::INFINITY), 0x7f80);
        assert_eq!(round_to_bf16(f32::from_bits(0x3f80_8000)), 0x3f80); // halfway between two: to even
    }
}
