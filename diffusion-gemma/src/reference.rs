//! The plain path: f32 or bf16, one sequence, two passes (encode, then canvas), no batching, nothing fused.
//!
//! Kept as the oracle. It is compared with recorded outputs of the reference implementation in
//! `tests/parity.rs`, and the fast path of `forward.rs` is compared with it. Every rule of the architecture that is
//! easy to get wrong is a field of [`Rules`], so that tests can break one at a time and see the comparison fail.

mod rules;
mod sampler;

use candle_core::{D, DType, Tensor};

use crate::config::Attention;
use crate::error::Result;
use crate::model::{Layer, Model};
use crate::tensor::rms_norm;
pub use rules::Rules;
pub use sampler::{SamplerRules, Step};

/// Keys and values of every layer for the tokens encoded so far.
#[derive(Debug, Clone, Default)]
pub struct Cache {
    tokens: usize,
    /// Per layer: keys and values, `[kv_heads, kept, head_dim]`.
    layers: Vec<(Tensor, Tensor)>,
}

impl Cache {
    /// Tokens encoded so far, those that sliding layers have dropped included.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Keys and values of a layer, `[kv_heads, kept, head_dim]` each.
    pub fn layer(&self, index: usize) -> &(Tensor, Tensor) {
        &self.layers[index]
    }
}

/// Receives intermediate values by name (`enc.layer0`, `dec.layer3.router_weights`, …).
pub type Tap<'a> = dyn FnMut(&str, &Tensor) + 'a;

/// The plain path over a loaded model.
#[derive(Debug)]
pub struct Reference<'m> {
    model: &'m Model,
    rules: Rules,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Encoder,
    Decoder,
}

impl Role {
    fn prefix(self) -> &'static str {
        match self {
            Self::Encoder => "enc",
            Self::Decoder => "dec",
        }
    }
}

impl<'m> Reference<'m> {
    /// The model as it is.
    pub fn new(model: &'m Model) -> Self {
        Self { model, rules: Rules::default() }
    }

    /// A wrong model, for negative controls.
    pub fn with_rules(model: &'m Model, rules: Rules) -> Self {
        Self { model, rules }
    }

    /// Encodes `ids` causally after what `cache` holds, and returns the hidden states after the final norm, `[ids, H]`.
    /// `tap` also receives the keys and values of ALL positions of this call, before sliding layers drop any.
    pub fn encode(&self, ids: &[u32], cache: &mut Cache, tap: &mut Tap<'_>) -> Result<Tensor> {
        let mut x = self.model.embed(ids)?;
        if self.rules.prompt_input_norm {
            x = self.norm(&x, None)?;
        }
        tap("enc.embed", &x);
        let past = cache.tokens;
        for i in 0..self.model.layers.len() {
            let old = cache.layers.get(i).cloned();
            let (next, k, v) = self.layer(i, &x, past, old.as_ref(), Role::Encoder, tap)?;
            x = next;
            tap(&format!("kv.layer{i}.k"), &k);
            tap(&format!("kv.layer{i}.v"), &v);
            let kept = match self.model.config.layers[i].attention {
                Attention::Full => k.dim(1)?,
                Attention::Sliding => k.dim(1)?.min(self.model.config.sliding_window - 1),
            };
            let keep = |t: Tensor| t.narrow(1, t.dim(1)? - kept, kept);
            let entry = (keep(k)?, keep(v)?);
            if i < cache.layers.len() {
                cache.layers[i] = entry;
            } else {
                cache.layers.push(entry);
            }
        }
        cache.tokens += ids.len();
        let out = self.norm(&x, Some(&self.model.norm))?;
        tap("enc.final_norm", &out);
        Ok(out)
    }

