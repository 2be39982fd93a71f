//! What a model will take in memory, before anything is allocated, device by device: weights, keys and values, workspace.
//!
//! The forms of the weights are those that `load.rs` will choose (`form.rs`), from shapes alone; the rest follows `kv.rs`,
//! `forward.rs` and the head's tiles. Used by the server at start and by its `plan`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::config::{Attention, Config};
use crate::error::Result;
use crate::form::{Compute, Role};
use crate::ops;
use crate::weights::tensors::{self, Planned};
use crate::weights::{Class, Encoding, Inventory, Profile, Report, Row};

/// config.json of DiffusionGemma 26B-A4B, as far as shapes follow from it.
const PUBLISHED: &str = r#"{"model_type":"diffusion_gemma","canvas_length":256,"text_config":{"vocab_size":262144,
    "hidden_size":2816,"intermediate_size":2112,"moe_intermediate_size":704,"num_experts":128,"top_k_experts":8,
    "num_hidden_layers":30,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":256,"global_head_dim":512,
    "num_global_key_value_heads":2,"sliding_window":1024,"max_position_embeddings":262144}}"#;

/// What is to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Most tokens of a sequence.
    pub context_tokens: usize,
    /// Most sequences at a time.
    pub sequences: usize,
    /// No sequence is begun while those in progress have this many tokens; `usize::MAX`: all may be of full length.
    pub admitted_tokens: usize,
    /// Most rows of a pass.
    pub pass_rows: usize,
    /// Bytes of encoded prompts that are kept for reuse.
    pub prefix_cache_bytes: u64,
}

impl Demand {
    /// Tokens of all sequences where one has `each` at most: the last is begun when the others are just below the limit.
    fn tokens(&self, each: usize) -> u64 {
        let others = self.sequences.saturating_sub(1).saturating_mul(each);
        (others.min(self.admitted_tokens) + each) as u64
    }
}

/// A model as a plan sees it: shapes and encodings.
#[derive(Debug, Clone, PartialEq)]
pub struct Blueprint {
    config: Config,
    tensors: Vec<Planned>,
}

impl Blueprint {
    /// Of the checkpoint in a folder. Reads headers only.
    pub fn of_checkpoint(dir: &Path) -> Result<Self> {
        let config = Config::from_dir(dir)?;
        let inventory = Inventory::open(dir)?;
        tensors::check(&inventory, &config)?;
        Ok(Self { config, tensors: tensors::of_inventory(&inventory) })
    }

    /// Of the published 26B model, in bf16 or as a pack; nothing has to be there.
    pub fn of_published(profile: Option<Profile>) -> Result<Self> {
        let config = Config::from_json(PUBLISHED)?;
        let tensors = tensors::of_profile(&config, profile);
        Ok(Self { config, tensors })
    }

    /// The architecture.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it takes. `places`: the number of each layer's device, 0 where that has embedding and head; those missing are 0.
    pub fn plan(&self, compute: Compute, places: &[usize], demand: Demand) -> MemoryPlan {
        let place =
            |layer: Option<usize>| layer.and_then(|layer| places.get(layer)).map_or(0, |place| *place);
        let count = 1 + places.iter().copied().max().unwrap_or(0);
        let mut devices = vec![DevicePlan::default(); count];
        let mut weights = Report::default();
        for stack in self.stacks() {
            let first = stack[0];
            let encodings: Vec<Encoding> = stack.iter().flat_map(|one| one.encodings.clone()).collect();
            let (form, to_bytes) = weight(first, &stack, &encodings, compute);
            let from_bytes = stack.iter().map(|one| one.bytes).sum();
            let row = Row { tensors: stack.len(), from_bytes, to_bytes, deviation: None };
            weights.add(first.class, Encoding::names(&encodings), form, row);
            devices[place(first.layer)].weights += to_bytes;
        }
        let number = compute.activations().size_in_bytes() as u64;
        let config = &self.config;
        let rows = demand.pass_rows.min(demand.context_tokens);
        // A window of slack is kept before old rows are dropped, and a pass adds its own.
        let sliding_tokens = (2 * config.sliding_window + rows).min(demand.context_tokens);
        let (mut full_bytes, mut sliding_bytes) = (0, 0);
        for (i, layer) in config.layers.iter().enumerate() {
            let per_token = 2 * config.kv_width(i) as u64 * number;
            let (each, sum) = match layer.attention {
                Attention::Full => (demand.context_tokens, &mut full_bytes),
                Attention::Sliding => (sliding_tokens, &mut sliding_bytes),
            };
            *sum += per_token;
            let device = &mut devices[place(Some(i))];
            device.kv += demand.tokens(each) * per_token;
            device.growth += each as u64 * per_token;
        }
        let kv: u64 = devices.iter().map(|device| device.kv).sum();
        for device in &mut devices {
            // Kept prompts lie where the layers are.
            let share = u128::from(demand.prefix_cache_bytes) * u128::from(device.kv) / u128::from(kv.max(1));
            device.prefix_cache = share as u64;
            device.workspace = workspace(config, compute, demand);
        }
        devices[0].workspace += 2 * (config.canvas_length * config.vocab_size).min(1 << 25) as u64 * 4;
        MemoryPlan {
            demand,
            weights,
            devices,
            full_bytes_per_token: full_bytes,
            sliding_bytes_per_token: sliding_bytes,
            sliding_tokens,
        }
    }

