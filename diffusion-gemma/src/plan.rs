//! What a model will take in memory, before anything is allocated: weights, keys and values, workspace.
//!
//! The forms of the weights are those that `load.rs` will choose, from shapes alone; the rest follows `kv.rs`, `forward.rs` and
//! the head's tiles. Used by the server at start and by its `plan`.

use std::fmt;
use std::path::Path;

use candle_core::quantized::GgmlDType;

use crate::config::{Attention, Config};
use crate::cpu::PackedBlocks;
use crate::error::Result;
use crate::load::{Form, LoadOptions, Role};
use crate::weights::{Class, Inventory, Profile, Report, Row, tensors};

/// config.json of DiffusionGemma 26B-A4B, as far as shapes follow from it.
const PUBLISHED: &str = r#"{"model_type":"diffusion_gemma","canvas_length":256,"text_config":{"vocab_size":262144,
    "hidden_size":2816,"intermediate_size":2112,"moe_intermediate_size":704,"num_experts":128,"top_k_experts":8,
    "num_hidden_layers":30,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":256,"global_head_dim":512,
    "num_global_key_value_heads":2,"sliding_window":1024,"max_position_embeddings":262144}}"#;

/// Its layers.
pub const PUBLISHED_LAYERS: usize = 30;

/// What is to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Most tokens of a sequence.
    pub context_tokens: usize,
    /// Sequences of that length at a time.
    pub sequences: usize,
    /// Most rows of a pass.
    pub pass_rows: usize,
    /// Bytes of encoded prompts that are kept for reuse.
    pub prefix_cache_bytes: u64,
}

/// Bytes of everything.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryPlan {
    demand: Demand,
    weights: Report,
    /// Keys and values of a token in all full layers, which keep every token.
    pub full_bytes_per_token: u64,
    /// Keys and values of a token in all sliding layers.
    pub sliding_bytes_per_token: u64,
    /// Tokens that a sliding layer keeps of one sequence at most.
    pub sliding_tokens: usize,
    /// A pass that lengthens a prompt holds its keys and values twice: those before and those after.
    pub growth_bytes: u64,
    pub workspace_bytes: u64,
}

impl MemoryPlan {
    /// For the checkpoint in a folder. Reads headers only.
    pub fn of_checkpoint(dir: &Path, options: &LoadOptions, demand: Demand) -> Result<Self> {
        let config = Config::from_dir(dir)?;
        let inventory = Inventory::open(dir)?;
        tensors::check(&inventory, &config)?;
        Ok(Self::new(&config, &tensors::of_inventory(&inventory), options, demand))
    }

    /// For the published 26B model, in bf16 or as a pack; nothing has to be there.
    pub fn of_published(profile: Option<Profile>, options: &LoadOptions, demand: Demand) -> Result<Self> {
        let config = Config::from_json(PUBLISHED)?;
        Ok(Self::new(&config, &tensors::of_profile(&config, profile), options, demand))
    }

    fn new(config: &Config, planned: &[tensors::Planned], options: &LoadOptions, demand: Demand) -> Self {
        let kernels = options.on_kernels();
        let mut weights = Report::default();
        for tensor in planned {
            let (width, outer) = tensor.shape.split_last().map_or((1, &[][..]), |(w, outer)| (*w, outer));
            let (form, to_bytes) = if tensor.shape.len() < 2 {
                ("f32".to_owned(), 4 * width as u64)
            } else {
                let layers = matches!(tensor.class, Class::Attention | Class::DenseFfn | Class::Experts);
                let role = if layers { Role::Layer } else { Role::Kept };
                let form = options.form(Some(tensor.encoding), width, role);
                // Matrices of a stack are kept one by one.
                let (count, rows) = match outer {
                    [count, rows] => (*count, *rows),
                    _ => (1, outer.iter().product()),
                };
                (form.name(kernels), (count * form.bytes(kernels, rows, width)) as u64)
            };
            let row = Row { tensors: 1, from_bytes: tensor.bytes, to_bytes, deviation: None };
            weights.add(tensor.class, tensor.encoding.name(), form, row);
        }
        let number = options.activations().size_in_bytes() as u64;
        let per_token = |kind: Attention| -> u64 {
            let layers = (0..config.layers.len()).filter(|i| config.layers[*i].attention == kind);
            layers.map(|i| 2 * config.kv_width(i) as u64 * number).sum()
        };
        let rows = demand.pass_rows.min(demand.context_tokens);
        // A window of slack is kept before old rows are dropped, and a pass adds its own.
        let sliding_tokens = (2 * config.sliding_window + rows).min(demand.context_tokens);
        let mut plan = Self {
            demand,
            weights,
            full_bytes_per_token: per_token(Attention::Full),
            sliding_bytes_per_token: per_token(Attention::Sliding),
            sliding_tokens,
            growth_bytes: 0,
            workspace_bytes: workspace(config, options, demand),
        };
        plan.growth_bytes = plan.kv_bytes() / demand.sequences.max(1) as u64;
        plan
    }

