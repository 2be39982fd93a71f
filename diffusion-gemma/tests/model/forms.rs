//! The forms that weights can take in memory: bf16 as published, f32, a mix of both, quantised. All of them are the same
//! model, within the rounding of the form.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::common::{Tolerance, fixture};
use candle_core::{Device, Tensor};
use diffusion_gemma::{Blueprint, CanvasRows, DType, Demand, LoadOptions, Model, Prefix, Quant, Segment};

/// Logits of ten tokens at every row of a canvas after a short prompt.
fn logits(model: &Model) -> Vec<f32> {
    let empty = Prefix::new();
    let prompt: Vec<u32> = (0..20).map(|i| (i * 37 + 2) % 1024).collect();
    let canvas: Vec<u32> = (0..16).map(|i| (i * 53 + 5) % 1024).collect();
    let read: Vec<usize> = (0..canvas.len()).collect();
    let canvases = vec![CanvasRows { suffix: &[], ids: &canvas, read: &read, previous: None }];
    let output = model.forward(&[Segment { prefix: &empty, tokens: &prompt, canvases }]).unwrap().remove(0);
    let labels: Vec<&[u32]> = read.iter().map(|_| &[0u32, 1, 2, 3, 4, 5, 6, 7, 8, 9][..]).collect();
    model
        .read_slots(&output.hidden[0], &labels)
        .unwrap()
        .into_iter()
        .flat_map(|slot| slot.unwrap().labels)
        .collect()
}

fn largest_difference(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| f64::from((x - y).abs())).fold(0.0, f64::max)
}

/// The tiny checkpoint with some tensors stored in another type.
fn stored_as(change: impl Fn(&str) -> Option<DType>) -> tempfile::TempDir {
    let tensors =
        candle_core::safetensors::load(fixture("tiny-text").join("model.safetensors"), &Device::Cpu).unwrap();
    let tensors: HashMap<String, Tensor> = tensors
        .into_iter()
        .map(|(name, tensor)| match change(&name) {
            Some(dtype) => (name, tensor.to_dtype(dtype).unwrap()),
            None => (name, tensor),
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    fs::copy(fixture("tiny-text").join("config.json"), dir.path().join("config.json")).unwrap();
    candle_core::safetensors::save(&tensors, dir.path().join("model.safetensors")).unwrap();
    dir
}

fn load(dir: &Path, dtype: DType, quant: Option<Quant>) -> Model {
    Model::load(dir, &LoadOptions { quant, ..LoadOptions::cpu(dtype) }).unwrap()
}

#[test]
fn checkpoints_stored_in_f32_or_in_a_mix_are_the_same_model() {
    let wanted = logits(&load(&fixture("tiny-text"), DType::F32, None));
    let f32_everywhere = stored_as(|_| Some(DType::F32));
    let f32_router = stored_as(|name| name.contains("router.proj").then_some(DType::F32));
    let f32_embedding = stored_as(|name| name.contains("embed_tokens").then_some(DType::F32));
    let f32_down = stored_as(|name| name.contains("experts.down_proj").then_some(DType::F32));
    for dir in [&f32_everywhere, &f32_router, &f32_embedding, &f32_down] {
        let found = logits(&load(dir.path(), DType::F32, None));
        let error = largest_difference(&found, &wanted);
        assert!(error <= Tolerance::F32.max_abs, "off by {error:e}");
        // The other compute type must run on a mix as well; how far off it is depends on the random weights.
        assert!(logits(&load(dir.path(), DType::BF16, None)).iter().all(|x| x.is_finite()));
    }
}

#[test]
fn fewer_bits_are_further_off_and_none_is_another_model() {
    let wanted = logits(&load(&fixture("tiny-text"), DType::F32, None));
    let error =
        |quant| largest_difference(&logits(&load(&fixture("tiny-text"), DType::F32, Some(quant))), &wanted);
    let eight = error(Quant::Q8_0);
    assert!(eight > Tolerance::F32.max_abs, "nothing was quantised");
    assert!(eight < 3.0, "off by {eight}");
    // 256 does not divide the widths of this checkpoint, so that these fall back to 8 bits.
    assert_eq!(error(Quant::Q4K), eight);
}

#[test]
fn quantised_weights_take_less_memory() {
    let bytes = |quant| load(&fixture("demo-model"), DType::F32, quant).weight_bytes();
    assert!(bytes(Some(Quant::Q8_0)) < bytes(None));
}

#[test]
fn layers_split_over_two_devices_give_the_same_numbers() {
    let whole = load(&fixture("tiny-text"), DType::F32, None);
    let layers = whole.config().layers.len();
    // Two CPUs are one device to the tensor library. That the rows go along is checked by each layer, by the number of its device.
    let options = |places: Vec<usize>| LoadOptions {
        devices: vec![Device::Cpu, Device::Cpu],
        places,
        ..LoadOptions::cpu(DType::F32)
    };
    for places in [(0..layers).map(|i| i * 2 / layers).collect(), (0..layers).map(|i| i % 2).collect()] {
        let split = Model::load(&fixture("tiny-text"), &options(places)).unwrap();
        assert_eq!(logits(&split), logits(&whole));
    }
    let error = Model::load(&fixture("tiny-text"), &options(vec![2])).unwrap_err().to_string();
    assert!(error.contains("device 2 is asked for"), "{error}");
}

#[test]
fn a_plan_counts_the_bytes_that_loading_takes() {
    let demand = Demand {
        context_tokens: 1024,
        sequences: 1,
        admitted_tokens: usize::MAX,
        pass_rows: 256,
        prefix_cache_bytes: 0,
    };
    let blueprint = Blueprint::of_checkpoint(&fixture("demo-model")).unwrap();
    for quant in [None, Some(Quant::Q8_0), Some(Quant::Q6K), Some(Quant::Q4K)] {
        for dtype in [DType::F32, DType::BF16] {
            let options = LoadOptions { quant, ..LoadOptions::cpu(dtype) };
            let plan = blueprint.plan(options.compute(), &[], demand);
            let model = Model::load(&fixture("demo-model"), &options).unwrap();
            let (planned, found) = (plan.weights().bytes(), model.weights().bytes());
            assert_eq!(
                planned,
                found,
                "{quant:?} {dtype:?}: planned {planned}, found {found}\n{}{}",
                plan.weights(),
                model.weights()
            );
        }
    }
}
