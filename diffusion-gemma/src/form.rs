//! What a matrix is computed in: ONE rule, for `load.rs`, which makes the matrix, and for `plan.rs`, which counts it before there
//! is one.
//!
//! Decided by how the matrix is stored, by where it is computed and by what was asked for. The encodings are those of
//! `weights/stored.rs`, the matrices themselves are in `linear.rs`.

use candle_core::DType;
use candle_core::quantized::GgmlDType;

use crate::cpu::{self, Isa, PackedBf16, PackedBlocks};
use crate::linear::{Quant, library_copy_bytes};
use crate::weights::{self, Encoding};

/// How a model is computed, as far as the forms of its weights follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compute {
    /// Compute type, f32 or bf16. On a CPU with its own kernels bf16 means bf16 products with f32 sums.
    pub dtype: DType,
    /// Form of the layers' projections and experts; embeddings, norms, router and self-conditioning stay as stored.
    pub quant: Option<Quant>,
    /// Whether every device is a CPU.
    pub on_cpu: bool,
}

/// Which weights `--quant` is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Projections and experts of a layer.
    Layer,
    /// Embedding, router, self-conditioning: never in fewer bits than they are stored in.
    Kept,
}

/// What a matrix is computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Quantised on load.
    Quantised(Quant),
    /// bf16 in the order of the CPU's kernels.
    Packed,
    /// Blocks of the tensor library, made of the checkpoint's own.
    Blocks(GgmlDType),
    /// Plain numbers.
    Plain(DType),
}

impl Compute {
    /// Whether the kernels of `cpu/` compute.
    pub(crate) fn on_kernels(self) -> bool {
        self.on_cpu && cpu::isa() != Isa::Portable
    }

    /// Type of the activations, and of every matrix that is kept as plain numbers: the kernels of a CPU take and give f32.
    pub(crate) fn activations(self) -> DType {
        if self.on_kernels() { DType::F32 } else { self.dtype }
    }

    /// Quantised where that was asked for, packed where this CPU has kernels and the weights are bf16, in the nearest blocks of
    /// the tensor library where they are stored in blocks, else plain. `stored`: the encodings of everything that is stacked to
    /// this matrix; what they have in common is said by [`Encoding::common`].
    pub(crate) fn form(self, stored: &[Encoding], inputs: usize, role: Role) -> Form {
        let quant = self.quant.filter(|_| role == Role::Layer).and_then(|q| q.for_inputs(inputs));
        if let Some(quant) = quant {
            return Form::Quantised(quant);
        }
        let common = Encoding::common(stored);
        if self.on_kernels() && common == Encoding::Bf16 && PackedBf16::supported(inputs) {
            return Form::Packed;
        }
        match weights::nearest(common, inputs) {
            Some(blocks) => Form::Blocks(blocks),
            None => Form::Plain(self.activations()),
        }
    }

    /// A form as `Linear::form` names it.
    pub(crate) fn name(self, form: Form) -> String {
        match (form.blocks(), form) {
            (Some(blocks), _) => match self.taken_over(blocks) {
                Some(four) => format!("{} bits", if four { 4 } else { 8 }),
                None => format!("{blocks:?}").to_lowercase(),
            },
            (None, Form::Plain(dtype)) => dtype.as_str().to_owned(),
            (None, _) => "bf16".to_owned(),
        }
    }

    /// Bytes of an `[rows, inputs]` matrix in a form.
    pub(crate) fn bytes(self, form: Form, rows: usize, inputs: usize) -> usize {
        let Some(blocks) = form.blocks() else {
            return match form {
                Form::Plain(dtype) => rows * inputs * dtype.size_in_bytes(),
                // Panels of 32 outputs, lines of 32 inputs.
                _ => rows.next_multiple_of(32) * inputs.next_multiple_of(32) * 2,
            };
        };
        if let Some(four) = self.taken_over(blocks) {
            return PackedBlocks::planned_bytes(four, rows, inputs);
        }
        let copy = if self.on_cpu { library_copy_bytes(blocks, rows, inputs) } else { 0 };
        rows * inputs / blocks.block_size() * blocks.type_size() + copy
    }

    /// Whether the CPU's kernels take these blocks, and as 4 bits.
    fn taken_over(self, blocks: GgmlDType) -> Option<bool> {
        match blocks {
            GgmlDType::Q8_0 if self.on_kernels() => Some(false),
            GgmlDType::Q4_0 | GgmlDType::Q4_1 | GgmlDType::Q4K if self.on_kernels() => Some(true),
            _ => None,
        }
    }
}

impl Form {
    /// Blocks of the tensor library in this form.
    fn blocks(self) -> Option<GgmlDType> {
        match self {
            Self::Quantised(quant) => Some(quant.format()),
            Self::Blocks(blocks) => Some(blocks),
            Self::Packed | Self::Plain(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_of_several_encodings_take_the_nearest_form_that_loses_nothing_of_any() {
        use Encoding::{Bf16, F16, F32, Nvfp4, Q4Block, Q8Row};
        let compute = Compute { dtype: DType::F32, quant: None, on_cpu: true };
        let form = |stored: &[Encoding]| compute.form(stored, 64, Role::Layer);
        let bf16 = if compute.on_kernels() { Form::Packed } else { Form::Plain(DType::F32) };
        assert_eq!(form(&[Bf16, Bf16]), bf16);
        assert_eq!(form(&[Q4Block, Q4Block]), Form::Blocks(GgmlDType::Q4_1));
        // A v that the exporter left alone beside q and k in 4-bit floats: 8 bits would round it.
        assert_eq!(form(&[Nvfp4, Nvfp4, Bf16]), bf16);
        assert_eq!(form(&[Q4Block, Nvfp4]), Form::Blocks(GgmlDType::Q8_0));
        assert_eq!(form(&[Q4Block, Q8Row]), Form::Blocks(GgmlDType::Q8_0));
        // f16 has bits that bf16 has not, and the other way round.
        for mixed in [&[F16, Bf16][..], &[F32, Nvfp4], &[F32, Bf16]] {
            assert_eq!(form(mixed), Form::Plain(DType::F32), "{mixed:?}");
        }
    }
}