    /// Tensors that loading stacks to one matrix, together.
    fn stacks(&self) -> Vec<Vec<&Planned>> {
        let mut stacks: BTreeMap<String, Vec<&Planned>> = BTreeMap::new();
        for tensor in &self.tensors {
            stacks.entry(tensors::stack_of(&tensor.name)).or_default().push(tensor);
        }
        stacks.into_values().collect()
    }
}

/// Form and bytes of what a stack of tensors becomes.
fn weight(first: &Planned, stack: &[&Planned], encodings: &[Encoding], compute: Compute) -> (String, u64) {
    let (width, outer) = first.shape.split_last().map_or((1, &[][..]), |(width, outer)| (*width, outer));
    if first.shape.len() < 2 {
        return ("f32".to_owned(), 4 * width as u64);
    }
    let layers = matches!(first.class, Class::Attention | Class::DenseFfn | Class::Experts);
    let form = compute.form(encodings, width, if layers { Role::Layer } else { Role::Kept });
    // Matrices of a stack of experts are kept one by one.
    let (count, rows) = match outer {
        [count, rows] => (*count, *rows),
        _ => (1, stack.iter().map(|one| one.shape[0]).sum()),
    };
    (compute.name(form), (count * compute.bytes(form, rows, width)) as u64)
}

/// The widest moment of a pass on a device: rows of activations in a layer, and scores of attention where no kernel streams
/// them.
fn workspace(config: &Config, compute: Compute, demand: Demand) -> u64 {
    let rows = demand.pass_rows as u64;
    let width = |i: usize| (2 * config.query_width(i) + 2 * config.kv_width(i)) as u64;
    let attention = (0..config.layers.len()).map(width).max().unwrap_or(0);
    let dense = 3 * config.intermediate_size as u64;
    let experts = (config.top_k_experts * (config.hidden_size + 3 * config.moe_intermediate_size)) as u64;
    let number = size_of::<f32>() as u64;
    // Residual, normed rows, branches and their sum.
    let layer = rows * (6 * config.hidden_size as u64 + attention.max(dense).max(experts)) * number;
    let scores = if compute.on_kernels() {
        0
    } else {
        // Scores, with their mask, and the shares that they become.
        let (heads, keys) = (config.num_attention_heads, demand.context_tokens + config.canvas_length);
        3 * (ops::score_rows(demand.pass_rows, heads, keys) * heads * keys) as u64 * number
    };
    layer + scores
}

/// Bytes on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DevicePlan {
    pub weights: u64,
    /// Keys and values of all sequences.
    pub kv: u64,
    /// A pass that lengthens a prompt holds its keys and values twice: those before and those after.
    pub growth: u64,
    pub prefix_cache: u64,
    pub workspace: u64,
}

impl DevicePlan {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights + self.kv + self.growth + self.prefix_cache + self.workspace
    }
}

/// Bytes of everything.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryPlan {
    demand: Demand,
    weights: Report,
    devices: Vec<DevicePlan>,
    /// Keys and values of a token in all full layers, which keep every token.
    pub full_bytes_per_token: u64,
    /// Keys and values of a token in all sliding layers.
    pub sliding_bytes_per_token: u64,
    /// Tokens that a sliding layer keeps of one sequence at most.
    pub sliding_tokens: usize,
}

impl MemoryPlan {
    /// Of the weights as they are kept, class by class.
    pub fn weights(&self) -> &Report {
        &self.weights
    }

    /// Device by device, in the order of their numbers.
    pub fn devices(&self) -> &[DevicePlan] {
        &self.devices
    }

