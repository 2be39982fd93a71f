//! The operations of a layer, one function each, on flat `[rows, width]` tensors.
//!
//! Called by `forward.rs`. Each has a portable form in tensor operations and, for f32 on CPUs that have them, a kernel
//! of `cpu/`; the two are compared in the tests. Dimensions: H hidden, NH query heads, NKV key heads, d head width.

use std::ops::Range;

use candle_core::{D, DType, Device, Tensor};

use crate::cpu::{self, AttentionJob, ExpertWeights};
use crate::error::{Error, Result};
use crate::linear::Linear;
use crate::model::{Layer, Router};
use crate::rope::RopeTable;
use crate::tensor::{Values, matrix, on_kernels, rms_norm, values};

/// RMS norm of every row, with a weight `[width]` or without.
pub(crate) fn norm(x: &Tensor, weight: Option<&Tensor>, eps: f64) -> Result<Tensor> {
    if !on_kernels(x) || !x.is_contiguous() {
        return rms_norm(x, weight, eps);
    }
    let weight = weight.map(values).transpose()?;
    matrix(cpu::norm(&values(x)?, x.dim(D::Minus1)?, weight.as_deref(), eps as f32), x.dim(D::Minus1)?)
}

/// `x + rms(branch)·weight`.
pub(crate) fn add_normed(x: &Tensor, branch: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    if !on_kernels(x) {
        return Ok((x + rms_norm(branch, Some(weight), eps)?)?);
    }
    let width = x.dim(1)?;
    matrix(cpu::add_normed(&values(x)?, &values(branch)?, width, &values(weight)?, eps as f32), width)
}

/// The end of a layer: `(r + rms(rms(dense)·w₁ + rms(sparse)·w₂)·w) · scalar`, with one scalar per row.
pub(crate) fn combine(
    layer: &Layer,
    r: &Tensor,
    dense: &Tensor,
    sparse: &Tensor,
    scalars: &[f32],
    eps: f64,
) -> Result<Tensor> {
    if on_kernels(r) {
        let (w1, w2, w) =
            (values(&layer.post_ffn_norm_1)?, values(&layer.post_ffn_norm_2)?, values(&layer.post_ffn_norm)?);
        return matrix(
            cpu::combine(&values(r)?, &values(dense)?, &values(sparse)?, [&w1, &w2, &w], scalars, eps as f32),
            r.dim(1)?,
        );
    }
    let both = (rms_norm(dense, Some(&layer.post_ffn_norm_1), eps)?
        + rms_norm(sparse, Some(&layer.post_ffn_norm_2), eps)?)?;
    let scalars = Tensor::from_slice(scalars, (scalars.len(), 1), r.device())?.to_dtype(r.dtype())?;
    Ok((r + rms_norm(&both, Some(&layer.post_ffn_norm), eps)?)?.broadcast_mul(&scalars)?)
}

/// Norm and rotation of the heads in `columns` of projected rows. `x: [rows, projected]` → `[rows, columns]`.
pub(crate) fn heads(
    x: &Tensor,
    columns: Range<usize>,
    head_dim: usize,
    weight: Option<&Tensor>,
    table: Option<&RopeTable>,
    eps: f64,
) -> Result<Tensor> {
    let (rows, stride) = x.dims2()?;
    let width = columns.len();
    if on_kernels(x) {
        let weight = weight.map(values).transpose()?;
        let rotation = table.map(|t| Ok::<_, Error>((values(&t.cos)?, values(&t.sin)?))).transpose()?;
        let rotation = rotation.as_ref().map(|(cos, sin)| (&**cos, &**sin));
        return matrix(
            cpu::heads(&values(x)?, stride, columns, head_dim, weight.as_deref(), rotation, eps as f32),
            width,
        );
    }
    let split =
        x.narrow(1, columns.start, width)?.contiguous()?.reshape((rows, width / head_dim, head_dim))?;
    let normed = rms_norm(&split, weight, eps)?;
    let done = table.map_or(Ok(normed.clone()), |table| table.apply(&normed))?;
    Ok(done.reshape((rows, width))?)
}

