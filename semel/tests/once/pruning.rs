//! Pruning by the engine.

use std::time::Duration;

use semel::admin::Pruning;
use semel::store::{MemoryClock, Terms};
use semel::{MemoryStore, Once, Policy};
use testkit::gates::{Fault, Gate, Through};
use tokio::time::{sleep, timeout};

const IDLE: Duration = Duration::from_secs(60);

/// An engine whose records expire soon, and its store.
fn engine() -> (MemoryStore, Once) {
    let store = MemoryStore::new();
    let soon = Policy::hold().with_lease(Terms::MIN_LEASE).with_retention(Terms::MIN_LEASE);
    (store.clone(), Once::new(store).with_policy(soon))
}

async fn run(once: &Once, value: &str) {
    once.run(("tests", value), &1, |_lease| async { Ok(1) }).await.unwrap();
}

fn expire(store: &MemoryStore) {
    let clock: &MemoryClock = store.memory_clock();
    clock.advance(Duration::from_secs(1));
}

fn records(store: &MemoryStore) -> u64 {
    store.size().records.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_store_that_needs_it_is_pruned_without_a_call() {
    let (store, once) = engine();
    run(&once, "one").await;
    assert_eq!(records(&store), 1);
    expire(&store);
    sleep(IDLE + Duration::from_secs(1)).await;
    assert_eq!(records(&store), 0);
}

#[tokio::test(start_paused = true)]
async fn pruning_is_off_by_choice() {
    let (store, once) = engine();
    let once = once.without_pruning();
    run(&once, "one").await;
    expire(&store);
    sleep(IDLE * 10).await;
    assert_eq!(records(&store), 1);
}

#[tokio::test(start_paused = true)]
async fn pruning_follows_its_settings() {
    let (store, once) = engine();
    let once = once.with_pruning(Pruning::default().with_idle(Duration::from_secs(5)));
    run(&once, "one").await;
    expire(&store);
    sleep(Duration::from_secs(6)).await;
    assert_eq!(records(&store), 0);
}

#[tokio::test(start_paused = true)]
async fn pruning_ends_with_the_last_clone_of_the_engine() {
    let (store, once) = engine();
    let clone = once.clone().with_owner("another");
    run(&once, "one").await;
    drop(once);
    expire(&store);
    sleep(IDLE + Duration::from_secs(1)).await;
    assert_eq!(records(&store), 0, "a clone is left");
    run(&clone, "two").await;
    drop(clone);
    expire(&store);
    sleep(IDLE * 10).await;
    assert_eq!(records(&store), 1);
}

#[tokio::test(start_paused = true)]
async fn pruning_ends_with_a_drain() {
    let (store, once) = engine();
    run(&once, "one").await;
    once.drain().await;
    expire(&store);
    sleep(IDLE * 10).await;
    assert_eq!(records(&store), 1);
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_a_pruning_that_is_never_answered() {
    let gate = Gate::new();
    gate.disturb("prune", Fault::Silence);
    let once = Once::new(Through(gate.clone()));
    run(&once, "one").await;
    sleep(Duration::from_millis(1)).await;
    assert_eq!(gate.calls("prune"), 1);
    timeout(Duration::from_secs(10), once.drain()).await.expect("it ends");
}
