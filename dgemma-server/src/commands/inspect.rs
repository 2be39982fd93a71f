//! `dgemma-server inspect`: what a checkpoint is made of, from its headers alone.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use diffusion_gemma::weights::{Class, Encoding, Inventory};

use super::print;
use crate::error::Error;

/// Tensors of one class in one encoding.
#[derive(Default)]
struct Sum {
    tensors: usize,
    weights: u64,
    bytes: u64,
}

/// Prints format and classes, or with `tensors` every tensor.
pub fn run(dir: &Path, tensors: bool) -> Result<(), Error> {
    let inventory = Inventory::open(dir)?;
    print(if tensors { every_tensor(&inventory) } else { summary(&inventory) })
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn summary(inventory: &Inventory) -> String {
    let mut sums: BTreeMap<(Class, Encoding), Sum> = BTreeMap::new();
    for one in inventory.tensors() {
        let sum = sums.entry((one.class, one.encoding)).or_default();
        sum.tensors += 1;
        sum.weights += one.shape.iter().map(|dim| *dim as u64).product::<u64>();
        sum.bytes += one.bytes;
    }
    let mut out = format!("{}, {:.2} MiB\n", inventory.format(), mib(inventory.file_bytes()));
    let _ = writeln!(
        out,
        "{:<18} {:<9} {:>7} {:>15} {:>11} {:>12}",
        "class", "stored", "tensors", "weights", "MiB", "bits/weight"
    );
    for ((class, encoding), sum) in sums {
        let _ = writeln!(
            out,
            "{:<18} {:<9} {:>7} {:>15} {:>11.2} {:>12.2}",
            class.name(),
            encoding.name(),
            sum.tensors,
            sum.weights,
            mib(sum.bytes),
            sum.bytes as f64 * 8.0 / sum.weights as f64
        );
    }
    out
}

fn every_tensor(inventory: &Inventory) -> String {
    let mut out = String::new();
    for one in inventory.tensors() {
        let _ = writeln!(out, "{}\t{}\t{:?}\t{}", one.name, one.encoding.name(), one.shape, one.bytes);
    }
    out
}
