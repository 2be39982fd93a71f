//! From the numbers of a checkpoint to the blocks of the tensor library: quantising on load, and blocks whose stored encoding
//! has no kernel of its own.
//!
//! `q4_block` becomes Q4_1, which has the same groups, codes, scale and minimum (in f16 instead of bf16); every other encoding
//! becomes Q8_0, the finest form there is, unless another one was asked for. What that costs is measured by `report.rs` at
//! load. Numbers that are not finite, and scales that f16 cannot say, are refused. Called by `load.rs`.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use half::{bf16, f16};
use rayon::prelude::*;

use super::codec::{GROUP, Q4_BYTES};
use super::stored::{Encoding, Fault, NOT_FINITE, Piece, Stored, largest_of};
use crate::error::Error;

/// Scale in f16, then one signed byte a weight.
const Q8_0_BYTES: usize = 2 + GROUP;

/// The blocks for a matrix that is stored in blocks; `None`: plain numbers do.
pub(crate) fn nearest(encoding: Encoding, inputs: usize) -> Option<GgmlDType> {
    let plain = encoding.is_plain() || matches!(encoding, Encoding::Mixed | Encoding::Other);
    if plain || !inputs.is_multiple_of(GROUP) {
        return None;
    }
    // The library's product of Q4_1 takes groups by twos.
    let by_twos = inputs.is_multiple_of(2 * GROUP);
    Some(if encoding == Encoding::Q4Block && by_twos { GgmlDType::Q4_1 } else { GgmlDType::Q8_0 })
}

/// The matrix in the blocks of `form`, row by row. Its width is a multiple of that of a block.
pub(crate) fn blocks(stored: &Stored<'_>, form: GgmlDType) -> Result<Vec<u8>, Fault> {
    let row_bytes = stored.inputs / form.block_size() * form.type_size();
    // As many rows at a time as are worth a task.
    let some = (1 << 16) / stored.inputs + 1;
    let mut blocks = vec![0u8; stored.rows() * row_bytes];
    let (mut rest, mut first) = (blocks.as_mut_slice(), 0);
    for piece in &stored.pieces {
        let (target, after) = rest.split_at_mut(piece.rows * row_bytes);
        rest = after;
        target.par_chunks_mut(some * row_bytes).enumerate().try_for_each(|(number, target)| {
            let at = number * some;
            let written = match form {
                GgmlDType::Q4_1 | GgmlDType::Q8_0 => rows(piece, at, form, stored.inputs, target, row_bytes),
                _ => by_library(piece, at, form, stored.inputs, target, row_bytes),
            };
            written.map_err(|fault| fault.after(first))
        })?;
        first += piece.rows;
    }
    Ok(blocks)
}

/// Rows of a piece from `at` on.
fn rows(
    piece: &Piece<'_>,
    at: usize,
    form: GgmlDType,
    inputs: usize,
    target: &mut [u8],
    row_bytes: usize,
) -> Result<(), Fault> {
    let stride = piece.bytes.len() / piece.rows;
    let mut wide = vec![0f32; inputs];
    for (i, target) in target.chunks_exact_mut(row_bytes).enumerate() {
        let stored = &piece.bytes[(at + i) * stride..][..stride];
        let written = match (form, piece.encoding) {
            (GgmlDType::Q4_1, Encoding::Q4Block) => q4_1_row(stored, target),
            (_, Encoding::Q8Row) => q8_0_from_row(stored, target),
            _ => {
                piece.row(at + i, &mut wide);
                q8_0_row(&wide, target)
            }
        };
        written.map_err(|reason| Fault::row(at + i, reason))?;
    }
    Ok(())
}

