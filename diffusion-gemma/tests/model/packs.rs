//! `.dgq` packs: a synthetic one, made here by a writer of its own, is read to the bit; every fault of a manifest is refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use candle_core::{DType, Device};
use diffusion_gemma::weights::{Encoding, Inventory};
use diffusion_gemma::{
    Blueprint, ChatTemplate, Demand, LoadOptions, Message, Model, RenderOptions, Tokenizer,
};
use serde_json::{Value, json};

use crate::common::{assert_numbers, fixture};

/// Numbers that are never zero and never repeat soon.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    fn byte(&mut self) -> u8 {
        (self.next() % 255 + 1) as u8
    }

    /// The upper half of a small positive f32.
    fn scale(&mut self) -> [u8; 2] {
        let scale = 0.001 + f64::from(self.next() % 1000) * 1e-5;
        (((scale as f32).to_bits() >> 16) as u16).to_le_bytes()
    }
}

fn bf16(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

/// Bytes of one matrix, and the numbers they stand for by the text of the format.
fn matrix(kind: &str, rows: usize, width: usize, numbers: &mut Numbers) -> (Vec<u8>, Vec<f32>) {
    let (mut bytes, mut values) = (Vec::new(), Vec::new());
    let global = 0.5f32;
    if kind == "nvfp4_block" {
        bytes.extend(global.to_le_bytes());
    }
    for _ in 0..rows {
        match kind {
            "q4_block" | "q6_block" => {
                for _ in 0..width / 32 {
                    let (scale, mut min) = (numbers.scale(), numbers.scale());
                    min[1] |= 0x80;
                    bytes.extend(scale.into_iter().chain(min));
                    let top = if kind == "q4_block" { 16 } else { 64 };
                    let codes: Vec<u32> = (0..32).map(|_| numbers.next() % top).collect();
                    if top == 16 {
                        bytes.extend(codes.chunks(2).map(|two| (two[0] + 16 * two[1]) as u8));
                    } else {
                        for four in codes.chunks(4) {
                            let word = four[0] + (four[1] << 6) + (four[2] << 12) + (four[3] << 18);
                            bytes.extend([word as u8, (word >> 8) as u8, (word >> 16) as u8]);
                        }
                    }
                    values.extend(codes.iter().map(|q| bf16(scale) * *q as f32 + bf16(min)));
                }
            }
            "q8_row" => {
                let scale = numbers.scale();
                bytes.extend(scale);
                let codes: Vec<u8> = (0..width).map(|_| numbers.byte()).collect();
                values.extend(codes.iter().map(|q| f32::from(*q as i8) * bf16(scale)));
                bytes.extend(codes);
            }
            "nvfp4_block" => {
                let codes: Vec<u8> = (0..width).map(|_| numbers.byte() & 15).collect();
                // Exponents 1 to 4, so 2^-6 to 2^-3, and three bits of mantissa.
                let scales: Vec<u8> = (0..width / 16).map(|_| 8 + (numbers.next() % 32) as u8).collect();
                for (i, code) in codes.iter().enumerate() {
                    let scale = scales[i / 16];
                    let scale = f32::from(8 + (scale & 7)) / 8.0 * 2f32.powi(i32::from(scale >> 3) - 7);
                    let magnitude = [0.0f32, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(code & 7)];
                    values.push(if code & 8 == 0 { 1.0 } else { -1.0 } * magnitude * scale * global);
                }
                bytes.extend(codes.chunks(2).map(|two| two[0] | two[1] << 4));
                bytes.extend(scales);
            }
            "F32" => {
                let x = (numbers.next() % 2000) as f32 * 1e-4 - 0.1;
                (0..width).for_each(|i| values.push(x + i as f32 * 1e-3));
                values[values.len() - width..].iter().for_each(|x| bytes.extend(x.to_le_bytes()));
            }
            other => panic!("{other}"),
        }
    }
    (bytes, values)
}

/// A pack of the shapes of the tiny checkpoint with every kind of tensor in it, and the numbers it must be read as.
struct Pack {
    dir: tempfile::TempDir,
    manifest: Value,
    blob: Vec<u8>,
    values: BTreeMap<String, Vec<f32>>,
}

fn kind(name: &str) -> &'static str {
    match () {
        () if name.ends_with("experts.gate_up_proj") => "q4_block",
        () if name.ends_with("experts.down_proj") && name.contains("layers.1.") => "nvfp4_block",
        () if name.ends_with("experts.down_proj") => "q6_block",
        () if name.contains("self_conditioning") && name.contains("_proj") => "q8_row",
        // Attention in another kind than the profile's name says.
        () if name.ends_with("layers.0.self_attn.q_proj.weight") => "nvfp4_block",
        () if name.ends_with("layers.0.self_attn.k_proj.weight") => "F32",
        () => "raw",
    }
}

