//! A projection: `y = x Wᵀ`, weights `[out, in]`, no bias anywhere in this model.
//!
//! Three forms: packed for the CPU kernels of `cpu/` (bf16 as the checkpoint has it, or quantised blocks), a quantised matrix
//! of the tensor library where there is no kernel for it, and a plain tensor for everything else. The plain reference path
//! reads all of them through [`Linear::rows`].

use std::ops::Range;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
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

    /// Quantises `[out, in]` weights.
    pub(crate) fn quantized(weight: &Tensor, quant: Quant) -> Result<Self> {
        Self::from_blocks(QTensor::quantize(weight, quant.format())?)
    }

    /// Quantised `[out, in]` weights: packed where there are kernels for their format.
    pub(crate) fn from_blocks(weight: QTensor) -> Result<Self> {
        let format = match weight.dtype() {
            GgmlDType::Q8_0 => Some(BlockFormat::Q8_0),
            GgmlDType::Q4_0 => Some(BlockFormat::Q4_0),
            GgmlDType::Q4_1 => Some(BlockFormat::Q4_1),
            GgmlDType::Q4K => Some(BlockFormat::Q4K),
            _ => None,
        };
        if let Some(format) = format.filter(|_| PackedBlocks::supported() && weight.device().is_cpu()) {
            let packed = PackedBlocks::pack(format, &weight.data()?, weight.shape().dims2()?.1);
            return Ok(Self::Packed(Matrix::Blocks(packed)));
        }
        let tensor = Arc::new(weight);
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

    /// Bytes of the weights in the form they are kept.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Dense(weight) => weight.elem_count() * weight.dtype().size_in_bytes(),
            Self::Quantized(weight, _) => weight.storage_size_in_bytes(),
            Self::Packed(weight) => weight.bytes(),
        }
    }
}