    /// All devices together.
    pub fn together(&self) -> DevicePlan {
        self.devices.iter().fold(DevicePlan::default(), |sum, one| DevicePlan {
            weights: sum.weights + one.weights,
            kv: sum.kv + one.kv,
            growth: sum.growth + one.growth,
            prefix_cache: sum.prefix_cache + one.prefix_cache,
            workspace: sum.workspace + one.workspace,
        })
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
        let Demand { context_tokens, sequences, admitted_tokens, pass_rows, .. } = self.demand;
        let together = self.together();
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
        line("weights", together.weights, classes.join(", "))?;
        let full_tokens = self.demand.tokens(context_tokens);
        let who = if admitted_tokens == usize::MAX {
            format!("{sequences} × {context_tokens} tokens")
        } else {
            format!("{full_tokens} tokens of at most {sequences} sequences")
        };
        let note = format!(
            "{who} at {} KiB in full layers, {} at {} KiB in sliding ones",
            self.full_bytes_per_token / 1024,
            self.demand.tokens(self.sliding_tokens),
            self.sliding_bytes_per_token / 1024
        );
        line("keys and values", together.kv, note)?;
        line("growing a prompt", together.growth, "a pass holds the old ones and the new ones".to_owned())?;
        line("prefix cache", together.prefix_cache, "--prefix-cache-mib".to_owned())?;
        line("workspace", together.workspace, format!("{pass_rows} rows a pass, and tiles of the head"))?;
        line("together", together.total(), String::new())
    }
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;

    const DEMAND: Demand = Demand {
        context_tokens: 32_768,
        sequences: 1,
        admitted_tokens: usize::MAX,
        pass_rows: 2048,
        prefix_cache_bytes: 1 << 30,
    };
    const COMPUTE: Compute = Compute { dtype: DType::BF16, quant: None, on_cpu: true };

    fn published() -> Blueprint {
        Blueprint::of_published(Some(Profile::Q4)).unwrap()
    }

    fn plan(demand: Demand) -> MemoryPlan {
        published().plan(COMPUTE, &[], demand)
    }

    #[test]
    fn the_published_pack_has_the_bytes_of_its_description() {
        let bytes = |profile: Option<Profile>, class: Option<Class>| -> f64 {
            let planned = Blueprint::of_published(profile).unwrap().tensors;
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
        let one = plan(DEMAND);
        let number = COMPUTE.activations().size_in_bytes() as u64;
        // 5 full layers with 2 heads of 512, 25 sliding ones with 8 of 256; keys and values.
        assert_eq!(one.full_bytes_per_token, 5 * 2 * 2 * 512 * number);
        assert_eq!(one.sliding_bytes_per_token, 25 * 2 * 8 * 256 * number);
        let shorter = plan(Demand { context_tokens: 16_384, ..DEMAND });
        assert_eq!(one.together().kv - shorter.together().kv, 16_384 * one.full_bytes_per_token);
        let two = plan(Demand { sequences: 2, ..DEMAND });
        assert_eq!(two.together().kv, 2 * one.together().kv);
        assert_eq!(two.together().growth, one.together().growth);
    }

    #[test]
    fn keys_and_values_are_planned_for_all_that_the_scheduler_lets_run() {
        let served = plan(Demand { sequences: 64, admitted_tokens: 16_384, ..DEMAND });
        // The last one begins when the others have nearly 16384 tokens, and may have a context of its own; of the others sliding
        // layers hold every token, since they may all be short.
        let window = served.sliding_tokens as u64;
        assert_eq!(window, 2 * 1024 + 2048);
        let wanted = (16_384 + 32_768) * served.full_bytes_per_token
            + (16_384 + window) * served.sliding_bytes_per_token;
        assert_eq!(served.together().kv, wanted);
        // Few sequences cannot fill the limit: then each has a window of its own.
        let three = plan(Demand { sequences: 3, admitted_tokens: 1 << 20, ..DEMAND });
        let wanted = 3 * (32_768 * three.full_bytes_per_token + window * three.sliding_bytes_per_token);
        assert_eq!(three.together().kv, wanted);
        assert!(served.to_string().contains("49152 tokens of at most 64 sequences"), "{served}");
    }

    #[test]
    fn layers_are_counted_where_they_are() {
        let blueprint = published();
        let whole = blueprint.plan(COMPUTE, &[], DEMAND);
        let places: Vec<usize> = (0..30).map(|layer| usize::from(layer >= 20)).collect();
        let split = blueprint.plan(COMPUTE, &places, DEMAND);
        let [first, second] = split.devices() else { panic!("{split:?}") };
        assert_eq!(first.weights + second.weights, whole.together().weights);
        assert_eq!(first.kv + second.kv, whole.together().kv);
        assert_eq!(first.growth + second.growth, whole.together().growth);
        let cached = first.prefix_cache + second.prefix_cache;
        assert!((DEMAND.prefix_cache_bytes - 1..=DEMAND.prefix_cache_bytes).contains(&cached), "{cached}");
        // A third of the layers without embedding and head, and two of the five full ones.
        let experts = whole.weights().rows().filter(|(class, ..)| *class == Class::Experts);
        let experts: u64 = experts.map(|(_, _, _, row)| row.to_bytes).sum();
        assert!(second.weights > experts / 3 && second.weights < whole.together().weights / 3);
        assert!(second.workspace > 0 && second.workspace < first.workspace, "each device runs a pass");
    }
}