    /// One canvas pass over a cache, which it only reads. `previous`: the temperature-scaled logits `[canvas, V]` of the
    /// step before, or `None` in the first step. Returns soft-capped f32 logits, `[canvas, V]`.
    pub fn decode(
        &self,
        canvas: &[u32],
        cache: &Cache,
        previous: Option<&Tensor>,
        tap: &mut Tap<'_>,
    ) -> Result<Tensor> {
        let mut x = self.model.embed(canvas)?;
        if let Some(logits) = previous {
            x = (x + self.self_conditioning(logits, tap)?)?;
        }
        if self.rules.canvas_input_norm {
            x = self.norm(&x, None)?;
        }
        tap("dec.input", &x);
        for i in 0..self.model.layers.len() {
            (x, _, _) = self.layer(i, &x, cache.tokens, cache.layers.get(i), Role::Decoder, tap)?;
        }
        let hidden = self.norm(&x, Some(&self.model.norm))?;
        tap("dec.final_norm", &hidden);
        let raw = hidden.matmul(&self.model.embed.dense()?.t()?)?;
        if self.rules.soft_cap { self.model.soft_cap(&raw) } else { Ok(raw.to_dtype(DType::F32)?) }
    }

    /// The self-conditioning signal of a step's temperature-scaled logits, `[rows, V]` → `[rows, H]`.
    pub fn signal(&self, logits: &Tensor) -> Result<Tensor> {
        self.self_conditioning(logits, &mut |_, _| ())
    }

    fn self_conditioning(&self, logits: &Tensor, tap: &mut Tap<'_>) -> Result<Tensor> {
        let sc = &self.model.self_conditioning;
        let p =
            candle_nn::ops::softmax(&logits.to_dtype(DType::F32)?, D::Minus1)?.to_dtype(self.model.dtype)?;
        let scale = if self.rules.scaled_soft_embedding { self.model.embed_scale } else { 1.0 };
        let soft = (p.matmul(&self.model.embed.dense()?)? * scale)?;
        tap("dec_sc.soft_embeddings", &soft);
        let normed = self.norm(&soft, Some(&sc.pre_norm))?;
        let width = self.model.config.intermediate_size;
        gated(
            &normed,
            &sc.gate_up.rows(0, width)?,
            &sc.gate_up.rows(width, width)?,
            &sc.down.rows(0, self.model.config.hidden_size)?,
        )
    }

    /// One layer. `x: [rows, H]` at positions `past..`; `old` holds cached keys and values. Returns the new hidden states
    /// and cached + new keys and values, `[kv_heads, keys, head_dim]`.
    fn layer(
        &self,
        i: usize,
        x: &Tensor,
        past: usize,
        old: Option<&(Tensor, Tensor)>,
        role: Role,
        tap: &mut Tap<'_>,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        let layer = &self.model.layers[i];
        let name = format!("{}.layer{i}", role.prefix());
        let (attended, k, v) = self.attention(i, x, past, old, role)?;
        tap(&format!("{name}.attn_out"), &attended);
        let r = (x + self.norm(&attended, Some(&layer.post_attention_norm))?)?;

        let (h, ff) = (self.model.config.hidden_size, self.model.config.intermediate_size);
        let experts_in = self.norm(&r, Some(&layer.pre_ffn_norm_2))?;
        let router_in = if self.rules.router_reads_residual { &r } else { &experts_in };
        let routing = self.route(layer, router_in, &name, tap)?;
        let experts = self.experts(layer, &experts_in, &routing)?;
        tap(&format!("{name}.moe_out"), &experts);
        let mut sum = self.norm(&experts, Some(&layer.post_ffn_norm_2))?;
        if self.rules.dense_branch {
            let dense_in = self.norm(&r, Some(&layer.pre_ffn_norm))?;
            let dense = gated(
                &dense_in,
                &layer.gate_up.rows(0, ff)?,
                &layer.gate_up.rows(ff, ff)?,
                &layer.down.rows(0, h)?,
            )?;
            tap(&format!("{name}.mlp_out"), &dense);
            sum = (sum + self.norm(&dense, Some(&layer.post_ffn_norm_1))?)?;
        }
        let out = self.norm(&sum, Some(&layer.post_ffn_norm))?;
        let scalar = match (role, self.rules.own_layer_scalars) {
            (Role::Encoder, true) | (Role::Decoder, false) => layer.encoder_scalar,
            (Role::Decoder, true) | (Role::Encoder, false) => layer.decoder_scalar,
        };
        let x =
            if self.rules.scalar_covers_residual { ((r + out)? * scalar)? } else { (r + (out * scalar)?)? };
        tap(&name, &x);
        Ok((x, k, v))
    }

