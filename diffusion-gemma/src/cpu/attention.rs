//! Attention of many small jobs at once: each head of each block of query rows is a task.
//!
//! Scores of a few rows are computed, turned into probabilities and multiplied with the values before the next rows, so
//! no matrix of rows × keys is ever whole, and causal rows touch only the keys they may see. A key is summed in a lane that
//! its position in the sequence gives, so the result is the same to the last bit wherever encoded keys end and own ones begin.

#![allow(unsafe_code)] // raw blocks of rows are handed to the kernels

use std::ops::Range;

use rayon::prelude::*;

use super::fresh::Fresh;
use super::kernels::Product;
use super::rows::{exp, wide};
use super::{Isa, NO_KERNELS, Shared, isa};

/// Query rows of one job; the keys they see.
#[derive(Debug)]
pub(crate) struct AttentionJob<'a> {
    /// `[rows, query width]`: the job's rows of the query matrix.
    pub(crate) q: &'a [f32],
    /// Keys and values encoded earlier, `[keys, kv width]`; may be empty.
    pub(crate) encoded: [&'a [f32]; 2],
    /// Position of the first encoded key in its sequence; without any, of the first own one.
    pub(crate) first: usize,
    /// Keys and values of the job's own rows.
    pub(crate) own: [&'a [f32]; 2],
    /// `Some(window)`: each row sees at most `window` keys up to its own. `None`: every row sees every key.
    pub(crate) causal: Option<usize>,
}

/// Query rows of one task.
const TASK_ROWS: usize = 48;
/// Query rows whose scores are held together: a multiple of what the kernels take at a time.
const BLOCK: usize = 12;
/// Keys whose scores are computed together.
const KEYS: usize = 32;
/// Lanes of a sum over keys.
const LANES: usize = 16;

/// `[rows of all jobs, heads · head_dim]`. `heads`: query and key heads.
pub(crate) fn attend(jobs: &[AttentionJob<'_>], heads: (usize, usize), head_dim: usize) -> Vec<f32> {
    assert!(isa() != Isa::Portable, "{NO_KERNELS}");
    let width = heads.0 * head_dim;
    let total: usize = jobs.iter().map(|job| job.q.len()).sum();
    let mut out = Fresh::new(total);
    let target: Shared<f32> = out.target();
    let mut tasks = Vec::new();
    let mut first = 0;
    for job in jobs {
        let rows = job.q.len() / width;
        for from in (0..rows).step_by(TASK_ROWS) {
            for kv_head in 0..heads.1 {
                tasks.push((job, first, from..(from + TASK_ROWS).min(rows), kv_head));
            }
        }
        first += rows;
    }
    tasks.into_par_iter().with_max_len(1).for_each(|(job, first, rows, kv_head)| {
        let task = Task { job, heads, head_dim, kv_head };
        // SAFETY: the task writes its own rows and the columns of its own heads.
        task.run(rows, unsafe { target.pointer().add(first * width) });
    });
    // SAFETY: the tasks have all rows and heads, and every row sees a key: its own, or a canvas's.
    unsafe { out.written() }
}

struct Task<'a> {
    job: &'a AttentionJob<'a>,
    heads: (usize, usize),
    head_dim: usize,
    kv_head: usize,
}

/// The keys of one kind (encoded, own) that some row of a task sees.
struct Piece<'a> {
    v: &'a [f32],
    /// First such key, and one past the last.
    keys: Range<usize>,
    /// Where its scores begin in a line of scores.
    column: usize,
    /// Columns before the first key, so that every key's lane is its position modulo 16.
    lead: usize,
    /// Keys in groups of 32, each group `[head_dim, 32]`; missing keys of the first and the last group are zero.
    packed: Vec<f32>,
}

