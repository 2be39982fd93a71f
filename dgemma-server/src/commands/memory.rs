//! The memory plan: printed by `plan` and at every start, before anything is allocated; what does not fit is refused with the
//! flags that would make it fit.

use std::path::Path;

use diffusion_gemma::weights::Profile;
use diffusion_gemma::{Demand, Gib, MemoryPlan, Quant};

use super::print;
use crate::cli::{Arguments, Published};
use crate::engine::diffusion::{self, OpenOptions};
use crate::error::Error;

/// Share of the memory that stays free: for the system, and for what no plan knows.
const FREE_SHARE: f64 = 0.1;

/// Prints the plan and what the memory says to it; what does not fit is an error.
pub fn run(arguments: &Arguments, sequences: usize, published: Option<Published>) -> Result<(), Error> {
    let plan = |options: &OpenOptions| match published {
        None => of_checkpoint(options, sequences),
        Some(model) => of_published(options, model.profile(), sequences),
    };
    let dir = if published.is_some() { Ok(Path::new("").to_owned()) } else { arguments.checkpoint() };
    let options = arguments.open_options(dir?);
    let found = plan(&options)?;
    print(&found)?;
    let limit = Limit::of_machine(arguments.model.memory_gib);
    limit.check(&found, &options, plan)?;
    print(format_args!("{limit}; it fits\n"))
}

/// Logs the plan of a checkpoint and refuses one that does not fit. `memory_gib`: what to assume instead of asking the system.
pub fn check(options: &OpenOptions, memory_gib: Option<f64>) -> Result<(), Error> {
    let plan = |options: &OpenOptions| of_checkpoint(options, 1);
    let found = plan(options)?;
    let limit = Limit::of_machine(memory_gib);
    for line in found.to_string().lines() {
        tracing::info!("memory: {line}");
    }
    tracing::info!("memory: {limit}");
    limit.check(&found, options, plan)
}

fn of_checkpoint(options: &OpenOptions, sequences: usize) -> Result<MemoryPlan, Error> {
    let config = diffusion_gemma::Config::from_dir(&options.dir)?;
    let demand = demand(options, diffusion::context_tokens(options, &config)?, sequences);
    Ok(MemoryPlan::of_checkpoint(&options.dir, &options.load_options(config.layers.len())?, demand)?)
}

fn of_published(
    options: &OpenOptions,
    profile: Option<Profile>,
    sequences: usize,
) -> Result<MemoryPlan, Error> {
    let context_tokens = options.context_tokens.unwrap_or(diffusion::DEFAULT_CONTEXT_TOKENS);
    let demand = demand(options, context_tokens, sequences);
    Ok(MemoryPlan::of_published(profile, &options.load_options(diffusion_gemma::PUBLISHED_LAYERS)?, demand)?)
}

fn demand(options: &OpenOptions, context_tokens: usize, sequences: usize) -> Demand {
    let prefix_cache_bytes = options.prefix_cache_bytes as u64;
    Demand { context_tokens, sequences, pass_rows: options.pass_rows, prefix_cache_bytes }
}

/// Memory that a plan may take.
struct Limit {
    bytes: u64,
    what: &'static str,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "{} {}, {:.0} % of which stay free: {}",
            Gib(self.bytes),
            self.what,
            100.0 * FREE_SHARE,
            Gib(self.usable())
        )
    }
}

impl Limit {
    fn of_machine(memory_gib: Option<f64>) -> Self {
        match memory_gib {
            Some(gib) => Self { bytes: (gib * f64::from(1 << 30)) as u64, what: "by --memory-gib" },
            None => available(),
        }
    }

    fn usable(&self) -> u64 {
        (self.bytes as f64 * (1.0 - FREE_SHARE)) as u64
    }

    fn check(
        &self,
        found: &MemoryPlan,
        options: &OpenOptions,
        plan: impl Fn(&OpenOptions) -> Result<MemoryPlan, Error>,
    ) -> Result<(), Error> {
        if found.total_bytes() <= self.usable() {
            return Ok(());
        }
        Err(Error::Memory {
            needed: found.total_bytes(),
            weights: found.weights().bytes(),
            kv: found.kv_bytes() + found.growth_bytes,
            limit: self.to_string(),
            advice: self.advice(options, plan),
        })
    }

    /// The least change of flags that makes it fit.
    fn advice(
        &self,
        options: &OpenOptions,
        plan: impl Fn(&OpenOptions) -> Result<MemoryPlan, Error>,
    ) -> String {
        let context = options.context_tokens.unwrap_or(diffusion::DEFAULT_CONTEXT_TOKENS);
        let contexts: Vec<usize> = std::iter::successors(Some(context), |tokens| Some(tokens / 2))
            .take_while(|tokens| *tokens >= 1024)
            .collect();
        for (quant, flag) in
            [(options.quant, ""), (Some(Quant::Q8_0), " --quant q8_0"), (Some(Quant::Q4K), " --quant q4k")]
        {
            for tokens in &contexts {
                for cache in [options.prefix_cache_bytes, 0] {
                    let changed = OpenOptions {
                        quant,
                        context_tokens: Some(*tokens),
                        prefix_cache_bytes: cache,
                        ..options.clone()
                    };
                    // A context that the model does not allow is no advice.
                    let Ok(found) = plan(&changed) else { continue };
                    if found.total_bytes() <= self.usable() {
                        let mut flags = flag.to_owned();
                        if *tokens != context {
                            flags.extend([" --ctx ", &tokens.to_string()]);
                        }
                        if cache != options.prefix_cache_bytes {
                            flags += " --prefix-cache-mib 0";
                        }
                        return format!("with{flags} it takes {} and fits", Gib(found.total_bytes()));
                    }
                }
            }
        }
        "no flag makes it fit; use a pack with fewer bits (dgemma-server quantize, or download), or a machine with more memory".into()
    }
}

/// What the system says is available, or what a container may take if that is less.
#[cfg(target_os = "linux")]
fn available() -> Limit {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let system = read("/proc/meminfo")
        .lines()
        .find_map(|line| number(line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?))
        .map_or(u64::MAX, |kib| kib * 1024);
    let container = number(&read("/sys/fs/cgroup/memory.max"))
        .map(|most| most.saturating_sub(number(&read("/sys/fs/cgroup/memory.current")).unwrap_or(0)));
    match container.filter(|bytes| *bytes < system) {
        Some(bytes) => Limit { bytes, what: "available to this container" },
        None => Limit { bytes: system, what: "available on this machine" },
    }
}

/// The memory of the machine, less the part that macOS does not leave to a GPU; without an answer nothing is refused.
#[cfg(not(target_os = "linux"))]
fn available() -> Limit {
    let asked = std::process::Command::new("sysctl").args(["-n", "hw.memsize"]).output();
    let bytes = asked.ok().and_then(|output| String::from_utf8(output.stdout).ok()?.trim().parse().ok());
    Limit { bytes: bytes.unwrap_or(u64::MAX), what: "in this machine" }
}
