use std::future::{Future, poll_fn};
use std::task::Poll;

use super::*;

fn key(value: &str) -> Key {
    Key::new("realm", value).unwrap()
}

fn bytes(steps: usize) -> Bytes {
    Bytes::from(vec![7; steps * STEP])
}

/// Returns `true` if a future is still pending.
async fn waits<F: Future + Unpin>(future: &mut F) -> bool {
    poll_fn(|context| Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())).await
}

#[test]
fn a_request_takes_what_has_arrived_and_gives_it_back_with_its_last_bytes() {
    let memory = Memory::new(8 * STEP);
    let mut charge = memory.request();
    assert!(charge.try_for(1) && charge.try_for(STEP));
    assert_eq!(memory.requests_in_use(), STEP);
    assert!(charge.try_for(4 * STEP) && !charge.try_for(4 * STEP + 1));
    assert!(!memory.request().try_for(1));
    let mut held = charge.hold(bytes(4));
    let part = held.split_to(10);
    drop(held);
    assert_eq!(memory.requests_in_use(), 4 * STEP);
    drop(part);
    assert_eq!(memory.requests_in_use(), 0);
    // The other half is for responses.
    assert!(memory.reply().try_for(4 * STEP));
    assert_eq!(memory.responses_in_use(), 0);
}

#[tokio::test]
async fn responses_that_wait_for_each_other_come_to_their_end() {
    let memory = Memory::new(8 * STEP);
    let (mut one, mut other) = (memory.reply(), memory.reply());
    assert!(one.try_for(2 * STEP) && other.try_for(2 * STEP));
    // One response may exceed the share, and the other waits for it.
    one.wait_for(4 * STEP).await;
    {
        let mut waiting = Box::pin(other.wait_for(4 * STEP));
        assert!(waits(&mut waiting).await);
        drop(one);
        waiting.await;
    }
    assert_eq!(memory.responses_in_use(), 4 * STEP);
    drop(other);
    assert_eq!(memory.responses_in_use(), 0);
    assert!(memory.0.overdraft.is_free());
}

/// A response of this many steps that was allowed to exceed the share.
async fn over(memory: &Memory, steps: usize) -> Bytes {
    let mut charge = memory.reply();
    charge.wait_for(steps * STEP).await;
    assert!(charge.overdrawn);
    charge.hold(bytes(steps))
}

#[tokio::test]
async fn a_response_over_the_share_is_moved_into_it_when_there_is_room() {
    let memory = Memory::new(8 * STEP);
    let mut other = memory.reply();
    assert!(other.try_for(3 * STEP));
    let held = over(&memory, 2).await;
    assert!(!memory.0.overdraft.is_free(), "its client has not taken it");
    assert_eq!(memory.responses_in_use(), 3 * STEP);
    drop(other);
    assert!(memory.0.overdraft.is_free());
    assert_eq!(memory.responses_in_use(), 2 * STEP);
    drop(held);
    assert_eq!(memory.responses_in_use(), 0);
    assert!(memory.0.overdraft.is_free());
}