    fn attention(
        &self,
        i: usize,
        x: &Tensor,
        past: usize,
        old: Option<&(Tensor, Tensor)>,
        role: Role,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        let (model, layer, config) = (self.model, &self.model.layers[i], &self.model.config);
        let shape = &config.layers[i];
        let (rows, heads, kv_heads, head_dim) =
            (x.dim(0)?, config.num_attention_heads, shape.kv_heads, shape.head_dim);
        let (q_width, kv_width) = (config.query_width(i), config.kv_width(i));
        let h = self.norm(x, Some(&layer.input_norm))?;
        let project = |start: usize, width: usize, n: usize| -> Result<Tensor> {
            Ok(h.matmul(&layer.qkv.rows(start, width)?.t()?)?.reshape((rows, n, head_dim))?)
        };
        let positions: Vec<u32> = (past..past + rows).map(|p| p as u32).collect();
        let mut rope = model.rope(i).clone();
        if !self.rules.rope_over_whole_head && shape.attention == Attention::Full {
            rope = rope.over_rotating_part(config.rope_full.theta);
        }
        let table = rope.table(&positions, model.dtype, &model.device)?;
        let q = table.apply(&self.norm(&project(0, q_width, heads)?, Some(&layer.q_norm))?)?;
        let raw_k = project(q_width, kv_width, kv_heads)?;
        let k = table.apply(&self.norm(&raw_k, Some(&layer.k_norm))?)?;
        let raw_v = match shape.attention {
            Attention::Sliding => project(q_width + kv_width, kv_width, kv_heads)?,
            Attention::Full if self.rules.value_from_raw_key => raw_k,
            Attention::Full => k.clone(),
        };
        let v = if self.rules.value_norm { self.norm(&raw_v, None)? } else { raw_v };

        let (mut k, mut v) = (k.transpose(0, 1)?.contiguous()?, v.transpose(0, 1)?.contiguous()?);
        if let Some((old_k, old_v)) = old {
            k = Tensor::cat(&[old_k, &k], 1)?;
            v = Tensor::cat(&[old_v, &v], 1)?;
        }
        let keys = k.dim(1)?;
        let group = heads / kv_heads;
        let spread = |t: &Tensor| -> Result<Tensor> {
            Ok(t.unsqueeze(1)?
                .broadcast_as((kv_heads, group, keys, head_dim))?
                .reshape((heads, keys, head_dim))?)
        };
        let mut scores = q.transpose(0, 1)?.contiguous()?.matmul(&spread(&k)?.t()?)?.to_dtype(DType::F32)?;
        if !self.rules.unscaled_attention {
            scores = (scores * (head_dim as f64).powf(-0.5))?;
        }
        scores = scores.broadcast_add(&self.mask(i, rows, keys, role)?)?;
        let p = candle_nn::ops::softmax(&scores, D::Minus1)?.to_dtype(model.dtype)?;
        let mixed = p.matmul(&spread(&v)?)?.transpose(0, 1)?.reshape((rows, q_width))?;
        Ok((mixed.matmul(&layer.o.dense()?.t()?)?, k, v))
    }

    /// `[rows, keys]`: 0 where a row may see a key, −∞ where it may not. The last `rows` keys are the rows themselves.
    fn mask(&self, i: usize, rows: usize, keys: usize, role: Role) -> Result<Tensor> {
        let window = self.model.config.sliding_window;
        let sliding = self.model.config.layers[i].attention == Attention::Sliding;
        let sees = |row: usize, key: usize| {
            let own = keys - rows + row;
            let causal = key <= own;
            let near = !sliding || key + window > own;
            match role {
                Role::Encoder => causal && (near || !self.rules.prompt_window),
                Role::Decoder => {
                    (causal || self.rules.bidirectional_canvas) && (near || self.rules.canvas_window)
                }
            }
        };
        let mask: Vec<f32> = (0..rows)
            .flat_map(|row| (0..keys).map(move |key| if sees(row, key) { 0.0 } else { f32::NEG_INFINITY }))
            .collect();
        Ok(Tensor::from_vec(mask, (rows, keys), &self.model.device)?)
    }

