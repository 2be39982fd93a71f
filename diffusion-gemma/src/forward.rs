//! The fast path: ONE forward pass over prompt rows and canvas rows of any number of requests.
//!
//! Encoder rows never look at canvas rows, and canvas rows at a layer need only the encoder's keys and values of that
//! same layer. So all rows go through every layer together as one flat `[rows, H]` matrix, and each weight is read
//! once. Attention is per segment; rows differ only in their layer scalar and in how they were embedded. The last
//! layer computes what is read and nothing else. Canvases may branch: each after prompt tokens of its own, over a shared
//! beginning. `reference.rs` is the plain version of all this.

use std::ops::Range;

use candle_core::{Device, Tensor};

use crate::config::Attention;
use crate::error::{Error, Result};
use crate::kv::{LayerKv, Prefix};
use crate::model::{Layer, Model};
use crate::ops;
use crate::rope::{Rope, RopeTable};

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
    /// Prompt tokens between the segment's own and this canvas, seen by no other canvas and not kept; mostly empty.
    /// Neighbours with the same suffix share its rows.
    pub suffix: &'a [u32],
    /// Token ids of every row.
    pub ids: &'a [u32],
    /// Rows whose final hidden state is wanted, ascending.
    pub read: &'a [usize],
    /// The self-conditioning signal of the step before, `[ids, H]`; `None` in the first step of a canvas.
    pub previous: Option<&'a Tensor>,
}

/// What a pass gives back for a segment.
#[derive(Debug)]
pub struct SegmentOutput {
    /// The prefix with this pass's tokens encoded, every row of them kept: see [`Prefix::trimmed`].
    pub prefix: Prefix,
    /// Per canvas: final hidden states of its read rows, `[read, H]`.
    pub hidden: Vec<Tensor>,
}

/// Where everything lies in the flat matrix: all prompt rows of all segments first, suffixes among them, then all canvas
/// rows.
struct Plan {
    segments: Vec<SegmentPlan>,
    /// Token ids of the prompt rows.
    prompt: Vec<u32>,
    rows: usize,
    /// Position of every row in its sequence.
    positions: Vec<u32>,
    /// Rows that the last layer finishes, ascending, all of them canvas rows.
    read: Vec<u32>,
}

/// All rows between two layers, with what belongs to them, and where that is.
struct Rows {
    /// Number of the device. Two CPUs are one device to the tensor library, which therefore cannot say that a move was forgotten.
    place: usize,
    /// `[rows, H]`.
    x: Tensor,
    /// Rotations of sliding and of full layers.
    tables: [RopeTable; 2],
}

impl Rows {
    /// The hidden states for a layer, which must be there.
    fn at(&self, place: usize, layer: usize) -> Result<&Tensor> {
        if self.place == place {
            return Ok(&self.x);
        }
        let what = format!("layer {layer} on device {place} was handed rows on device {}", self.place);
        Err(candle_core::Error::Msg(what).into())
    }
}

struct SegmentPlan {
    prompt: Range<usize>,
    canvases: Vec<CanvasPlan>,
}

struct CanvasPlan {
    /// Its suffix among the prompt rows; that of its neighbour, where they share it.
    suffix: Range<usize>,
    rows: Range<usize>,
    /// Where its read rows lie in [`Plan::read`].
    read: Range<usize>,
}

