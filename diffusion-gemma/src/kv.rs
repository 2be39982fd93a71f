//! Keys and values of an encoded token sequence: what a later pass needs of it, and all it may reuse.
//!
//! Only encoder rows ever enter a [`Prefix`]; the keys and values of a canvas live for one pass. A prefix is immutable
//! and cheap to clone (the tensors are shared), so that a cache, a running request and a draw can hold the same one.

use candle_core::Tensor;

use crate::config::{Attention, Config};
use crate::error::Result;

/// Encoded tokens.
#[derive(Debug, Clone, Default)]
pub struct Prefix {
    tokens: usize,
    layers: Vec<LayerKv>,
}

/// Keys and values of one layer for the tokens `start..start + kept`, `[kept, kv_heads · head_dim]` each.
#[derive(Debug, Clone)]
pub(crate) struct LayerKv {
    pub(crate) start: usize,
    pub(crate) k: Tensor,
    pub(crate) v: Tensor,
}

impl Prefix {
    /// The empty prefix.
    pub fn new() -> Self {
        Self::default()
    }

    /// Encoded tokens, those that sliding layers have dropped included.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Bytes held by keys and values.
    pub fn bytes(&self) -> usize {
        let size = |t: &Tensor| t.elem_count() * t.dtype().size_in_bytes();
        self.layers.iter().map(|l| size(&l.k) + size(&l.v)).sum()
    }

    pub(crate) fn layer(&self, index: usize) -> Option<&LayerKv> {
        self.layers.get(index)
    }

    /// The prefix that `layers` (old and new rows together) make after `added` more tokens.
    pub(crate) fn extended(&self, added: usize, layers: Vec<LayerKv>) -> Self {
        Self { tokens: self.tokens + added, layers }
    }

    /// A copy that owns exactly its own rows: what is kept for long must not hold on to the sequence it was cut from. It is one
    /// piece of memory (on each device), which goes back whole: prefixes of many lengths come and go in a cache, and a tensor for
    /// every layer of each would leave holes of all sizes.
    pub fn detached(&self) -> Result<Self> {
        let mut layers = Vec::with_capacity(self.layers.len());
        for here in self.layers.chunk_by(|a, b| a.k.device().same_device(b.k.device())) {
            let tensors = here.iter().flat_map(|kv| [&kv.k, &kv.v]);
            let flat = tensors.map(Tensor::flatten_all).collect::<candle_core::Result<Vec<_>>>()?;
            let all = Tensor::cat(&flat, 0)?;
            let mut at = 0;
            let mut own = |t: &Tensor| {
                let part = all.narrow(0, at, t.elem_count())?.reshape(t.shape())?;
                at += t.elem_count();
                Ok::<_, candle_core::Error>(part)
            };
            for kv in here {
                layers.push(LayerKv { start: kv.start, k: own(&kv.k)?, v: own(&kv.v)? });
            }
        }
        Ok(Self { tokens: self.tokens, layers })
    }

    /// Without the rows that sliding layers no longer need, where dropping them is worth a copy. Do this after every pass;
    /// before it, [`Prefix::truncated`] can still cut anywhere in the tokens of the pass.
    pub fn trimmed(self, config: &Config) -> Result<Self> {
        let trim = |(kv, layer): (LayerKv, &crate::config::LayerConfig)| match layer.attention {
            Attention::Full => Ok(kv),
            Attention::Sliding => kv.trimmed(config.sliding_window),
        };
        let layers = self.layers.into_iter().zip(&config.layers).map(trim).collect::<Result<_>>()?;
        Ok(Self { tokens: self.tokens, layers })
    }

    /// The first `tokens` of this prefix, if every layer still has what a continuation from there needs.
    pub fn truncated(&self, tokens: usize, config: &Config) -> Result<Option<Self>> {
        if tokens == 0 || tokens > self.tokens || self.layers.is_empty() {
            return Ok(None);
        }
        let mut layers = Vec::with_capacity(self.layers.len());
        for (kv, layer) in self.layers.iter().zip(&config.layers) {
            let oldest_needed = match layer.attention {
                Attention::Full => 0,
                Attention::Sliding => tokens.saturating_sub(config.sliding_window - 1),
            };
            if kv.start > oldest_needed {
                return Ok(None);
            }
            let kept = tokens - kv.start;
            layers.push(LayerKv {
                start: kv.start,
                k: kv.k.narrow(0, 0, kept)?,
                v: kv.v.narrow(0, 0, kept)?,
            });
        }
        Ok(Some(Self { tokens, layers }))
    }
}

impl LayerKv {
    /// Old rows (if any) followed by new ones.
    pub(crate) fn append(old: Option<&Self>, k: Tensor, v: Tensor) -> Result<Self> {
        match old {
            None => Ok(Self { start: 0, k, v }),
            Some(old) => Ok(Self {
                start: old.start,
                k: Tensor::cat(&[&old.k, &k], 0)?,
                v: Tensor::cat(&[&old.v, &v], 0)?,
            }),
        }
    }

    pub(crate) fn kept(&self) -> Result<usize> {
        Ok(self.k.dim(0)?)
    }

    /// Keys and values.
    pub(crate) fn pair(&self) -> (Tensor, Tensor) {
        (self.k.clone(), self.v.clone())
    }

    /// The last `rows` rows (all, where there are fewer).
    pub(crate) fn tail(&self, rows: usize) -> Result<Self> {
        let kept = self.kept()?;
        let rows = rows.min(kept);
        let of = |t: &Tensor| t.narrow(0, kept - rows, rows);
        Ok(Self { start: self.start + kept - rows, k: of(&self.k)?, v: of(&self.v)? })
    }

    /// Drops what a sliding window no longer needs, once that is worth a copy: a window of slack stays, so that a
    /// long sequence pays one copy per window of tokens and a short one keeps every row for reuse at any length.
    fn trimmed(self, window: usize) -> Result<Self> {
        let kept = self.kept()?;
        if kept < 2 * window {
            return Ok(self);
        }
        let Self { start, k, v } = self.tail(window - 1)?;
        Ok(Self { start, k: k.force_contiguous()?, v: v.force_contiguous()? })
    }
}