    /// Chosen experts and their weights, `[rows][K]`, highest probability first; of equals the lower index.
    fn route(
        &self,
        layer: &Layer,
        x: &Tensor,
        name: &str,
        tap: &mut Tap<'_>,
    ) -> Result<Vec<Vec<(usize, f32)>>> {
        let eps = self.model.config.rms_norm_eps;
        let scaled = rms_norm(&x.to_dtype(DType::F32)?, None, eps)?
            .broadcast_mul(&layer.router.scale)?
            .to_dtype(self.model.dtype)?;
        let logits = scaled.matmul(&layer.router.proj.dense()?.t()?)?.to_dtype(DType::F32)?;
        let probabilities = candle_nn::ops::softmax(&logits, D::Minus1)?;
        tap(&format!("{name}.router_probs"), &probabilities);
        let k = self.model.config.top_k_experts;
        let mut routing = Vec::new();
        for row in probabilities.to_vec2::<f32>()? {
            let mut order: Vec<usize> = (0..row.len()).collect();
            order.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
            order.truncate(k);
            let total: f32 =
                if self.rules.renormalised_router { order.iter().map(|e| row[*e]).sum() } else { 1.0 };
            routing.push(
                order
                    .into_iter()
                    .map(|e| {
                        (
                            e,
                            row[e] / total
                                * if self.rules.per_expert_scale {
                                    layer.router.per_expert_scale[e]
                                } else {
                                    1.0
                                },
                        )
                    })
                    .collect::<Vec<_>>(),
            );
        }
        let weights: Vec<f32> = routing.iter().flatten().map(|(_, w)| *w).collect();
        let chosen: Vec<u32> = routing.iter().flatten().map(|(e, _)| *e as u32).collect();
        tap(
            &format!("{name}.router_weights"),
            &Tensor::from_vec(weights, (routing.len(), k), &candle_core::Device::Cpu)?,
        );
        tap(
            &format!("{name}.router_index"),
            &Tensor::from_vec(chosen, (routing.len(), k), &candle_core::Device::Cpu)?,
        );
        Ok(routing)
    }

    /// Row by row, expert by expert: as slow and as plain as it can be. `x: [rows, H]` → `[rows, H]`.
    fn experts(&self, layer: &Layer, x: &Tensor, routing: &[Vec<(usize, f32)>]) -> Result<Tensor> {
        let (h, ffe) = (self.model.config.hidden_size, self.model.config.moe_intermediate_size);
        let mut out = Vec::with_capacity(routing.len());
        for (row, chosen) in routing.iter().enumerate() {
            let y = x.narrow(0, row, 1)?;
            let mut sum = Tensor::zeros((1, h), DType::F32, &self.model.device)?;
            for (e, weight) in chosen {
                let gate_up = &layer.expert_gate_up[*e];
                let one = gated(
                    &y,
                    &gate_up.rows(0, ffe)?,
                    &gate_up.rows(ffe, ffe)?,
                    &layer.expert_down[*e].rows(0, h)?,
                )?;
                sum = (sum + (one.to_dtype(DType::F32)? * f64::from(*weight))?)?;
            }
            out.push(sum.to_dtype(self.model.dtype)?);
        }
        Ok(Tensor::cat(&out, 0)?)
    }

    fn norm(&self, x: &Tensor, weight: Option<&Tensor>) -> Result<Tensor> {
        let eps = self.model.config.rms_norm_eps;
        match weight {
            Some(w) if self.rules.norm_weight_offset != 0.0 => {
                rms_norm(x, Some(&(w + self.rules.norm_weight_offset)?), eps)
            }
            other => rms_norm(x, other, eps),
        }
    }
}

/// down( gelu_tanh(gate·y) ⊙ up·y ). `y: [rows, in]`.
fn gated(y: &Tensor, gate: &Tensor, up: &Tensor, down: &Tensor) -> Result<Tensor> {
    let g = y.matmul(&gate.t()?)?.gelu()?;
    Ok((g * y.matmul(&up.t()?)?)?.matmul(&down.t()?)?)
}
