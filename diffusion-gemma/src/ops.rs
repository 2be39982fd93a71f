//! The operations of a layer, one function each, on flat `[rows, width]` tensors.
//!
//! Called by `forward.rs` alone. Dimensions: H hidden, NH query heads, NKV key heads, d head width, K chosen experts.

use candle_core::{D, DType, Tensor};

use crate::error::Result;
use crate::kv::LayerKv;
use crate::linear::Linear;
use crate::model::{Layer, Router, rms_norm};

/// gelu_tanh(gate) ⊙ up. `gate_up: [rows, 2·F]`, gate first → `[rows, F]`.
pub(crate) fn geglu(gate_up: &Tensor) -> Result<Tensor> {
    let width = gate_up.dim(1)? / 2;
    Ok((gate_up.narrow(1, 0, width)?.gelu()? * gate_up.narrow(1, width, width)?)?)
}

/// Attention of some query rows over some keys. `q: [rows, NH·d]`, `k`, `v: [keys, NKV·d]`, `mask: [rows, keys]` added to
/// the scores → `[rows, NH·d]`. Scores are not scaled: the norms of q and k carry the scale.
pub(crate) fn attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    heads: (usize, usize),
) -> Result<Tensor> {
    let (query_heads, kv_heads) = heads;
    let (rows, width) = q.dims2()?;
    let keys = k.dim(0)?;
    let (d, group) = (width / query_heads, query_heads / kv_heads);
    let q =
        q.reshape((rows, kv_heads, group, d))?.permute((1, 2, 0, 3))?.reshape((kv_heads, group * rows, d))?;
    let k = k.reshape((keys, kv_heads, d))?.transpose(0, 1)?.contiguous()?;
    let v = v.reshape((keys, kv_heads, d))?.transpose(0, 1)?.contiguous()?;
    let mut scores = q.matmul(&k.t()?)?.to_dtype(DType::F32)?;
    if let Some(mask) = mask {
        scores = scores.reshape((kv_heads, group, rows, keys))?.broadcast_add(mask)?.reshape((
            kv_heads,
            group * rows,
            keys,
        ))?;
    }
    let p = candle_nn::ops::softmax(&scores, D::Minus1)?.to_dtype(v.dtype())?;
    let mixed = p.matmul(&v)?.reshape((kv_heads, group, rows, d))?.permute((2, 0, 1, 3))?;
    Ok(mixed.reshape((rows, width))?)
}

/// Keys and values that a canvas sees: what the window leaves of the encoded tokens, then the canvas itself.
pub(crate) fn canvas_keys(
    encoded: Option<&LayerKv>,
    window: Option<usize>,
    k: &Tensor,
    v: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let Some(encoded) = encoded else { return Ok((k.clone(), v.clone())) };
    let (old_k, old_v) = encoded.tail(window.map_or(usize::MAX, |w| w - 1))?;
    Ok((Tensor::cat(&[&old_k, k], 0)?, Tensor::cat(&[&old_v, v], 0)?))
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
    let scaled = rms_norm(&x.to_dtype(DType::F32)?, Some(&router.scale), eps)?.to_dtype(x.dtype())?;
    let logits = scaled.matmul(&router.proj.t()?)?.to_dtype(DType::F32)?.to_vec2::<f32>()?;
    let mut routing = Routing { top_k, experts: Vec::new(), weights: Vec::new() };
    let mut order: Vec<u32> = Vec::new();
    for row in &logits {
        order.clear();
        order.extend(0..row.len() as u32);
        order.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]).then(a.cmp(b)));
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
    down.forward(&geglu(&gate_up.forward(y)?)?)
}