/// Forms that the tensor library quantises to. Their scales are never above the largest weight.
fn by_library(
    piece: &Piece<'_>,
    at: usize,
    form: GgmlDType,
    inputs: usize,
    target: &mut [u8],
    row_bytes: usize,
) -> Result<(), Fault> {
    let count = target.len() / row_bytes;
    let mut wide = vec![0f32; count * inputs];
    for (i, row) in wide.chunks_exact_mut(inputs).enumerate() {
        piece.row(at + i, row);
        let largest = largest_of(row);
        if largest > f32::from(f16::MAX) {
            let reason = if largest.is_finite() { too_large(largest) } else { NOT_FINITE.to_owned() };
            return Err(Fault::row(at + i, reason));
        }
    }
    let quantised = || -> candle_core::Result<()> {
        let wide = Tensor::from_vec(wide, (count, inputs), &Device::Cpu)?;
        target.copy_from_slice(&QTensor::quantize(&wide, form)?.data()?);
        Ok(())
    };
    quantised().map_err(|error| Error::from(error).into())
}

fn too_large(x: f32) -> String {
    format!("needs a scale of {x}, and the blocks that it is computed in have none above {}", f16::MAX)
}

/// A scale or minimum in the f16 of the blocks.
fn f16_of(x: f32) -> Result<[u8; 2], String> {
    match f16::from_f32(x) {
        half if half.is_finite() => Ok(half.to_le_bytes()),
        _ if x.is_finite() => Err(too_large(x)),
        _ => Err(NOT_FINITE.to_owned()),
    }
}

/// Codes stay; the library has the first 16 of a group in the low halves and the others in the high ones.
fn q4_1_row(row: &[u8], target: &mut [u8]) -> Result<(), String> {
    for (block, target) in row.chunks_exact(Q4_BYTES).zip(target.chunks_exact_mut(Q4_BYTES)) {
        for at in [0, 2] {
            let wide = bf16::from_le_bytes([block[at], block[at + 1]]).to_f32();
            target[at..at + 2].copy_from_slice(&f16_of(wide)?);
        }
        let code = |i: usize| block[4 + i / 2] >> (4 * (i % 2)) & 15;
        for (i, two) in target[4..].iter_mut().enumerate() {
            *two = code(i) | code(i + GROUP / 2) << 4;
        }
    }
    Ok(())
}

/// Codes stay; every group gets the scale of the row.
fn q8_0_from_row(row: &[u8], target: &mut [u8]) -> Result<(), String> {
    let scale = f16_of(bf16::from_le_bytes([row[0], row[1]]).to_f32())?;
    for (codes, target) in row[2..].chunks_exact(GROUP).zip(target.chunks_exact_mut(Q8_0_BYTES)) {
        target[..2].copy_from_slice(&scale);
        target[2..].copy_from_slice(codes);
    }
    Ok(())
}

