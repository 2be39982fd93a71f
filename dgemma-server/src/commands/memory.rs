//! The memory plan: printed by `plan` and at every start, before anything is allocated; what does not fit is refused with the
//! flags that would make it fit.
//!
//! The plan itself is `diffusion_gemma::plan`, what there is says `limit.rs`. How many tokens may run together follows from the
//! memory where nobody asked for a number.

use std::fmt::Write;

use diffusion_gemma::{Blueprint, Compute, Demand, Gib, MemoryPlan, Quant};

use super::limit::Limit;
use super::print;
use crate::cli::{Arguments, Published};
use crate::device::Placement;
use crate::engine::diffusion::{self, OpenOptions};
use crate::error::Error;
use crate::scheduler::policy::Budget;

/// Tokens of requests in progress below which no server goes by itself.
const FEWEST_TOKENS: usize = 1024;

/// How many sequences there are at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrency {
    /// So many of full length.
    Full(usize),
    /// As many as the scheduler lets run, with this limit of tokens; `None`: as many as fit.
    Served(Option<usize>),
}

/// What is to be done with a model.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    pub concurrency: Concurrency,
    /// Most rows of a pass.
    pub pass_rows: usize,
    /// Memory to assume of every device instead of asking the system.
    pub memory_gib: Option<f64>,
}

/// Prints the plan and what the memory says to it; what does not fit is an error.
pub fn run(arguments: &Arguments, batch: Option<usize>, published: Option<Published>) -> Result<(), Error> {
    let (blueprint, dir) = match published {
        None => {
            let dir = arguments.checkpoint()?;
            (Blueprint::of_checkpoint(&dir)?, dir)
        }
        Some(model) => (Blueprint::of_published(model.profile())?, std::path::PathBuf::new()),
    };
    let served = Concurrency::Served(arguments.model.active_tokens);
    let workload = arguments.workload(batch.map_or(served, Concurrency::Full));
    let planner = Planner::new(blueprint, arguments.open_options(dir), workload)?;
    let (found, tokens) = planner.check(&mut |plan| print(plan))?;
    let lowered = planner.lowered(tokens).map_or(String::new(), |what| format!("{what}\n"));
    print(format_args!("{}{lowered}it fits\n", planner.note(&found)))
}

/// Logs the plan of a checkpoint and refuses one that does not fit. Gives the tokens that may run together.
pub fn check(options: &OpenOptions, workload: Workload) -> Result<usize, Error> {
    let planner = Planner::new(Blueprint::of_checkpoint(&options.dir)?, options.clone(), workload)?;
    let mut log = |plan: &MemoryPlan| {
        plan.to_string().lines().for_each(|line| tracing::info!("memory: {line}"));
        Ok(())
    };
    let (found, tokens) = planner.check(&mut log)?;
    planner.note(&found).lines().for_each(|line| tracing::info!("memory: {line}"));
    if let Some(what) = planner.lowered(tokens) {
        tracing::warn!("memory: {what}");
    }
    Ok(tokens)
}

/// A model, how it is to be loaded, and the memory there is.
struct Planner {
    blueprint: Blueprint,
    options: OpenOptions,
    placement: Placement,
    limits: Vec<Limit>,
    workload: Workload,
}

impl Planner {
    fn new(blueprint: Blueprint, options: OpenOptions, workload: Workload) -> Result<Self, Error> {
        let placement = options.placement(blueprint.config().layers.len())?;
        let limits = placement.devices.iter().map(|device| Limit::of(*device, workload.memory_gib)).collect();
        Ok(Self { blueprint, options, placement, limits, workload })
    }

    /// The plan that fits, and its tokens. `show` hears the plan that was found, also one that does not fit.
    fn check(
        &self,
        show: &mut dyn FnMut(&MemoryPlan) -> Result<(), Error>,
    ) -> Result<(MemoryPlan, usize), Error> {
        let (found, tokens) = self.plan(&self.options, self.workload.concurrency)?;
        show(&found)?;
        let Some(at) = self.lacking(&found) else { return Ok((found, tokens)) };
        let part = &found.devices()[at];
        Err(Error::Memory {
            needed: part.total(),
            weights: part.weights,
            kv: part.kv + part.growth,
            limit: self.limits[at].to_string(),
            advice: self.advice(),
        })
    }

    /// The first device that its part does not fit.
    fn lacking(&self, plan: &MemoryPlan) -> Option<usize> {
        plan.devices().iter().zip(&self.limits).position(|(part, limit)| !limit.holds(part))
    }

