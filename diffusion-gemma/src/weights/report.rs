//! What loading did to the weights: per class of tensor the encoding in the checkpoint, the form in memory, bytes, and the error
//! of getting from one to the other.
//!
//! Filled by `load.rs` and `quantize.rs`, printed by the server at start and by its subcommands.

use std::collections::BTreeMap;
use std::fmt;

/// What a tensor is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Embedding,
    Attention,
    DenseFfn,
    Experts,
    SelfConditioning,
    Router,
    Norms,
    Vision,
    Other,
}

impl Class {
    /// By the tensor's name in the checkpoint.
    pub fn of(name: &str) -> Self {
        let has = |part: &str| name.contains(part);
        match () {
            () if has("vision_tower") || has("embed_vision") => Self::Vision,
            () if has(".router.") => Self::Router,
            () if has("norm") || has("layer_scalar") => Self::Norms,
            () if has("embed_tokens") || has("lm_head") => Self::Embedding,
            () if has("self_conditioning") => Self::SelfConditioning,
            () if has(".experts.") => Self::Experts,
            () if has(".self_attn.") => Self::Attention,
            () if has(".mlp.") => Self::DenseFfn,
            () => Self::Other,
        }
    }

    /// Name as it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Attention => "attention",
            Self::DenseFfn => "dense ffn",
            Self::Experts => "experts",
            Self::SelfConditioning => "self-conditioning",
            Self::Router => "router",
            Self::Norms => "norms, scalars",
            Self::Vision => "vision",
            Self::Other => "other",
        }
    }
}

/// How far numbers are from those they were made of.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Deviation {
    squares: f64,
    squared_errors: f64,
    largest: f64,
}

impl Deviation {
    /// Adds `found`, made of `wanted`.
    pub fn add(&mut self, wanted: &[f32], found: &[f32]) {
        for (wanted, found) in wanted.iter().zip(found) {
            let (wanted, error) = (f64::from(*wanted), f64::from(found - wanted).abs());
            self.squares += wanted * wanted;
            self.squared_errors += error * error;
            self.largest = self.largest.max(error);
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.squares += other.squares;
        self.squared_errors += other.squared_errors;
        self.largest = self.largest.max(other.largest);
    }

    /// Root of the mean squared error over the root of the mean square.
    pub fn relative(&self) -> f64 {
        if self.squares > 0.0 { (self.squared_errors / self.squares).sqrt() } else { 0.0 }
    }

    /// Largest error of one weight.
    pub fn largest(&self) -> f64 {
        self.largest
    }
}

/// What became of the tensors of one class that are stored alike.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Row {
    pub tensors: usize,
    pub from_bytes: u64,
    pub to_bytes: u64,
    /// `None` where nothing was rounded.
    pub deviation: Option<Deviation>,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    rows: BTreeMap<(Class, String, String), Row>,
}

impl Report {
    pub(crate) fn add(&mut self, class: Class, from: impl Into<String>, to: impl Into<String>, row: Row) {
        let sum = self.rows.entry((class, from.into(), to.into())).or_default();
        sum.tensors += row.tensors;
        sum.from_bytes += row.from_bytes;
        sum.to_bytes += row.to_bytes;
        if let Some(deviation) = row.deviation {
            sum.deviation.get_or_insert_default().merge(deviation);
        }
    }

    /// Class, encoding before, form after, and what happened, class by class.
    pub fn rows(&self) -> impl Iterator<Item = (Class, &str, &str, &Row)> {
        self.rows.iter().map(|((class, from, to), row)| (*class, from.as_str(), to.as_str(), row))
    }

    /// Bytes of everything after.
    pub fn bytes(&self) -> u64 {
        self.rows.values().map(|row| row.to_bytes).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "{:<18} {:>7} {:<11} {:>10} {:<9} {:>10} {:>10} {:>10}",
            "class", "tensors", "stored", "MiB", "kept", "MiB", "rel. error", "largest"
        )?;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        for (class, from, to, row) in self.rows() {
            let (relative, largest) = row.deviation.map_or(("0".into(), "0".into()), |d| {
                (format!("{:.2e}", d.relative()), format!("{:.2e}", d.largest()))
            });
            writeln!(
                out,
                "{:<18} {:>7} {from:<11} {:>10.2} {to:<9} {:>10.2} {relative:>10} {largest:>10}",
                class.name(),
                row.tensors,
                mib(row.from_bytes),
                mib(row.to_bytes)
            )?;
        }
        Ok(())
    }
}
