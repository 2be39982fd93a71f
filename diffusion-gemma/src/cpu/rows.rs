//! What a layer does row by row between its matmuls: norms, rotation, gates, sums. One sweep each, rows in parallel.
//!
//! Written as plain loops that the compiler turns into AVX-512 or AVX2; `wide` is where it is allowed to.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use super::fresh::{Fresh, zeroed};

/// Rows that are worth a thread: about 16k values.
fn min_rows(width: usize) -> usize {
    ((1 << 14) / width.max(1)).max(1)
}

/// Fills a new `[rows, width]` matrix row by row, in parallel where there are enough values.
#[allow(unsafe_code)]
pub(super) fn fill(rows: usize, width: usize, each: impl Fn(usize, &mut [f32]) + Sync + Send) -> Vec<f32> {
    let mut out = Fresh::new(rows * width);
    let piece = min_rows(width);
    let fill = |(row, line): (usize, &mut [MaybeUninit<f32>])| each(row, zeroed(line, 0.0));
    if rows <= piece {
        out.places().chunks_exact_mut(width).enumerate().for_each(fill);
    } else {
        out.places().par_chunks_exact_mut(width).enumerate().with_min_len(piece).for_each(fill);
    }
    // SAFETY: the lines are all there is, and each was zeroed at least.
    unsafe { out.written() }
}

/// Compiles its body for AVX-512, for AVX2 and for neither, and runs what [`super::isa`] has found.
macro_rules! wide {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        #[allow(unsafe_code, clippy::too_many_arguments)]
        #[inline]
        fn $name($($arg: $type),*) {
            #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,fma"))]
            fn by_16($($arg: $type),*) $body
            #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
            fn by_8($($arg: $type),*) $body
            fn plainly($($arg: $type),*) $body
            // SAFETY: `isa` has found these instructions.
            #[allow(unused_unsafe)] // where the instructions are not named
            unsafe {
                match $crate::cpu::isa() {
                    $crate::cpu::Isa::Amx | $crate::cpu::Isa::Avx512 => by_16($($arg),*),
                    $crate::cpu::Isa::Avx2 => by_8($($arg),*),
                    $crate::cpu::Isa::Portable => plainly($($arg),*),
                }
            }
        }
    };
}
pub(super) use wide;

/// 1 / √(mean of squares + eps), summed in 16 lanes.
#[inline(always)]
fn inverse_rms(row: &[f32], eps: f32) -> f32 {
    let mut lanes = [0f32; 16];
    let mut chunks = row.chunks_exact(16);
    for chunk in &mut chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += x * x;
        }
    }
    let rest: f32 = chunks.remainder().iter().map(|x| x * x).sum();
    let total: f32 = lanes.iter().sum::<f32>() + rest;
    1.0 / (total / row.len() as f32 + eps).sqrt()
}

/// e^x to about one unit in the last place, in a form that vectorises. Constants of the Cephes library's `expf`.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0);
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    let r = n.mul_add(2.121_944_4e-4, n.mul_add(-0.693_359_4, x));
    let mut p = 1.987_569_1e-4f32;
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p.mul_add(r, c);
    }
    (p * r).mul_add(r, r + 1.0) * f32::from_bits(((n as i32 + 127) << 23).cast_unsigned())
}

/// gelu with the tanh approximation: x·σ(2u), u = √(2/π)(x + 0.044715x³).
#[inline(always)]
fn gelu(x: f32) -> f32 {
    let u = 0.797_884_6 * x * (0.044_715 * x).mul_add(x, 1.0);
    x / (1.0 + exp(-2.0 * u))
}

wide! {
    fn norm_row(x: &[f32], weight: Option<&[f32]>, eps: f32, out: &mut [f32]) {
        let scale = inverse_rms(x, eps);
        match weight {
            None => out.iter_mut().zip(x).for_each(|(o, x)| *o = x * scale),
            Some(w) => out.iter_mut().zip(x).zip(w).for_each(|((o, x), w)| *o = x * scale * w),
        }
    }
}

/// RMS norm of rows of `width` values.
pub(crate) fn norm(x: &[f32], width: usize, weight: Option<&[f32]>, eps: f32) -> Vec<f32> {
    fill(x.len() / width, width, |row, out| norm_row(&x[row * width..][..width], weight, eps, out))
}

wide! {
    fn add_normed_row(x: &[f32], branch: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        let scale = inverse_rms(branch, eps);
        for (((o, x), b), w) in out.iter_mut().zip(x).zip(branch).zip(weight) {
            *o = x + b * scale * w;
        }
    }
}

/// `x + rms(branch)·w`, the residual after attention.
pub(crate) fn add_normed(x: &[f32], branch: &[f32], width: usize, weight: &[f32], eps: f32) -> Vec<f32> {
    fill(x.len() / width, width, |row, out| {
        let at = row * width..(row + 1) * width;
        add_normed_row(&x[at.clone()], &branch[at], weight, eps, out);
    })
}