    /// The plan with as many tokens together as fit, where that is open; the one with the fewest where none fits.
    fn plan(&self, options: &OpenOptions, concurrency: Concurrency) -> Result<(MemoryPlan, usize), Error> {
        let budget = Budget::default();
        let (sequences, most, least) = match concurrency {
            Concurrency::Full(sequences) => (sequences, usize::MAX, usize::MAX),
            Concurrency::Served(Some(tokens)) => (budget.active_jobs, tokens, tokens),
            Concurrency::Served(None) => (budget.active_jobs, budget.active_tokens, FEWEST_TOKENS),
        };
        let on_cpu = self.placement.on_cpu();
        let compute = Compute { dtype: options.dtype, quant: options.quant, on_cpu };
        let context_tokens = diffusion::context_tokens(options, self.blueprint.config())?;
        let mut tokens = most;
        loop {
            let demand = Demand {
                context_tokens,
                sequences,
                admitted_tokens: tokens,
                pass_rows: self.workload.pass_rows,
                prefix_cache_bytes: options.prefix_cache_bytes as u64,
            };
            let found = self.blueprint.plan(compute, &self.placement.layers, demand);
            if self.lacking(&found).is_none() || tokens <= least {
                return Ok((found, tokens));
            }
            tokens /= 2;
        }
    }

    /// A sentence where the memory left less than the default.
    fn lowered(&self, tokens: usize) -> Option<String> {
        let most = Budget::default().active_tokens;
        (self.workload.concurrency == Concurrency::Served(None) && tokens < most).then(|| {
            format!("no further request is begun while those in progress have {tokens} tokens; {most} do not fit (--active-tokens)")
        })
    }

    /// The least change of flags that makes it fit.
    fn advice(&self) -> String {
        let options = &self.options;
        let context = options.context_tokens.unwrap_or(diffusion::DEFAULT_CONTEXT_TOKENS);
        let contexts: Vec<usize> = std::iter::successors(Some(context), |tokens| Some(tokens / 2))
            .take_while(|tokens| *tokens >= 1024)
            .collect();
        let asked = self.workload.concurrency;
        let fewer = match asked {
            Concurrency::Served(Some(tokens)) if tokens > FEWEST_TOKENS => Some(Concurrency::Served(None)),
            _ => None,
        };
        let quants =
            [(options.quant, ""), (Some(Quant::Q8_0), " --quant q8_0"), (Some(Quant::Q4K), " --quant q4k")];
        for (quant, flag) in quants {
            for tokens in &contexts {
                for cache in [options.prefix_cache_bytes, 0] {
                    let context_tokens = Some(*tokens);
                    let changed =
                        OpenOptions { quant, context_tokens, prefix_cache_bytes: cache, ..options.clone() };
                    for concurrency in std::iter::once(asked).chain(fewer) {
                        // A context that the model does not allow is no advice.
                        let Ok((found, together)) = self.plan(&changed, concurrency) else { continue };
                        if self.lacking(&found).is_some() {
                            continue;
                        }
                        let mut flags = vec![flag.to_owned()];
                        if *tokens != context {
                            flags.push(format!(" --ctx {tokens}"));
                        }
                        if cache != options.prefix_cache_bytes {
                            flags.push(" --prefix-cache-mib 0".to_owned());
                        }
                        if concurrency != asked {
                            flags.push(format!(" --active-tokens {together}"));
                        }
                        return format!(
                            "with{} it takes {} and fits",
                            flags.concat(),
                            Gib(found.together().total())
                        );
                    }
                }
            }
        }
        "no flag makes it fit; use a pack with fewer bits (dgemma-server quantize, or download), or a machine with more memory".into()
    }

    /// What there is of every device, and where there are several what each has to hold.
    fn note(&self, plan: &MemoryPlan) -> String {
        let mut out = String::new();
        for ((device, part), limit) in self.placement.devices.iter().zip(plan.devices()).zip(&self.limits) {
            let spare =
                limit.headroom(part).map_or(String::new(), |bytes| format!("; headroom {}", Gib(bytes)));
            // Writing to a string cannot fail.
            let _ = if self.limits.len() > 1 {
                writeln!(out, "{device} holds {}; there are {limit}{spare}", Gib(part.total()))
            } else {
                writeln!(out, "{limit}{spare}")
            };
        }
        out
    }
}
