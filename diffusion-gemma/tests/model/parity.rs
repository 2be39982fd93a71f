//! The plain path against recorded outputs of the reference implementation, for every recorded tensor of the text
//! model, and one negative control per rule: each wrong rule must be caught by these same comparisons.
//!
//! `cargo test -p diffusion-gemma --test model parity -- --nocapture` prints the error of every golden.

use crate::common::{Goldens, Tolerance, model};
use candle_core::{D, IndexOp, Tensor};
use diffusion_gemma::Model;
use diffusion_gemma::reference::{Cache, Reference, Rules, Tap};

/// Runs every comparison of one checkpoint.
fn compare_all(model: &Model, rules: Rules, goldens: &Goldens) {
    let reference = Reference::with_rules(model, rules);
    let silent: &mut Tap<'_> = &mut |_, _| ();
    let watch = |name: &str, value: &Tensor| {
        if goldens.has(name) {
            goldens.compare(name, value);
        }
    };

    let prompt = goldens.ids("prompt_ids");
    let mut cache = Cache::default();
    reference.encode(&prompt, &mut cache, &mut |name, value| watch(name, value)).unwrap();

    // The same prompt in the recorded chunks must leave the same cache.
    let window = model.config().sliding_window;
    let mut chunked = Cache::default();
    for part in [&prompt[..window + 3], &prompt[window + 3..window + 4], &prompt[window + 4..]] {
        reference.encode(part, &mut chunked, silent).unwrap();
    }
    for i in 0..model.config().layers.len() {
        let (k, v) = chunked.layer(i);
        goldens
            .compare(&format!("kv.layer{i}.k"), &whole_with_tail(goldens.get(&format!("kv.layer{i}.k")), k));
        goldens
            .compare(&format!("kv.layer{i}.v"), &whole_with_tail(goldens.get(&format!("kv.layer{i}.v")), v));
    }

    let canvas = goldens.ids("canvas_ids");
    let logits = reference.decode(&canvas, &cache, None, &mut |name, value| watch(name, value)).unwrap();
    goldens.compare("dec.logits", &logits);
    compare_labels(&logits, goldens);

    let scaled = (&logits / 0.8).unwrap();
    let conditioned = reference
        .decode(&canvas, &cache, Some(&scaled), &mut |name, value| {
            let name = name.strip_prefix("dec.").map_or(name.to_owned(), |rest| format!("dec_sc.{rest}"));
            watch(&name, value);
        })
        .unwrap();
    goldens.compare("dec_sc.logits", &conditioned);

    let short = reference.decode(&goldens.ids("short_canvas.ids"), &cache, None, silent).unwrap();
    goldens.compare("short_canvas.logits", &short);
    let long = reference.decode(&goldens.ids("long_canvas.ids"), &cache, None, silent).unwrap();
    goldens.compare("long_canvas.logits", &pick(&long, &goldens.ids("long_canvas.rows")));

    let mut five = Cache::default();
    reference.encode(&prompt[..5], &mut five, silent).unwrap();
    let rows = reference.decode(&canvas[..8], &five, None, silent).unwrap();
    goldens.compare("short_prompt.logits_rows", &pick(&rows, &[0, 7]));

    let last = model.config().layers.len() - 1;
    reference
        .encode(&goldens.ids("block2.commit_ids"), &mut cache, &mut |name, value| {
            if name == format!("enc.layer{last}") {
                goldens.compare("block2.enc_last_layer", value);
            }
        })
        .unwrap();
    for i in [0, last] {
        goldens.compare(&format!("block2.kv.layer{i}.k"), &cache.layer(i).0);
        goldens.compare(&format!("block2.kv.layer{i}.v"), &cache.layer(i).1);
    }
    let second = reference.decode(&goldens.ids("block2.canvas_ids"), &cache, None, silent).unwrap();
    goldens.compare("block2.logits", &second);
}

/// `whole` with its last rows replaced by what a cache kept, so that only those rows can differ.
fn whole_with_tail(whole: &Tensor, tail: &Tensor) -> Tensor {
    let (rows, kept) = (whole.dim(1).unwrap(), tail.dim(1).unwrap());
    Tensor::cat(&[&whole.narrow(1, 0, rows - kept).unwrap(), tail], 1).unwrap()
}

fn pick(rows: &Tensor, which: &[u32]) -> Tensor {
    rows.index_select(&Tensor::new(which, rows.device()).unwrap(), 0).unwrap()
}

