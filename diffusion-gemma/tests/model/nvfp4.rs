//! NVFP4 checkpoints as ModelOpt and compressed-tensors write them, made here from the tiny checkpoint by an encoder of its own:
//! their numbers are read to the bit, and whatever departs from the layout is refused by name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use candle_core::{DType, Device};
use diffusion_gemma::weights::{Encoding, Inventory};
use diffusion_gemma::{Blueprint, Demand, LoadOptions, Model};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::json;

use crate::common::{assert_numbers, fixture};

/// A tensor of a file that is being made.
#[derive(Clone)]
struct Made {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Made {
    fn new(dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> Self {
        Self { dtype, shape: shape.to_vec(), bytes }
    }

    fn f32(shape: &[usize], value: f32) -> Self {
        Self::new(Dtype::F32, shape, value.to_le_bytes().to_vec())
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Exporter {
    ModelOpt,
    CompressedTensors,
}

/// All values of a float with one sign bit, by code, computed in f64.
fn float(code: u32, exponent_bits: u32, mantissa_bits: u32, bias: i32) -> f64 {
    let (exponent, mantissa) =
        (code >> mantissa_bits & ((1 << exponent_bits) - 1), code & ((1 << mantissa_bits) - 1));
    let fraction = f64::from(mantissa) / f64::from(1 << mantissa_bits);
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(1 - bias),
        e => (1.0 + fraction) * 2f64.powi(e as i32 - bias),
    };
    if code >> (exponent_bits + mantissa_bits) == 0 { magnitude } else { -magnitude }
}

fn e2m1(code: u32) -> f64 {
    float(code, 2, 1, 1)
}

fn e4m3(code: u32) -> f64 {
    float(code, 4, 3, 7)
}

/// The code whose value is nearest, by looking at all of them.
fn nearest(x: f64, codes: std::ops::Range<u32>, value: fn(u32) -> f64) -> u32 {
    codes.min_by(|a, b| (value(*a) - x).abs().total_cmp(&(value(*b) - x).abs())).unwrap()
}

struct Encoded {
    packed: Vec<u8>,
    scales: Vec<u8>,
    global: f32,
    values: Vec<f32>,
}

/// `[rows, width]`, two-level scaling as the exporters do it: global = amax / (6 · 448).
fn encode(matrix: &[f32], exporter: Exporter) -> Encoded {
    let amax = matrix.iter().fold(0f32, |m, x| m.max(x.abs()));
    let stored = match exporter {
        Exporter::ModelOpt => amax / (6.0 * 448.0),
        Exporter::CompressedTensors => (6.0 * 448.0) / amax,
    };
    let factor = if exporter == Exporter::ModelOpt { stored } else { 1.0 / stored };
    let mut encoded = Encoded { packed: Vec::new(), scales: Vec::new(), global: stored, values: Vec::new() };
    let mut codes = Vec::new();
    for group in matrix.chunks(16) {
        let largest = group.iter().fold(0f64, |m, x| m.max(f64::from(x.abs())));
        let scale = nearest(largest / 6.0 / f64::from(factor), 1..0x7F, e4m3);
        encoded.scales.push(scale as u8);
        for x in group {
            let code = nearest(f64::from(*x) / (e4m3(scale) * f64::from(factor)), 0..16, e2m1);
            codes.push(code as u8);
            // A product of 2 and 4 bits is exact, so there is one rounding.
            encoded.values.push((e2m1(code) * e4m3(scale)) as f32 * factor);
        }
    }
    encoded.packed = codes.chunks(2).map(|two| two[0] + 16 * two[1]).collect();
    encoded
}

struct Checkpoint {
    dir: tempfile::TempDir,
    tensors: BTreeMap<String, Made>,
    /// What has to be read, by the names that the model uses.
    values: BTreeMap<String, Vec<f32>>,
}

impl Checkpoint {
    fn new(exporter: Exporter, experts: &str) -> Self {
        let source = fixture("tiny-text");
        let dir = tempfile::tempdir().unwrap();
        let config = fs::read_to_string(source.join("config.json")).unwrap();
        let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
        match exporter {
            Exporter::ModelOpt => {
                let declared = json!({"producer": {"name": "modelopt"}, "quantization":
                    {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head", "*router*"]}});
                fs::write(dir.path().join("hf_quant_config.json"), declared.to_string()).unwrap();
            }
            Exporter::CompressedTensors => {
                config["quantization_config"] =
                    json!({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"});
            }
        }
        fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
        let mut this = Self { dir, tensors: BTreeMap::new(), values: BTreeMap::new() };
        let stored = candle_core::safetensors::load(source.join("model.safetensors"), &Device::Cpu).unwrap();
        for (name, tensor) in stored {
            let wide: Vec<f32> =
                tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap();
            let linear =
                (name.contains("self_attn") || name.contains(".mlp.")) && name.ends_with("_proj.weight");
            if let Some(stack) = name.strip_suffix(".gate_up_proj") {
                let [count, both, width] = tensor.dims() else { panic!() };
                let half = both / 2 * width;
                let prefix = stack.strip_suffix(".experts").unwrap();
                let mut all = Vec::new();
                for (e, one) in wide.chunks(both * width).enumerate() {
                    for (part, matrix) in [("gate_proj", &one[..half]), ("up_proj", &one[half..])] {
                        let name = format!("{prefix}.{experts}.{e}.{part}");
                        all.extend(this.put(exporter, &name, [both / 2, *width], matrix));
                    }
                }
                assert_eq!(all.len(), count * both * width);
                this.values.insert(name, all);
            } else if let Some(prefix) = name.strip_suffix(".experts.down_proj") {
                let [_, rows, width] = tensor.dims() else { panic!() };
                let mut all = Vec::new();
                for (e, one) in wide.chunks(rows * width).enumerate() {
                    all.extend(this.put(
                        exporter,
                        &format!("{prefix}.{experts}.{e}.down_proj"),
                        [*rows, *width],
                        one,
                    ));
                }
                this.values.insert(name, all);
            } else if linear {
                let stem = name.strip_suffix(".weight").unwrap();
                let values = this.put(exporter, stem, [tensor.dims()[0], tensor.dims()[1]], &wide);
                this.values.insert(name, values);
            } else {
                let numbers: Vec<half::bf16> = tensor.flatten_all().unwrap().to_vec1().unwrap();
                let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
                this.tensors.insert(name.clone(), Made::new(Dtype::BF16, tensor.dims(), bytes));
                this.values.insert(name, wide);
            }
        }
        if exporter == Exporter::ModelOpt {
            let scale = "model.decoder.layers.0.self_attn.k_proj.k_scale";
            this.tensors.insert(scale.into(), Made::f32(&[], 1.0));
        }
        this.write();
        this
    }

    /// Puts one linear layer; gives the numbers it now stands for.
    fn put(&mut self, exporter: Exporter, stem: &str, [rows, width]: [usize; 2], matrix: &[f32]) -> Vec<f32> {
        let Encoded { packed, scales, global, values } = encode(matrix, exporter);
        let (weight, second, input, shape): (_, _, _, &[usize]) = match exporter {
            Exporter::ModelOpt => ("weight", "weight_scale_2", "input_scale", &[]),
            Exporter::CompressedTensors => {
                ("weight_packed", "weight_global_scale", "input_global_scale", &[1])
            }
        };
        let mut insert = |suffix: &str, made| self.tensors.insert(format!("{stem}.{suffix}"), made);
        insert(weight, Made::new(Dtype::U8, &[rows, width / 2], packed));
        insert("weight_scale", Made::new(Dtype::F8_E4M3, &[rows, width / 16], scales));
        insert(second, Made::f32(shape, global));
        insert(input, Made::f32(shape, 3.0));
        values
    }

    /// Two shards, so that parts of one layer lie in different files.
    fn write(&self) {
        let mut map = serde_json::Map::new();
        for (shard, parity) in
            [("model-00001-of-00002.safetensors", 0), ("model-00002-of-00002.safetensors", 1)]
        {
            let own = self.tensors.iter().enumerate().filter(|(i, _)| i % 2 == parity);
            let views: Vec<(&String, TensorView<'_>)> = own
                .map(|(_, (name, made))| {
                    map.insert(name.clone(), shard.into());
                    (name, TensorView::new(made.dtype, made.shape.clone(), &made.bytes).unwrap())
                })
                .collect();
            safetensors::serialize_to_file(views, None, &self.dir.path().join(shard)).unwrap();
        }
        let index = json!({"weight_map": map}).to_string();
        fs::write(self.dir.path().join("model.safetensors.index.json"), index).unwrap();
    }

    fn refused(&self) -> String {
        self.write();
        let error = load(self.dir.path()).unwrap_err();
        assert!(error.contains("hint:"), "{error}");
        error
    }
}

fn load(dir: &Path) -> Result<Model, String> {
    Model::load(dir, &LoadOptions::cpu(DType::F32)).map_err(|error| error.to_string())
}

#[test]
fn both_exporters_are_read_to_the_bit() {
    for (exporter, experts, named) in [
        (Exporter::ModelOpt, "experts", "ModelOpt"),
        (Exporter::CompressedTensors, "moe.experts", "compressed-tensors"),
    ] {
        let made = Checkpoint::new(exporter, experts);
        let inventory = Inventory::open(made.dir.path()).unwrap();
        assert!(
            inventory.format().contains("NVFP4") && inventory.format().contains(named),
            "{}",
            inventory.format()
        );
        let packed = assert_numbers(&inventory, &made.values)[&Encoding::Nvfp4];
        // Per layer q, k, (v,) o, three dense matrices and two stacks of experts; one layer of six is full and has no v.
        assert_eq!(packed, 6 * 9 - 1);
        let model = load(made.dir.path()).unwrap();
        let report = model.weights().to_string();
        let worst = model.weights().rows().filter_map(|(_, _, _, row)| row.deviation).map(|d| d.relative());
        assert!(worst.fold(0.0, f64::max) < 0.01, "{report}");
    }
}

type Change = fn(&mut BTreeMap<String, Made>, &str);

#[test]
fn what_departs_from_the_layout_is_refused_by_name() {
    let q = "model.decoder.layers.0.self_attn.q_proj";
    let expert = "model.decoder.layers.2.experts.5";
    let cases: [(&str, Change, &[&str]); 11] = [
        (q, |t, at| drop(t.remove(&format!("{at}.weight_scale_2"))), &["weight_scale_2", "missing"]),
        (q, |t, at| drop(t.remove(&format!("{at}.weight_scale"))), &["q_proj", "U8"]),
        (
            q,
            |t, at| drop(t.insert(format!("{at}.pre_quant_scale"), Made::f32(&[], 1.0))),
            &["pre_quant_scale", "activations"],
        ),
        (
            q,
            |t, at| {
                // As kernels want it: rearranged and padded.
                let scale = t.get_mut(&format!("{at}.weight_scale")).unwrap();
                scale.shape = vec![128, 4];
                scale.bytes.resize(512, 1);
            },
            &["weight_scale", "not rearranged"],
        ),
        (
            q,
            |t, at| t.get_mut(&format!("{at}.weight_scale")).unwrap().bytes[9] = 0x7F,
            &["q_proj", "no number"],
        ),
        (
            q,
            |t, at| t.get_mut(&format!("{at}.weight_scale")).unwrap().bytes[9] = 0x81,
            &["q_proj", "negative"],
        ),
        (
            q,
            |t, at| drop(t.insert(format!("{at}.weight_scale_2"), Made::f32(&[], 0.0))),
            &["q_proj", "global scale 0"],
        ),
        (
            q,
            |t, at| drop(t.insert(format!("{at}.weight_zero_point"), Made::f32(&[], 0.0))),
            &["weight_zero_point", "surplus"],
        ),
        (
            expert,
            |t, at| {
                for suffix in ["weight", "weight_scale", "weight_scale_2", "input_scale"] {
                    t.remove(&format!("{at}.up_proj.{suffix}"));
                }
            },
            &["experts.5.up_proj", "missing"],
        ),
        (
            expert,
            |t, at| {
                for part in ["gate_proj", "up_proj", "down_proj"] {
                    for suffix in ["weight", "weight_scale", "weight_scale_2", "input_scale"] {
                        t.remove(&format!("{at}.{part}.{suffix}"));
                    }
                }
            },
            &["experts.5", "missing"],
        ),
        (
            expert,
            |t, _| {
                let whole = Made::new(Dtype::BF16, &[8, 64, 64], vec![0; 8 * 64 * 64 * 2]);
                t.insert("model.decoder.layers.2.experts.gate_up_proj".into(), whole);
            },
            &["gate_up_proj", "whole and by expert"],
        ),
    ];
    let whole = Checkpoint::new(Exporter::ModelOpt, "experts");
    for (at, change, words) in cases {
        let mut made = Checkpoint {
            dir: tempfile::tempdir().unwrap(),
            tensors: whole.tensors.clone(),
            values: BTreeMap::new(),
        };
        fs::copy(whole.dir.path().join("config.json"), made.dir.path().join("config.json")).unwrap();
        change(&mut made.tensors, at);
        let error = made.refused();
        assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
    }
}

#[test]
fn a_layer_of_which_a_part_was_left_alone_loses_nothing_and_is_counted_as_it_is_kept() {
    let mut made = Checkpoint::new(Exporter::ModelOpt, "experts");
    let stem = "model.decoder.layers.1.self_attn.v_proj";
    for suffix in ["weight_scale", "weight_scale_2", "input_scale"] {
        made.tensors.remove(&format!("{stem}.{suffix}")).unwrap();
    }
    let source = fixture("tiny-text").join("model.safetensors");
    let plain = candle_core::safetensors::load(source, &Device::Cpu).unwrap();
    let plain = &plain[&format!("{stem}.weight")];
    let numbers: Vec<half::bf16> = plain.flatten_all().unwrap().to_vec1().unwrap();
    let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    made.tensors.insert(format!("{stem}.weight"), Made::new(Dtype::BF16, plain.dims(), bytes));
    made.write();
    let model = load(made.dir.path()).unwrap();
    let report = model.weights().to_string();
    let mixed = model.weights().rows().find(|(_, from, ..)| *from == "bf16+nvfp4");
    let (_, _, _, row) = mixed.unwrap_or_else(|| panic!("{report}"));
    assert_eq!(row.tensors, 3, "{report}");
    // What was 4 bits is rounded to bf16 at most, what was bf16 not at all.
    assert!(row.deviation.unwrap().relative() < 1.0 / 256.0, "{report}");
    let demand = Demand {
        context_tokens: 1024,
        sequences: 1,
        admitted_tokens: usize::MAX,
        pass_rows: 256,
        prefix_cache_bytes: 0,
    };
    let plan = Blueprint::of_checkpoint(made.dir.path()).unwrap();
    let plan = plan.plan(LoadOptions::cpu(DType::F32).compute(), &[], demand);
    let kept = |report: &diffusion_gemma::weights::Report| -> Vec<(String, String, u64)> {
        report.rows().map(|(_, from, to, row)| (from.to_owned(), to.to_owned(), row.to_bytes)).collect()
    };
    assert_eq!(kept(plan.weights()), kept(model.weights()));
}

#[test]
fn other_quantised_layouts_are_refused_with_what_to_use_instead() {
    let mut made = Checkpoint::new(Exporter::ModelOpt, "experts");
    let name = "model.decoder.layers.0.self_attn.q_proj.weight";
    made.tensors.clear();
    made.tensors.insert(name.into(), Made::new(Dtype::U32, &[64, 8], vec![1; 64 * 8 * 4]));
    for part in ["scales", "biases"] {
        let name = name.replace("weight", part);
        made.tensors.insert(name, Made::new(Dtype::BF16, &[64, 1], vec![0; 128]));
    }
    let error = made.refused();
    assert!(error.contains("MLX") && error.contains(".dgq") && error.contains("--quant"), "{error}");

    let mut made = Checkpoint::new(Exporter::ModelOpt, "experts");
    made.tensors.retain(|tensor, _| !tensor.starts_with(name.strip_suffix("weight").unwrap()));
    made.tensors.insert(name.into(), Made::new(Dtype::F8_E4M3, &[64, 64], vec![1; 64 * 64]));
    let error = made.refused();
    assert!(error.contains("F8_E4M3") && error.contains("NVFP4"), "{error}");

    let config = fs::read_to_string(made.dir.path().join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["quantization_config"] = json!({"quant_method": "gptq", "bits": 4});
    fs::write(made.dir.path().join("config.json"), config.to_string()).unwrap();
    let error = made.refused();
    assert!(error.contains("gptq") && error.contains("NVFP4 checkpoint"), "{error}");
}
