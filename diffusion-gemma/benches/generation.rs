//! Times whole blocks of block diffusion: one reply, then four in one batch, at equal steps.
//!
//! `DGEMMA_BENCH_MODEL=DIR cargo bench -p diffusion-gemma --bench generation` (default: the demo checkpoint).
//! `DGEMMA_BENCH_DTYPE=bf16` for bf16 products, `DGEMMA_BENCH_STEPS=16` and `DGEMMA_BENCH_PROMPT=300` for other numbers of steps and
//! prompt tokens, `RAYON_NUM_THREADS=2` for the threads. `scripts/bench/reference_generate.py` does the same with the reference
//! implementation. No stop ids and no early end: every block takes all its steps.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::time::Instant;

use diffusion_gemma::{DType, Generation, GenerationConfig, LoadOptions, Model, Noise, Reply, generate_all};

const RUNS: usize = 3;

fn main() {
    let dir = std::env::var_os("DGEMMA_BENCH_MODEL").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/demo-model"),
        PathBuf::from,
    );
    let dtype =
        if std::env::var("DGEMMA_BENCH_DTYPE").is_ok_and(|d| d == "bf16") { DType::BF16 } else { DType::F32 };
    let model = Model::load(&dir, &LoadOptions::cpu(dtype)).unwrap();
    let (steps, prompt) = (number("DGEMMA_BENCH_STEPS", 8), number("DGEMMA_BENCH_PROMPT", 300));
    println!(
        "{} in {dtype:?}, {} threads, {}: prompt {prompt}, canvas {}, {steps} steps, vocabulary {}",
        dir.display(),
        rayon::current_num_threads(),
        diffusion_gemma::cpu_kernels(),
        model.config().canvas_length,
        model.config().vocab_size
    );
    let one = case(&model, 1, steps, prompt);
    let four = case(&model, 4, steps, prompt);
    println!("throughput of 4 over 1: {:.2}", four / one);
}

fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |text| text.parse().unwrap())
}

/// Median of the runs; gives back tokens per second.
fn case(model: &Model, replies: usize, steps: usize, prompt: usize) -> f64 {
    let config = GenerationConfig {
        max_new_tokens: model.config().canvas_length,
        max_denoising_steps: steps,
        // Never reached: every block takes all its steps, in ours as in the reference.
        confidence_threshold_nats: f64::MIN_POSITIVE,
        eos_token_ids: vec![],
        ..GenerationConfig::default()
    };
    let vocab = model.config().vocab_size as u32;
    let prompts: Vec<Vec<u32>> = (0..replies as u32)
        .map(|n| (0..prompt as u32).map(|i| (i * 7919 + (n + 1) * 104_729) % vocab).collect())
        .collect();
    let (mut seconds, mut first) = (Vec::new(), None);
    let mut stats = Vec::new();
    // The first run warms up.
    for run in 0..=RUNS {
        let mut generations: Vec<Generation> = (0..replies as u64)
            .map(|seed| Generation::new(model.config(), config.clone(), Noise::seeded(seed)).unwrap())
            .collect();
        let mut batch: Vec<Reply<'_>> = prompts
            .iter()
            .zip(&mut generations)
            .map(|(prompt, generation)| Reply { prompt, generation })
            .collect();
        let mut made: Vec<Vec<u32>> = vec![Vec::new(); replies];
        let started = Instant::now();
        generate_all(model, &mut batch, |n, block| made[n].extend(&block.ids)).unwrap();
        if run > 0 {
            seconds.push(started.elapsed().as_secs_f64());
        }
        // The same seed gives the same ids in every run.
        assert_eq!(*first.get_or_insert_with(|| made.clone()), made);
        stats = generations.iter().map(Generation::stats).collect();
    }
    seconds.sort_by(f64::total_cmp);
    let tokens: usize = stats.iter().map(|s| s.tokens).sum();
    let passes = stats.iter().map(|s| s.steps).max().unwrap_or(1);
    let median = seconds[RUNS / 2];
    println!(
        "{replies} replies: {:8.0} ms ({:.0} … {:.0}), {tokens} tokens, {:.1} tokens/s, {:.1} tokens per forward",
        median * 1e3,
        seconds[0] * 1e3,
        seconds[RUNS - 1] * 1e3,
        tokens as f64 / median,
        tokens as f64 / passes as f64
    );
    tokens as f64 / median
}
