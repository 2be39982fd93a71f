//! config.json → the numbers of the architecture, checked once.
//!
//! Two published spellings are read: `global_head_dim` / `num_global_key_value_heads` (the checkpoints on the hub) and
//! `per_layer_config` (what newer transformers versions save). Unknown keys are ignored, unknown architectures are not.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::error::{Error, Result};

/// Which keys a layer's rows may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attention {
    /// The last `sliding_window` tokens; own value projection.
    Sliding,
    /// Every token; the value is the raw key projection.
    Full,
}

/// Shape of one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerConfig {
    /// Kind of attention.
    pub attention: Attention,
    /// Width of one head.
    pub head_dim: usize,
    /// Key and value heads.
    pub kv_heads: usize,
}

/// Rotary embedding of one kind of layer.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeConfig {
    /// Base of the frequencies.
    pub theta: f64,
    /// Share of the head's dimensions that rotate (1 on sliding layers).
    pub partial_rotary_factor: f64,
    /// Divides every frequency.
    pub factor: f64,
}

/// The architecture of one checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Entries of the embedding table, V.
    pub vocab_size: usize,
    /// Width of the residual stream, H.
    pub hidden_size: usize,
    /// Width of the dense FFN.
    pub intermediate_size: usize,
    /// Width of one expert.
    pub moe_intermediate_size: usize,
    /// Experts per layer, E.
    pub num_experts: usize,
    /// Experts chosen per row, K.
    pub top_k_experts: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// W: keys a sliding query sees, itself included.
    pub sliding_window: usize,
    /// Epsilon of every RMS norm.
    pub rms_norm_eps: f64,
    /// c of c·tanh(logit/c).
    pub final_logit_softcapping: f64,
    /// Rope of sliding layers.
    pub rope_sliding: RopeConfig,
    /// Rope of full layers.
    pub rope_full: RopeConfig,
    /// Longest sequence the positions are made for.
    pub max_position_embeddings: usize,
    /// One entry per layer.
    pub layers: Vec<LayerConfig>,
    /// Rows of one generation canvas.
    pub canvas_length: usize,
    /// Whether the checkpoint has a vision tower.
    pub has_vision: bool,
}

#[derive(Deserialize)]
struct RawConfig {
    model_type: Option<String>,
    canvas_length: Option<usize>,
    tie_word_embeddings: Option<bool>,
    vision_config: Option<Value>,
    text_config: Option<RawText>,
}

#[derive(Deserialize)]
struct RawText {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    moe_intermediate_size: Option<usize>,
    num_experts: Option<usize>,
    top_k_experts: Option<usize>,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    head_dim: usize,
    global_head_dim: Option<usize>,
    num_global_key_value_heads: Option<usize>,
    per_layer_config: Option<BTreeMap<String, RawLayer>>,
    layer_types: Option<Vec<String>>,
    sliding_window: usize,
    rope_parameters: Option<BTreeMap<String, RawRope>>,
    max_position_embeddings: Option<usize>,
    hidden_activation: Option<String>,
    rms_norm_eps: Option<f64>,
    final_logit_softcapping: Option<f64>,
    attention_bias: Option<bool>,
    use_bidirectional_attention: Option<String>,
    tie_word_embeddings: Option<bool>,
}

#[derive(Deserialize)]
struct RawLayer {
    head_dim: Option<usize>,
    num_key_value_heads: Option<usize>,
}

#[derive(Deserialize)]
struct RawRope {
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    factor: Option<f64>,
}

impl Config {
    /// Reads and checks `config.json` of a checkpoint folder.
    pub fn from_dir(dir: &Path) -> Result<Self> {
        let path = dir.join("config.json");
        let text = fs::read_to_string(&path).map_err(Error::read(&path))?;
        Self::from_json(&text)
    }

