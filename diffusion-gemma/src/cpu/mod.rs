//! Kernels for CPUs with AVX2 or AVX-512 (and AMX where there is one): what the tensor library does far below the machine's
//! peak.
//!
//! Chosen at run time by [`isa`]; every caller keeps a portable path beside them (`linear.rs`, `ops.rs`), and the tests
//! compare both. Weights stay bf16 as published ([`PackedBf16`]) or small integers with scales ([`PackedBlocks`]), packed
//! once at load; arithmetic is f32, or bf16 products with f32 sums where the caller asks for that.

#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // kept compiling everywhere, used only there

mod activations;
#[cfg(target_arch = "x86_64")]
mod amx;
mod attention;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod experts;
mod fresh;
mod int_rows;
mod kernels;
mod matrix;
mod packed;
mod packed_blocks;
mod rows;
mod vocabulary;

pub(crate) use activations::Activations;
pub(crate) use attention::{AttentionJob, attend};
pub(crate) use experts::{ExpertWeights, mix};
pub(crate) use matrix::{Matrix, PART};
pub(crate) use packed::{PackedBf16, Precision};
pub(crate) use packed_blocks::{BlockFormat, PackedBlocks};
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
    /// AVX2 and FMA.
    Avx2,
    /// None of these: the tensor library's own kernels are used.
    Portable,
}

/// Lowers the choice, for tests and comparisons: one of [`KINDS`].
const VARIABLE: &str = "DGEMMA_CPU";

/// Names of the kinds, the best first. A processor that has one of them has all after it.
const KINDS: [(&str, Isa); 4] =
    [("amx", Isa::Amx), ("avx512", Isa::Avx512), ("avx2", Isa::Avx2), ("portable", Isa::Portable)];

/// What a caller broke that came here although [`isa`] is [`Isa::Portable`]. Asserted where weights are packed and where attention
/// begins, so that it fails before any kernel runs.
const NO_KERNELS: &str = "kernels are called only where `isa` has found their instructions";

/// Checked once.
pub(crate) fn isa() -> Isa {
    static ISA: OnceLock<Isa> = OnceLock::new();
    *ISA.get_or_init(|| {
        chosen(std::env::var(VARIABLE).ok().as_deref(), detect()).unwrap_or_else(|_| detect())
    })
}

/// Refuses a choice that this processor or this program does not know.
pub(crate) fn check_choice() -> Result<()> {
    chosen(std::env::var(VARIABLE).ok().as_deref(), detect()).map(|_| ())
}

/// The kind of that name, if a processor whose best kind is `best` has it; the best one without a name.
fn chosen(name: Option<&str>, best: Isa) -> Result<Isa> {
    let Some(name) = name else { return Ok(best) };
    let place = |isa: Isa| KINDS.iter().position(|(_, kind)| *kind == isa);
    let refuse = |why: String| Err(Error::Input(format!("{VARIABLE}: {why}; hint: leave it unset")));
    match KINDS.iter().find(|(known, _)| *known == name) {
        Some((_, kind)) if place(*kind) >= place(best) => Ok(*kind),
        Some(_) => refuse(format!("this processor has no {name}")),
        None => refuse(format!("{name:?} is none of {}", KINDS.map(|(known, _)| known).join(", "))),
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Isa {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    let avx512 = avx2
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq");
    match (avx2, avx512) {
        (_, true) if amx::available() => Isa::Amx,
        (_, true) => Isa::Avx512,
        (true, false) => Isa::Avx2,
        (false, false) => Isa::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Isa {
    Isa::Portable
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_kernels_can_be_lowered_and_not_raised() {
        assert_eq!(chosen(None, Isa::Avx2).unwrap(), Isa::Avx2);
        assert_eq!(chosen(Some("avx2"), Isa::Amx).unwrap(), Isa::Avx2);
        assert_eq!(chosen(Some("portable"), Isa::Avx512).unwrap(), Isa::Portable);
        let refused = |name, best| chosen(Some(name), best).unwrap_err().to_string();
        assert!(refused("amx", Isa::Avx512).contains("this processor has no amx"));
        assert!(refused("avx2", Isa::Portable).contains("this processor has no avx2"));
        assert!(refused("sse", Isa::Amx).contains("\"sse\" is none of amx, avx512, avx2, portable"));
    }

    /// The kind is chosen once per process, so this one starts itself as a process that has none.
    #[test]
    fn nothing_is_packed_and_nothing_attends_where_there_are_no_kernels() {
        if isa() != Isa::Portable {
            let name = "cpu::tests::nothing_is_packed_and_nothing_attends_where_there_are_no_kernels";
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            let output = again.args(["--exact", name]).env(VARIABLE, "portable").output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let keys = [&[0f32; 4][..]; 2];
        let job = AttentionJob { q: &[0.0; 4], encoded: keys, first: 0, own: keys, causal: None };
        let calls: [&(dyn Fn() + std::panic::RefUnwindSafe); 3] = [
            &|| drop(PackedBf16::pack(&[&[0; 4]], 2)),
            &|| drop(PackedBlocks::pack(BlockFormat::Q8_0, &[0; 34], 32)),
            &|| drop(attend(std::slice::from_ref(&job), (1, 1), 4)),
        ];
        for call in calls {
            let fault = std::panic::catch_unwind(call).unwrap_err();
            assert_eq!(fault.downcast_ref::<String>().map(String::as_str), Some(NO_KERNELS));
        }
    }
}
