//! The memory store keeps the contract, and its own limits.

use std::sync::Arc;

use semel::conformance::{self, Subject};
use semel::{Inspect, MemoryStore};

fn moved_by(subject: Subject, store: &MemoryStore) -> Subject {
    let store = store.clone();
    subject.with_passing(move |time| {
        store.memory_clock().advance(time);
        async {}
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_keeps_every_promise() {
    let store = MemoryStore::new();
    let subject = moved_by(Subject::new(store.clone()).with_peer(store.clone()), &store);
    conformance::check(&subject).await.unwrap_or_else(|broken| panic!("{broken}"));
}

#[tokio::test]
async fn a_shared_dyn_store_keeps_every_promise() {
    let store = MemoryStore::new();
    let shared: Arc<dyn Inspect> = Arc::new(store.clone());
    let subject = moved_by(Subject::new(shared), &store);
    conformance::check(&subject).await.unwrap_or_else(|broken| panic!("{broken}"));
}

#[tokio::test]
async fn memory_keeps_every_promise_when_time_passes_by_itself() {
    let subject = Subject::new(MemoryStore::new()).with_lease(std::time::Duration::from_millis(100));
    conformance::check(&subject).await.unwrap_or_else(|broken| panic!("{broken}"));
}
