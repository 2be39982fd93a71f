//! Between the tensor library and the kernels of `cpu/`: borrowed values, results as tensors, and the plain norm.
//!
//! Used by `linear.rs`, `ops.rs` and `reference.rs`.

use std::ops::{Deref, Range};

use candle_core::{D, DType, Device, Storage, Tensor};
use parking_lot::RwLockReadGuard;

use crate::cpu::{self, Isa};
use crate::error::{Error, Result};

/// The values of a contiguous f32 tensor on the CPU.
pub(crate) struct Values<'a> {
    storage: RwLockReadGuard<'a, Storage>,
    range: Range<usize>,
}

impl Deref for Values<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &*self.storage {
            Storage::Cpu(storage) => storage.as_slice::<f32>().map_or(&[], |all| &all[self.range.clone()]),
            _ => &[],
        }
    }
}

/// Borrows the values of a tensor for a kernel.
pub(crate) fn values(tensor: &Tensor) -> Result<Values<'_>> {
    let (storage, layout) = tensor.storage_and_layout();
    match layout.contiguous_offsets() {
        Some((from, to)) if tensor.dtype() == DType::F32 && tensor.device().is_cpu() => {
            Ok(Values { storage, range: from..to })
        }
        _ => Err(Error::Input(format!(
            "a CPU kernel was given {:?} in {:?} on {:?}",
            layout.shape(),
            tensor.dtype(),
            tensor.device()
        ))),
    }
}

/// Whether the kernels of `cpu/` apply.
pub(crate) fn on_kernels(tensor: &Tensor) -> bool {
    tensor.device().is_cpu() && tensor.dtype() == DType::F32 && cpu::isa() != Isa::Portable
}

/// Results of a kernel as `[rows, width]`.
pub(crate) fn matrix(values: Vec<f32>, width: usize) -> Result<Tensor> {
    let rows = values.len() / width.max(1);
    Ok(Tensor::from_vec(values, (rows, width), &Device::Cpu)?)
}

/// x·(mean(x²)+eps)^-½ (·w) in f32, cast back to the type of `x`. `x: [.., n]`, `w: [n]` f32.
pub(crate) fn rms_norm(x: &Tensor, weight: Option<&Tensor>, eps: f64) -> Result<Tensor> {
    let wide = x.to_dtype(DType::F32)?;
    let mean = wide.sqr()?.mean_keepdim(D::Minus1)?;
    let mut normed = wide.broadcast_div(&(mean + eps)?.sqrt()?)?;
    if let Some(weight) = weight {
        normed = normed.broadcast_mul(weight)?;
    }
    Ok(normed.to_dtype(x.dtype())?)
}