    /// Of the weights as they are kept, class by class.
    pub fn weights(&self) -> &Report {
        &self.weights
    }

    /// Keys and values of all sequences.
    pub fn kv_bytes(&self) -> u64 {
        let of_one = self.full_bytes_per_token * self.demand.context_tokens as u64
            + self.sliding_bytes_per_token * self.sliding_tokens as u64;
        of_one * self.demand.sequences as u64
    }

    /// Everything together.
    pub fn total_bytes(&self) -> u64 {
        self.weights.bytes()
            + self.kv_bytes()
            + self.growth_bytes
            + self.demand.prefix_cache_bytes
            + self.workspace_bytes
    }
}

/// The widest moment of a pass: rows of activations in a layer, scores of attention where no kernel streams them, a tile of the
/// head.
fn workspace(config: &Config, options: &LoadOptions, demand: Demand) -> u64 {
    let rows = demand.pass_rows as u64;
    let width = |i: usize| (2 * config.query_width(i) + 2 * config.kv_width(i)) as u64;
    let attention = (0..config.layers.len()).map(width).max().unwrap_or(0);
    let dense = 3 * config.intermediate_size as u64;
    let experts = (config.top_k_experts * (config.hidden_size + 3 * config.moe_intermediate_size)) as u64;
    let number = size_of::<f32>() as u64;
    // Residual, normed rows, branches and their sum.
    let layer = rows * (6 * config.hidden_size as u64 + attention.max(dense).max(experts)) * number;
    let scores = if options.on_kernels() {
        0
    } else {
        // Scores, their exponentials and the shares of one block of rows; heads and keys in full.
        3 * rows.min(512) * (config.num_attention_heads * demand.context_tokens) as u64 * number
    };
    let tile = (config.canvas_length * config.vocab_size).min(1 << 25) as u64 * number;
    layer + scores + 2 * tile
}

impl Form {
    /// Blocks of the tensor library in this form.
    fn blocks(self) -> Option<GgmlDType> {
        match self {
            Self::Quantised(quant) => Some(quant.format()),
            Self::Blocks(blocks) => Some(blocks),
            Self::Packed | Self::Plain(_) => None,
        }
    }

    /// As `Linear::form` names it. `kernels`: whether the CPU's kernels will take blocks over.
    fn name(self, kernels: bool) -> String {
        match (self.blocks(), self) {
            (Some(blocks), _) => match taken_over(blocks, kernels) {
                Some(four) => format!("{} bits", if four { 4 } else { 8 }),
                None => format!("{blocks:?}").to_lowercase(),
            },
            (None, Self::Plain(dtype)) => dtype.as_str().to_owned(),
            (None, _) => "bf16".to_owned(),
        }
    }

    /// Bytes of a matrix in this form.
    fn bytes(self, kernels: bool, rows: usize, inputs: usize) -> usize {
        match (self.blocks(), self) {
            (Some(blocks), _) => match taken_over(blocks, kernels) {
                Some(four) => PackedBlocks::planned_bytes(four, rows, inputs),
                None => rows * inputs / blocks.block_size() * blocks.type_size(),
            },
            (None, Self::Plain(dtype)) => rows * inputs * dtype.size_in_bytes(),
            // Panels of 32 outputs, lines of 32 inputs.
            (None, _) => rows.next_multiple_of(32) * inputs.next_multiple_of(32) * 2,
        }
    }
}

/// Whether the CPU's kernels take these blocks, and as 4 bits.
fn taken_over(blocks: GgmlDType, kernels: bool) -> Option<bool> {
    match blocks {
        GgmlDType::Q8_0 if kernels => Some(false),
        GgmlDType::Q4_0 | GgmlDType::Q4_1 | GgmlDType::Q4K if kernels => Some(true),
        _ => None,
    }
}

