//! A weight matrix of small integers in the order the kernels read it, and `y = x Wᵀ` with it.
//!
//! 32 inputs of an output share a scale (and a least value, where there are 4 bits), as in the block formats of GGML that
//! this is made from. Panels of 16 outputs; a panel's block holds 16 scales, 16 least values and then, pair of inputs by
//! pair of inputs, 16 outputs × 2 inputs: bytes, or the nibbles of two such pairs in a byte each.

use std::cell::RefCell;

use half::f16;
use rayon::prelude::*;

use super::int_rows::IntRows;
use super::kernels::{BlockProduct, QUANT_BLOCK, block_bytes, head_bytes};
use super::matrix::Columns;
use super::packed::PANEL;
use super::{Isa, NO_KERNELS, isa};

/// A block format of GGML that can be packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockFormat {
    Q8_0,
    Q4_0,
    Q4_1,
    /// Eight blocks in one of 256.
    Q4K,
}

/// 32 bytes, aligned: every head and every pair of inputs is a whole number of them.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(32))]
struct Chunk([u8; CHUNK]);

const CHUNK: usize = 32;

/// A packed `[outputs, inputs]` matrix.
pub(crate) struct PackedBlocks {
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
    /// 4 bits and a least value; 8 bits otherwise.
    four: bool,
    data: Vec<Chunk>,
}

impl std::fmt::Debug for PackedBlocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PackedBlocks [{}, {}], {} bits", self.outputs, self.inputs, if self.four { 4 } else { 8 })
    }
}

impl PackedBlocks {
    /// Whether this processor has kernels for them.
    pub(crate) fn supported() -> bool {
        isa() != Isa::Portable
    }

    /// `bytes`: the blocks of an `[outputs, inputs]` matrix, row by row. Only where [`Self::supported`] says so.
    pub(crate) fn pack(format: BlockFormat, bytes: &[u8], inputs: usize) -> Self {
        assert!(Self::supported(), "{NO_KERNELS}");
        let row_bytes = inputs / format.weights() * format.bytes();
        let (outputs, blocks) = (bytes.len() / row_bytes, inputs / QUANT_BLOCK);
        let four = format != BlockFormat::Q8_0;
        let chunks = packed_bytes(four) / CHUNK;
        let panels = outputs.next_multiple_of(2 * PANEL) / PANEL;
        let mut data = vec![Chunk([0; CHUNK]); panels * blocks * chunks];
        data.par_chunks_mut(blocks * chunks).zip(bytes.par_chunks(PANEL * row_bytes)).for_each(
            |(panel, rows)| {
                for (output, row) in rows.chunks_exact(row_bytes).enumerate() {
                    for (block, target) in panel.chunks_exact_mut(chunks).enumerate() {
                        put(target, output, four, &format.block(row, block));
                    }
                }
            },
        );
        Self { outputs, inputs, four, data }
    }

    /// Bits of a weight without its share of a scale.
    pub(crate) fn bits(&self) -> usize {
        if self.four { 4 } else { 8 }
    }

    /// Bytes of an `[outputs, inputs]` matrix, before there is one.
    pub(crate) fn planned_bytes(four: bool, outputs: usize, inputs: usize) -> usize {
        outputs.next_multiple_of(2 * PANEL) / PANEL * (inputs / QUANT_BLOCK) * packed_bytes(four)
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.data.as_slice())
    }

    /// The weights of one output, f32.
    pub(crate) fn read_row(&self, output: usize, row: &mut [f32]) {
        let chunks = packed_bytes(self.four) / CHUNK;
        let first = output / PANEL * (self.inputs / QUANT_BLOCK);
        for (block, row) in row.chunks_exact_mut(QUANT_BLOCK).enumerate() {
            let Block { scale, least, ints } =
                take(&self.data[(first + block) * chunks..], output % PANEL, self.four);
            for (x, int) in row.iter_mut().zip(ints) {
                *x = f32::from(int).mul_add(scale.to_f32(), least.to_f32());
            }
        }
    }

    /// Columns `32·pair ..` of the product.
    ///
    /// # Safety
    /// `out` has room for `x.rows` rows, and nobody else touches those columns meanwhile.
    #[allow(unsafe_code)]
    pub(super) unsafe fn pair(&self, x: &IntRows, pair: usize, out: &Columns) {
        assert_eq!(x.blocks * QUANT_BLOCK, self.inputs);
        let chunks = 2 * x.blocks * packed_bytes(self.four) / CHUNK;
        let panels = &self.data[pair * chunks..][..chunks];
        let (y, stride, columns) = out.of_pair(pair);
        // SAFETY: the caller's; the panels have all blocks, the expanded ones as well.
        unsafe {
            if self.four {
                EXPANDED.with_borrow_mut(|expanded| {
                    expand(panels, expanded);
                    run(x, expanded.as_ptr(), true, y, stride, columns);
                });
            } else {
                run(x, panels.as_ptr(), false, y, stride, columns);
            }
        }
    }
}

thread_local! {
    /// A pair of panels of 4 bits, a byte each: made once for all rows.
    static EXPANDED: RefCell<Vec<Chunk>> = const { RefCell::new(Vec::new()) };
}