impl Model {
    /// Runs one pass. The batch may hold any mix of prefills and canvases; results do not depend on the mix.
    pub fn forward(&self, segments: &[Segment<'_>]) -> Result<Vec<SegmentOutput>> {
        let plan = Plan::new(segments)?;
        if plan.rows == 0 {
            return Err(Error::Input("a pass needs at least one row".into()));
        }
        let mut grown: Vec<Vec<LayerKv>> =
            segments.iter().map(|_| Vec::with_capacity(self.layers.len())).collect();
        let last = self.layers.len() - 1;
        let mut rows = Rows {
            place: 0,
            x: self.flat_embeddings(&plan.prompt, segments)?,
            tables: self.tables(&plan, &self.device)?,
        };
        for (i, layer) in self.layers.iter().enumerate() {
            // The rows go along from device to device.
            if rows.place != layer.place {
                rows = self.moved(&rows, &plan, layer)?;
            }
            let wanted = (i == last).then_some(plan.read.as_slice());
            rows.x = self.flat_layer(i, &rows, &plan, segments, wanted, &mut grown)?;
        }
        let x = rows.x.to_device(&self.device)?;
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
                let hidden = at.canvases.iter().filter_map(|CanvasPlan { read, .. }| {
                    hidden.as_ref().map(|h| Ok(h.narrow(0, read.start, read.len())?))
                });
                Ok(SegmentOutput { prefix, hidden: hidden.collect::<Result<_>>()? })
            })
            .collect()
    }

    /// The rows where a layer wants them.
    fn moved(&self, rows: &Rows, plan: &Plan, layer: &Layer) -> Result<Rows> {
        let Layer { place, device, .. } = layer;
        Ok(Rows { place: *place, x: rows.x.to_device(device)?, tables: self.tables(plan, device)? })
    }

    /// Rotations of every row, of sliding and of full layers.
    fn tables(&self, plan: &Plan, device: &Device) -> Result<[RopeTable; 2]> {
        let table = |rope: &Rope| rope.table(&plan.positions, self.dtype, device);
        Ok([table(&self.rope_sliding)?, table(&self.rope_full)?])
    }

    fn norm(&self, x: &Tensor, weight: Option<&Tensor>) -> Result<Tensor> {
        ops::norm(x, weight, self.config.rms_norm_eps)
    }

    /// `[rows, H]`: prompt rows as they are, canvas rows with self-conditioning and their scale-free norm.
    fn flat_embeddings(&self, prompt: &[u32], segments: &[Segment<'_>]) -> Result<Tensor> {
        let mut parts = Vec::new();
        if !prompt.is_empty() {
            parts.push(self.embed(prompt)?);
        }
        for canvas in segments.iter().flat_map(|s| &s.canvases) {
            let mut x = self.embed(canvas.ids)?;
            if let Some(signal) = canvas.previous {
                x = (x + signal)?;
            }
            parts.push(self.norm(&x, None)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Tensor::cat(&parts, 0)? })
    }

    /// One layer over all rows. With `wanted` (the last layer) only those rows come back, and prompt rows stop after
    /// their keys and values.
    #[allow(clippy::too_many_arguments)] // the walk of a layer in one place reads better than a struct for one caller
    fn flat_layer(
        &self,
        i: usize,
        rows: &Rows,
        plan: &Plan,
        segments: &[Segment<'_>],
        wanted: Option<&[u32]>,
        grown: &mut [Vec<LayerKv>],
    ) -> Result<Tensor> {
        let (layer, eps, head_dim) =
            (&self.layers[i], self.config.rms_norm_eps, self.config.layers[i].head_dim);
        let x = rows.at(layer.place, i)?;
        let table = &rows.tables[usize::from(self.config.layers[i].attention == Attention::Full)];
        let (q_width, kv_width) = (self.config.query_width(i), self.config.kv_width(i));
        let sliding = self.config.layers[i].attention == Attention::Sliding;
        let normed = ops::norm(x, Some(&layer.input_norm), eps)?;
        let kv_columns = q_width..q_width + kv_width * if sliding { 2 } else { 1 };
        let head = |x: &Tensor, columns, weight, table| ops::heads(x, columns, head_dim, weight, table, eps);
        // In the last layer only the rows that are read ask anything.
        let (q, projected, first) = match wanted {
            None => {
                let all = layer.qkv.forward(&normed)?;
                (head(&all, 0..q_width, Some(&layer.q_norm), Some(table))?, all, q_width)
            }
            // A prefill alone: nobody asks.
            Some([]) => (normed.clone(), layer.qkv.part(&normed, kv_columns)?, 0),
            Some(read) => {
                let at = Tensor::new(read, x.device())?;
                let asking = layer.qkv.part(&normed.index_select(&at, 0)?, 0..q_width)?;
                let table =
                    RopeTable { cos: table.cos.index_select(&at, 0)?, sin: table.sin.index_select(&at, 0)? };
                let q = ops::heads(&asking, 0..q_width, head_dim, Some(&layer.q_norm), Some(&table), eps)?;
                (q, layer.qkv.part(&normed, kv_columns)?, 0)
            }
        };
        let keys = first..first + kv_width;
        // Full layers take V from the raw key projection.
        let values = if sliding { keys.end..keys.end + kv_width } else { keys.clone() };
        let k = head(&projected, keys, Some(&layer.k_norm), Some(table))?;
        let v = head(&projected, values, None, None)?;
        let jobs = self.attention_jobs(i, &q, &k, &v, plan, segments, wanted.is_some(), grown)?;
        if jobs.is_empty() {
            return Ok(x.clone());
        }
        let mixed = ops::attention(
            &jobs,
            (self.config.num_attention_heads, self.config.layers[i].kv_heads),
            head_dim,
        )?;
        let (x, scalars) = match wanted {
            None => (x.clone(), plan.scalars(layer)),
            Some(read) => (
                x.index_select(&Tensor::new(read, x.device())?, 0)?,
                vec![layer.decoder_scalar as f32; read.len()],
            ),
        };
        let r = ops::add_normed(&x, &layer.o.forward(&mixed)?, &layer.post_attention_norm, eps)?;
        let dense = ops::gated(&ops::norm(&r, Some(&layer.pre_ffn_norm), eps)?, &layer.gate_up, &layer.down)?;
        let routing = ops::route(&layer.router, &r, self.config.top_k_experts, eps)?;
        let sparse = ops::experts(layer, &ops::norm(&r, Some(&layer.pre_ffn_norm_2), eps)?, &routing)?;
        ops::combine(layer, &r, &dense, &sparse, &scalars, eps)
    }

    /// Who attends to what, prompt rows first as in the flat matrix, and the grown keys and values of every prefix. With
    /// `read_only` just the read rows of the canvases attend, and `q` has no others.
    #[allow(clippy::too_many_arguments)]
    fn attention_jobs(
        &self,
        i: usize,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        plan: &Plan,
        segments: &[Segment<'_>],
        read_only: bool,
        grown: &mut [Vec<LayerKv>],
    ) -> Result<Vec<ops::Attend>> {
        let window =
            (self.config.layers[i].attention == Attention::Sliding).then_some(self.config.sliding_window);
        let rows_of = |t: &Tensor, at: &Range<usize>| t.narrow(0, at.start, at.len());
        let (mut prompts, mut canvases) = (Vec::new(), Vec::new());
        for ((segment, at), grown) in segments.iter().zip(&plan.segments).zip(grown) {
            let old = segment.prefix.layer(i);
            let mut encoded = old.cloned();
            if !at.prompt.is_empty() {
                let own = (rows_of(k, &at.prompt)?, rows_of(v, &at.prompt)?);
                let kv = LayerKv::append(old, own.0.clone(), own.1.clone())?;
                if !read_only {
                    prompts.push(ops::Attend {
                        q: rows_of(q, &at.prompt)?,
                        encoded: old.map(LayerKv::pair),
                        first: old.map_or(segment.prefix.tokens(), |old| old.start),
                        own,
                        causal: Some(window.unwrap_or(usize::MAX)),
                    });
                }
                encoded = Some(kv.clone());
                grown.push(kv);
            }
            // What a canvas adds to the keys of its own rows: its suffix.
            let mut shared = 0..0;
            for canvas in &at.canvases {
                if !read_only && !canvas.suffix.is_empty() && canvas.suffix != shared {
                    prompts.push(ops::Attend {
                        q: rows_of(q, &canvas.suffix)?,
                        encoded: encoded.as_ref().map(LayerKv::pair),
                        first: encoded.as_ref().map_or(0, |kv| kv.start),
                        own: (rows_of(k, &canvas.suffix)?, rows_of(v, &canvas.suffix)?),
                        causal: Some(window.unwrap_or(usize::MAX)),
                    });
                    shared = canvas.suffix.clone();
                }
                if read_only && canvas.read.is_empty() {
                    continue;
                }
                // A canvas sees the last window − 1 tokens before it, whatever the distance of its own rows.
                let seen = window.map_or(usize::MAX, |w| w - 1);
                let suffix = canvas.suffix.end - canvas.suffix.len().min(seen)..canvas.suffix.end;
                let own = |t: &Tensor| -> Result<Tensor> {
                    let rows = rows_of(t, &canvas.rows)?;
                    if suffix.is_empty() {
                        return Ok(rows);
                    }
                    Ok(Tensor::cat(&[&rows_of(t, &suffix)?, &rows], 0)?)
                };
                let before = encoded.as_ref().filter(|_| suffix.len() < seen);
                let before = before.map(|kv| kv.tail(seen - suffix.len())).transpose()?;
                let past = segment.prefix.tokens() + segment.tokens.len() + canvas.suffix.len();
                canvases.push(ops::Attend {
                    q: rows_of(q, if read_only { &canvas.read } else { &canvas.rows })?,
                    first: before.as_ref().map_or(past - suffix.len(), |kv| kv.start),
                    encoded: before.as_ref().map(LayerKv::pair),
                    own: (own(k)?, own(v)?),
                    causal: None,
                });
            }
        }
        prompts.append(&mut canvases);
        Ok(prompts)
    }
}

impl Plan {
    fn new(segments: &[Segment<'_>]) -> Result<Self> {
        let (mut prompt, mut positions) = (Vec::new(), Vec::new());
        let mut append = |tokens: &[u32], first: usize| {
            let at = prompt.len();
            prompt.extend_from_slice(tokens);
            positions.extend((first..first + tokens.len()).map(|p| p as u32));
            at..at + tokens.len()
        };
        let mut plans: Vec<SegmentPlan> = Vec::with_capacity(segments.len());
        for segment in segments {
            let past = segment.prefix.tokens();
            let own = append(segment.tokens, past);
            let mut plan = SegmentPlan { prompt: own, canvases: Vec::with_capacity(segment.canvases.len()) };
            let mut neighbour: Option<(&[u32], Range<usize>)> = None;
            for canvas in &segment.canvases {
                let suffix = match neighbour {
                    Some((tokens, rows)) if tokens == canvas.suffix => rows,
                    _ => append(canvas.suffix, past + segment.tokens.len()),
                };
                plan.canvases.push(CanvasPlan { suffix: suffix.clone(), rows: 0..0, read: 0..0 });
                neighbour = Some((canvas.suffix, suffix));
            }
            plans.push(plan);
        }
        let (mut at, mut read) = (prompt.len(), Vec::new());
        for (segment, plan) in segments.iter().zip(&mut plans) {
            let first = segment.prefix.tokens() + segment.tokens.len();
            for (canvas, plan) in segment.canvases.iter().zip(&mut plan.canvases) {
                let rows = canvas.ids.len();
                if rows == 0 || canvas.read.iter().any(|r| *r >= rows) || !canvas.read.is_sorted() {
                    return Err(Error::Input(format!(
                        "a canvas of {rows} rows cannot give rows {:?}",
                        canvas.read
                    )));
                }
                let first = first + canvas.suffix.len();
                positions.extend((first..first + rows).map(|p| p as u32));
                plan.read = read.len()..read.len() + canvas.read.len();
                read.extend(canvas.read.iter().map(|r| (at + r) as u32));
                plan.rows = at..at + rows;
                at += rows;
            }
        }
        Ok(Self { segments: plans, prompt, rows: at, positions, read })
    }

    /// One per row: the encoder's scalar for prompt rows, the decoder's for canvas rows.
    fn scalars(&self, layer: &Layer) -> Vec<f32> {
        let mut scalars = vec![layer.encoder_scalar as f32; self.prompt.len()];
        scalars.resize(self.rows, layer.decoder_scalar as f32);
        scalars
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use std::path::PathBuf;

    use candle_core::DType;

    use super::*;
    use crate::load::LoadOptions;

    #[test]
    fn a_layer_refuses_rows_that_were_not_moved_to_its_device() {
        let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/tiny-text");
        let options = LoadOptions {
            devices: vec![Device::Cpu, Device::Cpu],
            places: vec![0, 1],
            ..LoadOptions::cpu(DType::F32)
        };
        let model = Model::load(&dir, &options).unwrap();
        let segments = [Segment { prefix: &Prefix::new(), tokens: &[1, 2, 3], canvases: vec![] }];
        let plan = Plan::new(&segments).unwrap();
        let tables = model.tables(&plan, &Device::Cpu).unwrap();
        let rows = Rows { place: 0, x: model.flat_embeddings(&plan.prompt, &segments).unwrap(), tables };
        let layer = |rows: &Rows, i| {
            let mut grown = vec![Vec::new()];
            model.flat_layer(i, rows, &plan, &segments, None, &mut grown).map_err(|error| error.to_string())
        };
        assert!(layer(&rows, 0).is_ok());
        let error = layer(&rows, 1).unwrap_err();
        assert!(error.contains("layer 1 on device 1 was handed rows on device 0"), "{error}");
        let moved = model.moved(&rows, &plan, &model.layers[1]).unwrap();
        assert!(layer(&moved, 1).is_ok());
        // And so back to the first device for those after it.
        assert!(layer(&moved, 2).is_err());
    }
}
