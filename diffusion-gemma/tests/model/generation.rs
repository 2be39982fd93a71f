//! The sampler against recorded runs of the reference implementation, step by step with its recorded noise: the plain path, the
//! fast path, and one negative control per rule of the sampler. Then what must hold of any reply: exact budgets, stops, retries,
//! and the same bytes from the same seed whatever runs beside it.

use crate::common::{Goldens, fixture, model};
use candle_core::{DType, IndexOp, Tensor};
use diffusion_gemma::reference::{Reference, SamplerRules, Step};
use diffusion_gemma::{
    Block, CanvasRows, Device, Error, Finish, Generation, GenerationConfig, Model, Noise, Prefix, Progress,
    Reply, Segment, generate, generate_all,
};
use proptest::prelude::*;
use serde_json::Value;

const RUNS: [&str; 3] = ["gen", "gen_stop", "gen_stable"];

/// A recorded run: `[steps][slots]` each.
struct Run {
    config: GenerationConfig,
    noise: Noise,
    canvas_in: Vec<Vec<u32>>,
    canvas_out: Vec<Vec<u32>>,
    argmax: Vec<Vec<u32>>,
    sampled: Vec<Vec<u32>>,
    accepted: Vec<Vec<u32>>,
    entropy: Vec<Vec<f64>>,
    cur_step: Vec<u32>,
    finished: Vec<u32>,
    /// Prompt and committed blocks.
    sequence: Vec<u32>,
}

fn rows(goldens: &Goldens, name: &str) -> Vec<Vec<u32>> {
    goldens.get(name).to_dtype(DType::U32).unwrap().to_vec2().unwrap()
}

fn floats(goldens: &Goldens, name: &str) -> Vec<Vec<f64>> {
    goldens.get(name).to_dtype(DType::F64).unwrap().to_vec2().unwrap()
}

/// generation_config.json of the fixture with the settings of a recorded run on top.
fn settings(run: &str) -> GenerationConfig {
    let read = |file: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(fixture("tiny-text").join(file)).unwrap()).unwrap()
    };
    let mut config = read("generation_config.json");
    let changed = &read("goldens.json")["meta"][run]["settings"];
    for (key, value) in changed.as_object().unwrap() {
        config[key] = value.clone();
    }
    GenerationConfig::from_json(&config.to_string()).unwrap()
}