impl Task<'_> {
    /// `out`: the first row of the job.
    fn run(&self, rows: Range<usize>, out: *mut f32) {
        let (width, kv_width) = (self.heads.0 * self.head_dim, self.heads.1 * self.head_dim);
        let mut stride = 0;
        let pieces = [0, 1].map(|kind| {
            let keys = self.seen_by(kind, &rows);
            let piece = self.piece(kind, keys, stride);
            stride += (piece.lead + piece.keys.len()).next_multiple_of(KEYS);
            piece
        });
        let mut scores = vec![0f32; BLOCK * stride];
        let group = self.heads.0 / self.heads.1;
        for head in self.kv_head * group..(self.kv_head + 1) * group {
            for row in rows.clone().step_by(BLOCK) {
                let block = row..(row + BLOCK).min(rows.end);
                let q = &self.job.q[row * width + head * self.head_dim..];
                // Columns of the line that this block computes, per piece: whole groups, counted from the first packed one.
                let computed = [0, 1].map(|kind| {
                    let (piece, seen) = (&pieces[kind], self.seen_by(kind, &block));
                    if seen.is_empty() {
                        return 0..0;
                    }
                    let first = (piece.lead + seen.start.saturating_sub(piece.keys.start)) / KEYS * KEYS;
                    first..piece.lead + seen.end - piece.keys.start
                });
                for (piece, columns) in pieces.iter().zip(&computed) {
                    for at in columns.clone().step_by(KEYS) {
                        // SAFETY: a whole group of columns of every row of the block lies inside the scores.
                        let to = unsafe { scores.as_mut_ptr().add(piece.column + at) };
                        multiply(
                            block.len(),
                            self.head_dim,
                            KEYS,
                            q,
                            width,
                            &piece.packed[at * self.head_dim..],
                            KEYS,
                            to,
                            stride,
                            false,
                        );
                    }
                }
                let mut sums = [0f32; 16];
                for (r, sum) in sums.iter_mut().enumerate().take(block.len()) {
                    let line = &mut scores[r * stride..(r + 1) * stride];
                    let seen = [0, 1].map(|kind| {
                        let (piece, keys) = (&pieces[kind], self.seen_by(kind, &(row + r..row + r + 1)));
                        let column = |key: usize| piece.column + piece.lead + key - piece.keys.start;
                        column(keys.start)..column(keys.end)
                    });
                    probabilities(line, &seen, sum);
                }
                for column in (0..self.head_dim).step_by(KEYS) {
                    let columns = (self.head_dim - column).min(KEYS);
                    // SAFETY: the rows of the block and this head's columns belong to this task.
                    let to = unsafe { out.add(row * width + head * self.head_dim + column) };
                    let mut accumulate = false;
                    for (piece, computed) in
                        pieces.iter().zip(&computed).filter(|(piece, computed)| computed.end > piece.lead)
                    {
                        let first = computed.start.max(piece.lead);
                        let values = &piece.v[(piece.keys.start + first - piece.lead) * kv_width
                            + self.kv_head * self.head_dim
                            + column..];
                        let p = &scores[piece.column + first..];
                        multiply(
                            block.len(),
                            computed.end - first,
                            columns,
                            p,
                            stride,
                            values,
                            kv_width,
                            to,
                            width,
                            accumulate,
                        );
                        accumulate = true;
                    }
                }
                for (r, sum) in sums.iter().enumerate().take(block.len()) {
                    // SAFETY: as above.
                    let line = unsafe {
                        std::slice::from_raw_parts_mut(
                            out.add((row + r) * width + head * self.head_dim),
                            self.head_dim,
                        )
                    };
                    line.iter_mut().for_each(|x| *x /= sum);
                }
            }
        }
    }

    /// Encoded (0) or own (1) keys that some of these rows see.
    fn seen_by(&self, kind: usize, rows: &Range<usize>) -> Range<usize> {
        let kv_width = self.heads.1 * self.head_dim;
        let (encoded, own) = (self.job.encoded[0].len() / kv_width, self.job.own[0].len() / kv_width);
        match (self.job.causal, kind) {
            (None, 0) => 0..encoded,
            (None, _) => 0..own,
            (Some(window), 0) => (encoded + rows.start + 1).saturating_sub(window).min(encoded)..encoded,
            (Some(window), _) => (rows.start + 1).saturating_sub(window)..rows.end,
        }
    }

    fn piece(&self, kind: usize, keys: Range<usize>, column: usize) -> Piece<'_> {
        let [k, v] = if kind == 0 { self.job.encoded } else { self.job.own };
        let (kv_width, d) = (self.heads.1 * self.head_dim, self.head_dim);
        let before = if kind == 0 { 0 } else { self.job.encoded[0].len() / kv_width };
        let lead = (self.job.first + before + keys.start) % LANES;
        let mut packed = vec![0f32; (lead + keys.len()).next_multiple_of(KEYS) * d];
        for (i, key) in (lead..).zip(keys.clone()) {
            let from = &k[key * kv_width + self.kv_head * d..][..d];
            let group = &mut packed[i / KEYS * KEYS * d..];
            for (x, to) in from.iter().zip(group[i % KEYS..].iter_mut().step_by(KEYS)) {
                *to = *x;
            }
        }
        Piece { v, keys, column, lead, packed }
    }
}