/// The largest of a group becomes ±127.
fn q8_0_row(row: &[f32], target: &mut [u8]) -> Result<(), String> {
    for (group, target) in row.chunks_exact(GROUP).zip(target.chunks_exact_mut(Q8_0_BYTES)) {
        let scale = largest_of(group) / 127.0;
        let per_scale = if scale > 0.0 { scale.recip() } else { 0.0 };
        target[..2].copy_from_slice(&f16_of(scale)?);
        for (code, x) in target[2..].iter_mut().zip(group) {
            *code = (x * per_scale).round() as i8 as u8;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use candle_core::quantized::QStorage;

    use super::super::encode;
    use super::*;

    /// A row as a piece of a checkpoint, in blocks, and as numbers again.
    fn repacked(encoding: Encoding, bytes: &[u8], width: usize, form: GgmlDType) -> Result<Vec<f32>, Fault> {
        let piece = Piece { encoding, rows: 1, bytes, scales: None, global: 1.0 };
        let blocks = blocks(&Stored { inputs: width, pieces: vec![piece] }, form)?;
        let storage = QStorage::from_data(Cow::Owned(blocks), &Device::Cpu, form).unwrap();
        let there = QTensor::new(storage, (1, width)).unwrap().dequantize(&Device::Cpu).unwrap();
        Ok(there.flatten_all().unwrap().to_vec1().unwrap())
    }

    /// Numbers in an encoding, read exactly and from blocks.
    fn both(encoding: Encoding, form: GgmlDType, row: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let mut bytes = Vec::new();
        encode::row(encoding, row, 1.0, &mut bytes);
        let piece = Piece { encoding, rows: 1, bytes: &bytes, scales: None, global: 1.0 };
        let mut before = vec![0f32; row.len()];
        piece.row(0, &mut before);
        (before, repacked(encoding, &bytes, row.len(), form).unwrap())
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
            assert_eq!(nearest(encoding, row.len()), Some(form), "{encoding:?}");
            let (before, after) = both(encoding, form, &row);
            for (a, b) in before.iter().zip(&after) {
                assert!((a - b).abs() <= allowed, "{encoding:?}: {a} became {b}");
            }
        }
    }

    #[test]
    fn an_odd_number_of_groups_goes_where_the_library_can_compute() {
        let row: Vec<f32> = (0..96).map(|i| i as f32 * 0.01).collect();
        assert_eq!(nearest(Encoding::Q4Block, row.len()), Some(GgmlDType::Q8_0));
        let (before, after) = both(Encoding::Q4Block, GgmlDType::Q8_0, &row);
        assert!(before.iter().zip(&after).all(|(a, b)| (a - b).abs() <= 1.0 / 127.0));
    }

    #[test]
    fn rows_in_parallel_are_what_the_library_makes_of_the_whole() {
        let wide: Vec<f32> = (0usize..600 * 512).map(|i| ((i * 7919 % 1009) as f32 - 504.0) * 1e-4).collect();
        let bytes: Vec<u8> = wide.iter().flat_map(|x| x.to_le_bytes()).collect();
        let piece =
            |rows: usize, bytes| Piece { encoding: Encoding::F32, rows, bytes, scales: None, global: 1.0 };
        let (one, other) = bytes.split_at(200 * 512 * 4);
        let stored = Stored { inputs: 512, pieces: vec![piece(200, one), piece(400, other)] };
        let whole = Tensor::from_vec(wide, (600, 512), &Device::Cpu).unwrap();
        for form in [GgmlDType::Q8_0, GgmlDType::Q6K, GgmlDType::Q4K] {
            let wanted = QTensor::quantize(&whole, form).unwrap();
            assert!(blocks(&stored, form).unwrap() == wanted.data().unwrap().into_owned(), "{form:?}");
        }
    }

    #[test]
    fn what_f16_scales_cannot_say_is_refused_with_its_row() {
        use Encoding::{F32, Q4Block, Q8Row};
        let scaled = |scale: f32, min: f32, codes: usize| {
            let scale = bf16::from_f32(scale).to_le_bytes();
            let min = bf16::from_f32(min).to_le_bytes();
            [&scale[..], &min[..], &vec![0x21; codes][..]].concat()
        };
        let q4 = |scale, min| [scaled(0.5, 0.0, 16), scaled(scale, min, 16)].concat();
        let q8 = |scale: f32| [&bf16::from_f32(scale).to_le_bytes()[..], &[1; 64][..]].concat();
        let plain =
            |x: f32| [vec![1f32; 511], vec![x]].concat().iter().flat_map(|x| x.to_le_bytes()).collect();
        let cases: [(Encoding, Vec<u8>, usize, GgmlDType, &str); 9] = [
            (Q4Block, q4(70_000.0, 0.0), 64, GgmlDType::Q4_1, "scale of 70"),
            (Q4Block, q4(0.5, -70_000.0), 64, GgmlDType::Q4_1, "scale of -70"),
            (Q4Block, q4(f32::NAN, 0.0), 64, GgmlDType::Q4_1, "not finite"),
            (Q8Row, q8(70_000.0), 64, GgmlDType::Q8_0, "none above 65504"),
            (Q8Row, q8(f32::INFINITY), 64, GgmlDType::Q8_0, "not finite"),
            (F32, plain(1e7), 512, GgmlDType::Q8_0, "none above 65504"),
            (F32, plain(f32::NAN), 512, GgmlDType::Q8_0, "not finite"),
            (F32, plain(f32::NEG_INFINITY), 512, GgmlDType::Q4K, "not finite"),
            (F32, plain(7e4), 512, GgmlDType::Q6K, "none above 65504"),
        ];
        for (encoding, bytes, width, form, reason) in cases {
            let error = repacked(encoding, &bytes, width, form).unwrap_err().at("w").to_string();
            assert!(error.contains("tensor w: row 0") && error.contains(reason), "{form:?}: {error}");
        }
    }
}
