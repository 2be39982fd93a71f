//! Packs that we write: laid out as the format says, read back as they were written, and the same model within the error that
//! docs/weights.md states for each profile.

use std::fs;

use diffusion_gemma::weights::{Class, Encoding, Inventory, Profile, quantize};
use diffusion_gemma::{DType, LoadOptions, Model, Quant};
use serde_json::{Value, json};

use crate::common::fixture;
use crate::demo_model::label_probabilities;

/// Of the demo model's recorded ones; more take long.
const REQUESTS: usize = 4;

const PROFILES: [Profile; 4] = [Profile::Q4, Profile::Q6, Profile::Q8, Profile::Nvfp4];

fn pack(source: &str, profile: Profile) -> (tempfile::TempDir, diffusion_gemma::weights::Report) {
    let dir = tempfile::tempdir().unwrap();
    let (mut last, mut total) = (0, 0);
    let report = quantize(&fixture(source), dir.path(), profile, &mut |done, all| {
        assert!(done >= last && done <= all);
        (last, total) = (done, all);
    })
    .unwrap();
    assert!(total > 0 && last == total);
    (dir, report)
}

#[test]
fn a_pack_is_laid_out_as_the_format_says() {
    let (dir, _) = pack("tiny-text", Profile::Q4);
    let manifest = fs::read_to_string(dir.path().join("model.dgq.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["version"], 1);
    assert_eq!(manifest["profile"], "q4");
    assert_eq!(manifest["blob_file"], "model.dgq.bin");
    assert_eq!(manifest["source_model"], "tiny-text", "no path of this machine");
    let tensors = manifest["tensors"].as_array().unwrap();
    let name = |tensor: &Value| tensor["name"].as_str().unwrap().to_owned();
    let mut sorted: Vec<(bool, String)> =
        tensors.iter().map(|t| (name(t).contains(".experts."), name(t))).collect();
    let order = sorted.clone();
    sorted.sort();
    assert_eq!(order, sorted, "experts last, by name within both");
    let split = manifest["expert_split"].as_u64().unwrap();
    let first = tensors.iter().find(|tensor| name(tensor).contains(".experts.")).unwrap();
    assert!(split.is_multiple_of(16384) && first["offset"] == split);
    let blob = fs::read(dir.path().join("model.dgq.bin")).unwrap();
    let mut end = 0;
    for tensor in tensors {
        let (offset, length) =
            (tensor["offset"].as_u64().unwrap() as usize, tensor["byte_len"].as_u64().unwrap() as usize);
        assert!(offset.is_multiple_of(64) && offset >= end);
        assert!(blob[end..offset].iter().all(|byte| *byte == 0));
        end = offset + length;
    }
    assert_eq!(end, blob.len());
    let of = |ending: &str| tensors.iter().find(|tensor| name(tensor).ends_with(ending)).unwrap();
    let experts = of("layers.0.experts.gate_up_proj");
    assert_eq!((&experts["kind"], &experts["dtype"]), (&json!("q4_block"), &json!("BF16")));
    assert_eq!(of("self_conditioning.gate_proj.weight")["kind"], "q8_row");
    assert_eq!(of("self_conditioning.pre_norm.weight")["kind"], "raw");
    assert_eq!(of("layers.0.self_attn.q_proj.weight")["kind"], "raw");
    for name in ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"] {
        assert_eq!(
            fs::read(dir.path().join(name)).unwrap(),
            fs::read(fixture("tiny-text").join(name)).unwrap()
        );
    }
    assert!(!dir.path().join("model.dgq.bin.part").exists());
    let (dir, _) = pack("tiny-text", Profile::Nvfp4);
    let manifest = fs::read_to_string(dir.path().join("model.dgq.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&manifest).unwrap()["version"], 2);
}

#[test]
fn what_is_written_is_what_is_read_within_the_error_that_is_reported() {
    let source = Inventory::open(&fixture("tiny-text")).unwrap();
    // Of the root mean square of a class, for weights that are spread evenly like those of a random checkpoint.
    for (profile, experts, error) in [
        (Profile::Q4, Encoding::Q4Block, 0.10),
        (Profile::Q6, Encoding::Q6Block, 0.03),
        (Profile::Q8, Encoding::Q8Row, 0.012),
        (Profile::Nvfp4, Encoding::Nvfp4, 0.13),
    ] {
        let (dir, report) = pack("tiny-text", profile);
        let made = Inventory::open(dir.path()).unwrap();
        assert_eq!(made.tensors().count(), source.tensors().count());
        let (mut squares, mut errors) = (0f64, 0f64);
        for listing in made.tensors() {
            let (wanted, found) = (source.values(listing.name).unwrap(), made.values(listing.name).unwrap());
            if listing.encoding.is_plain() {
                assert!(
                    wanted.iter().zip(&found).all(|(a, b)| a.to_bits() == b.to_bits()),
                    "{}",
                    listing.name
                );
            }
            if listing.class == Class::Experts {
                assert_eq!(listing.encoding, experts);
                for (a, b) in wanted.iter().zip(&found) {
                    squares += f64::from(*a).powi(2);
                    errors += f64::from(a - b).powi(2);
                }
            }
        }
        let (_, _, _, row) = report.rows().find(|(class, ..)| *class == Class::Experts).unwrap();
        let (reported, found) = (row.deviation.unwrap().relative(), (errors / squares).sqrt());
        assert!((reported - found).abs() < 1e-6, "{profile:?}: reported {reported}, found {found}");
        assert!(found > 0.0 && found < error, "{profile:?}: {found}");
    }
}

#[test]
fn a_pack_of_the_vision_checkpoint_keeps_its_tower_and_packs_make_packs() {
    let (dir, _) = pack("tiny-vision", Profile::Nvfp4);
    let made = Inventory::open(dir.path()).unwrap();
    let vision: Vec<_> = made.tensors().filter(|one| one.class == Class::Vision).collect();
    assert!(!vision.is_empty() && vision.iter().all(|one| one.encoding.is_plain()));
    // From NVFP4 to 4-bit blocks: attention comes back as bf16.
    let again = tempfile::tempdir().unwrap();
    quantize(dir.path(), again.path(), Profile::Q4, &mut |_, _| ()).unwrap();
    let again = Inventory::open(again.path()).unwrap();
    let q = again.tensors().find(|one| one.name.ends_with("layers.0.self_attn.q_proj.weight")).unwrap();
    assert_eq!(q.encoding, Encoding::Bf16);
    let (before, after) = (made.values(q.name).unwrap(), again.values(q.name).unwrap());
    assert!(before.iter().zip(&after).all(|(a, b)| (a - b).abs() <= a.abs() / 128.0));
}

#[test]
fn a_folder_that_holds_a_pack_is_not_written_over() {
    let (dir, _) = pack("tiny-text", Profile::Q8);
    let before = fs::read(dir.path().join("model.dgq.bin")).unwrap();
    let error =
        quantize(&fixture("tiny-text"), dir.path(), Profile::Q4, &mut |_, _| ()).unwrap_err().to_string();
    assert!(error.contains("holds a pack already") && error.contains("hint:"), "{error}");
    assert_eq!(fs::read(dir.path().join("model.dgq.bin")).unwrap(), before);
    let file = dir.path().join("config.json");
    let error = quantize(&fixture("tiny-text"), &file, Profile::Q4, &mut |_, _| ()).unwrap_err().to_string();
    assert!(error.contains("config.json") && error.contains("cannot write"), "{error}");
}

/// Mean divergence KL(f32 ‖ form) in nats over all questions, and the largest difference of a probability.
fn distance(plain: &[Vec<f64>], other: &[Vec<f64>]) -> (f64, f64) {
    let (mut divergence, mut largest) = (0.0, 0f64);
    assert_eq!(plain.len(), other.len());
    for (p, q) in plain.iter().zip(other) {
        divergence +=
            p.iter().zip(q).map(|(p, q)| if *p > 0.0 { p * (p / q).ln() } else { 0.0 }).sum::<f64>();
        largest = p.iter().zip(q).fold(largest, |m, (p, q)| m.max((p - q).abs()));
    }
    (divergence / plain.len() as f64, largest)
}

/// `cargo test -p diffusion-gemma --test model quantize -- --nocapture` prints the table of docs/weights.md.
#[test]
fn every_form_answers_within_its_stated_error_of_f32() {
    let plain = Model::load(&fixture("demo-model"), &LoadOptions::cpu(DType::F32)).unwrap();
    let plain = label_probabilities(&plain, REQUESTS);
    let check = |what: &str, model: &Model, stated_nats: f64, stated: f64| {
        let (divergence, largest) = distance(&plain, &label_probabilities(model, REQUESTS));
        println!(
            "{what:<22} mean KL {divergence:.1e} nats, largest difference {largest:.1e}, {} bytes",
            model.weight_bytes()
        );
        assert!(divergence <= stated_nats && largest <= stated, "{what}: {divergence:e}, {largest:e}");
    };
    let stated = [(1e-3, 0.1), (1e-4, 0.03), (5e-4, 0.06), (1e-2, 0.25)];
    for (profile, (nats, difference)) in PROFILES.into_iter().zip(stated) {
        let (dir, _) = pack("demo-model", profile);
        let model = Model::load(dir.path(), &LoadOptions::cpu(DType::F32)).unwrap();
        check(&format!("pack {}", profile.name()), &model, nats, difference);
    }
    for (quant, nats, difference) in
        [(Quant::Q8_0, 2e-4, 0.03), (Quant::Q6K, 2e-4, 0.03), (Quant::Q4K, 1e-3, 0.06)]
    {
        let options = LoadOptions { quant: Some(quant), ..LoadOptions::cpu(DType::F32) };
        let model = Model::load(&fixture("demo-model"), &options).unwrap();
        check(&format!("on load {quant:?}"), &model, nats, difference);
    }
}
