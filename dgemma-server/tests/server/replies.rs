//! Replies in text through queue and scheduler, with the fake engine: one step a pass, beside reads and other replies.

use std::sync::Arc;

use crate::common::fake;
use dgemma_server::engine::fake::{Controls, Fake, Fault, ItemCall, STOP};
use dgemma_server::engine::{Canvas, EngineError, Finish, ReplyOptions, Slot, Step};
use dgemma_server::queue::{self, PendingReply, Queue, Read, ReplyEvent, Unanswered};
use dgemma_server::scheduler::{self, policy::Budget};

fn start(fake: Fake) -> (Queue, Controls) {
    let engine = fake.controls();
    let (queue, jobs) = queue::bounded(16);
    scheduler::spawn(fake, jobs, Budget::default()).unwrap();
    (queue, engine)
}

fn options(max_tokens: usize, seed: u64) -> ReplyOptions {
    ReplyOptions { max_tokens, seed, blank: Arc::new(<[u32]>::is_empty) }
}

fn reply(queue: &Queue, prompt: &[u32], max_tokens: usize) -> PendingReply {
    queue.submit_reply(prompt.to_vec(), options(max_tokens, 1)).unwrap()
}

/// All events up to the last block or the error.
fn events(mut reply: PendingReply) -> Result<Vec<ReplyEvent>, EngineError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut events = Vec::new();
        loop {
            match reply.next().await {
                Ok(event) => events.push(event),
                Err(Unanswered::Engine(error)) => return Err(error),
                Err(other) => panic!("{other:?} after {events:?}"),
            }
            if let Some(ReplyEvent::Step(Step::Committed { block, .. })) = events.last()
                && block.finish.is_some()
            {
                return Ok(events);
            }
        }
    })
}

/// Ids of the blocks and the end.
fn blocks(events: &[ReplyEvent]) -> (Vec<Vec<u32>>, Option<Finish>) {
    let blocks: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            ReplyEvent::Step(Step::Committed { block, .. }) => Some(block.clone()),
            _ => None,
        })
        .collect();
    let finish = blocks.last().and_then(|block| block.finish);
    (blocks.into_iter().map(|block| block.ids).collect(), finish)
}

#[test]
fn a_committed_block_is_encoded_in_the_pass_of_the_next_step() {
    let (queue, engine) = start(fake().with_reply(vec![vec![7, 8], vec![9]]));
    let events = events(reply(&queue, &[1, 2, 3], 100)).unwrap();
    assert_eq!(blocks(&events), (vec![vec![7, 8], vec![9]], Some(Finish::Stop(STOP))));
    assert!(matches!(events[0], ReplyEvent::Begun { reused_tokens: 0, .. }));
    assert!(matches!(&events[1], ReplyEvent::Step(Step::Denoising { draft, .. }) if draft == &[7, 8]));
    let passes: Vec<(usize, Vec<u32>, bool)> = engine
        .log
        .passes()
        .into_iter()
        .map(|mut items| {
            let ItemCall { committed, prefill, replies, .. } = items.remove(0);
            (committed, prefill, replies)
        })
        .collect();
    let expected = [(0, vec![1, 2, 3], true), (3, vec![], true), (3, vec![7, 8], true), (5, vec![], true)];
    assert_eq!(passes, expected);
    // What was said is part of the prefix that a next turn finds.
    let again = self::events(reply(&queue, &[1, 2, 3, 7, 8, 4], 100)).unwrap();
    assert!(matches!(again[0], ReplyEvent::Begun { reused_tokens: 5, .. }), "{:?}", again[0]);
}

#[test]
fn the_budget_of_tokens_is_exact() {
    for (max_tokens, expected) in [(1, vec![vec![7]]), (2, vec![vec![7, 8]]), (3, vec![vec![7, 8], vec![9]])]
    {
        let (queue, _) = start(fake().with_reply(vec![vec![7, 8], vec![9, 10], vec![11]]));
        let events = events(reply(&queue, &[1], max_tokens)).unwrap();
        assert_eq!(blocks(&events), (expected, Some(Finish::Length)));
    }
}

#[test]
fn replies_and_reads_share_their_passes() {
    let (queue, engine) = start(fake().with_reply(vec![vec![7; 4]; 3]));
    engine.gate.close();
    let first = reply(&queue, &[1; 10], 100);
    engine.gate.wait_for_pass();
    let second = reply(&queue, &[2; 20], 100);
    let slots: Arc<[Slot]> = vec![Slot { position: 3, label_ids: vec![7, 8] }].into();
    let canvas = Canvas { suffix: Arc::default(), ids: vec![0; 16], slots, renoise: Vec::new() };
    let read = queue.submit(vec![Read { prompt: vec![3; 30], canvases: vec![canvas] }]).unwrap().remove(0);
    engine.gate.open();
    assert_eq!(blocks(&events(first).unwrap()).0.len(), 3);
    assert_eq!(blocks(&events(second).unwrap()).0.len(), 3);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(read.result()).unwrap();
    let passes = engine.log.passes();
    let second: Vec<_> =
        passes[1].iter().map(|item| (item.prefill.len(), item.canvases.len(), item.replies)).collect();
    assert_eq!(second, [(0, 0, true), (20, 0, true), (30, 1, false)]);
    assert_eq!(passes.len(), 7, "two replies of six steps each, one of them begun a pass later");
}

#[test]
fn a_reply_whose_receiver_is_gone_stops_between_steps() {
    let (queue, engine) = start(fake().with_reply(vec![vec![7; 4]; 50]));
    engine.gate.close();
    let gone = reply(&queue, &[1; 10], 1000);
    engine.gate.wait_for_pass();
    drop(gone);
    engine.gate.open();
    events(reply(&queue, &[2; 10], 4)).unwrap();
    let passes = engine.log.passes();
    let of_gone =
        passes.iter().flatten().filter(|item| item.committed > 0 || item.prefill.first() == Some(&1));
    assert!(of_gone.count() <= 2 + 1, "{passes:?}");
}

#[test]
fn a_failed_pass_is_tried_again_unless_something_was_given_out() {
    for (faults, good) in [
        (vec![Fault::Error], false),
        (vec![Fault::None, Fault::None, Fault::None, Fault::Panic], false),
        (vec![Fault::NonFinite], false),
        (vec![], true),
    ] {
        let (queue, engine) = start(fake().with_reply(vec![vec![7; 4]; 3]));
        engine.fail_next(&faults);
        assert_eq!(events(reply(&queue, &[1; 10], 100)).is_ok(), good, "{faults:?}");
        assert!(events(reply(&queue, &[2; 10], 100)).is_ok(), "the engine lives on after {faults:?}");
    }
    // Together with another job nobody knows who is at fault.
    let (queue, engine) = start(fake().with_reply(vec![vec![7; 4]; 3]));
    engine.gate.close();
    let first = reply(&queue, &[1; 10], 100);
    engine.gate.wait_for_pass();
    let second = reply(&queue, &[2; 10], 100);
    engine.fail_next(&[Fault::None, Fault::Error]);
    engine.gate.open();
    for reply in [first, second] {
        let events = events(reply).unwrap();
        assert_eq!(blocks(&events).0.len(), 3);
    }
}