    /// Reads and checks the text of a `config.json`.
    pub fn from_json(text: &str) -> Result<Self> {
        let raw: RawConfig = serde_json::from_str(text).map_err(|e| Error::Config(e.to_string()))?;
        let model_type = raw.model_type.as_deref().unwrap_or("");
        if model_type != "diffusion_gemma" {
            return Err(Error::Config(format!("model_type is {model_type:?}")));
        }
        let text = raw.text_config.ok_or_else(|| Error::Config("text_config is missing".into()))?;
        if raw.tie_word_embeddings == Some(false) || text.tie_word_embeddings == Some(false) {
            return Err(Error::Config("tie_word_embeddings is false; only tied heads are published".into()));
        }
        text.check()?;
        let layers = text.layers()?;
        let config = Self {
            vocab_size: text.vocab_size,
            hidden_size: text.hidden_size,
            intermediate_size: text.intermediate_size,
            moe_intermediate_size: text.moe_intermediate_size.unwrap_or(0),
            num_experts: text.num_experts.unwrap_or(0),
            top_k_experts: text.top_k_experts.unwrap_or(0),
            num_attention_heads: text.num_attention_heads,
            sliding_window: text.sliding_window,
            rms_norm_eps: text.rms_norm_eps.unwrap_or(1e-6),
            final_logit_softcapping: text.final_logit_softcapping.unwrap_or(30.0),
            rope_sliding: text.rope("sliding_attention", "default", 1e4, 1.0)?,
            rope_full: text.rope("full_attention", "proportional", 1e6, 0.25)?,
            max_position_embeddings: text.max_position_embeddings.unwrap_or(131_072),
            layers,
            canvas_length: raw.canvas_length.unwrap_or(256),
            has_vision: raw.vision_config.is_some_and(|v| !v.is_null()),
        };
        config.check()?;
        Ok(config)
    }

    /// Heads times width of the queries of a layer.
    pub fn query_width(&self, layer: usize) -> usize {
        self.num_attention_heads * self.layers[layer].head_dim
    }

    /// Heads times width of the keys (and values) of a layer.
    pub fn kv_width(&self, layer: usize) -> usize {
        self.layers[layer].kv_heads * self.layers[layer].head_dim
    }

    fn check(&self) -> Result<()> {
        let positive = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("moe_intermediate_size", self.moe_intermediate_size),
            ("num_experts", self.num_experts),
            ("top_k_experts", self.top_k_experts),
            ("num_attention_heads", self.num_attention_heads),
            ("num_hidden_layers", self.layers.len()),
            ("canvas_length", self.canvas_length),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(Error::Config(format!("{key} is missing or 0")));
        }
        if self.canvas_length > self.max_position_embeddings {
            return Err(Error::Config(format!(
                "canvas_length is {}, the positions end at {}",
                self.canvas_length, self.max_position_embeddings
            )));
        }
        let numbers = [
            ("rms_norm_eps", self.rms_norm_eps),
            ("final_logit_softcapping", self.final_logit_softcapping),
            ("rope_theta of sliding layers", self.rope_sliding.theta),
            ("rope_theta of full layers", self.rope_full.theta),
            ("rope factor of sliding layers", self.rope_sliding.factor),
            ("rope factor of full layers", self.rope_full.factor),
        ];
        if let Some((key, value)) = numbers.iter().find(|(_, value)| !value.is_finite() || *value <= 0.0) {
            return Err(Error::Config(format!("{key} is {value}, not a positive number")));
        }
        let shares = [
            ("sliding", self.rope_sliding.partial_rotary_factor),
            ("full", self.rope_full.partial_rotary_factor),
        ];
        if let Some((kind, share)) = shares.iter().find(|(_, share)| !(*share > 0.0 && *share <= 1.0)) {
            return Err(Error::Config(format!(
                "partial_rotary_factor of {kind} layers is {share}, not a share above 0 and at most 1"
            )));
        }
        if self.top_k_experts > self.num_experts {
            return Err(Error::Config(format!(
                "top_k_experts is {} of {} experts",
                self.top_k_experts, self.num_experts
            )));
        }
        if self.sliding_window < 2 {
            return Err(Error::Config(format!("sliding_window is {}", self.sliding_window)));
        }
        for (i, layer) in self.layers.iter().enumerate() {
            let first = self.layers.iter().find(|l| l.attention == layer.attention).map_or(0, |l| l.head_dim);
            if layer.head_dim != first {
                return Err(Error::Config(format!(
                    "head_dim of layer {i} is {}, that of other {:?} layers {first}; one rotation per kind is computed",
                    layer.head_dim, layer.attention
                )));
            }
            if layer.head_dim == 0 || layer.head_dim % 2 == 1 {
                return Err(Error::Config(format!(
                    "head_dim of layer {i} is {}, not an even number",
                    layer.head_dim
                )));
            }
            if layer.kv_heads == 0 || !self.num_attention_heads.is_multiple_of(layer.kv_heads) {
                return Err(Error::Config(format!(
                    "layer {i} shares {} key heads among {} query heads",
                    layer.kv_heads, self.num_attention_heads
                )));
            }
        }
        Ok(())
    }
}

