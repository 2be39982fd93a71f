//! A matrix as a checkpoint stores it: encodings, their sizes, and rows of numbers out of mapped bytes.
//!
//! A [`Stored`] borrows the map and may consist of several pieces (q, k and v stacked; gate and up of one expert). Made by
//! `checkpoint.rs`; `load.rs` turns it into what is computed with.

use std::collections::BTreeSet;

use candle_core::{DType, Device, Tensor};
use half::bf16;
use rayon::prelude::*;

use super::codec::{self, GROUP, NVFP4_GROUP, Q4_BYTES, Q6_BYTES};
use crate::error::{Error, Result};

/// How a tensor's numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Encoding {
    F32,
    F16,
    Bf16,
    /// 4 bits in groups of 32 with scale and minimum, 5 bits a weight in all.
    Q4Block,
    /// 6 bits in groups of 32 with scale and minimum, 7 bits a weight in all.
    Q6Block,
    /// 8 bits with a scale per row.
    Q8Row,
    /// 4-bit floats in groups of 16 with an 8-bit float as scale, 4.5 bits a weight in all; scales after the weights of a row, or
    /// in a tensor of their own.
    Nvfp4,
    /// Pieces in several of these.
    Mixed,
    /// Numbers that no part of the model reads (integers of a vision tower).
    Other,
}

impl Encoding {
    /// Name as `inspect` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q4Block => "q4_block",
            Self::Q6Block => "q6_block",
            Self::Q8Row => "q8_row",
            Self::Nvfp4 => "nvfp4",
            Self::Mixed => "mixed",
            Self::Other => "other",
        }
    }

    /// What the pieces of one matrix have in common: the nearest encoding that loses nothing of any of them. Plain numbers beside
    /// blocks stay plain, f16 beside bf16 becomes f32, and blocks of several kinds become the finest ones.
    pub(crate) fn common(stored: &[Self]) -> Self {
        let has = |wanted: Self| stored.contains(&wanted);
        match Self::distinct(stored.iter().copied()).as_slice() {
            [] => Self::Other,
            [one] => *one,
            _ if has(Self::Other) => Self::Other,
            _ if has(Self::F32) || has(Self::F16) => Self::F32,
            _ if has(Self::Bf16) => Self::Bf16,
            _ => Self::Q8Row,
        }
    }

    /// Each of them once, in the order of this list.
    pub(crate) fn distinct(stored: impl Iterator<Item = Self>) -> Vec<Self> {
        stored.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Their names, as a report prints them.
    pub(crate) fn names(stored: &[Self]) -> String {
        Self::distinct(stored.iter().copied()).into_iter().map(Self::name).collect::<Vec<_>>().join("+")
    }

    /// Whether numbers are stored as they are, without blocks and scales.
    pub fn is_plain(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }

    /// Bytes of a row of so many weights; `None` where that is not known, or more than can be counted.
    pub(crate) fn row_bytes(self, width: usize) -> Option<usize> {
        match self {
            Self::F32 => width.checked_mul(4),
            Self::F16 | Self::Bf16 => width.checked_mul(2),
            Self::Q4Block => width.div_ceil(GROUP).checked_mul(Q4_BYTES),
            Self::Q6Block => width.div_ceil(GROUP).checked_mul(Q6_BYTES),
            Self::Q8Row => width.checked_add(2),
            Self::Nvfp4 => width.div_ceil(2).checked_add(width.div_ceil(NVFP4_GROUP)),
            Self::Mixed | Self::Other => None,
        }
    }
}

/// Some rows of one encoding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub(crate) encoding: Encoding,
    pub(crate) rows: usize,
    /// Rows back to back.
    pub(crate) bytes: &'a [u8],
    /// NVFP4 scales that are stored apart from the weights, a row after the other.
    pub(crate) scales: Option<&'a [u8]>,
    /// NVFP4 scale of the whole piece.
    pub(crate) global: f32,
}

impl<'a> Piece<'a> {
    /// The first rows, and the others, if there are any.
    pub(crate) fn split(self, rows: usize) -> (Self, Option<Self>) {
        let cut = |bytes: &'a [u8]| bytes.split_at(bytes.len() / self.rows * rows);
        let (head, tail) = cut(self.bytes);
        let scales = self.scales.map(cut);
        let first = Self { rows, bytes: head, scales: scales.map(|s| s.0), ..self };
        let rest = Self { rows: self.rows - rows, bytes: tail, scales: scales.map(|s| s.1), ..self };
        (first, (rest.rows > 0).then_some(rest))
    }

