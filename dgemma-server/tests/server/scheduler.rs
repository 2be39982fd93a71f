//! Queue and scheduler with the fake engine: what shares a pass, what is dropped, what a failure costs.

use std::sync::Arc;

use crate::common::fake;
use dgemma_server::engine::fake::{Call, Controls, Fake, Fault};
use dgemma_server::engine::{Canvas, EngineError, Slot};
use dgemma_server::queue::{self, Pending, Queue, Read, ReadDone, Refused, Unanswered};
use dgemma_server::scheduler::{self, policy::Budget};

/// A read of `canvases` canvases of 16 rows with one slot of two labels, over the prompt `first, first, …`.
fn read(first: u32, prompt_tokens: usize, canvases: usize) -> Read {
    let slots: Arc<[Slot]> = vec![Slot { position: 3, label_ids: vec![7, 8] }].into();
    let canvas = Canvas { suffix: Arc::default(), ids: vec![0; 16], slots, renoise: Vec::new() };
    Read { prompt: vec![first; prompt_tokens], canvases: vec![canvas; canvases] }
}

fn start(fake: Fake, places: usize, budget: Budget) -> (Queue, Controls, std::thread::JoinHandle<()>) {
    let engine = fake.controls();
    let (queue, jobs) = queue::bounded(places);
    let thread = scheduler::spawn(fake, jobs, budget).unwrap();
    (queue, engine, thread)
}

fn submit(queue: &Queue, read: Read) -> Pending {
    queue.submit(vec![read]).unwrap().remove(0)
}

fn wait(pending: Pending) -> Result<ReadDone, EngineError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(pending.result()).map_err(|unanswered| match unanswered {
        Unanswered::Engine(error) => error,
        Unanswered::Gone | Unanswered::Waited { .. } => panic!("{unanswered:?}"),
    })
}

#[test]
fn whatever_waits_goes_into_one_pass_with_prompts_and_draws() {
    let (queue, engine, _) = start(fake(), 16, Budget::default());
    engine.gate.close();
    let first = submit(&queue, read(1, 10, 1));
    engine.gate.wait_for_pass();
    let rest: Vec<Pending> = (2..6).map(|n| submit(&queue, read(n, 10 * n as usize, n as usize))).collect();
    engine.gate.open();
    wait(first).unwrap();
    let done: Vec<ReadDone> = rest.into_iter().map(|pending| wait(pending).unwrap()).collect();
    let passes = engine.log.passes();
    assert_eq!(passes.len(), 2, "nobody waits for a batch to fill, and everybody who waits is in the next");
    let shapes: Vec<_> =
        passes[1].iter().map(|item| (item.committed, item.prefill.len(), item.canvases.len())).collect();
    assert_eq!(shapes, [(0, 20, 2), (0, 30, 3), (0, 40, 4), (0, 50, 5)]);
    for (done, canvases) in done.iter().zip(2..) {
        assert_eq!((done.canvases.len(), done.passes, done.reused_tokens), (canvases, 1, 0));
        assert!(
            done.timing.queue_ms >= 0.0 && done.timing.prefill_ms >= 0.0 && done.timing.denoise_ms >= 0.0
        );
    }
}

#[test]
fn a_long_prompt_is_cut_into_chunks_and_gives_the_same_result() {
    let budget = Budget { pass_rows: 64, chunk_rows: 16, ..Budget::default() };
    let by_prompt = |prompt: &[u32], _: &Canvas, _: usize| vec![prompt.len() as f32, prompt[0] as f32];
    let (queue, engine, _) = start(fake().with_answer(by_prompt), 16, budget);
    let done = wait(submit(&queue, read(5, 150, 3))).unwrap();
    assert_eq!(done.canvases.len(), 3);
    assert!(done.canvases.iter().all(|slots| slots[0].label_logits == [150.0, 5.0]));
    let rows: Vec<_> =
        engine.log.passes().iter().map(|pass| (pass[0].prefill.len(), pass[0].canvases.len())).collect();
    assert_eq!(rows, [(64, 0), (64, 0), (22, 2), (0, 1)]);
    assert_eq!(done.passes, 2);
}

#[test]
fn a_suffix_that_draws_share_takes_its_rows_once_in_every_pass() {
    // 10 rows of prompt, 20 of suffix, and 16 of each canvas.
    for (pass_rows, wanted) in
        [(78, &[(10, 3)][..]), (60, &[(10, 1), (0, 2)]), (40, &[(10, 0), (0, 1), (0, 1), (0, 1)])]
    {
        let budget = Budget { pass_rows, chunk_rows: 16, ..Budget::default() };
        let (queue, engine, _) = start(fake(), 16, budget);
        let mut draws = read(1, 10, 3);
        let suffix: Arc<[u32]> = vec![2; 20].into();
        draws.canvases.iter_mut().for_each(|canvas| canvas.suffix = Arc::clone(&suffix));
        wait(submit(&queue, draws)).unwrap();
        let rows: Vec<_> =
            engine.log.passes().iter().map(|pass| (pass[0].prefill.len(), pass[0].canvases.len())).collect();
        assert_eq!(rows, wanted, "{pass_rows} rows a pass");
    }
}

#[test]
fn a_short_job_overtakes_a_long_prompt_between_its_chunks() {
    let budget = Budget { pass_rows: 64, chunk_rows: 16, ..Budget::default() };
    let (queue, engine, _) = start(fake(), 16, budget);
    engine.gate.close();
    let long = submit(&queue, read(1, 1000, 1));
    engine.gate.wait_for_pass();
    let short = submit(&queue, read(2, 10, 1));
    engine.gate.open();
    wait(short).unwrap();
    wait(long).unwrap();
    let passes = engine.log.passes();
    let second: Vec<_> = passes[1].iter().map(|item| (item.prefill.len(), item.canvases.len())).collect();
    assert_eq!(second, [(38, 0), (10, 1)], "the short one whole, the long one what is left");
}

