//! The mixture of experts: rows grouped by expert, one pair of matmuls per chosen expert, experts in parallel.
//!
//! Every (row, choice) has a place of its own in the output of this step, and the places of a row are summed in the
//! order of its choices: the result does not depend on threads or on the rest of the batch.

#![allow(unsafe_code)] // rows of results are written at scattered, disjoint places

use rayon::prelude::*;

use super::fresh::Fresh;
use super::rows::{fill, geglu_here};
use super::{Matrix, Shared};

/// Weights of one expert.
#[derive(Debug)]
pub(crate) struct ExpertWeights<'a> {
    /// `[2·width, hidden]`.
    pub(crate) gate_up: &'a Matrix,
    /// `[hidden, width]`.
    pub(crate) down: &'a Matrix,
}

/// `x: [rows, hidden]`; `chosen`, `weights`: `[rows · top_k]` → `[rows, hidden]`.
pub(crate) fn mix(
    x: &[f32],
    hidden: usize,
    experts: &[ExpertWeights<'_>],
    chosen: &[u32],
    weights: &[f32],
) -> Vec<f32> {
    let rows = x.len() / hidden;
    let top_k = chosen.len() / rows;
    let mut by_expert: Vec<(usize, Vec<usize>)> = (0..experts.len()).map(|e| (e, Vec::new())).collect();
    for (place, expert) in chosen.iter().enumerate() {
        by_expert[*expert as usize].1.push(place);
    }
    by_expert.retain(|(_, places)| !places.is_empty());
    // The largest first: a thread that gets a small one last ends with the others.
    by_expert.sort_by_key(|(_, places)| std::cmp::Reverse(places.len()));
    let mut parts = Fresh::new(chosen.len() * hidden);
    let target: Shared<f32> = parts.target();
    by_expert.into_par_iter().with_max_len(1).for_each(|(expert, places)| {
        let mut of_rows = Vec::with_capacity(places.len() * hidden);
        places.iter().for_each(|place| of_rows.extend_from_slice(&x[place / top_k * hidden..][..hidden]));
        let ExpertWeights { gate_up, down } = &experts[expert];
        let gates = gate_up.matmul_here(&of_rows, places.len());
        let inner = geglu_here(&gates, down.inputs());
        let mut out = down.matmul_here(&inner, places.len());
        for (place, row) in places.iter().zip(out.chunks_exact_mut(hidden)) {
            row.iter_mut().for_each(|x| *x *= weights[*place]);
            // SAFETY: every place belongs to one expert, and lies inside `parts`.
            unsafe { row.as_ptr().copy_to_nonoverlapping(target.pointer().add(place * hidden), hidden) };
        }
    });
    // SAFETY: every place belongs to an expert that has written it.
    let parts = unsafe { parts.written() };
    fill(rows, hidden, |row, sum| {
        for part in parts[row * top_k * hidden..][..top_k * hidden].chunks_exact(hidden) {
            sum.iter_mut().zip(part).for_each(|(s, p)| *s += p);
        }
    })
}
