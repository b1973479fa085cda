//! Unanswered claims, in their thousands.

use std::time::Duration;

use semel::store::Phase;
use semel::{Key, Once, Policy, RunError, Store};
use testkit::gates::{Fault, Gate};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::{Counter, LEASE, engine, intent, key, phase, with_lease};

const MAX_VOIDS: usize = 10_000;

fn secs(number: u64) -> Duration {
    Duration::from_secs(number)
}

fn numbered(number: usize) -> Key {
    Key::new("tests", &format!("key-{number}")).unwrap()
}

/// Sends requests under many keys, one after the other, none of which gets through.
async fn refused(once: &Once, count: usize) {
    for number in 0..count {
        let refused = once.run(&numbered(number), &intent(), Counter::default().quick()).await;
        assert!(matches!(refused, Err(RunError::Unavailable(_))), "{refused:?}");
    }
}

fn impatient() -> (Gate, Once) {
    let (gate, once) = engine();
    (gate, once.with_policy(with_lease(Policy::hold()).with_patience(Duration::ZERO)))
}

/// Regression: each had a task of its own: a server that was stopped made 490 in a second, 1.6 GB
/// in an hour.
#[tokio::test(start_paused = true)]
async fn unanswered_claims_are_bounded_and_have_one_task() {
    let (gate, once) = impatient();
    // The task of the pruning is not one of the claims.
    let once = once.without_pruning();
    gate.disturb("claim", Fault::AnswerLost);
    gate.disturb("void", Fault::Unavailable);
    refused(&once, MAX_VOIDS + 500).await;
    assert_eq!(gate.calls("claim"), MAX_VOIDS, "none is sent while the book is full");
    sleep(secs(60)).await;
    let tasks = Handle::current().metrics().num_alive_tasks();
    assert!(tasks <= 2, "{tasks} tasks");
    assert!(gate.calls("void") < 100, "{} voids in a minute", gate.calls("void"));

    gate.heal();
    sleep(secs(10)).await;
    for number in [0, MAX_VOIDS / 2, MAX_VOIDS - 1] {
        let record = gate.store.find(&numbered(number)).await.unwrap().unwrap();
        assert_eq!(record.phase(gate.store.memory_clock().now()), Phase::Released, "{number}");
    }
    assert_eq!(once.run(&key(), &intent(), Counter::default().quick()).await.unwrap().value, 1);
    sleep(LEASE).await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn drain_gives_up_a_full_book_in_time() {
    let (gate, once) = impatient();
    gate.disturb("claim", Fault::Lost);
    gate.disturb("void", Fault::Hang);
    refused(&once, MAX_VOIDS).await;
    let began = Instant::now();
    once.drain().await;
    assert!(began.elapsed() < secs(20), "{:?}", began.elapsed());
}

/// Regression: a void that came too early by the store's clock, which was set back, kept the
/// shutdown waiting for an hour.
#[tokio::test(start_paused = true)]
async fn drain_does_not_wait_for_a_clock_that_was_set_back() {
    let (gate, once) = engine();
    gate.disturb("claim", Fault::Lost);
    refused(&once, 1).await;
    gate.store.memory_clock().set_back(secs(3_600));
    let began = Instant::now();
    once.drain().await;
    assert!(began.elapsed() < secs(20), "{:?}", began.elapsed());
    assert_eq!(gate.calls("void"), 1);
}

#[tokio::test(start_paused = true)]
async fn one_claim_that_cannot_be_voided_does_not_keep_the_others() {
    let (gate, once) = impatient();
    gate.disturb("claim", Fault::AnswerLost);
    refused(&once, 20).await;
    gate.heal();
    // The store refuses the first, and a connection is lost now and then.
    gate.disturb_calls("void", 1..=1, Fault::Refused);
    gate.disturb_calls("void", 3..=3, Fault::Lost);
    gate.disturb_calls("void", 7..=8, Fault::Lost);
    sleep(secs(30)).await;
    let mut released = 0;
    for number in 0..20 {
        let found = gate.store.find(&numbered(number)).await.unwrap().unwrap();
        released += usize::from(found.phase(gate.store.memory_clock().now()) == Phase::Released);
    }
    assert_eq!(released, 19);
}

#[test]
fn a_book_whose_runtime_stands_still_is_worked_on_by_another() {
    let (gate, once) = engine();
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (first, second) = (runtime(), runtime());
    gate.disturb("claim", Fault::AnswerLost);
    first.block_on(refused(&once, 1));
    // The runtime is no longer driven; it is not dropped either.
    second.block_on(async {
        sleep(secs(30)).await;
        let refused = once.run(&key(), &intent(), Counter::default().quick()).await;
        assert!(matches!(refused, Err(RunError::Unavailable(_))), "{refused:?}");
        gate.heal();
        sleep(secs(30)).await;
        assert_eq!(phase(&gate).await, Some(Phase::Released));
    });
    drop(first);
}
