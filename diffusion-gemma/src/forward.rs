//! The fast path: ONE forward pass over prompt rows and canvas rows of any number of requests.
//!
//! Encoder rows never look at canvas rows, and canvas rows at a layer need only the encoder's keys and values of that
//! same layer. So all rows go through every layer together as one flat `[rows, H]` matrix, and each weight is read
//! once. Attention is per segment; rows differ only in their layer scalar and in how they were embedded. The last
//! layer computes what is read and nothing else. `reference.rs` is the plain version of all this.

use std::ops::Range;

use candle_core::{D, DType, Tensor};

use crate::config::Attention;
use crate::error::{Error, Result};
use crate::kv::{LayerKv, Prefix};
use crate::model::{Layer, Model, rms_norm};
use crate::ops;
use crate::rope::RopeTable;

/// One sequence's part of a pass: new prompt tokens after a prefix, and canvases that see both.
#[derive(Debug)]
pub struct Segment<'a> {
    /// What is already encoded.
    pub prefix: &'a Prefix,
    /// Prompt tokens to encode in this pass; may be empty.
    pub tokens: &'a [u32],
    /// Canvases over prefix and tokens; they do not see each other.
    pub canvases: Vec<CanvasRows<'a>>,
}

/// One canvas of a segment.
#[derive(Debug)]
pub struct CanvasRows<'a> {
    /// Token ids of every row.
    pub ids: &'a [u32],
    /// Rows whose final hidden state is wanted, ascending.
    pub read: &'a [usize],
    /// Temperature-scaled logits `[ids, V]` of the step before; `None` in the first step of a canvas.
    pub previous: Option<&'a Tensor>,
}

/// What a pass gives back for a segment.
#[derive(Debug)]
pub struct SegmentOutput {
    /// The prefix with this pass's tokens encoded.
    pub prefix: Prefix,
    /// Per canvas: final hidden states of its read rows, `[read, H]`.
    pub hidden: Vec<Tensor>,
}

/// Where everything lies in the flat matrix: all prompt rows of all segments first, then all canvas rows.
struct Plan {
    segments: Vec<SegmentPlan>,
    prompt_rows: usize,
    rows: usize,
    /// Position of every row in its sequence.
    positions: Vec<u32>,
    /// Rows that the last layer finishes, ascending, all of them canvas rows.
    read: Vec<u32>,
}

struct SegmentPlan {
    prompt: Range<usize>,
    canvases: Vec<Range<usize>>,
    /// Where each canvas's read rows lie in [`Plan::read`].
    read: Vec<Range<usize>>,
}

