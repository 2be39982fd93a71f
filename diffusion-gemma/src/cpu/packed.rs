//! A bf16 weight matrix in the order the kernels read it, and `y = x Wᵀ` with it.
//!
//! Panels of 16 outputs; in a panel, one [`Line`] of 64 bytes per pair of inputs: 16 outputs × 2 inputs, the form that an
//! AMX tile and the vector registers both want. Outputs are padded to 32 and inputs to 32 with zeros.

use rayon::prelude::*;

use super::activations::Activations;
use super::matrix::{Columns, in_parallel, pair_work};
use super::{Isa, NO_KERNELS, Shared, isa};

/// Values of a line.
pub(crate) const LANES: usize = 32;
/// Outputs of a panel.
pub(crate) const PANEL: usize = 16;

/// 64 aligned bytes: 32 bf16 values.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u16; LANES]);

impl Line {
    pub(crate) const ZERO: Self = Self([0; LANES]);
}

/// What products are made of; sums are always f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    /// f32 activations.
    F32,
    /// Activations rounded to bf16, where that is faster.
    Bf16,
}

impl Precision {
    /// bf16 planes that an f32 activation is split into.
    pub(crate) fn planes(self) -> usize {
        match self {
            Self::F32 => 3,
            Self::Bf16 => 1,
        }
    }
}

/// A packed `[outputs, inputs]` matrix.
#[derive(Clone)]
pub(crate) struct PackedBf16 {
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
    /// Lines of a panel.
    lines: usize,
    data: Vec<Line>,
}

impl std::fmt::Debug for PackedBf16 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PackedBf16 [{}, {}]", self.outputs, self.inputs)
    }
}

impl PackedBf16 {
    /// Whether this processor has kernels for matrices of that many inputs.
    pub(crate) fn supported(inputs: usize) -> bool {
        isa() != Isa::Portable && inputs.is_multiple_of(2)
    }