    /// Decodes one row of `out.len()` weights.
    pub(crate) fn row(&self, index: usize, out: &mut [f32]) {
        let width = out.len();
        let stride = self.bytes.len() / self.rows;
        let bytes = &self.bytes[index * stride..][..stride];
        match self.encoding {
            Encoding::F32 => codec::f32_row(bytes, out),
            Encoding::F16 => codec::f16_row(bytes, out),
            Encoding::Bf16 => codec::bf16_row(bytes, out),
            Encoding::Q4Block => codec::q4_row(bytes, out),
            Encoding::Q6Block => codec::q6_row(bytes, out),
            Encoding::Q8Row => codec::q8_row(bytes, out),
            Encoding::Nvfp4 => {
                let (values, scales) = self.nvfp4(bytes, index, width);
                codec::nvfp4_row(values, scales, self.global, out);
            }
            // Never handed out: a piece has one encoding, and `Checkpoint` refuses others by name.
            Encoding::Mixed | Encoding::Other => out.fill(f32::NAN),
        }
    }

    /// Weights and scales of a row.
    fn nvfp4<'r>(&'r self, row: &'r [u8], index: usize, width: usize) -> (&'r [u8], &'r [u8]) {
        match self.scales {
            None => row.split_at(width.div_ceil(2)),
            Some(scales) => {
                let per_row = width.div_ceil(NVFP4_GROUP);
                (row, &scales[index * per_row..][..per_row])
            }
        }
    }
}

/// A `[rows, inputs]` matrix in the bytes of a checkpoint.
#[derive(Debug, Clone)]
pub(crate) struct Stored<'a> {
    pub(crate) inputs: usize,
    pub(crate) pieces: Vec<Piece<'a>>,
}

impl<'a> Stored<'a> {
    pub(crate) fn rows(&self) -> usize {
        self.pieces.iter().map(|piece| piece.rows).sum()
    }

    /// Each encoding of its pieces, once.
    pub(crate) fn encodings(&self) -> Vec<Encoding> {
        Encoding::distinct(self.pieces.iter().map(|piece| piece.encoding))
    }

