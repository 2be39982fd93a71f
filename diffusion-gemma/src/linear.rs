//! A projection: `y = x Wᵀ`, weights `[out, in]`, no bias anywhere in this model.
//!
//! Three forms: packed for the CPU kernels of `cpu/` (bf16 as the checkpoint has it, or quantised blocks), a quantised matrix
//! of the tensor library where there is no kernel for it, and a plain tensor for everything else. The plain reference path
//! reads all of them through [`Linear::rows`].

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QMatMul, QStorage, QTensor};
use candle_core::{DType, Device, Module, Tensor};
use rayon::prelude::*;

use crate::cpu::{Activations, BlockFormat, Matrix, PART, PackedBf16, PackedBlocks, Precision};
use crate::error::Result;
use crate::tensor::{matrix, values};

/// Weight rows that are turned around together: enough inputs to fill a matmul's tiles, few enough to stay in a cache.
const MIXED_ROWS: usize = 4096;

/// One projection, or several of the same input stacked by rows (q, k and v; gate and up).
#[derive(Debug)]
pub(crate) enum Linear {
    /// `[out, in]` in the compute type.
    Dense(Tensor),
    /// Weights in the order the CPU kernels read them; f32 in and out.
    Packed(Matrix),
    /// Blocks of small integers with their scales, as the tensor library multiplies them; f32 in and out.
    Quantized(Arc<QTensor>, QMatMul),
}

/// Form of the quantised weights: the block formats of GGML, kept by the tensor library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quant {
    /// 8 bits, one scale per 32 weights.
    Q8_0,
    /// 6 bits, blocks of 256 weights.
    Q6K,
    /// 4 bits, blocks of 256 weights.
    Q4K,
}

impl Quant {
    pub(crate) fn format(self) -> GgmlDType {
        match self {
            Self::Q8_0 => GgmlDType::Q8_0,
            Self::Q6K => GgmlDType::Q6K,
            Self::Q4K => GgmlDType::Q4K,
        }
    }

    /// The form for matrices of that many inputs: this one, or `Q8_0` where 256 does not divide them; `None` where 32 does
    /// not either.
    pub(crate) fn for_inputs(self, inputs: usize) -> Option<Self> {
        [self, Self::Q8_0].into_iter().find(|q| inputs.is_multiple_of(q.format().block_size()))
    }
}

impl Linear {
    /// A projection whose weights are all one half, in the form this CPU computes with.
    pub(crate) fn constant(
        inputs: usize,
        outputs: usize,
        dtype: DType,
        quant: Option<Quant>,
    ) -> Result<Self> {
        let dense = || Tensor::full(0.5f32, (outputs, inputs), &Device::Cpu);
        if let Some(quant) = quant.and_then(|quant| quant.for_inputs(inputs)) {
            return Self::quantized(&dense()?, quant);
        }
        if PackedBf16::supported(inputs) {
            let half = half::bf16::from_f32(0.5).to_le_bytes().repeat(inputs * outputs);
            let precision = if dtype == DType::BF16 { Precision::Bf16 } else { Precision::F32 };
            return Ok(Self::Packed(Matrix::Bf16(PackedBf16::pack(&[&half], inputs), precision)));
        }
        Ok(Self::Dense(dense()?))
    }

    /// Quantises `[out, in]` weights on the CPU.
    fn quantized(weight: &Tensor, quant: Quant) -> Result<Self> {
        let blocks = QTensor::quantize(weight, quant.format())?.data()?.into_owned();
        Self::of_blocks(quant.format(), blocks, weight.dims2()?, &Device::Cpu)
    }