impl RawText {
    fn check(&self) -> Result<()> {
        let refuse = |reason: String| Err(Error::Config(reason));
        match self.hidden_activation.as_deref() {
            None | Some("gelu_pytorch_tanh") => {}
            Some(other) => return refuse(format!("hidden_activation {other:?} is not computed here")),
        }
        if self.attention_bias == Some(true) {
            return refuse("attention_bias is true; no published checkpoint has biases".into());
        }
        match self.use_bidirectional_attention.as_deref() {
            None | Some("vision") => Ok(()),
            Some(other) => refuse(format!("use_bidirectional_attention {other:?} is not computed here")),
        }
    }

    fn layers(&self) -> Result<Vec<LayerConfig>> {
        let count = self.num_hidden_layers;
        let kinds: Vec<Attention> = match &self.layer_types {
            Some(names) if names.len() == count => names
                .iter()
                .map(|name| match name.as_str() {
                    "sliding_attention" => Ok(Attention::Sliding),
                    "full_attention" => Ok(Attention::Full),
                    other => Err(Error::Config(format!("layer type {other:?}"))),
                })
                .collect::<Result<_>>()?,
            Some(names) => {
                return Err(Error::Config(format!(
                    "layer_types names {} layers, num_hidden_layers is {count}",
                    names.len()
                )));
            }
            // The published default: every sixth layer is full, and the last one always.
            None => (1..=count)
                .map(|n| if n % 6 == 0 || n == count { Attention::Full } else { Attention::Sliding })
                .collect(),
        };
        Ok(kinds.into_iter().enumerate().map(|(i, kind)| self.layer(i, kind)).collect())
    }

    /// `per_layer_config` wins over the global keys, those over the sliding ones.
    fn layer(&self, index: usize, attention: Attention) -> LayerConfig {
        let own = self.per_layer_config.as_ref().and_then(|map| map.get(&index.to_string()));
        let (head_dim, kv_heads) = match attention {
            Attention::Sliding => (self.head_dim, self.num_key_value_heads),
            // 512 is the published class's default width of a full layer's head.
            Attention::Full if self.per_layer_config.is_none() => (
                self.global_head_dim.unwrap_or(512),
                self.num_global_key_value_heads.unwrap_or(self.num_key_value_heads),
            ),
            Attention::Full => (
                self.global_head_dim.unwrap_or(self.head_dim),
                self.num_global_key_value_heads.unwrap_or(self.num_key_value_heads),
            ),
        };
        LayerConfig {
            attention,
            head_dim: own.and_then(|l| l.head_dim).unwrap_or(head_dim),
            kv_heads: own.and_then(|l| l.num_key_value_heads).unwrap_or(kv_heads),
        }
    }