#[tokio::test]
async fn a_response_over_the_share_that_is_gone_first_gives_the_overdraft_back_once() {
    let memory = Memory::new(8 * STEP);
    let mut other = memory.reply();
    assert!(other.try_for(4 * STEP));
    drop(over(&memory, 2).await);
    drop(over(&memory, 2).await);
    assert!(memory.0.overdraft.is_free());
    drop(other);
    assert!(memory.0.overdraft.is_free());
    assert_eq!(memory.responses_in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_first_answer_waits_for_room_for_a_limited_time() {
    let memory = Memory::new(8 * STEP);
    let mut other = memory.reply();
    assert!(other.try_for(4 * STEP));
    let _held = over(&memory, 1).await;
    let patience = Duration::from_secs(30);
    let late = memory.recorded(&key("k"), bytes(1), false, patience).await;
    assert_eq!(late, Err(Rejection::OutcomePending));
    drop(other);
    assert_eq!(memory.recorded(&key("k"), bytes(1), false, patience).await, Ok(bytes(1)));
}

#[tokio::test]
async fn a_replay_that_is_larger_than_the_share_goes_over_it() {
    let memory = Memory::new(8 * STEP);
    for steps in [3, 5] {
        let replay = async |name| memory.recorded(&key(name), bytes(steps), true, Duration::ZERO).await;
        let held = replay("a").await.unwrap();
        assert_eq!(replay("b").await, Err(Rejection::MemoryExhausted), "one at a time");
        drop(held);
        assert_eq!(replay("b").await, Ok(bytes(steps)));
        // The responses of attempts have their whole share, and the overdraft.
        let _held = replay("a").await.unwrap();
        let mut small = memory.reply();
        assert!(small.try_for(4 * STEP));
        drop(over(&memory, 5).await);
    }
    assert_eq!(memory.responses_in_use(), 0);
}

#[tokio::test]
async fn a_large_response_that_waits_for_its_turn_takes_nothing_from_those_that_fit() {
    let memory = Memory::new(8 * STEP);
    let held = over(&memory, 5).await;
    let (mut large, mut small) = (memory.reply(), memory.reply());
    let mut waiting = Box::pin(large.wait_for(5 * STEP));
    assert!(waits(&mut waiting).await);
    assert!(small.try_for(4 * STEP));
    drop(held);
    waiting.await;
}

#[tokio::test]
async fn replays_leave_half_of_the_share_to_the_responses_of_attempts() {
    let memory = Memory::new(16 * STEP);
    let replay = async |name, length| {
        memory.recorded(&key(name), Bytes::from(vec![7; length]), true, Duration::ZERO).await
    };
    let held = [replay("a", 3 * STEP).await.unwrap(), replay("b", 1).await.unwrap()];
    for (name, length) in [("c", 1), ("d", 2 * STEP)] {
        assert_eq!(replay(name, length).await, Err(Rejection::MemoryExhausted), "{name}");
    }
    let mut answer = memory.reply();
    assert!(answer.try_for(4 * STEP));
    drop(held);
    assert_eq!(replay("c", 1).await.unwrap().len(), 1);
    // A response of an attempt may use all of it, and then there is no room for replays.
    assert!(answer.try_for(8 * STEP));
    assert_eq!(replay("c", 1).await, Err(Rejection::MemoryExhausted));
    drop(answer);
    assert_eq!((memory.responses_in_use(), memory.0.replays.load(Ordering::Relaxed)), (0, 0));
}

#[tokio::test]
async fn replays_of_one_key_share_their_bytes() {
    let memory = Memory::new(16 * STEP);
    let replay = |name: &'static str, body| {
        let memory = memory.clone();
        async move { memory.recorded(&key(name), body, true, Duration::ZERO).await.ok() }
    };
    let first = replay("a", bytes(3)).await.unwrap();
    let again = replay("a", bytes(3)).await.unwrap();
    assert_eq!(memory.responses_in_use(), 3 * STEP);
    assert!(replay("b", bytes(3)).await.is_none(), "there is no room for another");
    drop(first);
    assert_eq!(memory.responses_in_use(), 3 * STEP);
    assert_eq!(again, bytes(3));
    // Another body under the same key does not share the charge.
    assert_eq!(replay("a", Bytes::from(vec![8; STEP + 1])).await, None);
    drop(again);
    assert_eq!(replay("a", Bytes::from(vec![8; STEP + 1])).await.unwrap().len(), STEP + 1);
    assert_eq!(memory.responses_in_use(), 0);
    assert!(memory.0.replayed().is_empty());
}

#[tokio::test]
async fn a_shortage_ends_waits_and_is_seen_by_new_requests() {
    let memory = Memory::new(8 * STEP);
    let mut early = memory.let_go()();
    let mut charge = memory.request();
    assert!(charge.try_for(3 * STEP));
    assert!(waits(&mut early).await);
    assert!(charge.try_for(4 * STEP));
    early.await;
    memory.let_go()().await;
    drop(charge);
    assert!(waits(&mut memory.let_go()()).await);
}