impl Model {
    /// Runs one pass. The batch may hold any mix of prefills and canvases; results do not depend on the mix.
    pub fn forward(&self, segments: &[Segment<'_>]) -> Result<Vec<SegmentOutput>> {
        let plan = Plan::new(segments)?;
        if plan.rows == 0 {
            return Err(Error::Input("a pass needs at least one row".into()));
        }
        let mut x = self.flat_embeddings(segments)?;
        let tables = [Attention::Sliding, Attention::Full].map(|kind| {
            let rope = if kind == Attention::Sliding { &self.rope_sliding } else { &self.rope_full };
            rope.table(&plan.positions, self.dtype, &self.device)
        });
        let [sliding, full] = tables;
        let (sliding, full) = (sliding?, full?);
        let mut grown: Vec<Vec<LayerKv>> =
            segments.iter().map(|_| Vec::with_capacity(self.layers.len())).collect();
        let last = self.layers.len() - 1;
        for (i, layer) in self.layers.iter().enumerate() {
            let table = if self.config.layers[i].attention == Attention::Sliding { &sliding } else { &full };
            let wanted = (i == last).then_some(plan.read.as_slice());
            x = self.flat_layer(i, layer, &x, &plan, segments, table, wanted, &mut grown)?;
        }
        let hidden = if plan.read.is_empty() { None } else { Some(self.norm(&x, Some(&self.norm))?) };
        segments
            .iter()
            .zip(&plan.segments)
            .zip(grown)
            .map(|((segment, at), layers)| {
                let prefix = if segment.tokens.is_empty() {
                    segment.prefix.clone()
                } else {
                    segment.prefix.extended(segment.tokens.len(), layers)
                };
                let hidden = at.read.iter().filter_map(|range| {
                    hidden.as_ref().map(|h| Ok(h.narrow(0, range.start, range.len())?))
                });
                Ok(SegmentOutput { prefix, hidden: hidden.collect::<Result<_>>()? })
            })
            .collect()
    }

    fn norm(&self, x: &Tensor, weight: Option<&Tensor>) -> Result<Tensor> {
        rms_norm(x, weight, self.config.rms_norm_eps)
    }

    /// `[rows, H]`: prompt rows as they are, canvas rows with self-conditioning and their scale-free norm.
    fn flat_embeddings(&self, segments: &[Segment<'_>]) -> Result<Tensor> {
        let prompt: Vec<u32> = segments.iter().flat_map(|s| s.tokens).copied().collect();
        let mut parts = Vec::new();
        if !prompt.is_empty() {
            parts.push(self.embed(&prompt)?);
        }
        for canvas in segments.iter().flat_map(|s| &s.canvases) {
            let mut x = self.embed(canvas.ids)?;
            if let Some(logits) = canvas.previous {
                x = (x + self.soft_signal(logits)?)?;
            }
            parts.push(self.norm(&x, None)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Tensor::cat(&parts, 0)? })
    }

    /// The self-conditioning signal of a step's logits, `[rows, V]` → `[rows, H]`.
    fn soft_signal(&self, logits: &Tensor) -> Result<Tensor> {
        let p = candle_nn::ops::softmax(&logits.to_dtype(DType::F32)?, D::Minus1)?.to_dtype(self.dtype)?;
        let soft = (p.matmul(&self.embed)? * self.embed_scale)?;
        let sc = &self.self_conditioning;
        ops::gated(&self.norm(&soft, Some(&sc.pre_norm))?, &sc.gate_up, &sc.down)
    }

    /// One layer over all rows. With `wanted` (the last layer) only those rows come back, and prompt rows stop after
    /// their keys and values.
    #[allow(clippy::too_many_arguments)] // the walk of a layer in one place reads better than a struct for one caller
    fn flat_layer(
        &self,
        i: usize,
        layer: &Layer,
        x: &Tensor,
        plan: &Plan,
        segments: &[Segment<'_>],
        table: &RopeTable,
        wanted: Option<&[u32]>,
        grown: &mut [Vec<LayerKv>],
    ) -> Result<Tensor> {
        let (q_width, kv_width, head_dim) =
            (self.config.query_width(i), self.config.kv_width(i), self.config.layers[i].head_dim);
        let h = self.norm(x, Some(&layer.input_norm))?;
        let projected = layer.qkv.forward(&h)?;
        let heads = |t: Tensor, norm: Option<&Tensor>, rotate: bool| -> Result<Tensor> {
            let (rows, width) = t.dims2()?;
            let split = self.norm(&t.reshape((rows, width / head_dim, head_dim))?, norm)?;
            let done = if rotate { table.apply(&split)? } else { split };
            Ok(done.reshape((rows, width))?)
        };
        let raw_k = projected.narrow(1, q_width, kv_width)?.contiguous()?;
        let raw_v = match self.config.layers[i].attention {
            Attention::Sliding => projected.narrow(1, q_width + kv_width, kv_width)?.contiguous()?,
            Attention::Full => raw_k.clone(),
        };
        let q = heads(projected.narrow(1, 0, q_width)?.contiguous()?, Some(&layer.q_norm), true)?;
        let k = heads(raw_k, Some(&layer.k_norm), true)?;
        let v = heads(raw_v, None, false)?;
        let mixed = self.flat_attention(i, &q, &k, &v, plan, segments, wanted.is_some(), grown)?;
        let Some(mixed) = mixed else { return Ok(x.clone()) };
        let (x, scalars) = match wanted {
            None => (x.clone(), plan.scalars(layer, &self.device)?.to_dtype(self.dtype)?),
            Some(read) => {
                let read = Tensor::new(read, &self.device)?;
                (
                    x.index_select(&read, 0)?,
                    Tensor::full(layer.decoder_scalar as f32, (read.dim(0)?, 1), &self.device)?
                        .to_dtype(self.dtype)?,
                )
            }
        };
        let r = (x + self.norm(&layer.o.forward(&mixed)?, Some(&layer.post_attention_norm))?)?;
        let dense = ops::gated(&self.norm(&r, Some(&layer.pre_ffn_norm))?, &layer.gate_up, &layer.down)?;
        let routing = ops::route(&layer.router, &r, self.config.top_k_experts, self.config.rms_norm_eps)?;
        let sparse = ops::experts(layer, &self.norm(&r, Some(&layer.pre_ffn_norm_2))?, &routing)?;
        let both = (self.norm(&dense, Some(&layer.post_ffn_norm_1))?
            + self.norm(&sparse, Some(&layer.post_ffn_norm_2))?)?;
        Ok((r + self.norm(&both, Some(&layer.post_ffn_norm))?)?.broadcast_mul(&scalars)?)
    }

    /// Attention of every segment, and the grown keys and values of every prefix. With `read_only` just the read rows
    /// of the canvases attend; `None` when there are none.
    #[allow(clippy::too_many_arguments)]
    fn flat_attention(
        &self,
        i: usize,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        plan: &Plan,
        segments: &[Segment<'_>],
        read_only: bool,
        grown: &mut [Vec<LayerKv>],
    ) -> Result<Option<Tensor>> {
        let heads = (self.config.num_attention_heads, self.config.layers[i].kv_heads);
        let window =
            (self.config.layers[i].attention == Attention::Sliding).then_some(self.config.sliding_window);
        let mut prompts = Vec::new();
        let mut canvases = Vec::new();
        for ((segment, at), grown) in segments.iter().zip(&plan.segments).zip(grown) {
            let old = segment.prefix.layer(i);
            let rows = at.prompt.len();
            let encoded = if rows == 0 {
                old.cloned()
            } else {
                let (new_k, new_v) =
                    (k.narrow(0, at.prompt.start, rows)?, v.narrow(0, at.prompt.start, rows)?);
                Some(LayerKv::append(old, new_k, new_v)?)
            };
            if let (false, false, Some(kv)) = (rows == 0, read_only, &encoded) {
                let mask = causal_mask(rows, kv.kept()?, window, &self.device)?;
                prompts.push(ops::attention(
                    &q.narrow(0, at.prompt.start, rows)?,
                    &kv.k,
                    &kv.v,
                    Some(&mask),
                    heads,
                )?);
            }
            for (canvas, input) in at.canvases.iter().zip(&segment.canvases) {
                let own = |t: &Tensor| t.narrow(0, canvas.start, canvas.len());
                let (keys, values) = ops::canvas_keys(encoded.as_ref(), window, &own(k)?, &own(v)?)?;
                let queries = if read_only {
                    let read: Vec<u32> = input.read.iter().map(|r| (canvas.start + r) as u32).collect();
                    q.index_select(&Tensor::new(read.as_slice(), &self.device)?, 0)?
                } else {
                    own(q)?
                };
                if queries.dim(0)? > 0 {
                    canvases.push(ops::attention(&queries, &keys, &values, None, heads)?);
                }
            }
            if let (false, Some(kv)) = (rows == 0, encoded) {
                grown.push(match window {
                    None => kv,
                    Some(window) => kv.trimmed(window)?,
                });
            }
        }
        prompts.append(&mut canvases);
        Ok(if prompts.is_empty() { None } else { Some(Tensor::cat(&prompts, 0)?) })
    }
}

impl Plan {
    fn new(segments: &[Segment<'_>]) -> Result<Self> {
        let prompt_rows: usize = segments.iter().map(|s| s.tokens.len()).sum();
        let mut positions = Vec::new();
        let mut at = 0;
        let mut plans = Vec::new();
        for segment in segments {
            let past = segment.prefix.tokens();
            positions.extend((past..past + segment.tokens.len()).map(|p| p as u32));
            plans.push(SegmentPlan {
                prompt: at..at + segment.tokens.len(),
                canvases: Vec::new(),
                read: Vec::new(),
            });
            at += segment.tokens.len();
        }
        let mut read = Vec::new();
        for (segment, plan) in segments.iter().zip(&mut plans) {
            let first = segment.prefix.tokens() + segment.tokens.len();
            for canvas in &segment.canvases {
                let rows = canvas.ids.len();
                if rows == 0 || canvas.read.iter().any(|r| *r >= rows) || !canvas.read.is_sorted() {
                    return Err(Error::Input(format!(
                        "a canvas of {rows} rows cannot give rows {:?}",
                        canvas.read
                    )));
                }
                positions.extend((first..first + rows).map(|p| p as u32));
                plan.read.push(read.len()..read.len() + canvas.read.len());
                read.extend(canvas.read.iter().map(|r| (at + r) as u32));
                plan.canvases.push(at..at + rows);
                at += rows;
            }
        }
        Ok(Self { segments: plans, prompt_rows, rows: at, positions, read })
    }

    /// `[rows, 1]`: the encoder's scalar for prompt rows, the decoder's for canvas rows.
    fn scalars(&self, layer: &Layer, device: &candle_core::Device) -> Result<Tensor> {
        let mut scalars = vec![layer.encoder_scalar as f32; self.prompt_rows];
        scalars.resize(self.rows, layer.decoder_scalar as f32);
        Ok(Tensor::from_vec(scalars, (self.rows, 1), device)?)
    }
}

/// `[rows, keys]`: the last `rows` keys are the rows themselves; a row sees itself and the `window − 1` keys before it.
fn causal_mask(
    rows: usize,
    keys: usize,
    window: Option<usize>,
    device: &candle_core::Device,
) -> Result<Tensor> {
    let window = window.unwrap_or(usize::MAX);
    let mask: Vec<f32> = (0..rows)
        .flat_map(|row| {
            let own = keys - rows + row;
            (0..keys).map(move |key| if key <= own && own - key < window { 0.0 } else { f32::NEG_INFINITY })
        })
        .collect();
    Ok(Tensor::from_vec(mask, (rows, keys), device)?)
}
