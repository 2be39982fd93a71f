//! The fast path against the plain one and against recorded outputs: any batch, any split of a prompt into prefix and
//! new tokens, lengths around the sliding window, one to 32 draws. Results must not depend on what else is in the batch.

use crate::common::{Goldens, Tolerance, max_abs, model};
use candle_core::{DType, Tensor};
use diffusion_gemma::reference::{Cache, Reference};
use diffusion_gemma::{CanvasRows, Error, GenerationConfig, Model, Prefix, Segment, Settled};
use proptest::prelude::*;

/// Final hidden states of whole canvases by the plain path, `[rows, H]` each.
fn plain(model: &Model, prompt: &[u32], canvases: &[Vec<u32>], previous: Option<&Tensor>) -> Vec<Tensor> {
    let reference = Reference::new(model);
    let mut cache = Cache::default();
    reference.encode(prompt, &mut cache, &mut |_, _| ()).unwrap();
    canvases
        .iter()
        .map(|ids| {
            let mut hidden = None;
            reference
                .decode(ids, &cache, previous, &mut |name, value| {
                    if name == "dec.final_norm" {
                        hidden = Some(value.clone());
                    }
                })
                .unwrap();
            hidden.unwrap()
        })
        .collect()
}

/// Encodes tokens alone, as an earlier pass would have.
fn prefix(model: &Model, tokens: &[u32]) -> Prefix {
    if tokens.is_empty() {
        return Prefix::new();
    }
    let empty = Prefix::new();
    let segment = Segment { prefix: &empty, tokens, canvases: vec![] };
    model.forward(&[segment]).unwrap().remove(0).prefix.trimmed(model.config()).unwrap()
}

fn all_rows(canvas: &[u32]) -> Vec<usize> {
    (0..canvas.len()).collect()
}

#[derive(Debug, Clone)]
struct Sequence {
    prompt: Vec<u32>,
    /// Tokens of the prompt that an earlier pass has encoded.
    encoded: usize,
    /// Suffix and rows of every canvas.
    canvases: Vec<(Vec<u32>, Vec<u32>)>,
}

