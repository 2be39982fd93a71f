//! A checkpoint that is not what it says: every fault is an error that names the file or the tensor.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::common::{fixture, max_abs};
use candle_core::{Device, Tensor};
use diffusion_gemma::weights::{self, Inventory};
use diffusion_gemma::{CanvasRows, Config, DType, LoadOptions, Model, Prefix, Segment};

fn load(dir: &Path) -> Result<Model, String> {
    Model::load(dir, &LoadOptions::cpu(DType::F32)).map_err(|e| e.to_string())
}

fn tensors() -> HashMap<String, Tensor> {
    candle_core::safetensors::load(fixture("tiny-text").join("model.safetensors"), &Device::Cpu).unwrap()
}

/// A copy of the tiny checkpoint with other weights.
fn folder(tensors: &HashMap<String, Tensor>) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(fixture("tiny-text").join("config.json"), dir.path().join("config.json")).unwrap();
    candle_core::safetensors::save(tensors, dir.path().join("model.safetensors")).unwrap();
    dir
}

#[test]
fn missing_surplus_and_misshapen_tensors_are_named() {
    let mut missing = tensors();
    missing.remove("model.decoder.layers.3.router.scale").unwrap();
    let error = load(folder(&missing).path()).unwrap_err();
    assert!(error.contains("layers.3.router.scale") && error.contains("missing"), "{error}");

    let mut surplus = tensors();
    surplus.insert(
        "model.decoder.layers.0.self_attn.q_proj.bias".into(),
        surplus["model.decoder.norm.weight"].clone(),
    );
    let error = load(folder(&surplus).path()).unwrap_err();
    assert!(error.contains("q_proj.bias") && error.contains("surplus"), "{error}");

    let mut misshapen = tensors();
    let name = "model.decoder.layers.1.self_attn.o_proj.weight";
    misshapen
        .insert(name.into(), misshapen[name].t().unwrap().contiguous().unwrap().narrow(0, 0, 8).unwrap());
    let error = load(folder(&misshapen).path()).unwrap_err();
    assert!(error.contains(name) && error.contains("[64, 64]"), "{error}");

    let mut integers = tensors();
    integers.insert(name.into(), integers[name].to_dtype(DType::U8).unwrap());
    let error = load(folder(&integers).path()).unwrap_err();
    assert!(error.contains(name) && error.contains("U8") && error.contains("NVFP4 checkpoint"), "{error}");
}