    /// The blocks of an `[out, in]` matrix, row by row: packed where there are kernels for their format.
    pub(crate) fn of_blocks(
        format: GgmlDType,
        blocks: Vec<u8>,
        shape: (usize, usize),
        device: &Device,
    ) -> Result<Self> {
        let packable = match format {
            GgmlDType::Q8_0 => Some(BlockFormat::Q8_0),
            GgmlDType::Q4_0 => Some(BlockFormat::Q4_0),
            GgmlDType::Q4_1 => Some(BlockFormat::Q4_1),
            GgmlDType::Q4K => Some(BlockFormat::Q4K),
            _ => None,
        };
        if let Some(format) = packable.filter(|_| PackedBlocks::supported() && device.is_cpu()) {
            return Ok(Self::Packed(Matrix::Blocks(PackedBlocks::pack(format, &blocks, shape.1))));
        }
        let storage = QStorage::from_data(Cow::Owned(blocks), device, format)?;
        let tensor = Arc::new(QTensor::new(storage, shape)?);
        let matmul = QMatMul::from_arc(Arc::clone(&tensor))?;
        Ok(Self::Quantized(tensor, matmul))
    }

    /// `x: [rows, in]` → `[rows, out]`.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Dense(weight) => Ok(x.matmul(&weight.t()?)?),
            Self::Quantized(_, matmul) => {
                Ok(matmul.forward(&x.to_dtype(DType::F32)?)?.to_dtype(x.dtype())?)
            }
            Self::Packed(weight) => matrix(self.product(x)?, weight.outputs()),
        }
    }

    /// Some of the outputs: `x: [rows, in]` → `[rows, outputs]`. Computes no others, where the form of the weights allows it.
    pub(crate) fn part(&self, x: &Tensor, outputs: Range<usize>) -> Result<Tensor> {
        match self {
            Self::Packed(weight) if outputs.start.is_multiple_of(PART) => {
                matrix(weight.matmul(&values(x)?, x.dim(0)?, outputs.clone()), outputs.len())
            }
            Self::Dense(weight) => Ok(x.matmul(&weight.narrow(0, outputs.start, outputs.len())?.t()?)?),
            _ => Ok(self.forward(x)?.narrow(1, outputs.start, outputs.len())?.contiguous()?),
        }
    }

    /// `x: [rows, in]` → `[rows, out]` as plain f32 values.
    pub(crate) fn product(&self, x: &Tensor) -> Result<Vec<f32>> {
        if let Self::Packed(weight) = self {
            return Ok(weight.matmul(&values(x)?, x.dim(0)?, 0..weight.outputs()));
        }
        Ok(self.forward(x)?.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?)
    }

    /// `p W`: sums of weight rows. `p: [rows, out]`, f32 → `[rows, in]` in `dtype`.
    ///
    /// Packed weights are turned around a piece at a time, so that only the pieces in work are held twice.
    pub(crate) fn mixed_rows(&self, p: Vec<f32>, rows: usize, dtype: DType) -> Result<Tensor> {
        let Self::Packed(Matrix::Bf16(weight, precision)) = self else {
            let dense = self.dense()?;
            let p = Tensor::from_vec(p, (rows, dense.dim(0)?), &Device::Cpu)?.to_device(dense.device())?;
            return Ok(p.to_dtype(dense.dtype())?.matmul(&dense)?.to_dtype(dtype)?);
        };
        let mut sums = vec![0f32; rows * weight.inputs];
        let mut part = vec![0f32; sums.len()];
        let mut columns = Vec::new();
        for from in (0..weight.outputs).step_by(MIXED_ROWS) {
            let len = MIXED_ROWS.min(weight.outputs - from);
            let piece = weight.transposed(from, len);
            columns.clear();
            columns.resize(rows * piece.inputs, 0f32);
            let lines = columns.par_chunks_exact_mut(piece.inputs).zip(p.par_chunks_exact(weight.outputs));
            lines.for_each(|(to, row)| to[..len].copy_from_slice(&row[from..from + len]));
            piece.matmul_into(&Activations::new(&columns, rows, piece.inputs, *precision), &mut part);
            sums.iter_mut().zip(&part).for_each(|(sum, part)| *sum += part);
        }
        matrix(sums, weight.inputs)
    }

    /// The weights of some of the outputs, `[len, in]`, as the plain reference path uses them.
    pub(crate) fn rows(&self, start: usize, len: usize) -> Result<Tensor> {
        match self {
            Self::Dense(weight) => Ok(weight.narrow(0, start, len)?),
            Self::Quantized(weight, _) => Ok(weight.dequantize(&weight.device())?.narrow(0, start, len)?),
            Self::Packed(weight) => {
                let ids: Vec<u32> = (start as u32..(start + len) as u32).collect();
                matrix(weight.read_rows(&ids), weight.inputs())
            }
        }
    }

    /// All weights, `[out, in]`.
    pub(crate) fn dense(&self) -> Result<Tensor> {
        let outputs = match self {
            Self::Dense(weight) => weight.dim(0)?,
            Self::Quantized(weight, _) => weight.shape().dims2()?.0,
            Self::Packed(weight) => weight.outputs(),
        };
        self.rows(0, outputs)
    }

    /// Chosen weight rows, `[ids, in]`, in the type of the activations.
    pub(crate) fn select(&self, ids: &[u32]) -> Result<Tensor> {
        if let Self::Packed(weight) = self {
            return matrix(weight.read_rows(ids), weight.inputs());
        }
        let all = self.dense()?;
        Ok(all.index_select(&Tensor::new(ids, all.device())?, 0)?)
    }

    /// Whether its numbers are in blocks with scales, so that some were rounded on the way.
    pub(crate) fn is_blocks(&self) -> bool {
        matches!(self, Self::Quantized(..) | Self::Packed(Matrix::Blocks(_)))
    }

    /// The form, in a word.
    pub(crate) fn form(&self) -> String {
        match self {
            Self::Dense(weight) => weight.dtype().as_str().to_owned(),
            Self::Quantized(weight, _) => format!("{:?}", weight.dtype()).to_lowercase(),
            Self::Packed(Matrix::Bf16(..)) => "bf16".to_owned(),
            Self::Packed(Matrix::Blocks(blocks)) => format!("{} bits", blocks.bits()),
        }
    }

    /// Bytes of the weights in the form they are kept, once they have been used.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Dense(weight) => weight.elem_count() * weight.dtype().size_in_bytes(),
            Self::Quantized(weight, _) => {
                let copy = match weight.shape().dims2() {
                    Ok((rows, inputs)) if weight.device().is_cpu() => {
                        library_copy_bytes(weight.dtype(), rows, inputs)
                    }
                    _ => 0,
                };
                weight.storage_size_in_bytes() + copy
            }
            Self::Packed(weight) => weight.bytes(),
        }
    }
}