/// Query rows and the keys they see.
#[derive(Debug)]
pub(crate) struct Attend {
    /// `[rows, NH·d]`.
    pub(crate) q: Tensor,
    /// Keys and values encoded earlier, `[keys, NKV·d]`.
    pub(crate) encoded: Option<(Tensor, Tensor)>,
    /// Position of the first of all its keys in the sequence.
    pub(crate) first: usize,
    /// Keys and values of the canvas or of the prompt rows themselves, `[keys, NKV·d]`.
    pub(crate) own: (Tensor, Tensor),
    /// `Some(window)`: each row sees at most `window` keys up to its own; `None`: every key.
    pub(crate) causal: Option<usize>,
}

/// Attention of every job, rows in the order of the jobs: `[rows, NH·d]`. Scores are not scaled: the norms of q and k
/// carry the scale.
pub(crate) fn attention(jobs: &[Attend], heads: (usize, usize), head_dim: usize) -> Result<Tensor> {
    if jobs.first().is_some_and(|job| on_kernels(&job.q)) {
        let held: Vec<[Option<Values<'_>>; 5]> = jobs.iter().map(hold).collect::<Result<_>>()?;
        let jobs: Vec<AttentionJob<'_>> = held
            .iter()
            .zip(jobs)
            .map(|([q, k, v, own_k, own_v], job)| AttentionJob {
                q: q.as_deref().unwrap_or_default(),
                encoded: [k.as_deref().unwrap_or_default(), v.as_deref().unwrap_or_default()],
                first: job.first,
                own: [own_k.as_deref().unwrap_or_default(), own_v.as_deref().unwrap_or_default()],
                causal: job.causal,
            })
            .collect();
        return matrix(cpu::attend(&jobs, heads, head_dim), heads.0 * head_dim);
    }
    let parts: Vec<Tensor> = jobs.iter().map(|job| attend_portably(job, heads)).collect::<Result<_>>()?;
    Ok(Tensor::cat(&parts, 0)?)
}

/// Borrows queries, encoded keys and values, own keys and values.
fn hold(job: &Attend) -> Result<[Option<Values<'_>>; 5]> {
    let (k, v) = job.encoded.as_ref().map_or((None, None), |(k, v)| (Some(k), Some(v)));
    Ok([
        Some(values(&job.q)?),
        k.map(values).transpose()?,
        v.map(values).transpose()?,
        Some(values(&job.own.0)?),
        Some(values(&job.own.1)?),
    ])
}

/// Scores that are held at a time where no kernel streams them: 64 MiB in f32.
const SCORES: usize = 1 << 24;

/// Rows whose scores are held at a time.
pub(crate) fn score_rows(rows: usize, query_heads: usize, keys: usize) -> usize {
    (SCORES / (query_heads * keys).max(1)).clamp(1, rows.max(1))
}

fn attend_portably(job: &Attend, heads: (usize, usize)) -> Result<Tensor> {
    let keys = job.own.0.dim(0)? + job.encoded.as_ref().map_or(Ok(0), |(k, _)| k.dim(0))?;
    attend_in_blocks(job, heads, score_rows(job.q.dim(0)?, heads.0, keys))
}

/// So many rows at a time.
fn attend_in_blocks(job: &Attend, heads: (usize, usize), block: usize) -> Result<Tensor> {
    let (k, v) = match &job.encoded {
        None => job.own.clone(),
        Some((k, v)) => (Tensor::cat(&[k, &job.own.0], 0)?, Tensor::cat(&[v, &job.own.1], 0)?),
    };
    let (query_heads, kv_heads) = heads;
    let (rows, width) = job.q.dims2()?;
    let keys = k.dim(0)?;
    let (d, group) = (width / query_heads, query_heads / kv_heads);
    let k = k.reshape((keys, kv_heads, d))?.transpose(0, 1)?.contiguous()?;
    let v = v.reshape((keys, kv_heads, d))?.transpose(0, 1)?.contiguous()?;
    let mut parts = Vec::with_capacity(rows.div_ceil(block));
    for first in (0..rows).step_by(block) {
        let count = block.min(rows - first);
        let q = job.q.narrow(0, first, count)?.reshape((count, kv_heads, group, d))?;
        let q = q.permute((1, 2, 0, 3))?.reshape((kv_heads, group * count, d))?;
        let mut scores = q.matmul(&k.t()?)?.to_dtype(DType::F32)?;
        if let Some(window) = job.causal {
            let own = keys - rows + first..keys - rows + first + count;
            let mask = causal_mask(own, keys, window, job.q.device())?;
            scores = scores.reshape((kv_heads, group, count, keys))?.broadcast_add(&mask)?;
            scores = scores.reshape((kv_heads, group * count, keys))?;
        }
        let p = candle_nn::ops::softmax(&scores, D::Minus1)?.to_dtype(v.dtype())?;
        let mixed = p.matmul(&v)?.reshape((kv_heads, group, count, d))?.permute((2, 0, 1, 3))?;
        parts.push(mixed.reshape((count, width))?);
    }
    Ok(if parts.len() == 1 { parts.remove(0) } else { Tensor::cat(&parts, 0)? })
}

/// `[own, keys]`: rows whose own keys are those of the range; a row sees itself and the `window − 1` keys before it.
fn causal_mask(own: Range<usize>, keys: usize, window: usize, device: &Device) -> Result<Tensor> {
    let rows = own.len();
    let mask: Vec<f32> = own
        .flat_map(|own| {
            (0..keys).map(move |key| if key <= own && own - key < window { 0.0 } else { f32::NEG_INFINITY })
        })
        .collect();
    Ok(Tensor::from_vec(mask, (rows, keys), device)?)
}

/// Chosen experts of every row: `[rows · K]` ids and weights, highest probability first; of equals the lower index.
#[derive(Debug)]
pub(crate) struct Routing {
    pub(crate) top_k: usize,
    pub(crate) experts: Vec<u32>,
    pub(crate) weights: Vec<f32>,
}

/// `x: [rows, H]`, the residual without any norm.
pub(crate) fn route(router: &Router, x: &Tensor, top_k: usize, eps: f64) -> Result<Routing> {
    let scaled = norm(&x.to_dtype(DType::F32)?, Some(&router.scale), eps)?.to_dtype(x.dtype())?;
    let logits = router.proj.forward(&scaled)?.to_dtype(DType::F32)?.to_vec2::<f32>()?;
    let mut routing = Routing { top_k, experts: Vec::new(), weights: Vec::new() };
    let mut order: Vec<u32> = Vec::new();
    for row in &logits {
        order.clear();
        order.extend(0..row.len() as u32);
        let descending = |a: &u32, b: &u32| row[*b as usize].total_cmp(&row[*a as usize]).then(a.cmp(b));
        if top_k < order.len() {
            order.select_nth_unstable_by(top_k - 1, descending);
        }
        order[..top_k].sort_unstable_by(descending);
        // A softmax over all experts, renormalised over the chosen ones, is the softmax over the chosen ones.
        let best = row[order[0] as usize];
        let powers: Vec<f32> = order[..top_k].iter().map(|e| (row[*e as usize] - best).exp()).collect();
        let total: f32 = powers.iter().sum();
        for (e, power) in order[..top_k].iter().zip(powers) {
            routing.experts.push(*e);
            routing.weights.push(power / total * router.per_expert_scale[*e as usize]);
        }
    }
    Ok(routing)
}

/// The mixture of experts, grouped so that each chosen expert runs one matmul over all its rows. `x: [rows, H]`.
pub(crate) fn experts(layer: &Layer, x: &Tensor, routing: &Routing) -> Result<Tensor> {
    let packed: Option<Vec<ExpertWeights<'_>>> = layer
        .expert_gate_up
        .iter()
        .zip(&layer.expert_down)
        .map(|pair| match pair {
            (Linear::Packed(gate_up), Linear::Packed(down)) => Some(ExpertWeights { gate_up, down }),
            _ => None,
        })
        .collect();
    if let Some(packed) = packed {
        let h = x.dim(1)?;
        return matrix(cpu::mix(&values(x)?, h, &packed, &routing.experts, &routing.weights), h);
    }
    let (rows, h) = x.dims2()?;
    let mut by_expert: Vec<Vec<usize>> = vec![Vec::new(); layer.expert_down.len()];
    for (slot, expert) in routing.experts.iter().enumerate() {
        by_expert[*expert as usize].push(slot);
    }
    let mut out = Tensor::zeros((rows, h), DType::F32, x.device())?;
    for (expert, slots) in by_expert.iter().enumerate().filter(|(_, slots)| !slots.is_empty()) {
        let of_rows: Vec<u32> = slots.iter().map(|slot| (slot / routing.top_k) as u32).collect();
        let weights: Vec<f32> = slots.iter().map(|slot| routing.weights[*slot]).collect();
        let of_rows = Tensor::new(of_rows.as_slice(), x.device())?;
        let weights = Tensor::from_vec(weights, (slots.len(), 1), x.device())?;
        let y =
            gated(&x.index_select(&of_rows, 0)?, &layer.expert_gate_up[expert], &layer.expert_down[expert])?;
        out = out.index_add(&of_rows, &y.to_dtype(DType::F32)?.broadcast_mul(&weights)?, 0)?;
    }
    Ok(out.to_dtype(x.dtype())?)
}

/// down( gelu_tanh(gate·y) ⊙ up·y ). `y: [rows, in]`.
pub(crate) fn gated(y: &Tensor, gate_up: &Linear, down: &Linear) -> Result<Tensor> {
    let both = gate_up.forward(y)?;
    let width = both.dim(1)? / 2;
    let inner = if on_kernels(&both) {
        matrix(cpu::geglu(&values(&both)?, width), width)?
    } else {
        (both.narrow(1, 0, width)?.gelu()? * both.narrow(1, width, width)?)?
    };
    down.forward(&inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn attention_does_not_depend_on_how_many_rows_are_scored_at_a_time() {
        let numbers = |rows: usize, width: usize, step: usize| {
            let all = (0..rows * width).map(|i| (i * step % 97) as f32 * 0.01 - 0.5).collect();
            Tensor::from_vec(all, (rows, width), &Device::Cpu).unwrap()
        };
        for causal in [None, Some(usize::MAX), Some(5)] {
            // 4 query heads and 2 key heads of 8; 7 rows after 6 encoded ones.
            let job = Attend {
                q: numbers(7, 32, 31),
                encoded: Some((numbers(6, 16, 13), numbers(6, 16, 17))),
                first: 0,
                own: (numbers(7, 16, 19), numbers(7, 16, 23)),
                causal,
            };
            let whole = attend_in_blocks(&job, (4, 2), 7).unwrap();
            for block in [1, 3] {
                let parts = attend_in_blocks(&job, (4, 2), block).unwrap();
                let apart = (&whole - parts).unwrap().abs().unwrap().max_all().unwrap();
                assert!(apart.to_scalar::<f32>().unwrap() < 1e-6, "{causal:?}, {block} rows at a time");
            }
        }
    }

    #[test]
    fn scores_of_a_long_context_take_no_more_than_those_of_a_short_one() {
        for keys in [100, 4096, 32_768, 131_072] {
            assert!(score_rows(2048, 16, keys) * 16 * keys <= SCORES);
        }
        // One row is held whatever it takes.
        assert_eq!((score_rows(2048, 16, 1 << 30), score_rows(5, 16, 100)), (1, 5));
    }
}