/// Nibbles to bytes.
fn expand(panels: &[Chunk], expanded: &mut Vec<Chunk>) {
    let head = head_bytes(true) / CHUNK;
    expanded.clear();
    for block in panels.chunks_exact(packed_bytes(true) / CHUNK) {
        expanded.extend_from_slice(&block[..head]);
        for Chunk(bytes) in &block[head..] {
            expanded.extend([Chunk(bytes.map(|b| b & 15)), Chunk(bytes.map(|b| b >> 4))]);
        }
    }
}

/// # Safety
/// As [`BlockProduct::run`]: `panels` are those of `x.blocks` blocks.
#[allow(unsafe_code)]
#[cfg(target_arch = "x86_64")]
unsafe fn run(x: &IntRows, panels: *const Chunk, mins: bool, y: *mut f32, stride: usize, columns: usize) {
    let product = BlockProduct {
        ints: x.ints.as_ptr(),
        scales: x.scales.as_ptr(),
        sums: x.sums.as_ptr(),
        rows: x.rows,
        blocks: x.blocks,
        panels: panels.cast(),
    };
    // SAFETY: the caller's; each arm names the instructions that `isa` has found.
    unsafe {
        match isa() {
            Isa::Amx | Isa::Avx512 => super::avx512::block_product(&product, mins, y, stride, columns),
            Isa::Avx2 => super::avx2::block_product(&product, mins, y, stride, columns),
            Isa::Portable => unreachable!("{NO_KERNELS}"),
        }
    }
}

#[allow(unsafe_code)]
#[cfg(not(target_arch = "x86_64"))]
unsafe fn run(_: &IntRows, _: *const Chunk, _: bool, _: *mut f32, _: usize, _: usize) {
    unreachable!("{NO_KERNELS}");
}

/// Bytes of 32 inputs × 16 outputs in memory.
const fn packed_bytes(four: bool) -> usize {
    if four { head_bytes(true) + QUANT_BLOCK * PANEL / 2 } else { block_bytes(false) }
}

/// 32 weights of an output: `scale·int + least`.
struct Block {
    scale: f16,
    least: f16,
    ints: [i8; QUANT_BLOCK],
}

/// Where input `input` of an output lies after the head: chunk and, with 4 bits, the shift in its byte.
const fn place(input: usize, four: bool) -> (usize, u32) {
    if four { (input / 4, (input / 2 % 2 * 4) as u32) } else { (input / 2, 0) }
}

/// Puts a block of output `output` into its panel's block, which is zero there.
fn put(target: &mut [Chunk], output: usize, four: bool, block: &Block) {
    let at = 2 * output;
    target[0].0[at..at + 2].copy_from_slice(&block.scale.to_le_bytes());
    if four {
        target[1].0[at..at + 2].copy_from_slice(&block.least.to_le_bytes());
    }
    let ints = &mut target[head_bytes(four) / CHUNK..];
    for (input, int) in block.ints.iter().enumerate() {
        let (chunk, shift) = place(input, four);
        ints[chunk].0[at + input % 2] |= int.cast_unsigned() << shift;
    }
}

/// What `put` has put.
fn take(source: &[Chunk], output: usize, four: bool) -> Block {
    let at = 2 * output;
    let half = |chunk: usize| f16::from_le_bytes([source[chunk].0[at], source[chunk].0[at + 1]]);
    let ints = &source[head_bytes(four) / CHUNK..];
    Block {
        scale: half(0),
        least: if four { half(1) } else { f16::ZERO },
        ints: std::array::from_fn(|input| {
            let (chunk, shift) = place(input, four);
            let byte = ints[chunk].0[at + input % 2] >> shift;
            if four { (byte & 15) as i8 } else { byte.cast_signed() }
        }),
    }
}

impl BlockFormat {
    /// Weights of a block.
    const fn weights(self) -> usize {
        if matches!(self, Self::Q4K) { 256 } else { QUANT_BLOCK }
    }

    /// Bytes of a block.
    const fn bytes(self) -> usize {
        match self {
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q4K => 144,
        }
    }