#[test]
fn integers_are_a_fault_only_where_the_model_needs_numbers() {
    let mut more = tensors();
    let name = "model.encoder.vision_tower.embeddings.position_ids";
    more.insert(name.into(), Tensor::arange(0i64, 16, &Device::Cpu).unwrap());
    let dir = folder(&more);
    assert_eq!(load(dir.path()).unwrap().unused_tensors(), [name]);
    let (inventory, config) = (Inventory::open(dir.path()).unwrap(), Config::from_dir(dir.path()).unwrap());
    weights::check(&inventory, &config).unwrap();
    // A pack takes them along as they are.
    let pack = tempfile::tempdir().unwrap();
    weights::quantize(dir.path(), pack.path(), weights::Profile::Q4, &mut |_, _| ()).unwrap();
    let manifest = fs::read_to_string(pack.path().join(weights::MANIFEST)).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let kept = manifest["tensors"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap();
    assert_eq!((&kept["dtype"], &kept["kind"]), (&"I64".into(), &"raw".into()));
    let blob = fs::read(pack.path().join(weights::BLOB)).unwrap();
    let bytes: Vec<u8> = (0..16i64).flat_map(i64::to_le_bytes).collect();
    assert!(blob[kept["offset"].as_u64().unwrap() as usize..].starts_with(&bytes));
    assert_eq!(load(pack.path()).unwrap().unused_tensors(), [name]);
    // What is needed is refused by the check as well, which reads headers only.
    let norm = "model.decoder.norm.weight";
    more.insert(norm.into(), Tensor::arange(0i64, 64, &Device::Cpu).unwrap());
    let dir = folder(&more);
    let error = weights::check(&Inventory::open(dir.path()).unwrap(), &config).unwrap_err().to_string();
    assert!(error.contains(norm) && error.contains("I64"), "{error}");
}

#[test]
fn deliberately_unused_tensors_are_listed() {
    let mut copied = tensors();
    let name = "model.encoder.language_model.layers.0.mlp.down_proj.weight";
    copied.insert(name.into(), copied["model.decoder.layers.0.mlp.down_proj.weight"].clone());
    assert_eq!(load(folder(&copied).path()).unwrap().unused_tensors(), [name]);
    let vision = load(&fixture("tiny-vision")).unwrap();
    assert!(!vision.unused_tensors().is_empty());
    assert!(vision.unused_tensors().iter().all(|n| n.contains("vision")));
}

#[test]
fn a_file_cut_short_or_absent_is_named() {
    let dir = folder(&tensors());
    let path = dir.path().join("model.safetensors");
    let whole = fs::read(&path).unwrap();
    for keep in [whole.len() - 1, whole.len() / 2, 100, 4, 0] {
        fs::write(&path, &whole[..keep]).unwrap();
        let error = load(dir.path()).unwrap_err();
        assert!(error.contains("model.safetensors"), "{keep} bytes: {error}");
    }
    fs::remove_file(&path).unwrap();
    assert!(load(dir.path()).unwrap_err().contains("model.safetensors"));
    fs::remove_file(dir.path().join("config.json")).unwrap();
    assert!(load(dir.path()).unwrap_err().contains("config.json"));
}

#[test]
fn shards_load_like_one_file_and_hostile_indexes_do_not() {
    let (all, dir) = (tensors(), folder(&tensors()));
    fs::remove_file(dir.path().join("model.safetensors")).unwrap();
    let mut names: Vec<&String> = all.keys().collect();
    names.sort();
    let mut map = serde_json::Map::new();
    for (i, part) in names.chunks(names.len() / 2 + 1).enumerate() {
        let shard = format!("model-0000{}-of-00002.safetensors", i + 1);
        let tensors: HashMap<String, Tensor> = part.iter().map(|n| ((*n).clone(), all[*n].clone())).collect();
        candle_core::safetensors::save(&tensors, dir.path().join(&shard)).unwrap();
        map.extend(part.iter().map(|n| ((*n).clone(), shard.clone().into())));
    }
    let index = dir.path().join("model.safetensors.index.json");
    let write = |map: &serde_json::Map<String, serde_json::Value>| {
        fs::write(&index, serde_json::json!({"weight_map": map}).to_string()).unwrap();
    };
    write(&map);
    let (one, two) = (load(&fixture("tiny-text")).unwrap(), load(dir.path()).unwrap());
    let hidden = |model: &Model| {
        let empty = Prefix::new();
        let canvases = vec![CanvasRows { suffix: &[], ids: &[7, 8, 9], read: &[0, 1, 2], previous: None }];
        model
            .forward(&[Segment { prefix: &empty, tokens: &[2, 5], canvases }])
            .unwrap()
            .remove(0)
            .hidden
            .remove(0)
    };
    assert!(max_abs(&hidden(&one), &hidden(&two)) < 1e-9);

    let mut lost = map.clone();
    lost.insert("model.decoder.extra".into(), "model-00001-of-00002.safetensors".into());
    write(&lost);
    assert!(load(dir.path()).unwrap_err().contains("model.decoder.extra"));
    let mut elsewhere = map.clone();
    elsewhere.insert(names[0].clone(), "../model.safetensors".into());
    write(&elsewhere);
    assert!(load(dir.path()).unwrap_err().contains("is a path"));
}

#[test]
fn a_non_finite_logit_is_an_error_and_never_an_answer() {
    let mut poisoned = tensors();
    let name = "model.decoder.norm.weight";
    let broken = (&poisoned[name] * f64::INFINITY).unwrap();
    poisoned.insert(name.into(), broken);
    let model = load(folder(&poisoned).path()).unwrap();
    let empty = Prefix::new();
    let canvases = vec![CanvasRows { suffix: &[], ids: &[7, 8], read: &[1], previous: None }];
    let output = model.forward(&[Segment { prefix: &empty, tokens: &[2], canvases }]).unwrap().remove(0);
    let mut read = model.read_slots(&output.hidden[0], &[&[1, 2]]).unwrap();
    let error = read.remove(0).unwrap_err().to_string();
    assert!(error.contains("non-finite"), "{error}");
}

#[test]
fn bf16_compute_stays_near_f32() {
    let options = LoadOptions::cpu(DType::BF16);
    let narrow = Model::load(&fixture("demo-model"), &options).unwrap();
    let wide = load(&fixture("demo-model")).unwrap();
    let text = std::fs::read_to_string(fixture("demo-model").join("expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    let case = &expected["cases"][0];
    let ids = |value: &serde_json::Value| -> Vec<u32> { serde_json::from_value(value.clone()).unwrap() };
    let (prompt, canvas) = (ids(&case["prompt_ids"]), ids(&case["canvas_ids"]));
    let slots = case["slots"].as_array().unwrap();
    let rows: Vec<usize> = slots.iter().map(|slot| slot["pos"].as_u64().unwrap() as usize).collect();
    let labels: Vec<Vec<u32>> = slots.iter().map(|slot| ids(&slot["label_ids"])).collect();
    let logits = |model: &Model| {
        let empty = Prefix::new();
        let canvases = vec![CanvasRows { suffix: &[], ids: &canvas, read: &rows, previous: None }];
        let output =
            model.forward(&[Segment { prefix: &empty, tokens: &prompt, canvases }]).unwrap().remove(0);
        let labels: Vec<&[u32]> = labels.iter().map(Vec::as_slice).collect();
        let read: Result<Vec<_>, _> =
            model.read_slots(&output.hidden[0], &labels).unwrap().into_iter().collect();
        read.unwrap()
    };
    for (a, b) in logits(&narrow).iter().zip(logits(&wide)) {
        for (x, y) in a.labels.iter().zip(&b.labels) {
            assert!((x - y).abs() < 0.5, "{x} and {y}");
        }
    }
}