/// Bytes of the copy in an order of its own that the tensor library makes of an `[rows, inputs]` matrix on a CPU when it first
/// multiplies with it, and keeps beside the blocks. (Of `q4k` it makes another one for AMX, on processors where our own kernels
/// take these matrices.)
pub(crate) fn library_copy_bytes(format: GgmlDType, rows: usize, inputs: usize) -> usize {
    if !inputs.is_multiple_of(256) {
        return 0;
    }
    #[cfg(target_arch = "x86_64")]
    {
        // Tiles of 16 outputs by 256 inputs, whose scales are f32.
        let tiles = if rows.is_multiple_of(16) { rows / 16 * (inputs / 256) } else { 0 };
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let vnni = is_x86_feature_detected!("avxvnni") || is_x86_feature_detected!("avx512vnni");
        match format {
            GgmlDType::Q4K if avx2 => tiles * (2 * 8 * 16 * 4 + 16 * 128),
            GgmlDType::Q6K if avx2 => tiles * (16 * 16 * 4 + 16 * 256),
            GgmlDType::Q8_0 if avx2 && vnni => tiles * 8 * (16 * 2 + 16 * 32),
            _ => 0,
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let dot = std::arch::is_aarch64_feature_detected!("dotprod");
        match format {
            GgmlDType::Q4_0 | GgmlDType::Q8_0 if dot && rows.is_multiple_of(4) => {
                rows * inputs / format.block_size() * format.type_size()
            }
            GgmlDType::Q4K | GgmlDType::Q6K if dot && rows.is_multiple_of(8) => {
                rows * inputs / format.block_size() * format.type_size()
            }
            _ => 0,
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let _ = (format, rows);
        0
    }
}
