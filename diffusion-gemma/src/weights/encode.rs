//! The encoders of `.dgq` packs, one row at a time: what `quantize` writes and `codec.rs` reads.
//!
//! They follow the public tool to the byte: codes come from the scale before it is rounded, and scales are cut to bf16, not
//! rounded, so that a pack is the same whoever made it. The exception is the global scale of NVFP4: that tool writes 1 and
//! multiplies with what it finds, and with 1 groups of small weights lose precision or vanish, since block scales end at 2^-9.

use half::bf16;

use super::codec::{GROUP, NVFP4_GROUP, e4m3};
use super::stored::Encoding;

/// Appends a row in an encoding of packs; plain numbers go to f32 or to bf16, rounded to the nearest. `global`: scale of the
/// whole matrix, for NVFP4 alone.
pub(crate) fn row(encoding: Encoding, row: &[f32], global: f32, out: &mut Vec<u8>) {
    match encoding {
        Encoding::F32 => out.extend(row.iter().flat_map(|x| x.to_le_bytes())),
        Encoding::Q4Block => q4_row(row, out),
        Encoding::Q6Block => q6_row(row, out),
        Encoding::Q8Row => q8_row(row, out),
        Encoding::Nvfp4 => nvfp4_row(row, global, out),
        _ => out.extend(row.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes())),
    }
}

/// Upper half of an f32.
fn bf16_cut(x: f32) -> [u8; 2] {
    ((x.to_bits() >> 16) as u16).to_le_bytes()
}

/// Codes of a group and its scale and minimum. `f32::round` rounds halves away from zero, as the format wants.
fn affine(group: &[f32], top: f32) -> ([u8; 2], [u8; 2], impl Iterator<Item = u8> + '_) {
    let min = group.iter().copied().fold(f32::INFINITY, f32::min);
    let max = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let scale = if max - min < 1e-8 { 1.0 } else { (max - min) / top };
    let codes = group.iter().map(move |x| ((x - min) / scale).round().clamp(0.0, top) as u8);
    (bf16_cut(scale), bf16_cut(min), codes)
}

/// Groups of 32 in 20 bytes. The width is a multiple of 32.
fn q4_row(row: &[f32], out: &mut Vec<u8>) {
    for group in row.chunks_exact(GROUP) {
        let (scale, min, mut codes) = affine(group, 15.0);
        out.extend(scale.into_iter().chain(min));
        while let (Some(low), Some(high)) = (codes.next(), codes.next()) {
            out.push(low | high << 4);
        }
    }
}

/// Groups of 32 in 28 bytes. The width is a multiple of 32.
fn q6_row(row: &[f32], out: &mut Vec<u8>) {
    for group in row.chunks_exact(GROUP) {
        let (scale, min, codes) = affine(group, 63.0);
        out.extend(scale.into_iter().chain(min));
        for four in codes.collect::<Vec<_>>().chunks_exact(4) {
            let word = four.iter().rev().fold(0u32, |word, q| word << 6 | u32::from(*q));
            out.extend(&word.to_le_bytes()[..3]);
        }
    }
}

/// One scale for the row, one byte a weight.
fn q8_row(row: &[f32], out: &mut Vec<u8>) {
    let largest = row.iter().fold(0f32, |m, x| m.max(x.abs()));
    let scale = if largest < 1e-8 { 1.0 } else { largest / 127.0 };
    out.extend(bf16_cut(scale));
    out.extend(row.iter().map(|x| (x / scale).round().clamp(-127.0, 127.0) as i8 as u8));
}

/// The scale of a whole NVFP4 matrix with that largest magnitude: block scales reach from there down to a 200,000th of it.
pub(crate) fn nvfp4_global(largest: f32) -> f32 {
    let global = largest / (6.0 * 448.0);
    if global.is_normal() { global } else { 1.0 }
}

/// All weights of the row, then a scale per 16 of them.
fn nvfp4_row(row: &[f32], global: f32, out: &mut Vec<u8>) {
    let mut scales = Vec::with_capacity(row.len().div_ceil(NVFP4_GROUP));
    for group in row.chunks(NVFP4_GROUP) {
        let largest = group.iter().fold(0f32, |m, x| m.max(x.abs()));
        let code = if largest < 1e-12 { 0 } else { e4m3_nearest(largest / 6.0 / global) };
        let scale = e4m3(code) * global;
        let values = group.iter().map(|x| if scale == 0.0 { 0 } else { e2m1_nearest(x / scale) });
        for two in values.collect::<Vec<_>>().chunks(2) {
            out.push(two[0] | two.get(1).map_or(0, |high| high << 4));
        }
        scales.push(code);
    }
    out.extend(scales);
}

