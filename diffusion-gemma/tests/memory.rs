//! What a model and a decision hold: counted by the allocator of this test binary, which therefore stands alone.

#![allow(unsafe_code, reason = "an allocator that counts is unsafe by its trait")]
#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use candle_core::{Device, Tensor};
use diffusion_gemma::weights::{self, TensorShape};
use diffusion_gemma::{
    CanvasRows, Config, DType, GenerationConfig, LoadOptions, Model, Prefix, Quant, Segment,
};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static EVER: AtomicUsize = AtomicUsize::new(0);
static PIECES: AtomicUsize = AtomicUsize::new(0);
/// What is no tensor is smaller.
const PIECE_BYTES: usize = 1024;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        EVER.fetch_add(layout.size(), Relaxed);
        PIECES.fetch_add(usize::from(layout.size() >= PIECE_BYTES), Relaxed);
        PEAK.fetch_max(LIVE.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `run` gives, the bytes it leaves, and the most it held at a time.
fn counted<T>(run: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let value = run();
    (value, LIVE.load(Relaxed).saturating_sub(before), PEAK.load(Relaxed) - before)
}

/// A random checkpoint whose widths 256 divides, so that every form is one of blocks of 256.
fn wide_checkpoint() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let config = r#"{"model_type":"diffusion_gemma","canvas_length":64,"text_config":{"vocab_size":1024,"hidden_size":256,
        "intermediate_size":256,"moe_intermediate_size":256,"num_experts":2,"top_k_experts":2,"num_hidden_layers":2,
        "num_attention_heads":4,"num_key_value_heads":2,"head_dim":64,"global_head_dim":64,"num_global_key_value_heads":2,
        "layer_types":["sliding_attention","full_attention"],"sliding_window":64,"max_position_embeddings":4096}}"#;
    std::fs::write(dir.path().join("config.json"), config).unwrap();
    let shapes = weights::of_model(&Config::from_dir(dir.path()).unwrap());
    let tensors: HashMap<String, Tensor> = shapes
        .into_iter()
        .map(|TensorShape { name, shape }| {
            let count: usize = shape.iter().product();
            let numbers = (0..count).map(|i| ((i * 7919 % 1009) as f32 - 504.0) * 1e-4).collect();
            let tensor = Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap();
            (name, tensor.to_dtype(DType::BF16).unwrap())
        })
        .collect();
    candle_core::safetensors::save(&tensors, dir.path().join("model.safetensors")).unwrap();
    dir
}

/// One test: what another one allocates meanwhile would be counted as well.
#[test]
fn weights_are_held_once_and_a_read_makes_no_canvas_by_vocabulary_matrix() {
    let dir = wide_checkpoint();
    for quant in [None, Some(Quant::Q8_0), Some(Quant::Q6K), Some(Quant::Q4K)] {
        let options = LoadOptions { quant, ..LoadOptions::cpu(DType::F32) };
        let (model, loaded, _) = counted(|| Model::load(dir.path(), &options).unwrap());
        let tokens: Vec<u32> = (0..256).map(|i| i * 37 % 1024).collect();
        let read: Vec<usize> = (0..64).collect();
        let pass = || {
            // Without a canvas the last layer ends at its keys and values.
            let canvas = CanvasRows { suffix: &[], ids: &tokens[..64], read: &read, previous: None };
            let segment = Segment { prefix: &Prefix::new(), tokens: &tokens, canvases: vec![canvas] };
            drop(model.forward(&[segment]).unwrap());
        };
        // Some forms are copied into another order by their first use.
        let ((), used, _) = counted(pass);
        let (held, weights) = ((loaded + used) as f64, model.weight_bytes() as f64);
        println!("{quant:?}: {loaded} bytes held, {used} more once used, {weights} of weights");
        assert!(held <= 1.15 * weights && held >= 0.85 * weights, "{held} bytes for {weights}, {quant:?}");
    }

    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures/demo-model");
    for quant in [None, Some(Quant::Q8_0)] {
        let options = LoadOptions { quant, ..LoadOptions::cpu(DType::F32) };
        let (model, held, _) = counted(|| Model::load(&dir, &options).unwrap());
        let weights = model.weight_bytes();
        println!("{quant:?}: {held} bytes held for {weights} bytes of weights");
        assert!(held as f64 <= 1.15 * weights as f64, "{held} bytes for {weights} of weights, {quant:?}");

        let config = model.config();
        let (rows, vocab) = (config.canvas_length, config.vocab_size as u32);
        let tokens: Vec<u32> = (0..64).map(|i| i * 37 % vocab).collect();
        let canvas: Vec<u32> = (0..rows as u32).map(|i| i * 53 % vocab).collect();
        let prefix = Prefix::new();
        let slots = [0, 9, 20];
        let pass = || {
            let rows = CanvasRows { suffix: &[], ids: &canvas, read: &slots, previous: None };
            model.forward(&[Segment { prefix: &prefix, tokens: &tokens, canvases: vec![rows] }]).unwrap()
        };
        let read = || model.read_slots(&pass()[0].hidden[0], &[&[10, 11], &[10, 11], &[12, 13]]).unwrap();
        read();
        let ((), _, without) = counted(|| drop(pass()));
        let (_, _, with) = counted(read);
        // Three rows of the vocabulary, and what the soft cap and the copy out of the tensor make of them.
        let few = 4 * slots.len() * config.vocab_size * size_of::<f32>();
        let whole = rows * config.vocab_size * size_of::<f32>();
        println!(
            "{quant:?}: peak {without} bytes without the head, {with} with 3 slots; [canvas, vocabulary] is {whole}"
        );
        assert!(with <= without + few && few < whole / 4, "{with} bytes, {without} without the head");

        // What is kept for reuse is one piece of memory, and no more than its rows.
        let prefix = pass().remove(0).prefix;
        let before = PIECES.load(Relaxed);
        let (kept, held, _) = counted(|| prefix.detached().unwrap());
        assert_eq!(PIECES.load(Relaxed) - before, 1);
        assert!(held < kept.bytes() + (8 << 10), "{held} bytes for {} of keys and values", kept.bytes());

        // Between two steps every row goes through the head once, whether or not it is a slot.
        let every_row: Vec<usize> = (0..rows).collect();
        let all = CanvasRows { suffix: &[], ids: &canvas, read: &every_row, previous: None };
        let segment = Segment { prefix: &prefix, tokens: &tokens, canvases: vec![all] };
        let hidden = model.forward(&[segment]).unwrap().remove(0).hidden.remove(0);
        let settle = |slots: usize| {
            let slots: Vec<(usize, &[u32])> = (0..slots).map(|row| (row, &[10u32, 11][..])).collect();
            let before = EVER.load(Relaxed);
            model.settle(&GenerationConfig::default(), &hidden, &slots, (0, 2)).unwrap();
            EVER.load(Relaxed) - before
        };
        settle(1);
        let more = settle(rows).saturating_sub(settle(1));
        assert!(more < whole / 4, "{more} bytes more for a canvas of slots, of {whole}");
    }
}