wide! {
    /// Scores → e^(score − max) where seen, 0 elsewhere; their sum. `seen`: two ascending ranges of the line.
    fn probabilities(line: &mut [f32], seen: &[Range<usize>; 2], sum: &mut f32) {
        let hide = |line: &mut [f32], value: f32| {
            line[..seen[0].start].fill(value);
            line[seen[0].end..seen[1].start].fill(value);
            line[seen[1].end..].fill(value);
        };
        hide(line, f32::NEG_INFINITY);
        let mut best = [f32::NEG_INFINITY; LANES];
        for chunk in line.chunks_exact(LANES) {
            for (b, x) in best.iter_mut().zip(chunk) {
                *b = if *x > *b { *x } else { *b };
            }
        }
        let best = best.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
        let mut lanes = [0f32; LANES];
        for chunk in line.chunks_exact_mut(LANES) {
            for (lane, x) in lanes.iter_mut().zip(chunk) {
                *x = exp(*x - best);
                *lane += *x;
            }
        }
        *sum = lanes.iter().sum();
        hide(line, 0.0);
    }
}

/// `c[rows, columns] (+)= a[rows, depth] · b[depth, columns]` with distances of rows.
#[cfg(target_arch = "x86_64")]
#[allow(clippy::too_many_arguments)] // a matrix product has that many sizes
fn multiply(
    rows: usize,
    depth: usize,
    columns: usize,
    a: &[f32],
    a_stride: usize,
    b: &[f32],
    b_stride: usize,
    c: *mut f32,
    c_stride: usize,
    accumulate: bool,
) {
    assert!(a.len() >= (rows - 1) * a_stride + depth && b.len() >= (depth - 1) * b_stride + columns);
    let product = Product { rows, depth, columns, strides: [a_stride, b_stride, c_stride], accumulate };
    let (a, b) = (a.as_ptr(), b.as_ptr());
    // SAFETY: the slices hold the blocks (checked above), `c` is the caller's, and each arm names the instructions that `isa` has
    // found.
    unsafe {
        match isa() {
            Isa::Amx | Isa::Avx512 => super::avx512::product(&product, a, b, c),
            Isa::Avx2 => super::avx2::product(&product, a, b, c),
            Isa::Portable => unreachable!("{NO_KERNELS}"),
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[allow(clippy::too_many_arguments)]
fn multiply(
    _: usize,
    _: usize,
    _: usize,
    _: &[f32],
    _: usize,
    _: &[f32],
    _: usize,
    _: *mut f32,
    _: usize,
    _: bool,
) {
    unreachable!("{NO_KERNELS}");
}