    /// Bytes it takes in the checkpoint.
    pub(crate) fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.bytes.len() + piece.scales.map_or(0, <[u8]>::len)).sum()
    }

    /// `count` matrices of as many rows each.
    pub(crate) fn split(&self, count: usize) -> Vec<Self> {
        self.blocks(self.rows() / count.max(1))
    }

    /// The same rows, so many at a time.
    pub(crate) fn blocks(&self, rows: usize) -> Vec<Self> {
        let rows = rows.max(1);
        let mut blocks = Vec::with_capacity(self.rows().div_ceil(rows));
        let (mut block, mut missing) = (Vec::new(), rows);
        for piece in &self.pieces {
            let mut rest = Some(*piece);
            while let Some(piece) = rest {
                let (head, tail) = piece.split(missing.min(piece.rows));
                missing -= head.rows;
                block.push(head);
                rest = tail;
                if missing == 0 {
                    blocks.push(Self { inputs: self.inputs, pieces: std::mem::take(&mut block) });
                    missing = rows;
                }
            }
        }
        if !block.is_empty() {
            blocks.push(Self { inputs: self.inputs, pieces: block });
        }
        blocks
    }

    /// The bytes of every piece, for encodings that are computed with as they are.
    pub(crate) fn raw(&self) -> Vec<&'a [u8]> {
        self.pieces.iter().map(|piece| piece.bytes).collect()
    }

    /// Every row with its place, in parallel. `out: [rows, inputs]` of any number type.
    fn each_row<T: Send>(&self, out: &mut [T], write: impl Fn(&Piece<'a>, usize, &mut [T]) + Sync) {
        let mut rest = out;
        for piece in &self.pieces {
            let (own, after) = rest.split_at_mut(piece.rows * self.inputs);
            rest = after;
            own.par_chunks_mut(self.inputs)
                .enumerate()
                .with_min_len((1 << 16) / self.inputs + 1)
                .for_each(|(row, out)| write(piece, row, out));
        }
    }

    /// All weights, `[rows, inputs]`.
    pub(crate) fn decode(&self) -> Vec<f32> {
        let mut out = vec![0f32; self.rows() * self.inputs];
        self.each_row(&mut out, Piece::row);
        out
    }

    /// All weights as a plain tensor, `[rows, inputs]`.
    pub(crate) fn tensor(&self, dtype: DType, device: &Device) -> Result<Tensor> {
        let shape = (self.rows(), self.inputs);
        let tensor = match dtype {
            DType::BF16 => Tensor::from_vec(self.decode_bf16(), shape, &Device::Cpu)?,
            _ => Tensor::from_vec(self.decode(), shape, &Device::Cpu)?.to_dtype(dtype)?,
        };
        Ok(tensor.to_device(device)?)
    }

    /// All weights rounded to bf16.
    pub(crate) fn decode_bf16(&self) -> Vec<bf16> {
        let mut out = vec![bf16::ZERO; self.rows() * self.inputs];
        self.each_row(&mut out, |piece, row, out| {
            if piece.encoding == Encoding::Bf16 {
                let stored = piece.bytes[2 * row * out.len()..].chunks_exact(2);
                out.iter_mut().zip(stored).for_each(|(w, pair)| *w = bf16::from_le_bytes([pair[0], pair[1]]));
            } else {
                let mut wide = vec![0f32; out.len()];
                piece.row(row, &mut wide);
                out.iter_mut().zip(wide).for_each(|(w, x)| *w = bf16::from_f32(x));
            }
        });
        out
    }

    /// The same as bytes.
    pub(crate) fn decode_bf16_bytes(&self) -> Vec<u8> {
        self.decode_bf16().into_iter().flat_map(bf16::to_le_bytes).collect()
    }

    /// The largest magnitude. A number that is not finite is a fault.
    pub(crate) fn largest(&self) -> std::result::Result<f32, Fault> {
        let (mut first, mut largest) = (0, 0f32);
        for piece in &self.pieces {
            // Infinite where a number of the row is not finite.
            let of_rows = || {
                let rows = (0..piece.rows).into_par_iter().with_min_len((1 << 16) / self.inputs + 1);
                rows.map_init(
                    || vec![0f32; self.inputs],
                    |wide, row| {
                        piece.row(row, wide);
                        largest_of(wide)
                    },
                )
            };
            let most = of_rows().reduce(|| 0.0, f32::max);
            if most.is_infinite() {
                let row = of_rows().position_first(f32::is_infinite).unwrap_or(0);
                return Err(Fault::row(first + row, NOT_FINITE));
            }
            largest = largest.max(most);
            first += piece.rows;
        }
        Ok(largest)
    }

    /// Refuses scales of NVFP4 that are negative or no numbers: such a file is damaged, or of another layout.
    pub(crate) fn check_scales(&self) -> std::result::Result<(), Fault> {
        let mut first = 0;
        for piece in &self.pieces {
            if piece.encoding == Encoding::Nvfp4 {
                let stride = piece.bytes.len() / piece.rows;
                let bad = |scales: &[u8]| scales.iter().any(|scale| *scale >= 0x7F);
                let found = (0..piece.rows).find(|row| {
                    bad(piece.nvfp4(&piece.bytes[row * stride..][..stride], *row, self.inputs).1)
                });
                if let Some(row) = found {
                    let reason = "has a block scale that is negative or no number, which NVFP4 never writes";
                    return Err(Fault::row(first + row, reason));
                }
                if !piece.global.is_finite() || piece.global <= 0.0 {
                    let reason = format!("has the global scale {}, not a positive number", piece.global);
                    return Err(Fault::row(first, reason));
                }
            }
            first += piece.rows;
        }
        Ok(())
    }
}

/// The largest magnitude of a row, infinite where a number is not finite.
pub(crate) fn largest_of(row: &[f32]) -> f32 {
    row.iter().fold(0f32, |largest, x| if x.is_finite() { largest.max(x.abs()) } else { f32::INFINITY })
}

pub(crate) const NOT_FINITE: &str = "has a number that is not finite";

/// Why a matrix cannot be used; the caller knows its name.
#[derive(Debug)]
pub(crate) enum Fault {
    Row { row: usize, reason: String },
    Other(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Fault {
    pub(crate) fn row(row: usize, reason: impl Into<String>) -> Self {
        Self::Row { row, reason: reason.into() }
    }

    /// So many rows further on.
    pub(crate) fn after(self, rows: usize) -> Self {
        match self {
            Self::Row { row, reason } => Self::Row { row: rows + row, reason },
            other @ Self::Other(_) => other,
        }
    }

    /// In the tensor of that name.
    pub(crate) fn at(self, name: &str) -> Error {
        match self {
            Self::Row { row, reason } => Error::weight(name, format!("row {row} {reason}")),
            Self::Other(error) => error,
        }
    }

    /// In one of the tensors that are stacked, each of so many rows.
    pub(crate) fn in_stack(self, parts: &[(String, usize)]) -> Error {
        let Self::Row { mut row, reason } = self else { return self.at("") };
        let mut names = parts.iter();
        let mut own = names.next();
        while let Some((_, rows)) = own.filter(|(_, rows)| row >= *rows) {
            row -= rows;
            own = names.next();
        }
        Self::Row { row, reason }.at(own.map_or("", |(name, _)| name))
    }
}