    /// `parts`: stacked `[.., inputs]` matrices as a checkpoint stores them, little-endian bf16. Only where [`Self::supported`] says so.
    pub(crate) fn pack(parts: &[&[u8]], inputs: usize) -> Self {
        assert!(Self::supported(inputs), "{NO_KERNELS}");
        let rows: Vec<&[u8]> = parts.iter().flat_map(|part| part.chunks_exact(2 * inputs)).collect();
        let lines = inputs.next_multiple_of(LANES) / 2;
        let panels = rows.len().next_multiple_of(2 * PANEL) / PANEL;
        let mut data = vec![Line::ZERO; panels * lines];
        data.par_chunks_mut(lines).zip(rows.par_chunks(PANEL)).for_each(|(panel, rows)| {
            for (output, row) in rows.iter().enumerate() {
                for (pair, line) in row.chunks_exact(4).zip(&mut *panel) {
                    line.0[2 * output] = u16::from_le_bytes([pair[0], pair[1]]);
                    line.0[2 * output + 1] = u16::from_le_bytes([pair[2], pair[3]]);
                }
            }
        });
        Self { outputs: rows.len(), inputs, lines, data }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.data.as_slice())
    }

    /// The weights of one output, f32.
    pub(crate) fn read_row(&self, output: usize, row: &mut [f32]) {
        let panel = &self.data[output / PANEL * self.lines..][..self.lines];
        let lane = 2 * (output % PANEL);
        for (pair, line) in row.chunks_mut(2).zip(panel) {
            for (i, value) in pair.iter_mut().enumerate() {
                *value = f32::from_bits(u32::from(line.0[lane + i]) << 16);
            }
        }
    }

    /// Outputs `from .. from + len` as the inputs of a matrix with `inputs` outputs: a part of Wᵀ, with one input more of zeros
    /// where `len` is odd. `from` is a multiple of 16; `len` is one as well, or reaches the end.
    pub(crate) fn transposed(&self, from: usize, len: usize) -> Self {
        let lines = len.next_multiple_of(LANES) / 2;
        let panels = self.inputs.next_multiple_of(2 * PANEL) / PANEL;
        let mut data = vec![Line::ZERO; panels * lines];
        data.par_chunks_mut(lines).enumerate().for_each(|(panel, target)| {
            for first in (0..len).step_by(PANEL) {
                // 16 outputs × 16 inputs of ours: 8 lines, one per pair of inputs, become 8 lines, one per pair of outputs.
                let source = &self.data[(from + first) / PANEL * self.lines..][..self.lines];
                let pairs = source.get(panel * PANEL / 2..).unwrap_or_default();
                for (pair, line) in pairs.iter().take(PANEL / 2).enumerate() {
                    for (two, target) in line.0.chunks_exact(4).zip(&mut target[first / 2..]) {
                        let at = 4 * pair;
                        target.0[at..at + 4].copy_from_slice(&[two[0], two[2], two[1], two[3]]);
                    }
                }
            }
        });
        Self { outputs: self.inputs, inputs: len.next_multiple_of(2), lines, data }
    }

    /// `y = x Wᵀ` into `y: [rows, outputs]`, on all threads.
    #[allow(unsafe_code)]
    pub(crate) fn matmul_into(&self, x: &Activations<'_>, y: &mut [f32]) {
        assert_eq!(y.len(), x.rows * self.outputs);
        let out = Columns::new(Shared::new(y), 0..self.outputs);
        in_parallel(out.pairs(), pair_work(x.rows, self.inputs), &|pair| {
            // SAFETY: a pair of panels writes its own columns of `y` and no others.
            unsafe { self.pair(x, pair, &out) };
        });
    }

    /// Columns `32·pair ..` of the product.
    ///
    /// # Safety
    /// `out` has room for `x.rows` rows, and nobody else touches those columns meanwhile.
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code)]
    pub(super) unsafe fn pair(&self, x: &Activations<'_>, pair: usize, out: &Columns) {
        assert_eq!(x.width, self.inputs);
        let panels = &self.data[2 * pair * self.lines..][..2 * self.lines];
        let (y, stride, columns) = out.of_pair(pair);
        // SAFETY: the caller's; each arm names the instructions that `isa` has found.
        unsafe {
            match isa() {
                Isa::Amx => super::amx::panel_pair(x, panels, y, stride, columns),
                Isa::Avx512 => super::avx512::panel_pair(x, panels, y, stride, columns),
                Isa::Avx2 => super::avx2::panel_pair(x, panels, y, stride, columns),
                Isa::Portable => unreachable!("{NO_KERNELS}"),
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[allow(unsafe_code)]
    pub(super) unsafe fn pair(&self, _: &Activations<'_>, _: usize, _: &Columns) {
        unreachable!("{NO_KERNELS}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_turned_around_holds_the_same_weights() {
        if !PackedBf16::supported(2) {
            return; // nothing is packed
        }
        for (outputs, inputs) in [(48, 32), (100, 34), (33, 70)] {
            let value = |output: usize, input: usize| f32::from_bits(((output * 131 + input) as u32) << 16);
            let bytes: Vec<u8> = (0..outputs * inputs)
                .flat_map(|i| ((value(i / inputs, i % inputs).to_bits() >> 16) as u16).to_le_bytes())
                .collect();
            let whole = PackedBf16::pack(&[&bytes], inputs);
            for (from, len) in [(0, outputs), (16, outputs - 16), (0, 32), (32, outputs - 32)] {
                let part = whole.transposed(from, len);
                assert_eq!((part.outputs, part.inputs), (inputs, len.next_multiple_of(2)));
                for input in 0..inputs {
                    let mut row = vec![0f32; part.inputs];
                    part.read_row(input, &mut row);
                    for (n, found) in row.iter().enumerate() {
                        let wanted = if n < len { value(from + n, input) } else { 0.0 };
                        assert_eq!(
                            found.to_bits(),
                            wanted.to_bits(),
                            "{outputs}x{inputs}, {from}+{len}, {n}, {input}"
                        );
                    }
                }
            }
        }
    }
}
