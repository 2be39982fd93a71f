//! Kernels for CPUs with AVX-512 (and AMX where there is one): what the tensor library does far below the machine's peak.
//!
//! Chosen at run time by [`isa`]; every caller keeps a portable path beside them (`linear.rs`, `ops.rs`), and the tests
//! compare both. Weights stay bf16 as published, packed once at load ([`PackedBf16`]); arithmetic is f32, or bf16 products
//! with f32 sums where the caller asks for that.

#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // kept compiling everywhere, used only there

mod activations;
#[cfg(target_arch = "x86_64")]
mod amx;
mod attention;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod experts;
mod fresh;
mod packed;
mod rows;
mod vocabulary;

pub(crate) use activations::Activations;
pub(crate) use attention::{AttentionJob, attend};
pub(crate) use experts::{ExpertWeights, mix};
pub(crate) use packed::{PackedBf16, Precision};
pub(crate) use rows::{add_normed, combine, geglu, heads, norm};
pub(crate) use vocabulary::{RowDemand, RowReading, read_vocabulary};

use std::sync::OnceLock;

use crate::error::{Error, Result};

/// What the processor can do for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isa {
    /// AMX tiles of bf16, and AVX-512.
    Amx,
    /// AVX-512 alone.
    Avx512,
    /// Neither: the tensor library's own kernels are used.
    Portable,
}

/// Lowers the choice, for tests and comparisons: `portable`, `avx512` or `amx`.
const VARIABLE: &str = "DGEMMA_CPU";

/// Checked once.
pub(crate) fn isa() -> Isa {
    static ISA: OnceLock<Isa> = OnceLock::new();
    *ISA.get_or_init(|| {
        let best = detect();
        match (std::env::var(VARIABLE).as_deref(), best) {
            (Ok("portable"), _) => Isa::Portable,
            (Ok("avx512"), Isa::Amx) => Isa::Avx512,
            _ => best,
        }
    })
}

/// Refuses a choice that this processor or this program does not know.
pub(crate) fn check_choice() -> Result<()> {
    let refuse = |why: String| Err(Error::Input(format!("{VARIABLE}: {why}; hint: leave it unset")));
    match std::env::var(VARIABLE).as_deref() {
        Err(_) | Ok("portable") => Ok(()),
        Ok("avx512") if detect() != Isa::Portable => Ok(()),
        Ok("amx") if detect() == Isa::Amx => Ok(()),
        Ok(known @ ("avx512" | "amx")) => refuse(format!("this processor has no {known}")),
        Ok(other) => refuse(format!("{other:?} is none of portable, avx512, amx")),
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Isa {
    let wide = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("fma");
    match wide {
        true if amx::available() => Isa::Amx,
        true => Isa::Avx512,
        false => Isa::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Isa {
    Isa::Portable
}

/// The weights of some outputs, f32, `[ids, inputs]`.
pub(crate) fn read_rows(weight: &PackedBf16, ids: &[u32]) -> Vec<f32> {
    use rayon::prelude::*;
    let mut rows = vec![0f32; ids.len() * weight.inputs];
    rows.par_chunks_exact_mut(weight.inputs)
        .with_min_len(8)
        .zip(ids)
        .for_each(|(row, id)| weight.read_row(*id as usize, row));
    rows
}

/// A pointer into an output that several threads fill at disjoint places.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(*mut T);

// SAFETY: every use writes places that no other thread touches in the same parallel section; each use says why.
#[allow(unsafe_code)]
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(slice: &mut [T]) -> Self {
        Self(slice.as_mut_ptr())
    }

    pub(crate) fn pointer(self) -> *mut T {
        self.0
    }
}