    /// Weights `32·block ..` of a row, as GGML lays them out.
    fn block(self, row: &[u8], block: usize) -> Block {
        let per_block = self.weights() / QUANT_BLOCK;
        let bytes = &row[block / per_block * self.bytes()..][..self.bytes()];
        let half = |at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]);
        // 16 bytes: the low nibbles are the first 16 weights.
        let nibbles = |at: usize| std::array::from_fn(|i| (bytes[at + i % 16] >> (i / 16 * 4) & 15) as i8);
        match self {
            Self::Q8_0 => Block {
                scale: half(0),
                least: f16::ZERO,
                ints: std::array::from_fn(|i| bytes[2 + i].cast_signed()),
            },
            Self::Q4_0 => {
                Block { scale: half(0), least: f16::from_f32(-8.0 * half(0).to_f32()), ints: nibbles(2) }
            }
            Self::Q4_1 => Block { scale: half(0), least: half(2), ints: nibbles(4) },
            Self::Q4K => {
                // Eight scales and eight least values of 6 bits: the first four of each in bytes 0..8, with the upper two bits of
                // the others above them; the lower four bits of the others in bytes 8..12.
                let (n, scales) = (block % 8, &bytes[4..16]);
                let (scale, least) = if n < 4 {
                    (scales[n] & 63, scales[n + 4] & 63)
                } else {
                    (scales[n + 4] & 15 | scales[n - 4] >> 6 << 4, scales[n + 4] >> 4 | scales[n] >> 6 << 4)
                };
                // 32 bytes hold two blocks: the low nibbles are the first.
                let quants = &bytes[16 + n / 2 * 32..];
                Block {
                    scale: f16::from_f32(half(0).to_f32() * f32::from(scale)),
                    least: f16::from_f32(-half(2).to_f32() * f32::from(least)),
                    ints: std::array::from_fn(|i| (quants[i] >> (n % 2 * 4) & 15) as i8),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::quantized::{GgmlDType, QTensor};
    use candle_core::{Device, Tensor};

    use super::*;
    use crate::cpu::Matrix;

    fn values(n: usize, salt: u32) -> Vec<f32> {
        (0..n as u32)
            .map(|i| (i.wrapping_add(salt).wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0)
            .collect()
    }

    const FORMATS: [(BlockFormat, GgmlDType); 4] = [
        (BlockFormat::Q8_0, GgmlDType::Q8_0),
        (BlockFormat::Q4_0, GgmlDType::Q4_0),
        (BlockFormat::Q4_1, GgmlDType::Q4_1),
        (BlockFormat::Q4K, GgmlDType::Q4K),
    ];

    /// Packed by us, and as the tensor library reads the same blocks.
    fn both(format: (BlockFormat, GgmlDType), outputs: usize, inputs: usize) -> (PackedBlocks, Vec<f32>) {
        let weight = Tensor::from_vec(values(outputs * inputs, 7), (outputs, inputs), &Device::Cpu).unwrap();
        let blocks = QTensor::quantize(&weight, format.1).unwrap();
        let read = blocks.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        (PackedBlocks::pack(format.0, &blocks.data().unwrap(), inputs), read)
    }

    #[test]
    fn packed_weights_are_those_of_the_tensor_library() {
        if !PackedBlocks::supported() {
            return; // nothing is packed
        }
        for format in FORMATS {
            let (packed, wanted) = both(format, 50, 512);
            let mut row = vec![0f32; 512];
            for (output, wanted) in wanted.chunks(512).enumerate() {
                packed.read_row(output, &mut row);
                for (found, wanted) in row.iter().zip(wanted) {
                    // Scales of Q4K are products, rounded to f16 here.
                    let tolerance = if format.0 == BlockFormat::Q4K { 1.5e-3 } else { 1e-6 };
                    assert!((found - wanted).abs() <= tolerance, "{format:?}: {found}, not {wanted}");
                }
            }
        }
    }

    #[test]
    fn the_product_is_that_of_the_dequantised_weights() {
        if !PackedBlocks::supported() {
            return; // the tensor library's own product is used
        }
        for format in FORMATS {
            for (rows, outputs) in [(1, 32), (2, 40), (3, 33), (5, 16), (6, 96), (7, 50), (13, 64), (29, 70)]
            {
                let inputs = 512;
                let (packed, _) = both(format, outputs, inputs);
                let x = values(rows * inputs, 99);
                let mut weights = vec![0f32; outputs * inputs];
                weights.chunks_mut(inputs).enumerate().for_each(|(o, row)| packed.read_row(o, row));
                let packed = Matrix::Blocks(packed);
                let y = packed.matmul(&x, rows, 0..outputs);
                if outputs > 32 {
                    // Some of the outputs are those columns of all of them, to the bit.
                    let part = packed.matmul(&x, rows, 32..outputs);
                    let columns = part.chunks(outputs - 32).zip(y.chunks(outputs));
                    columns.for_each(|(part, whole)| assert_eq!(part, &whole[32..]));
                }
                for (n, found) in y.iter().enumerate() {
                    let (x, w) = (&x[n / outputs * inputs..], &weights[n % outputs * inputs..]);
                    let products = x.iter().zip(w).take(inputs).map(|(x, w)| f64::from(*x) * f64::from(*w));
                    let (wanted, size) = products
                        .fold((0.0, 0.0), |(sum, size), product| (sum + product, size + product.abs()));
                    assert!(
                        (f64::from(*found) - wanted).abs() < 1e-5 * size,
                        "{format:?}, {rows} rows, {outputs} outputs, {n}: {found}, not {wanted}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_row_with_nan_spoils_no_other() {
        if !PackedBlocks::supported() {
            return;
        }
        let (packed, _) = both(FORMATS[0], 32, 64);
        let mut x = values(3 * 64, 5);
        x[70] = f32::NAN;
        let y = Matrix::Blocks(packed).matmul(&x, 3, 0..32);
        assert!(y[32..64].iter().all(|y| y.is_nan()));
        assert!(y[..32].iter().chain(&y[64..]).all(|y| y.is_finite()));
    }
}
