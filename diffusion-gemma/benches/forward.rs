//! Times passes of the fast path, and what the same machine's matmul can do, in one run.
//!
//! `DGEMMA_BENCH_MODEL=DIR cargo bench -p diffusion-gemma` (default: the demo checkpoint). `DGEMMA_BENCH_DTYPE=bf16` for
//! bf16 products; `DGEMMA_BENCH_QUANT=q8_0|q6k|q4k` for quantised weights; `DGEMMA_CPU=portable|avx2|avx512|amx` for other kernels; `RAYON_NUM_THREADS=2` for the number of threads.
//! Every case prints median, minimum and maximum of its runs, and the median CPU time of all threads, which says more where
//! other work shares the cores. A name as argument keeps the cases that contain it.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use candle_core::Tensor;
use diffusion_gemma::{Attention, CanvasRows, DType, Device, LoadOptions, Model, Prefix, Quant, Segment};

/// As the server has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    let peak = peak(dtype, None);
    let peak = if quant.is_some() { self::peak(dtype, quant) } else { peak };
    Bench { model, filter, peak }.decisions();
}

/// GFLOP per second that a large matmul of these kernels reaches.
fn peak(dtype: DType, quant: Option<Quant>) -> f64 {
    let (rows, inputs, outputs) = (1024, 1024, 4096);
    let gflop = 2.0 * (rows * inputs * outputs) as f64 / 1e9;
    let matmul = diffusion_gemma::packed_matmul(inputs, outputs, dtype, quant);
    let x = Tensor::ones((rows, inputs), DType::F32, &Device::Cpu).unwrap();
    let times = measure(|| drop(matmul(&x)));
    println!(
        "matmul [{rows}, {inputs}]·[{inputs}, {outputs}] {dtype:?}, {quant:?}: {:.0} GFLOP/s, {:.0} per CPU second",
        gflop / times.median.as_secs_f64(),
        gflop / times.cpu.as_secs_f64()
    );
    gflop / times.median.as_secs_f64()
}

struct Bench {
    model: Model,
    filter: Option<String>,
    /// GFLOP per second of a large matmul.
    peak: f64,
}

impl Bench {
    fn decisions(&self) {
        for prompt in [128, 300, 1024, 2048, 4096, 8192] {
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
        let longest = self.model.config().max_position_embeddings;
        if prompt + rows > longest || self.filter.as_ref().is_some_and(|f| !name.contains(f.as_str())) {
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
        // What is read leaves the last layer early; the head is not counted.
        let gflop = self.gflop(cached, prompt - cached) + self.gflop(prompt, draws * rows);
        let share = gflop / times.median.as_secs_f64() / self.peak;
        println!("{name:55} {times}  {gflop:.1} GFLOP, {:.0} % of the matmul's rate", 100.0 * share);
    }

    /// Multiplications and additions of `rows` rows after `past` others, in 10⁹: projections, dense FFN, chosen experts, and scores
    /// and values of about half of the new keys.
    fn gflop(&self, past: usize, rows: usize) -> f64 {
        let config = self.model.config();
        let ffn = config.intermediate_size + config.top_k_experts * config.moe_intermediate_size;
        let per_row: usize = config
            .layers
            .iter()
            .map(|layer| {
                let (q, kv) = (config.num_attention_heads * layer.head_dim, layer.kv_heads * layer.head_dim);
                let sliding = layer.attention == Attention::Sliding;
                let keys =
                    if sliding { (past + rows / 2).min(config.sliding_window) } else { past + rows / 2 };
                let projections = 2 * q + kv * (1 + usize::from(sliding));
                config.hidden_size * (projections + 3 * ffn + config.num_experts) + 2 * keys * q
            })
            .sum();
        2.0 * (rows * per_row) as f64 / 1e9
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
    cpu: Duration,
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        let (median, min, max, cpu) = (ms(self.median), ms(self.min), ms(self.max), ms(self.cpu));
        write!(f, "{median:8.2} ms  ({min:.2} … {max:.2})  cpu {cpu:.0}")
    }
}

/// CPU time of all threads of this process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn measure(mut run: impl FnMut()) -> Times {
    run();
    let (mut times, mut cpu): (Vec<Duration>, Vec<Duration>) = (0..RUNS)
        .map(|_| {
            let (started, used) = (Instant::now(), cpu_time());
            run();
            (started.elapsed(), cpu_time().saturating_sub(used))
        })
        .unzip();
    times.sort();
    cpu.sort();
    Times { min: times[0], median: times[RUNS / 2], max: times[RUNS - 1], cpu: cpu[RUNS / 2] }
}
