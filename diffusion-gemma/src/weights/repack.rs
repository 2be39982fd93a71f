//! From the blocks of a checkpoint to those of the tensor library, where a stored encoding has no kernel of its own.
//!
//! `q4_block` becomes Q4_1, which has the same groups, codes, scale and minimum (in f16 instead of bf16); everything else becomes
//! Q8_0, the finest form there is. What that costs is measured by `report.rs` at load. Called by `load.rs`.

use std::borrow::Cow;

use candle_core::Device;
use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use half::{bf16, f16};
use rayon::prelude::*;

use super::codec::{GROUP, Q4_BYTES};
use super::stored::{Encoding, Stored};
use crate::error::Result;

/// Scale in f16, then one signed byte a weight.
const Q8_0_BYTES: usize = 2 + GROUP;

/// The blocks for a matrix that is stored in blocks; `None`: plain numbers do.
pub(crate) fn nearest(encoding: Encoding, inputs: usize) -> Option<GgmlDType> {
    if encoding.is_plain() || !inputs.is_multiple_of(GROUP) {
        return None;
    }
    // The library's product of Q4_1 takes groups by twos.
    let by_twos = inputs.is_multiple_of(2 * GROUP);
    Some(if encoding == Encoding::Q4Block && by_twos { GgmlDType::Q4_1 } else { GgmlDType::Q8_0 })
}

/// The matrix in `form`, which [`nearest`] has chosen, on a device.
pub(crate) fn repack(stored: &Stored<'_>, form: GgmlDType, device: &Device) -> Result<QTensor> {
    let groups = stored.inputs / GROUP;
    let row_bytes = groups * if form == GgmlDType::Q4_1 { Q4_BYTES } else { Q8_0_BYTES };
    let mut blocks = vec![0u8; stored.rows() * row_bytes];
    let mut first = 0;
    for piece in &stored.pieces {
        let target = &mut blocks[first * row_bytes..][..piece.rows * row_bytes];
        let stride = piece.bytes.len() / piece.rows;
        let rows = target.par_chunks_mut(row_bytes).enumerate().with_min_len((1 << 16) / stored.inputs + 1);
        rows.for_each_init(
            || vec![0f32; stored.inputs],
            |wide, (row, target)| match (form, piece.encoding) {
                (GgmlDType::Q4_1, _) => q4_1_row(&piece.bytes[row * stride..][..stride], target),
                (_, Encoding::Q8Row) => q8_0_from_row(&piece.bytes[row * stride..][..stride], target),
                _ => {
                    piece.row(row, wide);
                    q8_0_row(wide, target);
                }
            },
        );
        first += piece.rows;
    }
    let storage = QStorage::from_data(Cow::Owned(blocks), device, form)?;
    Ok(QTensor::new(storage, (stored.rows(), stored.inputs))?)
}

/// Codes stay; the library has the first 16 of a group in the low halves and the others in the high ones.
fn q4_1_row(row: &[u8], target: &mut [u8]) {
    for (block, target) in row.chunks_exact(Q4_BYTES).zip(target.chunks_exact_mut(Q4_BYTES)) {
        for at in [0, 2] {
            let wide = bf16::from_le_bytes([block[at], block[at + 1]]).to_f32();
            target[at..at + 2].copy_from_slice(&f16::from_f32(wide).to_le_bytes());
        }
        let code = |i: usize| block[4 + i / 2] >> (4 * (i % 2)) & 15;
        for (i, two) in target[4..].iter_mut().enumerate() {
            *two = code(i) | code(i + GROUP / 2) << 4;
        }
    }
}

/// Codes stay; every group gets the scale of the row.
fn q8_0_from_row(row: &[u8], target: &mut [u8]) {
    let scale = f16::from_f32(bf16::from_le_bytes([row[0], row[1]]).to_f32()).to_le_bytes();
    for (codes, target) in row[2..].chunks_exact(GROUP).zip(target.chunks_exact_mut(Q8_0_BYTES)) {
        target[..2].copy_from_slice(&scale);
        target[2..].copy_from_slice(codes);
    }
}

/// The largest of a group becomes ±127.
fn q8_0_row(row: &[f32], target: &mut [u8]) {
    for (group, target) in row.chunks_exact(GROUP).zip(target.chunks_exact_mut(Q8_0_BYTES)) {
        let largest = group.iter().fold(0f32, |m, x| m.max(x.abs()));
        let scale = largest / 127.0;
        let per_scale = if scale > 0.0 { scale.recip() } else { 0.0 };
        target[..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
        for (code, x) in target[2..].iter_mut().zip(group) {
            *code = (x * per_scale).round() as i8 as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::encode;
    use super::super::stored::Piece;
    use super::*;

    fn repacked(encoding: Encoding, form: GgmlDType, row: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let mut bytes = Vec::new();
        encode::row(encoding, row, &mut bytes);
        let piece = Piece { encoding, rows: 1, bytes: &bytes, scales: None, global: 1.0 };
        let stored = Stored { inputs: row.len(), pieces: vec![piece] };
        assert_eq!(nearest(encoding, row.len()), Some(form), "{encoding:?}");
        let there = repack(&stored, form, &Device::Cpu).unwrap().dequantize(&Device::Cpu).unwrap();
        (stored.decode(), there.flatten_all().unwrap().to_vec1().unwrap())
    }

    #[test]
    fn blocks_keep_their_numbers_within_the_rounding_of_the_new_form() {
        let row: Vec<f32> = (0..128).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.003).collect();
        // Codes stay and scales are as good in f16: exact up to the rounding of f16 itself, which these numbers do not need.
        for (encoding, form, allowed) in [
            (Encoding::Q4Block, GgmlDType::Q4_1, 0.0),
            (Encoding::Q8Row, GgmlDType::Q8_0, 0.0),
            (Encoding::Q6Block, GgmlDType::Q8_0, 0.15 / 127.0),
            (Encoding::Nvfp4, GgmlDType::Q8_0, 0.15 / 127.0),
        ] {
            let (before, after) = repacked(encoding, form, &row);
            for (a, b) in before.iter().zip(&after) {
                assert!((a - b).abs() <= allowed, "{encoding:?}: {a} became {b}");
            }
        }
    }

    #[test]
    fn an_odd_number_of_groups_goes_where_the_library_can_compute() {
        let row: Vec<f32> = (0..96).map(|i| i as f32 * 0.01).collect();
        let (before, after) = repacked(Encoding::Q4Block, GgmlDType::Q8_0, &row);
        assert!(before.iter().zip(&after).all(|(a, b)| (a - b).abs() <= 1.0 / 127.0));
    }
}