/// Of equally near ones that with the even mantissa.
fn e4m3_nearest(x: f32) -> u8 {
    let above = (0..0x7Fu8).find(|code| e4m3(*code) >= x).unwrap_or(0x7E);
    let Some(below) = above.checked_sub(1).filter(|_| e4m3(above) > x) else { return above };
    let (up, down) = (e4m3(above) - x, x - e4m3(below));
    if up < down || (up == down && above & 1 == 0) { above } else { below }
}

/// Of equally near ones that with the even mantissa.
fn e2m1_nearest(x: f32) -> u8 {
    let magnitude = x.abs();
    // Where the nearest value changes; a tie goes to the even code, so every second border belongs to the lower one.
    let code = [
        magnitude > 0.25,
        magnitude >= 0.75,
        magnitude > 1.25,
        magnitude >= 1.75,
        magnitude > 2.5,
        magnitude >= 3.5,
        magnitude > 5.0,
    ];
    let code = code.into_iter().filter(|passed| *passed).count() as u8;
    if x.is_sign_negative() { code | 8 } else { code }
}

#[cfg(test)]
mod tests {
    use super::super::codec;
    use super::*;

    struct Vector {
        name: String,
        input: Vec<f32>,
        packed: Vec<u8>,
        values: Vec<f32>,
    }

    /// Golden vectors of the format, made by an independent program.
    fn vectors() -> Vec<Vector> {
        let json: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/model/dgq-vectors.json")).unwrap();
        let numbers = |value: &serde_json::Value| -> Vec<f32> {
            value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
        };
        json.as_array()
            .unwrap()
            .iter()
            .map(|vector| {
                let hex = vector["packed_hex"].as_str().unwrap();
                Vector {
                    name: vector["name"].as_str().unwrap().to_owned(),
                    input: numbers(&vector["input"]),
                    packed: (0..hex.len() / 2)
                        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
                        .collect(),
                    values: numbers(&vector["dequant"]),
                }
            })
            .collect()
    }

    #[test]
    fn golden_vectors_are_written_and_read_to_the_bit() {
        let vectors = vectors();
        assert_eq!(vectors.len(), 6);
        for Vector { name, input, packed, values } in vectors {
            let (mut bytes, mut row) = (Vec::new(), vec![f32::NAN; input.len()]);
            match name.split(['(', '_']).next().unwrap() {
                "q4" => {
                    q4_row(&input, &mut bytes);
                    codec::q4_row(&packed, &mut row);
                }
                "q6" => {
                    q6_row(&input, &mut bytes);
                    codec::q6_row(&packed, &mut row);
                }
                "q8" => {
                    q8_row(&input, &mut bytes);
                    codec::q8_row(&packed, &mut row);
                }
                "nvfp4" => {
                    nvfp4_row(&input, 1.0, &mut bytes);
                    let (data, scales) = packed.split_at(input.len() / 2);
                    codec::nvfp4_row(data, scales, 1.0, &mut row);
                }
                other => panic!("unknown vector {other}"),
            }
            assert_eq!(bytes, packed, "{name}");
            assert_eq!(row, values, "{name}");
        }
    }

    #[test]
    fn every_code_of_nvfp4_comes_back_from_its_own_value() {
        for code in 0..0x7F {
            assert_eq!(e4m3_nearest(e4m3(code)), code);
        }
        assert_eq!(e4m3_nearest(1e9), 0x7E);
        // 17/16 lies between 1 and 9/8, whose mantissas are even and odd.
        assert_eq!((e4m3_nearest(1.0625), e4m3_nearest(1.1875)), (0x38, 0x3A));
        let values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        for (code, value) in values.into_iter().enumerate() {
            assert_eq!(usize::from(e2m1_nearest(value)), code);
            assert_eq!(usize::from(e2m1_nearest(-value)), code | 8);
        }
    }

    #[test]
    fn a_width_that_its_groups_do_not_divide_is_kept_whole() {
        let row: Vec<f32> = (0..21).map(|i| i as f32 - 10.0).collect();
        let mut bytes = Vec::new();
        nvfp4_row(&row, 1.0, &mut bytes);
        assert_eq!(bytes.len(), 11 + 2);
        let mut back = vec![f32::NAN; 21];
        codec::nvfp4_row(&bytes[..11], &bytes[11..], 1.0, &mut back);
        assert!(row.iter().zip(&back).all(|(a, b)| (a - b).abs() <= 2.0), "{back:?}");
    }
}