fn recorded(goldens: &Goldens, name: &str) -> Run {
    let part = |part: &str| format!("{name}.{part}");
    let (initial, renoise) = (rows(goldens, &part("initial_canvas")), rows(goldens, &part("renoise")));
    let starts = goldens.ids(&part("canvas_start"));
    let mut ids = std::collections::VecDeque::new();
    for (step, fresh) in renoise.into_iter().enumerate() {
        if let Some(canvas) = starts.iter().position(|start| *start as usize == step) {
            ids.push_back(initial[canvas].clone());
        }
        ids.push_back(fresh);
    }
    Run {
        config: settings(name),
        noise: Noise::Recorded { ids, uniforms: floats(goldens, &part("u")).into() },
        canvas_in: rows(goldens, &part("canvas_in")),
        canvas_out: rows(goldens, &part("canvas_out")),
        argmax: rows(goldens, &part("argmax")),
        sampled: rows(goldens, &part("sampled")),
        accepted: rows(goldens, &part("accepted")),
        entropy: floats(goldens, &part("entropy")),
        cur_step: goldens.ids(&part("cur_step")),
        finished: goldens.ids(&part("finished")),
        sequence: goldens.ids(&part("sequences")),
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The first difference between a run of the plain sampler and the recording, in words.
fn difference(model: &Model, goldens: &Goldens, name: &str, rules: &SamplerRules) -> Option<String> {
    let run = recorded(goldens, name);
    let mut step = 0;
    let mut compare = |made: &Step| {
        let n = step;
        step += 1;
        let wrong = |what: &str| Err(Error::Input(format!("{name} step {n}: {what}")));
        if n >= run.argmax.len() {
            return wrong("one step more than recorded");
        }
        let same = |flags: &[bool]| flags.iter().zip(&run.accepted[n]).all(|(a, b)| u32::from(*a) == *b);
        let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 2e-3;
        let checks = [
            ("cur_step", made.remaining == run.cur_step[n] as usize),
            ("canvas_in", made.canvas_in == run.canvas_in[n]),
            ("argmax", made.argmax == run.argmax[n]),
            ("sampled", made.sampled == run.sampled[n]),
            ("entropy", made.entropy_nats.iter().zip(&run.entropy[n]).all(close)),
            ("accepted", same(&made.accepted)),
            ("canvas_out", made.canvas_out == run.canvas_out[n]),
            ("finished", u32::from(made.finished) == run.finished[n]),
        ];
        checks.iter().find(|(_, right)| !right).map_or(Ok(()), |(what, _)| wrong(what))
    };
    let prompt = goldens.ids("prompt_ids");
    let made =
        Reference::new(model).generate(&prompt, &run.config, rules, &mut run.noise.clone(), &mut compare);
    // A wrong sampler may also need noise that nobody recorded.
    let committed = match made {
        Ok(committed) => committed,
        Err(error) => return Some(error.to_string()),
    };
    let whole = [prompt, committed].concat();
    (whole != run.sequence || step != run.argmax.len()).then(|| format!("{name}: committed ids"))
}

#[test]
fn the_plain_sampler_repeats_every_recorded_step() {
    let (model, goldens) = (model("tiny-text"), Goldens::load("tiny-text"));
    for name in RUNS {
        assert_eq!(difference(&model, &goldens, name, &SamplerRules::default()), None);
    }
}

#[test]
fn every_broken_rule_of_the_sampler_is_caught() {
    let right = SamplerRules::default;
    let broken = [
        ("bound on the sum with the slot itself", SamplerRules { exclusive_bound: false, ..right() }),
        ("accepted slots frozen", SamplerRules { nothing_frozen: false, ..right() }),
        ("slots left as they were", SamplerRules { renoised: false, ..right() }),
        ("argmax in accepted slots", SamplerRules { sampled: false, ..right() }),
        ("entropy before temperature", SamplerRules { scaled_entropy: false, ..right() }),
        ("conditioned on raw logits", SamplerRules { scaled_conditioning: false, ..right() }),
        ("conditioned on the canvas before", SamplerRules { fresh_conditioning: false, ..right() }),
        ("temperature one step late", SamplerRules { counted_down: false, ..right() }),
        ("samples committed", SamplerRules { argmax_committed: false, ..right() }),
        ("stability one step short", SamplerRules { whole_history: false, ..right() }),
        ("blocks not encoded", SamplerRules { encoded_blocks: false, ..right() }),
    ];
    let (model, goldens) = (model("tiny-text"), Goldens::load("tiny-text"));
    for (what, rules) in broken {
        let caught = RUNS.iter().find_map(|name| difference(&model, &goldens, name, &rules));
        println!("{what}: {}", caught.as_deref().unwrap_or("unnoticed"));
        assert!(caught.is_some(), "{what} went unnoticed");
    }
}

/// A reply driven by hand: what a scheduler keeps of one conversation.
struct Conversation {
    prefix: Prefix,
    /// Ids that the next pass encodes first.
    tokens: Vec<u32>,
    generation: Generation,
}

impl Conversation {
    fn new(model: &Model, prompt: &[u32], config: &GenerationConfig, noise: Noise) -> Self {
        let generation = Generation::new(model.config(), config.clone(), noise).unwrap();
        Self { prefix: Prefix::new(), tokens: prompt.to_vec(), generation }
    }

    fn pass(&mut self, model: &Model) -> diffusion_gemma::Result<Progress> {
        let canvas = self.generation.canvas().unwrap();
        let segment = Segment { prefix: &self.prefix, tokens: &self.tokens, canvases: vec![canvas] };
        let output = model.forward(&[segment]).unwrap().remove(0);
        self.prefix = output.prefix;
        let progress = model.advance(&mut [(&mut self.generation, &output.hidden[0])]).unwrap().remove(0);
        self.tokens = self.generation.commit().to_vec();
        progress
    }
}

#[test]
fn the_fast_sampler_repeats_every_recorded_step() {
    let (model, goldens) = (model("tiny-text"), Goldens::load("tiny-text"));
    let prompt = goldens.ids("prompt_ids");
    for name in RUNS {
        let run = recorded(&goldens, name);
        let mut reply = Conversation::new(&model, &prompt, &run.config, run.noise.clone());
        let mut sequence = prompt.clone();
        for n in 0..run.argmax.len() {
            assert_eq!(reply.generation.canvas().unwrap().ids, run.canvas_in[n], "{name} step {n}");
            match reply.pass(&model).unwrap() {
                Progress::Denoising => {
                    let (draft, accepted) = reply.generation.draft();
                    assert_eq!(draft, run.argmax[n], "{name} step {n}");
                    assert!(accepted.iter().zip(&run.accepted[n]).all(|(a, b)| u32::from(*a) == *b));
                    assert_eq!(reply.generation.canvas().unwrap().ids, run.canvas_out[n]);
                    let entropy = f64::from(reply.generation.mean_entropy_nats());
                    assert!((entropy - mean(&run.entropy[n])).abs() < 1e-3, "{name} step {n}");
                    assert_eq!(run.finished[n], 0);
                }
                Progress::Committed(block) => {
                    assert_eq!(block.ids, run.argmax[n]);
                    assert_eq!(u32::from(block.converged), run.finished[n]);
                    assert!((f64::from(block.mean_entropy_nats) - mean(&run.entropy[n])).abs() < 1e-3);
                    sequence.extend(&block.ids);
                }
                Progress::Retrying => panic!("{name} step {n}: no block here is empty"),
            }
        }
        assert_eq!(sequence, run.sequence, "{name}");
        assert_eq!(reply.generation.finish(), Some(Finish::Length));
        assert!(reply.generation.canvas().is_none());
        let stats = reply.generation.stats();
        assert_eq!((stats.steps, stats.tokens), (run.argmax.len(), run.sequence.len() - prompt.len()));
    }
}

#[test]
fn one_recorded_step_on_recorded_logits_agrees() {
    let (model, goldens) = (model("tiny-text"), Goldens::load("tiny-text"));
    let ids = [goldens.ids("canvas_ids"), goldens.ids("step.renoise")].into();
    let u: Vec<f64> = goldens.get("step.u").to_dtype(DType::F64).unwrap().to_vec1().unwrap();
    let noise = Noise::Recorded { ids, uniforms: [u.clone(), u].into() };
    let mut reply = Conversation::new(&model, &goldens.ids("prompt_ids"), &settings("gen"), noise);
    assert_eq!(reply.pass(&model).unwrap(), Progress::Denoising);
    assert_eq!(reply.generation.canvas().unwrap().ids, goldens.ids("step.canvas_out"));
    let (draft, accepted) = reply.generation.draft();
    assert_eq!(draft, goldens.ids("step.argmax"));
    assert!(accepted.iter().zip(goldens.ids("step.accepted")).all(|(a, b)| u32::from(*a) == b));
    let entropy: Vec<f64> = goldens.get("step.entropy").to_dtype(DType::F64).unwrap().to_vec1().unwrap();
    assert!((f64::from(reply.generation.mean_entropy_nats()) - mean(&entropy)).abs() < 1e-4);
}

#[test]
fn a_reply_ends_before_the_first_stop_id() {
    let (model, goldens) = (model("tiny-text"), Goldens::load("tiny-text"));
    let prompt = goldens.ids("prompt_ids");
    let run = recorded(&goldens, "gen");
    let stops = goldens.ids("gen_eos.eos_ids");
    let config = GenerationConfig { eos_token_ids: stops.clone(), ..run.config };
    let mut reply = Conversation::new(&model, &prompt, &config, run.noise);
    let block = loop {
        if let Progress::Committed(block) = reply.pass(&model).unwrap() {
            break block;
        }
    };
    // The recording keeps the stop id and fills the rest with padding.
    let whole = goldens.ids("gen_eos.sequences");
    let at = whole.iter().skip(prompt.len()).position(|id| stops.contains(id)).unwrap() + prompt.len();
    assert_eq!((&block.ids[..], block.finish), (&whole[prompt.len()..at], Some(Finish::Stop(whole[at]))));
    assert!(whole[at + 1..].iter().all(|id| *id == 0));
    assert!(reply.generation.commit().is_empty(), "nothing of a finished reply is left to encode");
}

/// A quick reply: few steps, no stop ids.
fn quick(steps: usize, tokens: usize) -> GenerationConfig {
    GenerationConfig {
        max_new_tokens: tokens,
        max_denoising_steps: steps,
        eos_token_ids: vec![],
        entropy_bound_nats: 0.5,
        ..GenerationConfig::default()
    }
}

fn blocks(model: &Model, prompt: &[u32], config: &GenerationConfig, seed: u64) -> Vec<Block> {
    let mut generation = Generation::new(model.config(), config.clone(), Noise::seeded(seed)).unwrap();
    let mut blocks = Vec::new();
    generate(model, prompt, &mut generation, |block| blocks.push(block.clone())).unwrap();
    blocks
}

/// The same reply, alone and beside others. With this crate's kernels a row's bits do not depend on the rows beside it, so ids and
/// entropies are equal to the bit. The portable path rounds as the tensor library's matmul does, which chooses by the number of
/// rows: there the course of a reply is compared, and its ids could differ where a random number falls on a rounding.
fn assert_same(a: &[Block], b: &[Block]) {
    if diffusion_gemma::cpu_kernels() != "portable kernels" {
        assert_eq!(a, b);
    }
    let course = |blocks: &[Block]| -> Vec<_> {
        blocks.iter().map(|b| (b.ids.len(), b.finish, b.steps, b.converged)).collect()
    };
    assert_eq!(course(a), course(b));
}

fn ids(blocks: &[Block]) -> Vec<u32> {
    blocks.iter().flat_map(|block| block.ids.clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_budget_is_met_exactly_and_changes_nothing_but_the_length(tokens in 1usize..100, seed: u64, steps in 1usize..4) {
        let model = model("tiny-text");
        let prompt = [2, 105, 678, 107];
        let made = blocks(&model, &prompt, &quick(steps, tokens), seed);
        let longer = blocks(&model, &prompt, &quick(steps, 128), seed);
        prop_assert_eq!(ids(&made).len(), tokens);
        prop_assert_eq!(made.len(), tokens.div_ceil(model.config().canvas_length));
        prop_assert_eq!(&ids(&made)[..], &ids(&longer)[..tokens]);
        let ends: Vec<_> = made.iter().filter_map(|block| block.finish).collect();
        prop_assert_eq!(ends, [Finish::Length]);
        prop_assert_eq!(made.last().unwrap().finish, Some(Finish::Length));
    }

    #[test]
    fn a_reply_does_not_depend_on_what_runs_beside_it(
        replies in prop::collection::vec(
            (prop::collection::vec(0u32..1024, 1..30), any::<u64>(), 1usize..5, 1usize..80), 2..5),
    ) {
        let model = model("tiny-text");
        let alone: Vec<Vec<Block>> = replies
            .iter()
            .map(|(prompt, seed, steps, tokens)| blocks(&model, prompt, &quick(*steps, *tokens), *seed))
            .collect();
        let mut generations: Vec<Generation> = replies
            .iter()
            .map(|(_, seed, steps, tokens)| {
                Generation::new(model.config(), quick(*steps, *tokens), Noise::seeded(*seed)).unwrap()
            })
            .collect();
        let mut together = vec![Vec::new(); replies.len()];
        let mut batch: Vec<Reply<'_>> = replies
            .iter()
            .zip(&mut generations)
            .map(|((prompt, ..), generation)| Reply { prompt, generation })
            .collect();
        generate_all(&model, &mut batch, |n, block| together[n].push(block.clone())).unwrap();
        for (alone, together) in alone.iter().zip(&together) {
            assert_same(alone, together);
        }
    }

    #[test]
    fn any_stop_id_ends_a_reply_where_it_first_stands(seed: u64, place in 0usize..64) {
        let model = model("tiny-text");
        let prompt = [2, 105, 678, 107];
        let whole = ids(&blocks(&model, &prompt, &quick(2, 64), seed));
        let stop = whole[place];
        let at = whole.iter().position(|id| *id == stop).unwrap();
        let config = GenerationConfig { eos_token_ids: vec![1023, stop], ..quick(2, 64) };
        let stopped_early = whole.iter().position(|id| *id == 1023).is_some_and(|other| other < at);
        // A stop in the first place makes the block empty: that is another test.
        prop_assume!(!stopped_early && at > 0);
        let made = blocks(&model, &prompt, &config, seed);
        prop_assert_eq!(&ids(&made)[..], &whole[..at]);
        prop_assert_eq!(made.last().unwrap().finish, Some(Finish::Stop(stop)));
        // With exactly that budget the stop still counts, where it lies in the same block; with one token less it is out of reach.
        let finish = Some(if at % 32 == 0 { Finish::Length } else { Finish::Stop(stop) });
        let exact = GenerationConfig { max_new_tokens: at, ..config.clone() };
        prop_assert_eq!(blocks(&model, &prompt, &exact, seed).last().unwrap().finish, finish);
        if at > 1 {
            let short = GenerationConfig { max_new_tokens: at - 1, ..config };
            let made = blocks(&model, &prompt, &short, seed);
            prop_assert_eq!((ids(&made).len(), made.last().unwrap().finish), (at - 1, Some(Finish::Length)));
        }
    }
}

#[test]
fn seeds_differ_and_repeat() {
    let model = model("tiny-text");
    let made: Vec<_> = [7, 8, 7].iter().map(|seed| blocks(&model, &[2, 9], &quick(3, 64), *seed)).collect();
    assert_eq!(made[0], made[2]);
    assert_ne!(ids(&made[0]), ids(&made[1]));
}

#[test]
fn an_empty_first_block_is_tried_again_on_narrower_canvases() {
    let model = model("tiny-text");
    let config = quick(2, 40);
    // Called empty twice, then accepted.
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let generation = Generation::new(model.config(), config.clone(), Noise::seeded(3)).unwrap();
    let mut reply = Conversation {
        prefix: Prefix::new(),
        tokens: vec![2, 105, 678, 107],
        generation: generation
            .with_blank(move |_| calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2),
    };
    let (mut widths, mut given, mut retries) = (Vec::new(), Vec::new(), 0);
    while let Some(canvas) = reply.generation.canvas() {
        // The first step of a canvas, and no other, begins without self-conditioning.
        assert_eq!(canvas.previous.is_none(), widths.len() % 2 == 0);
        widths.push(canvas.ids.len());
        match reply.pass(&model).unwrap() {
            Progress::Denoising => assert!(given.is_empty() || retries == 2),
            Progress::Retrying => {
                retries += 1;
                assert!(given.is_empty(), "nothing is given out before a block is accepted");
                assert!(reply.tokens.is_empty(), "nothing of the thrown block is encoded");
                assert_eq!(reply.prefix.tokens(), 4);
            }
            Progress::Committed(block) => given.push(block.ids.len()),
        }
    }
    assert_eq!(widths, [32, 32, 16, 16, 8, 8, 32, 32]);
    assert_eq!((given.as_slice(), retries), (&[8, 32][..], 2));
    let stats = reply.generation.stats();
    assert_eq!((stats.retries, stats.steps, stats.blocks, stats.tokens), (2, 8, 2, 40));
}

#[test]
fn retries_end_and_the_empty_block_is_then_the_reply() {
    let model = model("tiny-text");
    let prompt = [2, 105, 678, 107];
    // Every id is a stop, so every block is empty.
    let config = GenerationConfig { eos_token_ids: (0..1024).collect(), ..quick(1, 40) };
    let mut generation = Generation::new(model.config(), config, Noise::seeded(3)).unwrap();
    let mut given = Vec::new();
    generate(&model, &prompt, &mut generation, |block| given.push(block.clone())).unwrap();
    assert!(given.len() == 1 && given[0].ids.is_empty());
    assert!(matches!(given[0].finish, Some(Finish::Stop(_))));
    let stats = generation.stats();
    assert_eq!((stats.retries, stats.steps, stats.blocks, stats.tokens), (3, 4, 1, 0));
}

#[test]
fn a_block_that_ran_out_of_steps_is_counted() {
    let model = model("tiny-text");
    let mut generation = Generation::new(model.config(), quick(2, 64), Noise::seeded(3)).unwrap();
    let mut converged = Vec::new();
    generate(&model, &[2, 9], &mut generation, |block| converged.push(block.converged)).unwrap();
    assert_eq!((converged.as_slice(), generation.stats().unconverged_blocks), (&[false, false][..], 2));
    let sure = GenerationConfig { confidence_threshold_nats: 100.0, stability_threshold: 0, ..quick(2, 64) };
    let mut generation = Generation::new(model.config(), sure, Noise::seeded(3)).unwrap();
    generate(&model, &[2, 9], &mut generation, |block| assert!(block.converged)).unwrap();
    assert_eq!((generation.stats().unconverged_blocks, generation.stats().steps), (0, 2));
    assert_eq!(generation.stats().tokens_per_forward(), 32.0);
}

#[test]
fn a_denoise_step_shares_its_pass_with_decisions_and_prefills() {
    let model = model("tiny-text");
    let (prompt, config) = ([2u32, 105, 678, 107], quick(3, 32));
    let alone = blocks(&model, &prompt, &config, 11);
    let mut reply = Conversation::new(&model, &prompt, &config, Noise::seeded(11));
    let empty = Prefix::new();
    let mut made = Vec::new();
    while let Some(canvas) = reply.generation.canvas() {
        let decision = CanvasRows { suffix: &[5], ids: &[9, 8, 7], read: &[1], previous: None };
        let output = model
            .forward(&[
                Segment { prefix: &empty, tokens: &[2, 3, 4, 5, 6], canvases: vec![] },
                Segment { prefix: &reply.prefix, tokens: &reply.tokens, canvases: vec![canvas] },
                Segment { prefix: &empty, tokens: &[2, 7], canvases: vec![decision] },
            ])
            .unwrap();
        reply.prefix = output[1].prefix.clone();
        let progress = model.advance(&mut [(&mut reply.generation, &output[1].hidden[0])]).unwrap().remove(0);
        reply.tokens = reply.generation.commit().to_vec();
        if let Progress::Committed(block) = progress.unwrap() {
            made.push(block);
        }
    }
    assert_same(&made, &alone);
}

#[test]
fn a_broken_row_ends_its_own_reply_only() {
    let model = model("tiny-text");
    let config = quick(3, 32);
    let mut pair: Vec<Conversation> =
        (0..2).map(|seed| Conversation::new(&model, &[2, 9], &config, Noise::seeded(seed))).collect();
    let (h, rows) = (model.config().hidden_size, model.config().canvas_length);
    let sound = Tensor::ones((rows, h), DType::F32, &Device::Cpu).unwrap();
    let mut broken = vec![1f32; rows * h];
    broken[5 * h + 3] = f32::NAN;
    let broken = Tensor::from_vec(broken, (rows, h), &Device::Cpu).unwrap();
    let [first, second] = &mut pair[..] else { unreachable!() };
    let progress =
        model.advance(&mut [(&mut first.generation, &broken), (&mut second.generation, &sound)]).unwrap();
    assert!(matches!(progress[0], Err(Error::NonFinite { row: 5 })));
    assert_eq!(*progress[1].as_ref().unwrap(), Progress::Denoising);
    // Fewer rows than the canvas has are refused before anything moves.
    let few = sound.i(..4).unwrap();
    let refusal = model.advance(&mut [(&mut second.generation, &few)]).unwrap_err().to_string();
    assert!(refusal.contains("4 hidden rows for a canvas of 32"), "{refusal}");
    assert_eq!(second.generation.stats().steps, 1);
}

#[test]
fn what_cannot_be_generated_is_refused_in_words() {
    let model = model("tiny-text");
    let none = GenerationConfig { max_new_tokens: 0, ..GenerationConfig::default() };
    let refusal = Generation::new(model.config(), none, Noise::seeded(1)).unwrap_err().to_string();
    assert!(refusal.contains("max_new_tokens is 0"), "{refusal}");
    assert_eq!(model.config().longest_reply(4096 - 33), 32);
    assert_eq!((model.config().longest_reply(4096 - 31), model.config().longest_reply(9000)), (0, 0));
    for prompt in [vec![], vec![2; 4096 - 31]] {
        let mut generation = Generation::new(model.config(), quick(1, 8), Noise::seeded(1)).unwrap();
        let refusal = generate(&model, &prompt, &mut generation, |_| ()).unwrap_err().to_string();
        assert!(refusal.contains("a canvas of 32 before position 4096"), "{refusal}");
    }
    let mut generation = Generation::new(model.config(), quick(1, 8), Noise::seeded(1)).unwrap();
    generate(&model, &[2, 9], &mut generation, |_| ()).unwrap();
    let rows = Tensor::ones((32, 64), DType::F32, &Device::Cpu).unwrap();
    let refusal = model.advance(&mut [(&mut generation, &rows)]).unwrap_err().to_string();
    assert!(refusal.contains("has ended"), "{refusal}");
}