impl Pack {
    fn new() -> Self {
        let source = fixture("tiny-text");
        let dir = tempfile::tempdir().unwrap();
        for name in ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"] {
            fs::copy(source.join(name), dir.path().join(name)).unwrap();
        }
        let tensors = candle_core::safetensors::load(source.join("model.safetensors"), &Device::Cpu).unwrap();
        let mut order: Vec<&String> = tensors.keys().collect();
        order.sort_by_key(|name| (name.contains(".experts."), (*name).clone()));
        let (mut blob, mut entries, mut values) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (mut numbers, mut expert_split) = (Numbers(7), None);
        for name in order {
            let tensor = &tensors[name];
            let shape = tensor.dims().to_vec();
            let alignment = if name.contains(".experts.") && expert_split.is_none() { 16384 } else { 64 };
            blob.resize(blob.len().next_multiple_of(alignment), 0);
            if alignment == 16384 {
                expert_split = Some(blob.len());
            }
            let (kind, offset) = (kind(name), blob.len());
            let dtype = if kind == "F32" { "f32" } else { "BF16" };
            if kind == "raw" {
                let numbers: Vec<half::bf16> = tensor.flatten_all().unwrap().to_vec1().unwrap();
                blob.extend(numbers.iter().flat_map(|x| x.to_le_bytes()));
                values.insert(name.clone(), numbers.iter().map(|x| x.to_f32()).collect());
            } else {
                let (width, outer) = shape.split_last().unwrap();
                let (count, rows) = match outer {
                    [count, rows] => (*count, *rows),
                    _ => (1, outer[0]),
                };
                let mut all = Vec::new();
                for _ in 0..count {
                    let (bytes, values) = matrix(kind, rows, *width, &mut numbers);
                    blob.extend(bytes);
                    all.extend(values);
                }
                values.insert(name.clone(), all);
            }
            let kind = if kind == "F32" { "raw" } else { kind };
            entries.push(json!({"name": name, "kind": kind, "dtype": dtype, "shape": shape,
                "offset": offset, "byte_len": blob.len() - offset}));
        }
        let manifest = json!({"version": 4, "profile": "q4", "source_model": "/somewhere/else",
            "blob_file": "model.dgq.bin", "expert_split": expert_split,
            "custom_classes": {"attn": "nvfp4"}, "base_model": {"repo": "a/b", "revision": "main"}, "tensors": entries});
        let pack = Self { dir, manifest, blob, values };
        pack.write();
        pack
    }

    fn write(&self) {
        fs::write(self.dir.path().join("model.dgq.json"), self.manifest.to_string()).unwrap();
        fs::write(self.dir.path().join("model.dgq.bin"), &self.blob).unwrap();
    }

    fn tensor(&mut self, name: &str) -> &mut Value {
        let tensors = self.manifest["tensors"].as_array_mut().unwrap();
        tensors.iter_mut().find(|tensor| tensor["name"].as_str().unwrap().ends_with(name)).unwrap()
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
fn every_kind_is_read_to_the_bit() {
    let pack = Pack::new();
    let inventory = Inventory::open(pack.dir.path()).unwrap();
    let kinds = assert_numbers(&inventory, &pack.values);
    let all = [
        Encoding::F32,
        Encoding::Bf16,
        Encoding::Q4Block,
        Encoding::Q6Block,
        Encoding::Q8Row,
        Encoding::Nvfp4,
    ];
    assert_eq!(kinds.keys().copied().collect::<Vec<_>>(), all);
    assert!(inventory.format().contains("profile q4"), "{}", inventory.format());
}

#[test]
fn a_pack_loads_and_says_what_it_became() {
    let pack = Pack::new();
    let model = load(pack.dir.path()).unwrap();
    let report = model.weights().to_string();
    for (stored, kept) in [("q4_block", "4"), ("q6_block", "8"), ("nvfp4", "8"), ("q8_row", "8")] {
        let is_row = |line: &&str| line.split_whitespace().any(|word| word == stored);
        let line = report.lines().find(is_row).unwrap_or_else(|| panic!("{report}"));
        // `q4_1` and `q8_0` of the tensor library, or the CPU's own form of them.
        assert!(line.contains(&format!("q{kept}_")) || line.contains(&format!("{kept} bits")), "{report}");
    }
    let worst = model.weights().rows().filter_map(|(_, _, _, row)| row.deviation).map(|d| d.relative());
    assert!(worst.fold(0.0, f64::max) < 0.01, "{report}");
    // A stack of q in 4-bit floats, k in f32 and v in bf16 is said to be one, and loses nothing.
    let mixed =
        report.lines().find(|line| line.contains("f32+bf16+nvfp4")).unwrap_or_else(|| panic!("{report}"));
    assert!(mixed.contains("attention") && mixed.contains(" f32 ") && mixed.contains("0.00e0"), "{mixed}");
    let demand = Demand {
        context_tokens: 1024,
        sequences: 1,
        admitted_tokens: usize::MAX,
        pass_rows: 256,
        prefix_cache_bytes: 0,
    };
    let plan = Blueprint::of_checkpoint(pack.dir.path()).unwrap();
    let plan = plan.plan(LoadOptions::cpu(DType::F32).compute(), &[], demand);
    assert_eq!(plan.weights().bytes(), model.weights().bytes(), "{}{report}", plan.weights());
    let quantised =
        LoadOptions { quant: Some(diffusion_gemma::Quant::Q8_0), ..LoadOptions::cpu(DType::BF16) };
    Model::load(pack.dir.path(), &quantised).unwrap();
}

#[test]
fn a_pack_without_the_split_of_experts_is_read_by_its_offsets() {
    let mut pack = Pack::new();
    pack.manifest.as_object_mut().unwrap().remove("expert_split");
    pack.write();
    load(pack.dir.path()).unwrap();
}

#[test]
fn swapped_experts_are_other_numbers() {
    let mut pack = Pack::new();
    let name = "model.decoder.layers.0.experts.gate_up_proj";
    let tensor = pack.tensor(name).clone();
    let (offset, length) =
        (tensor["offset"].as_u64().unwrap() as usize, tensor["byte_len"].as_u64().unwrap() as usize);
    let one = length / 8;
    pack.blob[offset..offset + length].rotate_left(one);
    pack.write();
    let found = Inventory::open(pack.dir.path()).unwrap().values(name).unwrap();
    let wanted = &pack.values[name];
    let per_expert = wanted.len() / 8;
    assert_eq!(found[..per_expert], wanted[per_expert..2 * per_expert]);
    assert_ne!(found[..per_expert], wanted[..per_expert]);
}

type Change = fn(&mut Pack);

#[test]
fn hostile_manifests_are_refused_by_what_is_wrong_with_them() {
    let cases: [(Change, &[&str]); 19] = [
        (
            // Few bytes each, and memory for each of them before any shape is compared.
            |p| {
                let (matrices, offset) = (300_000u64, p.blob.len().next_multiple_of(64));
                let length = matrices * (4 + 8 + 1);
                p.blob.resize(offset + length as usize, 1);
                let tensors = p.manifest["tensors"].as_array_mut().unwrap();
                tensors.push(json!({"name": "many", "kind": "nvfp4_block", "dtype": "BF16",
                    "shape": [matrices, 1, 16], "offset": offset, "byte_len": length}));
            },
            &["many", "more than 262144 matrices"],
        ),
        (|p| p.manifest["version"] = json!(5), &["version 5", "1 to 4"]),
        (|p| p.manifest["version"] = json!(999), &["version 999"]),
        (|p| p.manifest["version"] = json!("1"), &["no version"]),
        (
            |p| p.tensor("layers.0.self_attn.o_proj.weight")["offset"] = json!(65),
            &["o_proj", "multiple of 64"],
        ),
        (
            |p| {
                let length = &mut p.tensor("layers.0.experts.gate_up_proj")["byte_len"];
                *length = json!(length.as_u64().unwrap() - 1);
            },
            &["gate_up_proj", "byte_len"],
        ),
        (
            |p| {
                let length = &mut p.tensor("self_conditioning.up_proj.weight")["byte_len"];
                *length = json!(length.as_u64().unwrap() + 1);
            },
            &["up_proj", "byte_len"],
        ),
        (
            |p| {
                p.blob.pop();
            },
            &["the blob has"],
        ),
        (
            |p| {
                let copy = p.tensor("layers.0.router.scale").clone();
                p.manifest["tensors"].as_array_mut().unwrap().push(copy);
            },
            &["router.scale", "twice"],
        ),
        (|p| p.tensor("layers.0.router.scale")["kind"] = json!("q3_block"), &["q3_block"]),
        (
            |p| {
                p.tensor("layers.0.router.scale")["source"] =
                    json!({"kind": "external", "file": "a", "offset": 0});
            },
            &["layered", "router.scale"],
        ),
        (|p| p.manifest["external_files"] = json!({"a": {"path": "/etc/passwd"}}), &["layered"]),
        (|p| p.manifest["blob_file"] = json!("../model.dgq.bin"), &["../model.dgq.bin", "path"]),
        (|p| p.manifest["blob_file"] = json!("/etc/passwd"), &["path"]),
        (|p| p.tensor("decoder.norm.weight")["shape"] = json!([-64]), &["norm.weight", "not positive"]),
        (|p| p.tensor("decoder.norm.weight")["shape"] = json!([0]), &["not positive"]),
        (
            |p| {
                p.tensor("layers.0.experts.down_proj")["shape"] =
                    json!([4_294_967_296_u64, 4_294_967_296_u64, 64]);
            },
            &["down_proj", "larger than can be counted"],
        ),
        (
            |p| {
                let other = p.tensor("layers.0.input_layernorm.weight")["offset"].clone();
                p.tensor("layers.1.input_layernorm.weight")["offset"] = other;
            },
            &["overlap", "input_layernorm"],
        ),
        (
            |p| p.tensor("decoder.norm.weight")["offset"] = json!(u64::MAX - 63),
            &["norm.weight", "the blob has"],
        ),
    ];
    for (change, words) in cases {
        let mut pack = Pack::new();
        change(&mut pack);
        let error = pack.refused();
        assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
    }
}

#[test]
fn a_pack_that_is_not_whole_or_not_this_model_is_refused() {
    let pack = Pack::new();
    fs::remove_file(pack.dir.path().join("model.dgq.bin")).unwrap();
    assert!(load(pack.dir.path()).unwrap_err().contains("model.dgq.bin"));
    fs::write(pack.dir.path().join("model.dgq.json"), "{").unwrap();
    assert!(load(pack.dir.path()).unwrap_err().contains("model.dgq.json"));

    // Another shape than config.json asks for.
    let mut pack = Pack::new();
    let shape = pack.tensor("layers.0.experts.gate_up_proj")["shape"].clone();
    let [e, out, width] = [0, 1, 2].map(|i| shape[i].as_u64().unwrap());
    pack.tensor("layers.0.experts.gate_up_proj")["shape"] = json!([e / 2, out * 2, width]);
    let error = pack.refused();
    assert!(error.contains("config.json asks for"), "{error}");

    // A type of numbers that the model cannot be made of.
    let mut pack = Pack::new();
    pack.tensor("decoder.norm.weight")["dtype"] = json!("I16");
    assert!(pack.refused().contains("norm.weight"));
}

#[test]
fn a_scale_that_is_no_number_is_found() {
    let mut pack = Pack::new();
    let tensor = pack.tensor("layers.1.experts.down_proj").clone();
    let end = (tensor["offset"].as_u64().unwrap() + tensor["byte_len"].as_u64().unwrap()) as usize;
    pack.blob[end - 1] = 0x7F;
    let error = pack.refused();
    assert!(error.contains("layers.1.experts.down_proj") && error.contains("scale"), "{error}");

    let mut pack = Pack::new();
    let offset = pack.tensor("layers.2.experts.gate_up_proj")["offset"].as_u64().unwrap() as usize;
    pack.blob[offset..offset + 2].copy_from_slice(&[0xC0, 0x7F]);
    pack.write();
    let inventory = Inventory::open(pack.dir.path()).unwrap();
    let error = inventory.verify("model.decoder.layers.2.experts.gate_up_proj").unwrap_err().to_string();
    assert!(error.contains("row 0") && error.contains("not finite"), "{error}");
}

#[test]
fn a_scale_that_is_too_large_to_compute_with_is_refused_with_tensor_and_row() {
    let mut pack = Pack::new();
    // The second row of up, which is stacked under gate: 70144 in bf16, which f16 does not reach.
    let tensor = pack.tensor("self_conditioning.up_proj.weight").clone();
    let width = tensor["shape"][1].as_u64().unwrap() as usize;
    let at = tensor["offset"].as_u64().unwrap() as usize + width + 2;
    pack.blob[at..at + 2].copy_from_slice(&[0x89, 0x47]);
    let error = pack.refused();
    assert!(error.contains("self_conditioning.up_proj.weight: row 1 needs a scale of 70144"), "{error}");

    let mut pack = Pack::new();
    let tensor = pack.tensor("layers.2.experts.gate_up_proj").clone();
    let matrix = tensor["byte_len"].as_u64().unwrap() as usize / 8;
    let at = tensor["offset"].as_u64().unwrap() as usize + 3 * matrix;
    pack.blob[at..at + 2].copy_from_slice(&[0x89, 0x47]);
    let error = pack.refused();
    assert!(error.contains("layers.2.experts.gate_up_proj, expert 3: row 0 needs a scale"), "{error}");
}

#[test]
fn a_pack_has_the_published_prompt_although_it_carries_no_template() {
    let pack = Pack::new();
    let template = ChatTemplate::from_dir(pack.dir.path()).unwrap();
    let tokenizer = Tokenizer::from_dir(pack.dir.path()).unwrap();
    let render = |messages: &[Message], thinking: bool, tools: Vec<Value>| {
        let options = RenderOptions { thinking, generation_prompt: true, tools };
        template.render(&tokenizer, messages, &options).unwrap().text()
    };
    let sky = [Message::text("user", " Why is the sky blue? ")];
    assert_eq!(
        render(&sky, false, vec![]),
        "<bos><|turn>user\nWhy is the sky blue?<turn|>\n<|turn>model\n<|channel>thought\n<channel|>"
    );
    assert_eq!(
        render(&sky, true, vec![]),
        "<bos><|turn>system\n<|think|>\n<turn|>\n<|turn>user\nWhy is the sky blue?<turn|>\n<|turn>model\n"
    );
    let sheet = [Message::text("system", "Be brief."), Message::text("user", "Hi")];
    assert!(
        render(&sheet, false, vec![])
            .starts_with("<bos><|turn>system\nBe brief.<turn|>\n<|turn>user\nHi<turn|>\n")
    );
    let parameters = json!({"type": "object", "required": ["city"], "properties": {
        "unit": {"type": "string", "enum": ["C", "F"]}, "city": {"type": "string", "description": "Where"}}});
    let tool = json!({"type": "function", "function": {"name": "weather", "description": "Tells it", "parameters": parameters}});
    let call = diffusion_gemma::ToolCall {
        id: "1".into(),
        name: "weather".into(),
        arguments: json!({"unit": "C", "city": "Bern"}).as_object().unwrap().clone(),
    };
    let thought = Some("I must look.".to_owned());
    let messages = [
        Message::text("user", "Weather in Bern?"),
        Message {
            role: "assistant".into(),
            tool_calls: vec![call],
            reasoning: thought,
            ..Message::default()
        },
        Message { answers: Some(("1".into(), "weather".into())), ..Message::text("tool", "sunny") },
    ];
    let text = render(&messages, true, vec![tool]);
    let wanted = "<bos><|turn>system\n<|think|>\n<|tool>declaration:weather{description:<|\"|>Tells it<|\"|>,parameters:{\
        properties:{city:{description:<|\"|>Where<|\"|>,type:<|\"|>STRING<|\"|>},unit:{enum:[<|\"|>C<|\"|>,<|\"|>F<|\"|>],\
        type:<|\"|>STRING<|\"|>}},required:[<|\"|>city<|\"|>],type:<|\"|>OBJECT<|\"|>}}<tool|><turn|>\n\
        <|turn>user\nWeather in Bern?<turn|>\n<|turn>model\n<|channel>thought\nI must look.\n<channel|>\
        <|tool_call>call:weather{city:<|\"|>Bern<|\"|>,unit:<|\"|>C<|\"|>}<tool_call|>\
        <|tool_response>response:weather{value:<|\"|>sunny<|\"|>}<tool_response|>";
    assert_eq!(text, wanted);
}
