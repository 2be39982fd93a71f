//! The native engine on the demo checkpoint: against the reference probabilities, and through the whole server.

use std::sync::Arc;

use crate::common::{demo_model, options, text, triage};
use decision::softmax;
use dgemma_server::device::{Choice, Map};
use dgemma_server::engine::diffusion::{DiffusionEngine, OpenOptions};
use dgemma_server::engine::{Canvas, Engine, PassItem, Slot};
use dgemma_server::{Parts, serve};
use diffusion_gemma::DType;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Largest difference of a probability from the reference that is allowed.
const TOLERANCE: f64 = 1e-3;

fn open(prefix_cache_bytes: usize) -> DiffusionEngine {
    let options = OpenOptions {
        quant: None,
        dir: demo_model(),
        dtype: DType::F32,
        context_tokens: None,
        active_tokens: usize::MAX,
        prefix_cache_bytes,
        threads: 2,
        device: Choice::Cpu,
        device_map: Map::default(),
    };
    DiffusionEngine::open(&options, &mut |_, _| ()).unwrap()
}

#[test]
fn a_context_without_room_beside_a_canvas_is_refused_at_the_start() {
    for (tokens, starts) in [(0, false), (127, false), (128, true), (1 << 20, false)] {
        let options = OpenOptions {
            quant: None,
            dir: demo_model(),
            dtype: DType::F32,
            context_tokens: Some(tokens),
            active_tokens: usize::MAX,
            prefix_cache_bytes: 0,
            threads: 2,
            device: Choice::Cpu,
            device_map: Map::default(),
        };
        let opened = DiffusionEngine::open(&options, &mut |_, _| ());
        assert_eq!(opened.is_ok(), starts, "{tokens}");
        if let Err(error) = opened {
            assert!(error.to_string().contains("--ctx"), "{error}");
        }
    }
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

fn cases() -> Vec<Value> {
    let text = std::fs::read_to_string(demo_model().join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    expected["cases"].as_array().unwrap().clone()
}

fn canvas(ids: Vec<u32>, slots: Arc<[Slot]>) -> Canvas {
    Canvas { suffix: Arc::default(), ids, slots, renoise: Vec::new() }
}

/// Prompt, canvas, and the probabilities, mass and argmax of every slot.
type Case = (Vec<u32>, Canvas, Vec<(Vec<f64>, f64, u32)>);

fn case(case: &Value) -> Case {
    let slots = case["slots"].as_array().unwrap();
    let positions: Arc<[Slot]> = slots
        .iter()
        .map(|slot| Slot {
            position: slot["pos"].as_u64().unwrap() as usize,
            label_ids: ids(&slot["label_ids"]),
        })
        .collect();
    let expected = slots
        .iter()
        .map(|slot| {
            let probabilities = serde_json::from_value(slot["probabilities"].clone()).unwrap();
            let argmax = slot["argmax_id"].as_u64().unwrap() as u32;
            (probabilities, slot["label_mass"].as_f64().unwrap(), argmax)
        })
        .collect();
    (ids(&case["prompt_ids"]), canvas(ids(&case["canvas_ids"]), positions), expected)
}

/// Each case by itself, then all in one pass, then all again with their prompts known, in chunks.
#[test]
fn whole_requests_have_the_probabilities_of_the_reference() {
    let cases: Vec<Case> = cases().iter().map(case).collect();
    let mut engine = open(64 << 20);
    let mut largest = 0.0_f64;
    let mut check = |way: &str, number: usize, slots: &[dgemma_server::engine::SlotLogits]| {
        for (slot, (probabilities, mass, argmax)) in slots.iter().zip(&cases[number].2) {
            let found = softmax(&slot.label_logits).unwrap();
            let full = slot.full.unwrap();
            let pairs = found.iter().zip(probabilities).map(|(found, wanted)| (found - wanted).abs());
            let apart = pairs.fold((f64::from(full.label_mass) - mass).abs(), f64::max);
            assert!(apart <= TOLERANCE, "case {number}, {way}: {apart}");
            assert_eq!(full.argmax_id, *argmax, "case {number}, {way}");
            largest = largest.max(apart);
        }
    };
    let mut sequences: Vec<_> = cases.iter().map(|case| engine.begin(&case.0).unwrap()).collect();
    for (number, (prompt, canvas, _)) in cases.iter().enumerate() {
        let mut sequence = engine.begin(prompt).unwrap();
        let canvases = std::slice::from_ref(canvas);
        let item = PassItem { sequence: &mut sequence, prefill: prompt, canvases, reply: None };
        check("alone", number, &engine.pass(&mut [item]).unwrap()[0].canvases[0]);
    }
    let mut batch: Vec<PassItem<'_, _, _>> = cases
        .iter()
        .zip(&mut sequences)
        .map(|(case, sequence)| PassItem {
            sequence,
            prefill: &case.0,
            canvases: std::slice::from_ref(&case.1),
            reply: None,
        })
        .collect();
    for (number, output) in engine.pass(&mut batch).unwrap().iter().enumerate() {
        check("in one batch", number, &output.canvases[0]);
    }
    for sequence in sequences {
        engine.finish(sequence);
    }
    for (number, (prompt, canvas, _)) in cases.iter().enumerate() {
        let longer: Vec<u32> = [&prompt[..prompt.len() / 2], &[7, 8, 9]].concat();
        let branch = engine.begin(&longer).unwrap();
        assert_eq!(engine.committed_tokens(&branch), prompt.len() / 2, "reuse at token granularity");
        let mut sequence = engine.begin(prompt).unwrap();
        let reused = engine.committed_tokens(&sequence);
        assert!(reused > prompt.len() / 2, "case {number}: {reused} of {}", prompt.len());
        let canvases = std::slice::from_ref(canvas);
        let item = PassItem { sequence: &mut sequence, prefill: &prompt[reused..], canvases, reply: None };
        check("with a known prefix", number, &engine.pass(&mut [item]).unwrap()[0].canvases[0]);
    }
    println!("max abs difference of a probability over {} requests: {largest:.2e}", cases.len());
}

/// Sliding layers drop the middle of a long prompt, so its beginning cannot be cut out of it afterwards.
#[test]
fn the_beginning_that_long_prompts_share_is_reused_from_the_third_on() {
    let mut engine = open(64 << 20);
    let (template, wanted) = (cases().iter().map(case).next().unwrap(), 300);
    let long = |salt: u32| -> Vec<u32> {
        let (shared, own) = ((0..wanted).map(|n| 40 + n % 900), (0..900).map(|n| 40 + (n * 7 + salt) % 900));
        shared.chain(own).collect()
    };
    let read = |engine: &mut DiffusionEngine, prompt: &[u32], chunk: usize, finish: bool| {
        let mut sequence = engine.begin(prompt).unwrap();
        let reused = engine.committed_tokens(&sequence);
        let mut at = reused;
        while prompt.len() - at > chunk {
            let prefill = &prompt[at..at + chunk];
            engine
                .pass(&mut [PassItem { sequence: &mut sequence, prefill, canvases: &[], reply: None }])
                .unwrap();
            at += chunk;
        }
        let canvases = std::slice::from_ref(&template.1);
        let item = PassItem { sequence: &mut sequence, prefill: &prompt[at..], canvases, reply: None };
        let slots = engine.pass(&mut [item]).unwrap().remove(0).canvases.remove(0);
        if finish {
            engine.finish(sequence);
        }
        (reused, slots)
    };
    assert_eq!(read(&mut engine, &long(1), 2048, true).0, 0);
    assert_eq!(read(&mut engine, &long(2), 128, false).0, 0, "the sliding layers have dropped what it needs");
    assert_eq!(read(&mut engine, &long(2), 128, true).0, 0, "an unfinished request leaves no trace");
    let (reused, slots) = read(&mut engine, &long(3), 100, true);
    assert_eq!(reused as u32, wanted);
    let (reused, fresh) = read(&mut open(0), &long(3), 2048, true);
    assert_eq!(reused, 0);
    for (one, two) in slots.iter().zip(&fresh) {
        let apart = one.label_logits.iter().zip(&two.label_logits).map(|(a, b)| (a - b).abs());
        assert!(apart.fold(0.0, f32::max) <= 1e-4, "{one:?} {two:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_decision_over_http() {
    let native = Native::start(64 << 20).await;
    let mut schema = triage();
    schema["samples"] = json!(4);
    let mut decisions = Vec::new();
    for _ in 0..2 {
        let body = crate::common::request(
            &schema,
            "{\"ticket\": \"I was billed $500 twice for my annual renewal.\"}",
        );
        let reply = native.post("/v1/chat/completions", &body).await;
        let content = reply["choices"][0]["message"]["content"].as_str().unwrap();
        decisions.push(serde_json::from_str::<Value>(content).unwrap());
    }
    let timing = |n: usize, key: &str| decisions[n]["diagnostics"]["timing"][key].as_u64().unwrap();
    assert_eq!(decisions[0]["answers"]["team"]["choice"], "billing");
    assert_eq!(decisions[0]["diagnostics"]["engine"], "diffusion");
    assert_eq!(
        (timing(1, "reused_tokens"), timing(1, "prompt_tokens")),
        (timing(0, "prompt_tokens"), timing(0, "prompt_tokens"))
    );
    for id in ["urgent", "team", "sentiment"] {
        let (one, two) = (&decisions[0]["answers"][id], &decisions[1]["answers"][id]);
        let sum: f64 = one["probabilities"].as_object().unwrap().values().map(|p| p.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-9);
        for (name, probability) in one["probabilities"].as_object().unwrap() {
            let again = two["probabilities"][name].as_f64().unwrap();
            assert!((probability.as_f64().unwrap() - again).abs() < 1e-4, "a known prefix changes no answer");
        }
        assert!(decisions[0]["diagnostics"]["questions"][id]["label_mass"].as_f64().unwrap() > 0.9);
    }
    native.stop().await;
}

/// The real engine behind a real socket.
struct Native {
    url: String,
    stop: tokio::sync::oneshot::Sender<()>,
    running: tokio::task::JoinHandle<Result<(), dgemma_server::Error>>,
}

impl Native {
    /// `prefix_cache_bytes`: 0 where all that a question gets from a pass must come of this pass.
    async fn start(prefix_cache_bytes: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(serve(
            listener,
            options(),
            move |_| Ok(Parts { engine: open(prefix_cache_bytes), text: text() }),
            async {
                let _ = stopped.await;
            },
        ));
        let native = Native { url, stop, running };
        while crate::common::client().get(format!("{}/readyz", native.url)).send().await.unwrap().status()
            != 200
        {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        native
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let url = format!("{}{path}", self.url);
        let reply = crate::common::client().post(url).body(body.to_string()).send().await.unwrap();
        let status = reply.status();
        let text = reply.text().await.unwrap();
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.running.await.unwrap().unwrap();
    }
}

fn largest_difference(one: &Value, two: &Value) -> f64 {
    // Those of a noul are an extra of this server.
    let of = |answer: &Value| {
        let found = answer.get("probabilities").or_else(|| answer.get("x_probabilities"));
        found.unwrap().as_object().unwrap().clone()
    };
    let (one, two) = (of(one), of(two));
    assert!(one.keys().eq(two.keys()));
    one.iter().fold(0.0, |largest, (name, p)| {
        f64::max(largest, (p.as_f64().unwrap() - two[name].as_f64().unwrap()).abs())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_isolated_answer_is_that_of_the_question_asked_alone() {
    let native = Native::start(0).await;
    let ask = async |questions: &Value, samples: u32| {
        let state = "I was charged twice for my March invoice and the refund has not arrived. ".repeat(9);
        let body = json!({"state": state, "questions": questions, "samples": samples});
        native.post("/v1/systemone", &body).await
    };
    let wide: serde_json::Map<String, Value> = (0..60).map(|n| (format!("queue {n}"), Value::Null)).collect();
    let questions = json!({
        "refund": {"type": "noul", "instructions": "Is the customer asking for money back?"},
        "team": {"type": "choice", "criteria": {"Billing": "money", "Technical": "bugs", "Sales": null}},
        "queue": {"type": "choice", "instructions": "Which queue?", "criteria": wide},
        "anger": {"type": "score", "instructions": "How angry?", "criteria": ["Calm", "Cross", "Furious"]},
        "tone": {"type": "score", "criteria": ["Rude", "Polite"], "depends_on": ["anger"]},
    });
    let together = ask(&questions, 2).await;
    let timing = &together["x_diagnostics"]["timing"];
    assert_eq!(timing["rounds"], 2, "one forward for each stage: {timing}");
    let reversed: Value = questions.as_object().unwrap().clone().into_iter().rev().collect();
    let reversed = ask(&reversed, 2).await;
    let mut largest = 0.0_f64;
    for (id, question) in questions.as_object().unwrap() {
        let mut alone = json!({ "another: name": question });
        if id == "tone" {
            alone["anger"] = questions["anger"].clone();
        }
        let alone = ask(&alone, 2).await;
        for other in [&alone["answers"]["another: name"], &reversed["answers"][id]] {
            let apart = largest_difference(&together["answers"][id], other);
            assert!(apart <= 1e-4, "{id}: {apart}");
            largest = largest.max(apart);
        }
    }
    println!("max abs difference of a probability, together or alone or reversed: {largest:.2e}");
    native.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn further_steps_change_the_read_and_repeat() {
    let native = Native::start(0).await;
    let decide = async |steps: u32| {
        let mut schema = triage();
        schema["steps"] = json!(steps);
        schema["samples"] = json!(2);
        let reply =
            native.post("/v1/chat/completions", &crate::common::request(&schema, "The site is down.")).await;
        let content = reply["choices"][0]["message"]["content"].as_str().unwrap();
        serde_json::from_str::<Value>(content).unwrap()
    };
    let (one, three, again) = (decide(1).await, decide(3).await, decide(3).await);
    assert_eq!(three["diagnostics"]["steps"], 3);
    assert_eq!(three["diagnostics"]["timing"]["rounds"], 3);
    let mut moved = 0.0_f64;
    for id in ["urgent", "team", "sentiment"] {
        let (one, three, again) = (&one["answers"][id], &three["answers"][id], &again["answers"][id]);
        let sum: f64 =
            three["probabilities"].as_object().unwrap().values().map(|p| p.as_f64().unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-9);
        assert!(largest_difference(three, again) <= 1e-6);
        moved = moved.max(largest_difference(one, three));
    }
    assert!(moved > 1e-6, "the later steps see the earlier ones");
    native.stop().await;
}

/// The demo checkpoint knows no words. What it says has to be text, to have its length, and to be the same for the same seed.
#[tokio::test(flavor = "multi_thread")]
async fn conversations_repeat_by_their_seed_also_beside_others() {
    let native = Native::start(0).await;
    let talk = |seed: u64| {
        let messages = json!([{"role": "user", "content": "Write something."}]);
        json!({"messages": messages, "seed": seed, "max_tokens": 70, "model": "demo:think"})
    };
    let path = "/v1/chat/completions";
    let alone = native.post(path, &talk(7)).await;
    let (again, other, decision) = tokio::join!(
        async { native.post(path, &talk(7)).await },
        async { native.post(path, &talk(8)).await },
        async { native.post(path, &crate::common::request(&triage(), "The site is down.")).await },
    );
    assert_eq!(alone["choices"][0]["message"], again["choices"][0]["message"]);
    assert_ne!(alone["choices"][0]["message"], other["choices"][0]["message"]);
    assert!(decision["choices"][0]["message"]["content"].as_str().unwrap().contains("answers"));
    for reply in [&alone, &other] {
        let text = reply["choices"][0]["message"].to_string();
        assert!(!["<|", "|>", "<0x"].iter().any(|marker| text.contains(marker)), "{text}");
        assert!(reply["usage"]["completion_tokens"].as_u64().unwrap() <= 70);
        assert!(reply["x_generation"]["steps"].as_u64().unwrap() >= 1);
    }
    let mut schema = triage();
    schema["think"] = json!(20);
    let reply = native.post(path, &crate::common::request(&schema, "The site is down.")).await;
    let content: Value =
        serde_json::from_str(reply["choices"][0]["message"]["content"].as_str().unwrap()).unwrap();
    assert!(content["diagnostics"]["thought"].is_string(), "{content}");
    assert!((3..=23).contains(&reply["usage"]["completion_tokens"].as_u64().unwrap()));
    native.stop().await;
}