fn compare_labels(logits: &Tensor, goldens: &Goldens) {
    let rows = pick(logits, &goldens.ids("labels.slots"));
    let all = candle_nn::ops::softmax(&rows, D::Minus1).unwrap();
    for set in ["digits", "letters", "yes_no"] {
        let ids = goldens.ids(&format!("labels.{set}.ids"));
        let ids = Tensor::new(ids.as_slice(), rows.device()).unwrap();
        let restricted = candle_nn::ops::softmax(&rows.index_select(&ids, 1).unwrap(), D::Minus1).unwrap();
        goldens.compare(&format!("labels.{set}.probs"), &restricted);
        let mass = all.index_select(&ids, 1).unwrap().sum(D::Minus1).unwrap();
        goldens.compare(&format!("labels.{set}.mass"), &mass);
    }
}

fn check(name: &str, left_to_others: &[&str]) {
    let (model, goldens) = (model(name), Goldens::load(name));
    compare_all(&model, Rules::default(), &goldens);
    goldens.finish(name, Tolerance::F32);
    let forgotten: Vec<String> = goldens
        .names()
        .difference(&goldens.compared())
        .filter(|n| !left_to_others.iter().any(|prefix| n.starts_with(prefix)))
        .cloned()
        .collect();
    assert!(forgotten.is_empty(), "recorded but never compared: {forgotten:?}");
}

#[test]
fn every_recorded_tensor_of_the_text_checkpoint_agrees() {
    check("tiny-text", &["gen.", "gen_eos.", "gen_stable.", "gen_stop.", "step."]);
}

#[test]
fn every_recorded_text_tensor_of_the_vision_checkpoint_agrees() {
    check(
        "tiny-vision",
        &["gen.", "gen_eos.", "gen_stable.", "gen_stop.", "step.", "vision.", "image.", "img", "mm"],
    );
}

#[test]
fn every_broken_rule_is_caught() {
    let right = Rules::default;
    let broken = [
        ("norm as 1 + w", Rules { norm_weight_offset: 1.0, ..right() }),
        ("encoder and decoder layer scalars swapped", Rules { own_layer_scalars: false, ..right() }),
        ("layer scalar on the branch only", Rules { scalar_covers_residual: false, ..right() }),
        ("V taken after the key norm", Rules { value_from_raw_key: false, ..right() }),
        ("V without its norm", Rules { value_norm: false, ..right() }),
        ("attention scaled by head_dim^-1/2", Rules { unscaled_attention: false, ..right() }),
        ("router fed the normed residual", Rules { router_reads_residual: false, ..right() }),
        ("router weights not renormalised", Rules { renormalised_router: false, ..right() }),
        ("no per-expert scale", Rules { per_expert_scale: false, ..right() }),
        ("no dense branch", Rules { dense_branch: false, ..right() }),
        ("canvas embedding without its norm", Rules { canvas_input_norm: false, ..right() }),
        ("prompt embedding with a norm", Rules { prompt_input_norm: true, ..right() }),
        ("causal canvas", Rules { bidirectional_canvas: false, ..right() }),
        ("distance test inside the canvas", Rules { canvas_window: false, ..right() }),
        ("no window in the prompt", Rules { prompt_window: false, ..right() }),
        ("soft embedding not scaled", Rules { scaled_soft_embedding: false, ..right() }),
        ("no soft cap", Rules { soft_cap: false, ..right() }),
        ("rope exponents over the rotating part", Rules { rope_over_whole_head: false, ..right() }),
    ];
    let model = model("tiny-text");
    for (what, rules) in broken {
        let goldens = Goldens::load("tiny-text");
        compare_all(&model, rules, &goldens);
        let (name, error) = goldens.worst();
        println!("{what}: {name} off by {error:.2e}");
        assert!(error > Tolerance::F32.max_abs, "{what} went unnoticed");
    }
}

#[test]
fn a_cache_keeps_a_window_less_one_on_sliding_layers() {
    let model = model("tiny-text");
    let goldens = Goldens::load("tiny-text");
    let mut cache = Cache::default();
    Reference::new(&model).encode(&goldens.ids("prompt_ids"), &mut cache, &mut |_, _| ()).unwrap();
    let kept: Vec<usize> = (0..6).map(|i| cache.layer(i).0.i(0).unwrap().dim(0).unwrap()).collect();
    assert_eq!(kept, [7, 7, 7, 7, 7, 27]);
    assert_eq!(cache.tokens(), 27);
}