    fn rope(&self, kind: &str, rope_type: &str, theta: f64, partial: f64) -> Result<RopeConfig> {
        let raw = self.rope_parameters.as_ref().and_then(|map| map.get(kind));
        if let Some(found) = raw.and_then(|r| r.rope_type.as_deref()).filter(|t| *t != rope_type) {
            return Err(Error::Config(format!(
                "rope_type {found:?} for {kind}, {rope_type:?} is computed here"
            )));
        }
        Ok(RopeConfig {
            theta: raw.and_then(|r| r.rope_theta).unwrap_or(theta),
            partial_rotary_factor: raw.and_then(|r| r.partial_rotary_factor).unwrap_or(partial),
            factor: raw.and_then(|r| r.factor).unwrap_or(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISHED: &str = r#"{"model_type":"diffusion_gemma","canvas_length":256,"text_config":{"vocab_size":262144,
        "hidden_size":2816,"intermediate_size":2112,"moe_intermediate_size":704,"num_experts":128,"top_k_experts":8,
        "num_hidden_layers":30,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":256,"global_head_dim":512,
        "num_global_key_value_heads":2,"sliding_window":1024,"use_bidirectional_attention":"vision"}}"#;

    #[test]
    fn published_keys_give_the_26b_layers() {
        let config = Config::from_json(PUBLISHED).unwrap();
        let full: Vec<usize> = (0..30).filter(|i| config.layers[*i].attention == Attention::Full).collect();
        assert_eq!(full, [5, 11, 17, 23, 29]);
        assert_eq!(config.layers[5], LayerConfig { attention: Attention::Full, head_dim: 512, kv_heads: 2 });
        assert_eq!(
            config.layers[0],
            LayerConfig { attention: Attention::Sliding, head_dim: 256, kv_heads: 8 }
        );
        assert_eq!((config.query_width(5), config.kv_width(5)), (8192, 1024));
    }

    #[test]
    fn per_layer_keys_give_the_same_config() {
        let layers: String = [5, 11, 17, 23, 29]
            .map(|i| format!(r#""{i}":{{"head_dim":512,"num_key_value_heads":2}}"#))
            .join(",");
        let saved = PUBLISHED.replace(
            r#""global_head_dim":512,
        "num_global_key_value_heads":2"#,
            &format!(r#""per_layer_config":{{{layers}}}"#),
        );
        assert_ne!(saved, PUBLISHED);
        assert_eq!(Config::from_json(&saved).unwrap(), Config::from_json(PUBLISHED).unwrap());
    }

    #[test]
    fn what_is_not_computed_here_is_refused_by_name() {
        for (from, to, names) in [
            ("diffusion_gemma", "llama", "llama"),
            ("\"vision\"", "\"all\"", "all"),
            ("\"top_k_experts\":8", "\"top_k_experts\":129", "129"),
            ("\"num_experts\":128,", "", "num_experts"),
            ("\"canvas_length\":256", "\"canvas_length\":1000000000", "1000000000"),
            ("\"sliding_window\":1024", "\"sliding_window\":1024,\"rms_norm_eps\":-1", "rms_norm_eps"),
            ("\"sliding_window\":1024", "\"sliding_window\":1024,\"attention_bias\":true", "attention_bias"),
            ("\"sliding_window\":1024", "\"sliding_window\":1024,\"hidden_activation\":\"silu\"", "silu"),
            (
                "\"sliding_window\":1024",
                "\"sliding_window\":1024,\"rope_parameters\":{\"full_attention\":{\"partial_rotary_factor\":1.5}}",
                "partial_rotary_factor of full layers is 1.5",
            ),
            (
                "\"sliding_window\":1024",
                "\"sliding_window\":1024,\"rope_parameters\":{\"sliding_attention\":{\"partial_rotary_factor\":0}}",
                "partial_rotary_factor of sliding layers is 0",
            ),
            ("\"num_key_value_heads\":8", "\"num_key_value_heads\":3", "3 key heads"),
        ] {
            let error = Config::from_json(&PUBLISHED.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(names), "{error}");
        }
    }
}