fn sequence() -> impl Strategy<Value = Sequence> {
    let ids = |n| prop::collection::vec(0u32..1024, n);
    // The window of the fixture is 8: lengths around it and its multiples come up often.
    let length = prop_oneof![Just(7usize), Just(8), Just(9), Just(15), Just(16), Just(17), 1usize..40];
    (
        length,
        0.0f64..=1.0,
        prop_oneof![4 => 1usize..4, 1 => Just(32usize)],
        prop_oneof![1usize..6, Just(16usize)],
    )
        .prop_flat_map(move |(length, share, draws, rows)| {
            // No suffix, one that all share, or one for every canvas, around the window in length.
            let suffix = move || prop_oneof![Just(0usize), 1usize..6, 6usize..10].prop_flat_map(ids);
            let suffixes = prop_oneof![
                suffix().prop_map(move |suffix| vec![suffix; draws]),
                prop::collection::vec(suffix(), draws),
            ];
            (ids(length), suffixes, prop::collection::vec(ids(rows), draws)).prop_map(
                move |(prompt, suffixes, canvases)| Sequence {
                    encoded: (share * prompt.len() as f64) as usize,
                    prompt,
                    canvases: suffixes.into_iter().zip(canvases).collect(),
                },
            )
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_batch_agrees_with_the_plain_path(sequences in prop::collection::vec(sequence(), 1..4)) {
        let model = model("tiny-text");
        let prefixes: Vec<Prefix> = sequences.iter().map(|s| prefix(&model, &s.prompt[..s.encoded])).collect();
        let reads: Vec<Vec<Vec<usize>>> =
            sequences.iter().map(|s| s.canvases.iter().map(|(_, ids)| all_rows(ids)).collect()).collect();
        let segments: Vec<Segment<'_>> = sequences
            .iter()
            .zip(&prefixes)
            .zip(&reads)
            .map(|((s, prefix), reads)| Segment {
                prefix,
                tokens: &s.prompt[s.encoded..],
                canvases: s
                    .canvases
                    .iter()
                    .zip(reads)
                    .map(|((suffix, ids), read)| CanvasRows { suffix, ids, read, previous: None })
                    .collect(),
            })
            .collect();
        let outputs = model.forward(&segments).unwrap();
        for (sequence, output) in sequences.iter().zip(outputs) {
            prop_assert_eq!(output.prefix.tokens(), sequence.prompt.len());
            prop_assert_eq!(output.hidden.len(), sequence.canvases.len());
            for ((suffix, canvas), found) in sequence.canvases.iter().zip(&output.hidden) {
                let whole = [sequence.prompt.as_slice(), suffix].concat();
                let wanted = plain(&model, &whole, std::slice::from_ref(canvas), None).remove(0);
                let error = max_abs(found, &wanted);
                prop_assert!(error <= Tolerance::F32.max_abs, "off by {error:e}");
            }
        }
    }

    #[test]
    fn a_prefix_reused_at_any_length_is_as_good_as_a_fresh_one(
        long in prop::collection::vec(0u32..1024, 1..60),
        share in 0.0f64..=1.0,
        rest in prop::collection::vec(0u32..1024, 0..12),
        canvas in prop::collection::vec(0u32..1024, 1..9),
    ) {
        let model = model("tiny-text");
        let reused = 1 + (share * (long.len() - 1) as f64) as usize;
        let whole = prefix(&model, &long);
        // A long prefix may have dropped rows that a shorter one needs; then it must say so.
        let Some(cut) = whole.truncated(reused, model.config()).unwrap() else {
            prop_assert!(long.len() >= 2 * model.config().sliding_window);
            return Ok(());
        };
        let read = all_rows(&canvas);
        let segment = Segment { prefix: &cut, tokens: &rest, canvases: vec![CanvasRows { suffix: &[], ids: &canvas, read: &read, previous: None }] };
        let output = model.forward(&[segment]).unwrap().remove(0);
        let prompt: Vec<u32> = long[..reused].iter().chain(&rest).copied().collect();
        let error = max_abs(&output.hidden[0], &plain(&model, &prompt, std::slice::from_ref(&canvas), None)[0]);
        prop_assert!(error <= Tolerance::F32.max_abs, "off by {error:e}");
        // Our kernels sum in an order of the positions' own: what was reused cannot be seen in a single bit.
        let empty = Prefix::new();
        let rows = CanvasRows { suffix: &[], ids: &canvas, read: &read, previous: None };
        let fresh = Segment { prefix: &empty, tokens: &prompt, canvases: vec![rows] };
        let apart = max_abs(&output.hidden[0], &model.forward(&[fresh]).unwrap()[0].hidden[0]);
        prop_assert!(apart == 0.0 || diffusion_gemma::cpu_kernels().contains("portable"), "off by {apart:e}");
    }
}

#[test]
fn recorded_hidden_states_agree_in_one_fused_pass() {
    for name in ["tiny-text", "tiny-vision"] {
        let (model, goldens) = (model(name), Goldens::load(name));
        let (prompt, canvas) = (goldens.ids("prompt_ids"), goldens.ids("canvas_ids"));
        let read = all_rows(&canvas);
        let signal = Reference::new(&model).signal(&(goldens.get("dec.logits") / 0.8).unwrap()).unwrap();
        let empty = Prefix::new();
        let rows = |previous| CanvasRows { suffix: &[], ids: &canvas, read: &read, previous };
        let segment =
            Segment { prefix: &empty, tokens: &prompt, canvases: vec![rows(None), rows(Some(&signal))] };
        let output = model.forward(&[segment]).unwrap().remove(0);
        goldens.compare("dec.final_norm", &output.hidden[0]);
        goldens.compare("dec_sc.final_norm", &output.hidden[1]);

        let (commit, second) = (goldens.ids("block2.commit_ids"), goldens.ids("block2.canvas_ids"));
        let read = all_rows(&second);
        let segment = Segment {
            prefix: &output.prefix,
            tokens: &commit,
            canvases: vec![CanvasRows { suffix: &[], ids: &second, read: &read, previous: None }],
        };
        let output = model.forward(&[segment]).unwrap().remove(0);
        let labels: Vec<&[u32]> = read.iter().map(|_| &[0u32, 1, 2, 3, 4, 5, 6, 7, 8, 9][..]).collect();
        let logits: Vec<f32> = model
            .read_slots(&output.hidden[0], &labels)
            .unwrap()
            .into_iter()
            .flat_map(|slot| slot.unwrap().labels)
            .collect();
        let found = Tensor::from_vec(logits, (read.len(), 10), &candle_core::Device::Cpu).unwrap();
        let wanted = goldens.get("block2.logits").narrow(1, 0, 10).unwrap();
        assert!(max_abs(&found, &wanted) <= Tolerance::F32.max_abs);
        goldens.finish(&format!("{name}, fused"), Tolerance::F32);
    }
}

#[test]
fn a_step_settles_the_surest_slots_and_conditions_on_its_scaled_logits() {
    let (model, goldens) = (model("tiny-text"), Goldens::load("tiny-text"));
    let (prompt, canvas) = (goldens.ids("prompt_ids"), goldens.ids("canvas_ids"));
    let read = all_rows(&canvas);
    let empty = Prefix::new();
    let rows = CanvasRows { suffix: &[], ids: &canvas, read: &read, previous: None };
    let segment = Segment { prefix: &empty, tokens: &prompt, canvases: vec![rows] };
    let hidden = model.forward(&[segment]).unwrap().remove(0).hidden.remove(0);
    let logits = goldens.get("dec.logits");
    // The first of two steps runs at 0.8, the second would at 0.6.
    for (step, temperature) in [(0, 0.8), (1, 0.6)] {
        let scaled = (logits / temperature).unwrap();
        let rows: Vec<Vec<f32>> = scaled.to_vec2().unwrap();
        let labels = [5u32, 6, 7];
        let slots: Vec<(usize, &[u32])> = [1, 3, 6].map(|row| (row, &labels[..])).to_vec();
        let config = GenerationConfig::default();
        let Settled { signal, labels: settled } = model.settle(&config, &hidden, &slots, (step, 2)).unwrap();
        assert!(max_abs(&signal, &Reference::new(&model).signal(&scaled).unwrap()) <= Tolerance::F32.max_abs);
        // Another bound accepts every slot, as the checkpoint's configuration has it.
        let generous = GenerationConfig { entropy_bound_nats: 1e3, ..config };
        let all = model.settle(&generous, &hidden, &slots, (step, 2)).unwrap().labels;
        assert!(all.iter().all(Option::is_some));
        // A row that is not finite is an error, in a slot or beside one.
        for (row, named) in [(3usize, 1), (2, 3)] {
            let mut broken = hidden.to_vec2::<f32>().unwrap();
            broken[row].fill(f32::NAN);
            let broken = Tensor::new(broken, hidden.device()).unwrap();
            let error = model.settle(&generous, &broken, &slots, (step, 2)).unwrap_err();
            assert!(matches!(error, Error::NonFinite { row } if row == named), "{error}");
        }
        let entropy = |row: &[f32]| {
            let total: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
            -row.iter().map(|x| f64::from(*x).exp() / total).map(|p| p * p.ln()).sum::<f64>()
        };
        let entropies: Vec<f64> = slots.iter().map(|(row, _)| entropy(&rows[*row])).collect();
        let surest = (0..3).min_by(|a, b| entropies[*a].total_cmp(&entropies[*b])).unwrap();
        assert!(entropies[surest] > 0.1, "the bound is used up by the first slot");
        for (slot, (row, _)) in slots.iter().enumerate() {
            let best = *labels
                .iter()
                .max_by(|a, b| rows[*row][**a as usize].total_cmp(&rows[*row][**b as usize]))
                .unwrap();
            assert_eq!(settled[slot], (slot == surest).then_some(best));
        }
    }
}

#[test]
fn a_fused_pass_over_another_prompt_does_not_agree() {
    let (model, goldens) = (model("tiny-text"), Goldens::load("tiny-text"));
    let (prompt, canvas) = (goldens.ids("prompt_ids"), goldens.ids("canvas_ids"));
    let read = all_rows(&canvas);
    let empty = Prefix::new();
    // One prompt token changed: the smallest fault a prefix cache could make.
    let mut wrong = prompt.clone();
    wrong[3] ^= 1;
    let segment = Segment {
        prefix: &empty,
        tokens: &wrong,
        canvases: vec![CanvasRows { suffix: &[], ids: &canvas, read: &read, previous: None }],
    };
    let output = model.forward(&[segment]).unwrap().remove(0);
    assert!(max_abs(&output.hidden[0], goldens.get("dec.final_norm")) > Tolerance::F32.max_abs);
}

#[test]
fn answers_do_not_depend_on_the_rest_of_the_batch() {
    let (model, goldens) = (model("tiny-text"), Goldens::load("tiny-text"));
    let (prompt, canvas) = (goldens.ids("prompt_ids"), goldens.ids("canvas_ids"));
    let read = [3usize, 7];
    let empty = Prefix::new();
    let segment = || Segment {
        prefix: &empty,
        tokens: &prompt,
        canvases: vec![CanvasRows { suffix: &[], ids: &canvas, read: &read, previous: None }],
    };
    let alone = model.forward(&[segment()]).unwrap().remove(0).hidden.remove(0);
    let other = Segment { prefix: &empty, tokens: &prompt[..9], canvases: vec![] };
    let crowded = model.forward(&[other, segment(), segment()]).unwrap();
    for output in &crowded[1..] {
        assert!(max_abs(&output.hidden[0], &alone) <= Tolerance::F32.max_abs);
    }
    assert!(crowded[0].hidden.is_empty());
    assert_eq!(alone.dtype(), DType::F32);
}

/// Rows past the window see nothing of what was encoded before: whole blocks of them, after any number of encoded keys.
#[test]
fn new_rows_far_behind_any_number_of_encoded_ones_agree() {
    let model = model("demo-model");
    let window = model.config().sliding_window;
    let tokens: Vec<u32> = (0..window as u32 + 150).map(|i| (i * 37 + 5) % 4000).collect();
    let canvas = [7, 8, 9];
    let read = all_rows(&canvas);
    let last = |prefix: &Prefix, tokens: &[u32]| {
        let rows = CanvasRows { suffix: &[], ids: &canvas, read: &read, previous: None };
        let segment = Segment { prefix, tokens, canvases: vec![rows] };
        model.forward(&[segment]).unwrap().remove(0).hidden.remove(0)
    };
    let fresh = last(&Prefix::new(), &tokens);
    for encoded in 33..=65 {
        let found = last(&prefix(&model, &tokens[..encoded]), &tokens[encoded..]);
        let apart = max_abs(&found, &fresh);
        let exact = !diffusion_gemma::cpu_kernels().contains("portable");
        assert!(
            apart <= if exact { 0.0 } else { Tolerance::F32.max_abs },
            "{encoded} encoded: off by {apart:e}"
        );
    }
}

#[test]
fn impossible_passes_are_refused() {
    let model = model("tiny-text");
    let empty = Prefix::new();
    let refused = |tokens: &[u32], ids: &[u32], read: &[usize]| {
        let canvases = if ids.is_empty() && read.is_empty() {
            vec![]
        } else {
            vec![CanvasRows { suffix: &[], ids, read, previous: None }]
        };
        model.forward(&[Segment { prefix: &empty, tokens, canvases }]).unwrap_err().to_string()
    };
    assert!(refused(&[], &[], &[]).contains("at least one row"));
    assert!(refused(&[1024], &[], &[]).contains("1024"));
    assert!(refused(&[2], &[5, 6], &[2]).contains("cannot give rows"));
    assert!(refused(&[2], &[], &[0]).contains("canvas of 0 rows"));
}