wide! {
    fn combine_row(r: &[f32], dense: &[f32], sparse: &[f32], weights: [&[f32]; 3], scalar: f32, eps: f32, out: &mut [f32]) {
        let (d, s) = (inverse_rms(dense, eps), inverse_rms(sparse, eps));
        let [of_dense, of_sparse, of_sum] = weights;
        for i in 0..out.len() {
            out[i] = (dense[i] * d).mul_add(of_dense[i], sparse[i] * s * of_sparse[i]);
        }
        let sum = inverse_rms(out, eps);
        for i in 0..out.len() {
            out[i] = (out[i] * sum).mul_add(of_sum[i], r[i]) * scalar;
        }
    }
}

/// The end of a layer: `(r + rms(rms(dense)·w₁ + rms(sparse)·w₂)·w) · scalar`, one scalar per row.
pub(crate) fn combine(
    r: &[f32],
    dense: &[f32],
    sparse: &[f32],
    weights: [&[f32]; 3],
    scalars: &[f32],
    eps: f32,
) -> Vec<f32> {
    let width = weights[0].len();
    fill(scalars.len(), width, |row, out| {
        let at = row * width..(row + 1) * width;
        combine_row(&r[at.clone()], &dense[at.clone()], &sparse[at], weights, scalars[row], eps, out);
    })
}

wide! {
    fn geglu_row(gate_up: &[f32], out: &mut [f32]) {
        let (gate, up) = gate_up.split_at(out.len());
        for ((o, g), u) in out.iter_mut().zip(gate).zip(up) {
            *o = gelu(*g) * u;
        }
    }
}

/// gelu(gate) ⊙ up of rows of `2·width` values, on all threads.
pub(crate) fn geglu(gate_up: &[f32], width: usize) -> Vec<f32> {
    fill(gate_up.len() / (2 * width), width, |row, out| {
        geglu_row(&gate_up[row * 2 * width..][..2 * width], out);
    })
}

/// The same on the calling thread.
pub(super) fn geglu_here(gate_up: &[f32], width: usize) -> Vec<f32> {
    let mut out = vec![0f32; gate_up.len() / 2];
    for (gate_up, out) in gate_up.chunks_exact(2 * width).zip(out.chunks_exact_mut(width)) {
        geglu_row(gate_up, out);
    }
    out
}

wide! {
    fn head_row(x: &[f32], weight: Option<&[f32]>, rotation: Option<(&[f32], &[f32])>, eps: f32, out: &mut [f32]) {
        let scale = inverse_rms(x, eps);
        match weight {
            None => out.iter_mut().zip(x).for_each(|(o, x)| *o = x * scale),
            Some(w) => out.iter_mut().zip(x).zip(w).for_each(|((o, x), w)| *o = x * scale * w),
        }
        if let Some((cos, sin)) = rotation {
            let (first, second) = out.split_at_mut(cos.len());
            for (((a, b), c), s) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                (*a, *b) = (a.mul_add(*c, -(*b * s)), b.mul_add(*c, *a * s));
            }
        }
    }
}

/// Norm and rotation of the heads in `columns` of each projected row. `x: [rows, stride]`; `rotation`: cosines and sines,
/// `[rows, head_dim / 2]` each → `[rows, columns]`.
pub(crate) fn heads(
    x: &[f32],
    stride: usize,
    columns: std::ops::Range<usize>,
    head_dim: usize,
    weight: Option<&[f32]>,
    rotation: Option<(&[f32], &[f32])>,
    eps: f32,
) -> Vec<f32> {
    let (width, half) = (columns.len(), head_dim / 2);
    fill(x.len() / stride, width, |row, out| {
        let from = &x[row * stride..][columns.clone()];
        let rotation = rotation.map(|(cos, sin)| (&cos[row * half..][..half], &sin[row * half..][..half]));
        for (x, out) in from.chunks_exact(head_dim).zip(out.chunks_exact_mut(head_dim)) {
            head_row(x, weight, rotation, eps, out);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_agrees_with_the_standard_library() {
        for i in -8700..=8800 {
            let x = i as f32 / 100.0;
            let (found, wanted) = (exp(x), x.exp());
            assert!((found - wanted).abs() <= 3e-7 * wanted, "exp({x}) = {found}, not {wanted}");
        }
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn gelu_agrees_with_the_tanh_form() {
        for i in -1000..=1000 {
            let x = i as f32 / 100.0;
            let wanted = 0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh());
            assert!((gelu(x) - wanted).abs() <= 1e-6 * (1.0 + wanted.abs()), "gelu({x})");
        }
    }
}