/// Bytes as people read them.
#[derive(Debug, Clone, Copy)]
pub struct Gib(pub u64);

impl fmt::Display for Gib {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.2} GiB", self.0 as f64 / f64::from(1 << 30))
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Demand { context_tokens, sequences, pass_rows, prefix_cache_bytes } = self.demand;
        let mut line = |what: &str, bytes: u64, note: String| {
            writeln!(out, "{what:<22} {:>12}  {note}", Gib(bytes).to_string())
        };
        let mut classes: Vec<(Class, u64)> = Vec::new();
        for (class, _, _, row) in self.weights.rows() {
            match classes.last_mut().filter(|(last, _)| *last == class) {
                Some((_, bytes)) => *bytes += row.to_bytes,
                None => classes.push((class, row.to_bytes)),
            }
        }
        let large = classes.iter().filter(|(_, bytes)| bytes * 1000 >= self.weights.bytes());
        let classes: Vec<String> =
            large.map(|(class, bytes)| format!("{} {}", class.name(), Gib(*bytes))).collect();
        line("weights", self.weights.bytes(), classes.join(", "))?;
        let (full, sliding) = (self.full_bytes_per_token, self.sliding_bytes_per_token);
        let note = format!(
            "{sequences} × {context_tokens} tokens at {} KiB in full layers, {} at {} KiB in sliding ones",
            full / 1024,
            self.sliding_tokens,
            sliding / 1024
        );
        line("keys and values", self.kv_bytes(), note)?;
        line("growing a prompt", self.growth_bytes, "a pass holds the old ones and the new ones".to_owned())?;
        line("prefix cache", prefix_cache_bytes, "--prefix-cache-mib".to_owned())?;
        line("workspace", self.workspace_bytes, format!("{pass_rows} rows a pass, and tiles of the head"))?;
        line("together", self.total_bytes(), String::new())
    }
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;

    const DEMAND: Demand =
        Demand { context_tokens: 32_768, sequences: 1, pass_rows: 2048, prefix_cache_bytes: 0 };

    #[test]
    fn the_published_pack_has_the_bytes_of_its_description() {
        let config = Config::from_json(PUBLISHED).unwrap();
        let bytes = |profile: Option<Profile>, class: Option<Class>| -> f64 {
            let planned = tensors::of_profile(&config, profile);
            let own = planned.iter().filter(|one| class.is_none_or(|class| one.class == class));
            own.map(|one| one.bytes).sum::<u64>() as f64 / f64::from(1 << 30)
        };
        let q4 = Some(Profile::Q4);
        for (class, gib) in [
            (None, 17.771),
            (Some(Class::Experts), 13.293),
            (Some(Class::Attention), 2.068),
            (Some(Class::Embedding), 1.375),
            (Some(Class::DenseFfn), 0.997),
            (Some(Class::SelfConditioning), 0.0166),
        ] {
            assert!((bytes(q4, class) - gib).abs() < 0.001, "{class:?}: {}", bytes(q4, class));
        }
        assert!((bytes(None, None) - 47.0).abs() < 1.0, "{}", bytes(None, None));
    }

    #[test]
    fn keys_and_values_of_the_published_model_take_what_its_heads_say() {
        let options = LoadOptions::cpu(DType::BF16);
        let plan = MemoryPlan::of_published(Some(Profile::Q4), &options, DEMAND).unwrap();
        let number = options.activations().size_in_bytes() as u64;
        // 5 full layers with 2 heads of 512, 25 sliding ones with 8 of 256; keys and values.
        assert_eq!(plan.full_bytes_per_token, 5 * 2 * 2 * 512 * number);
        assert_eq!(plan.sliding_bytes_per_token, 25 * 2 * 8 * 256 * number);
        let shorter = Demand { context_tokens: 16_384, ..DEMAND };
        let shorter = MemoryPlan::of_published(Some(Profile::Q4), &options, shorter).unwrap();
        assert_eq!(plan.kv_bytes() - shorter.kv_bytes(), 16_384 * plan.full_bytes_per_token);
        let two =
            MemoryPlan::of_published(Some(Profile::Q4), &options, Demand { sequences: 2, ..DEMAND }).unwrap();
        assert_eq!(two.kv_bytes(), 2 * plan.kv_bytes());
    }
}
