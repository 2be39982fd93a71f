//! How numbers are packed into bytes: the decoders of every stored encoding, one row at a time, exact in f32.
//!
//! The block encodings are those of `.dgq` packs; NVFP4 is also what ModelOpt and compressed-tensors write. All bytes are
//! little-endian. Called by `stored.rs`; the encoders are in `encode.rs`, the way into the tensor library in `repack.rs`.

use half::{bf16, f16};

/// Weights that share a scale in `q4_block` and `q6_block`.
pub(crate) const GROUP: usize = 32;
/// Bytes of a `q4_block`: scale and minimum in bf16, then 16 bytes of two weights, the even one in the low half.
pub(crate) const Q4_BYTES: usize = 20;
/// Bytes of a `q6_block`: scale and minimum in bf16, then 8 words of 24 bits with four weights each, lowest bits first.
pub(crate) const Q6_BYTES: usize = 28;
/// Weights that share a scale in NVFP4.
pub(crate) const NVFP4_GROUP: usize = 16;

/// Magnitudes of E2M1; bit 3 is the sign.
const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

fn bf16_at(bytes: &[u8], at: usize) -> f32 {
    bf16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// Stored bf16.
pub(crate) fn bf16_row(bytes: &[u8], row: &mut [f32]) {
    for (pair, w) in bytes.chunks_exact(2).zip(row) {
        *w = f32::from_bits(u32::from(u16::from_le_bytes([pair[0], pair[1]])) << 16);
    }
}

/// Stored f16.
pub(crate) fn f16_row(bytes: &[u8], row: &mut [f32]) {
    for (pair, w) in bytes.chunks_exact(2).zip(row) {
        *w = f16::from_le_bytes([pair[0], pair[1]]).to_f32();
    }
}

/// Stored f32.
pub(crate) fn f32_row(bytes: &[u8], row: &mut [f32]) {
    for (four, w) in bytes.chunks_exact(4).zip(row) {
        *w = f32::from_le_bytes([four[0], four[1], four[2], four[3]]);
    }
}

/// `w = scale·q + min`, q in 0..=15.
pub(crate) fn q4_row(bytes: &[u8], row: &mut [f32]) {
    for (block, group) in bytes.chunks_exact(Q4_BYTES).zip(row.chunks_mut(GROUP)) {
        let (scale, min) = (bf16_at(block, 0), bf16_at(block, 2));
        for (two, byte) in group.chunks_mut(2).zip(&block[4..]) {
            for (w, q) in two.iter_mut().zip([byte & 15, byte >> 4]) {
                *w = scale * f32::from(q) + min;
            }
        }
    }
}

/// `w = scale·q + min`, q in 0..=63.
pub(crate) fn q6_row(bytes: &[u8], row: &mut [f32]) {
    for (block, group) in bytes.chunks_exact(Q6_BYTES).zip(row.chunks_mut(GROUP)) {
        let (scale, min) = (bf16_at(block, 0), bf16_at(block, 2));
        for (four, word) in group.chunks_mut(4).zip(block[4..].chunks_exact(3)) {
            let word = u32::from_le_bytes([word[0], word[1], word[2], 0]);
            for (i, w) in four.iter_mut().enumerate() {
                *w = scale * ((word >> (6 * i) & 63) as f32) + min;
            }
        }
    }
}

/// Scale of the row in bf16, then one signed byte a weight: `w = q·scale`.
pub(crate) fn q8_row(bytes: &[u8], row: &mut [f32]) {
    let scale = bf16_at(bytes, 0);
    for (w, q) in row.iter_mut().zip(&bytes[2..]) {
        *w = f32::from(*q as i8) * scale;
    }
}

/// `w = e2m1(q)·e4m3(scale)·global`. `values`: two weights a byte, the even one in the low half.
pub(crate) fn nvfp4_row(values: &[u8], scales: &[u8], global: f32, row: &mut [f32]) {
    let groups = row.chunks_mut(NVFP4_GROUP).zip(values.chunks(NVFP4_GROUP / 2)).zip(scales);
    for ((group, values), scale) in groups {
        let scale = e4m3(*scale);
        for (two, byte) in group.chunks_mut(2).zip(values) {
            for (w, q) in two.iter_mut().zip([byte & 15, byte >> 4]) {
                let magnitude = E2M1[usize::from(q & 7)];
                *w = if q & 8 == 0 { magnitude } else { -magnitude } * scale * global;
            }
        }
    }
}

/// E4M3 without infinities: 0x7F and 0xFF are NaN, 448 is the largest.
pub(crate) fn e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let magnitude = match (exponent, byte & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2f32.powi(-9),
        _ => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - 7),
    };
    if byte & 0x80 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e4m3_is_what_the_standard_says() {
        let known =
            [(0x00, 0.0), (0x01, 2f32.powi(-9)), (0x07, 7.0 / 512.0), (0x08, 1.0 / 64.0), (0x30, 0.5)];
        for (byte, value) in known.into_iter().chain([(0x38, 1.0), (0x7E, 448.0), (0xB8, -1.0)]) {
            assert_eq!(e4m3(byte), value, "{byte:#x}");
        }
        assert!(e4m3(0x7F).is_nan() && e4m3(0xFF).is_nan());
        let finite: Vec<f32> = (0..0x7F).map(e4m3).collect();
        assert!(finite.is_sorted_by(|a, b| a < b));
    }
}
