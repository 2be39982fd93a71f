//! Times passes of the fast path, and what the same machine's matmul can do, in one run.
//!
//! `DGEMMA_BENCH_MODEL=DIR cargo bench -p diffusion-gemma` (default: the demo checkpoint). `DGEMMA_BENCH_DTYPE=bf16` for
//! bf16 products; `DGEMMA_BENCH_QUANT=q8_0|q6k|q4k` for quantised weights; `DGEMMA_CPU=portable|avx512|amx` for other kernels; `RAYON_NUM_THREADS=2` for the number of threads.
//! Every case prints median, minimum and maximum of its runs; the first output of a case is checked to be finite.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use candle_core::Tensor;
use diffusion_gemma::{CanvasRows, DType, Device, LoadOptions, Model, Prefix, Quant, Segment};

const RUNS: usize = 7;

fn main() {
    let dir = std::env::var_os("DGEMMA_BENCH_MODEL").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/demo-model"),
        PathBuf::from,
    );
    let dtype = match std::env::var("DGEMMA_BENCH_DTYPE").as_deref() {
        Ok("bf16") => DType::BF16,
        _ => DType::F32,
    };
    let quant = match std::env::var("DGEMMA_BENCH_QUANT").as_deref() {
        Ok("q8_0") => Some(Quant::Q8_0),
        Ok("q6k") => Some(Quant::Q6K),
        Ok("q4k") => Some(Quant::Q4K),
        _ => None,
    };
    let filter = std::env::args().skip(1).find(|a| !a.starts_with("--"));
    let started = Instant::now();
    let model = Model::load(&dir, &LoadOptions { quant, ..LoadOptions::cpu(dtype) }).unwrap();
    println!(
        "{} in {dtype:?}, {quant:?}, {} threads, {}",
        dir.display(),
        rayon::current_num_threads(),
        diffusion_gemma::cpu_kernels()
    );
    let loaded_ms = started.elapsed().as_secs_f64() * 1e3;
    println!(
        "loaded in {loaded_ms:.0} ms, {:.0} MB of weights, {:.0} MB resident",
        mb(model.weight_bytes()),
        mb(resident())
    );
    let bench = Bench { model, filter };
    peak();
    bench.decisions();
}

/// What a large matmul of these kernels reaches.
fn peak() {
    let (rows, inputs, outputs) = (1024, 1024, 4096);
    let gflop = 2.0 * (rows * inputs * outputs) as f64 / 1e9;
    for (name, dtype) in [("f32", DType::F32), ("bf16", DType::BF16)] {
        let matmul = diffusion_gemma::packed_matmul(inputs, outputs, dtype);
        let x = Tensor::ones((rows, inputs), DType::F32, &Device::Cpu).unwrap();
        let times = measure(|| drop(matmul(&x)));
        println!(
            "matmul [{rows}, {inputs}]·[{inputs}, {outputs}] {name}: {:.0} GFLOP/s",
            gflop / times.median.as_secs_f64()
        );
    }
}

struct Bench {
    model: Model,
    filter: Option<String>,
}

impl Bench {
    fn decisions(&self) {
        for prompt in [64, 300, 1024] {
            self.case(&format!("cold, prompt {prompt}, canvas 32"), prompt, 0, 32, 1, 3);
        }
        self.case("schema cached, 60 of 300 prompt tokens new, canvas 32", 300, 240, 32, 1, 3);
        self.case("all cached, canvas 32", 300, 300, 32, 1, 3);
        for draws in [1, 4, 8] {
            self.case(&format!("{draws} draws, prompt 300, canvas 32"), 300, 0, 32, draws, 3);
        }
        for questions in [1, 4, 8, 16] {
            self.case(&format!("{questions} questions, prompt 300, canvas 64"), 300, 0, 64, 1, questions);
        }
        let canvas = self.model.config().canvas_length;
        self.case(&format!("denoise step, canvas {canvas}, whole head"), 300, 300, canvas, 1, canvas);
    }

    fn case(&self, name: &str, prompt: usize, cached: usize, rows: usize, draws: usize, slots: usize) {
        if self.filter.as_ref().is_some_and(|f| !name.contains(f.as_str())) {
            return;
        }
        let vocab = self.model.config().vocab_size as u32;
        let ids = |n: usize, salt: u32| -> Vec<u32> {
            (0..n as u32).map(|i| (i * 7919 + salt * 104_729) % vocab).collect()
        };
        let tokens = ids(prompt, 1);
        let prefix = if cached == 0 { Prefix::new() } else { self.encode(&tokens[..cached]) };
        let canvases: Vec<Vec<u32>> = (0..draws as u32).map(|d| ids(rows, 2 + d)).collect();
        let read: Vec<usize> = (0..slots).map(|s| s * rows / slots).collect();
        let labels: Vec<&[u32]> = read.iter().map(|_| &[10u32, 11, 12][..]).collect();
        let times = measure(|| {
            let canvases = canvases
                .iter()
                .map(|ids| CanvasRows { suffix: &[], ids, read: &read, previous: None })
                .collect();
            let output = self
                .model
                .forward(&[Segment { prefix: &prefix, tokens: &tokens[cached..], canvases }])
                .unwrap()
                .remove(0);
            for hidden in &output.hidden {
                assert_eq!(self.model.read_slots(hidden, &labels).unwrap().len(), slots);
            }
        });
        println!("{name:55} {times}");
    }

    fn encode(&self, tokens: &[u32]) -> Prefix {
        let empty = Prefix::new();
        self.model.forward(&[Segment { prefix: &empty, tokens, canvases: vec![] }]).unwrap().remove(0).prefix
    }
}

fn mb(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

/// Resident bytes of this process; 0 where the system does not tell.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

struct Times {
    min: Duration,
    median: Duration,
    max: Duration,
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        write!(f, "{:8.2} ms  ({:.2} … {:.2})", ms(self.median), ms(self.min), ms(self.max))
    }
}

fn measure(mut run: impl FnMut()) -> Times {
    run();
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let started = Instant::now();
            run();
            started.elapsed()
        })
        .collect();
    times.sort();
    Times { min: times[0], median: times[RUNS / 2], max: times[RUNS - 1] }
}