#[test]
fn a_job_whose_receiver_is_gone_is_never_begun_and_leaves_no_trace() {
    let (queue, engine, _) = start(fake(), 16, Budget::default());
    engine.gate.close();
    let running = submit(&queue, read(1, 100, 1));
    engine.gate.wait_for_pass();
    let gone = submit(&queue, read(2, 50, 1));
    let stays = submit(&queue, read(3, 50, 1));
    drop((running, gone));
    engine.gate.open();
    wait(stays).unwrap();
    let calls = engine.log.calls();
    assert!(!calls.iter().any(|call| matches!(call, Call::Begin { prompt, .. } if prompt[0] == 2)));
    // The running one was dropped after its pass had ended: its prefix may be kept. One dropped between passes must not be.
    let budget = Budget { pass_rows: 32, chunk_rows: 32, ..Budget::default() };
    let (queue, engine, _) = start(fake(), 16, budget);
    engine.gate.close();
    let cut = submit(&queue, read(4, 100, 1));
    engine.gate.wait_for_pass();
    drop(cut);
    engine.gate.open();
    let again = wait(submit(&queue, read(4, 100, 1))).unwrap();
    assert_eq!(again.reused_tokens, 0, "a cancelled prefill must not be reused");
    let third = wait(submit(&queue, read(4, 120, 1))).unwrap();
    assert_eq!(third.reused_tokens, 100, "a finished one is");
}

#[test]
fn a_failed_pass_costs_only_the_job_at_fault() {
    for fault in [Fault::Error, Fault::Panic] {
        let (queue, engine, _) = start(fake(), 16, Budget::default());
        engine.gate.close();
        let first = submit(&queue, read(1, 10, 1));
        engine.gate.wait_for_pass();
        let rest: Vec<Pending> = (2..5).map(|n| submit(&queue, read(n, 10, 1))).collect();
        // The pass in progress is good; the next, with three jobs, fails; then the second of the three fails by itself.
        engine.fail_next(&[Fault::None, fault, Fault::None, fault]);
        engine.gate.open();
        wait(first).unwrap();
        let results: Vec<bool> = rest.into_iter().map(|pending| wait(pending).is_ok()).collect();
        assert_eq!(results, [true, false, true], "{fault:?}");
        let sizes: Vec<usize> = engine.log.passes().iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, 3, 1, 1, 1]);
        wait(submit(&queue, read(9, 10, 1))).unwrap();
    }
}

#[test]
fn a_non_finite_logit_is_an_error_for_its_own_job_only() {
    let by_prompt =
        |prompt: &[u32], _: &Canvas, _: usize| vec![if prompt[0] == 2 { f32::NAN } else { 1.0 }, 0.0];
    let (queue, engine, thread) = start(fake().with_answer(by_prompt), 16, Budget::default());
    engine.gate.close();
    let first = submit(&queue, read(1, 10, 1));
    engine.gate.wait_for_pass();
    let (bad, good) = (submit(&queue, read(2, 10, 2)), submit(&queue, read(3, 10, 1)));
    engine.gate.open();
    wait(first).unwrap();
    assert!(matches!(wait(bad), Err(EngineError::NonFinite { canvas: 0, slot: 0 })));
    wait(good).unwrap();
    drop(queue);
    thread.join().unwrap();
    let finished = engine.log.calls().iter().filter(|call| matches!(call, Call::Finish { .. })).count();
    assert_eq!(finished, 2, "the prefix of a faulty job is not offered for reuse");
}

#[test]
fn nobody_waits_for_a_prefix_to_be_kept_and_a_follow_up_finds_it() {
    let (queue, engine, _) = start(fake(), 16, Budget::default());
    engine.finish_gate.close();
    wait(submit(&queue, read(1, 100, 1))).unwrap();
    let next = submit(&queue, read(1, 120, 1));
    engine.finish_gate.open();
    assert_eq!(wait(next).unwrap().reused_tokens, 100);
}

#[test]
fn results_of_the_wrong_shape_are_a_fault() {
    let (queue, _, _) = start(fake().with_answer(|_, _, _| vec![1.0]), 16, Budget::default());
    assert!(matches!(wait(submit(&queue, read(1, 10, 1))), Err(EngineError::Failed(_))));
}

#[test]
fn places_are_taken_all_at_once_or_not_at_all() {
    let (queue, jobs) = queue::bounded(3);
    assert_eq!(
        queue.submit(vec![read(1, 1, 1); 4]).unwrap_err(),
        Refused::TooMany { places: 4, capacity: 3 }
    );
    let held = queue.submit(vec![read(1, 1, 1); 2]).unwrap();
    assert_eq!(queue.submit(vec![read(1, 1, 1); 2]).unwrap_err(), Refused::Busy { capacity: 3 });
    assert_eq!(queue.submit(vec![read(1, 1, 1)]).unwrap().len() + held.len(), 3);
    drop(jobs);
    assert_eq!(queue.submit(vec![read(1, 1, 1)]).unwrap_err(), Refused::Closed);
}

#[test]
fn the_thread_ends_after_the_last_job_when_the_queue_is_dropped() {
    let (queue, engine, thread) = start(fake(), 16, Budget::default());
    engine.gate.close();
    let pending: Vec<Pending> = (1..4).map(|n| submit(&queue, read(n, 10, 1))).collect();
    drop(queue);
    engine.gate.open();
    assert!(pending.into_iter().all(|pending| wait(pending).is_ok()));
    thread.join().unwrap();
}
