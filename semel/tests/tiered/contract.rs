//! The contract of every store, on a tier.

use std::sync::Arc;
use std::time::Duration;

use semel::admin::Inspect;
use semel::store::conformance::{self, Subject};
use semel::{MemoryStore, Tiered};
use testkit::stores::sqlite;
use testkit::stores::tiered::{Place, cache};

/// Checks every promise. The second handle has the same hot store, like two processes with one
/// Redis.
async fn keeps_every_promise(tier: impl Inspect, peer: impl Inspect) {
    let subject =
        Subject::new(tier).with_peer(peer).with_lease(Duration::from_secs(3)).with_checks_at_once(64);
    conformance::check(&subject).await.unwrap_or_else(|broken| panic!("{broken}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_before_postgres_keeps_every_promise() {
    let place = Place::shared();
    keeps_every_promise(place.tier().await, place.tier().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_before_postgres_keeps_every_promise() {
    let (place, cache) = (Place::shared(), cache());
    let tier = Tiered::new(cache.clone(), place.durable().await).with_hot_first();
    keeps_every_promise(tier, Tiered::new(cache, place.durable().await).with_hot_first()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_that_is_asked_for_repeats_only_keeps_every_promise() {
    let (place, cache) = (Place::shared(), cache());
    let tier = Tiered::new(cache.clone(), place.durable().await);
    keeps_every_promise(tier, Tiered::new(cache, place.durable().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_before_redis_before_postgres_keeps_every_promise() {
    let (place, cache) = (Place::shared(), cache());
    let tier = Tiered::new(cache.clone(), place.tier().await).with_hot_first();
    keeps_every_promise(tier, Tiered::new(cache, place.tier().await).with_hot_first()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_before_sqlite_keeps_every_promise() {
    let (folder, cache) = (sqlite::Place::new(), cache());
    let tier = Tiered::new(cache.clone(), folder.store().await).with_hot_first();
    keeps_every_promise(tier, Tiered::new(cache, folder.store().await).with_hot_first()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_before_memory_keeps_every_promise() {
    let (place, durable) = (Place::shared(), MemoryStore::new());
    let tier = Tiered::new(place.hot().await, durable.clone()).with_hot_first();
    keeps_every_promise(tier, Tiered::new(place.hot().await, durable).with_hot_first()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_before_memory_keeps_every_promise_also_as_a_shared_dyn_store() {
    let shared: Arc<dyn Inspect> = Arc::new(Tiered::new(cache(), MemoryStore::new()).with_hot_first());
    keeps_every_promise(Arc::clone(&shared), shared).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_before_redis_keeps_every_promise() {
    let (place, durable) = (Place::shared(), Place::shared());
    let tier = Tiered::new(place.hot().await, durable.hot().await).with_hot_first();
    keeps_every_promise(tier, Tiered::new(place.hot().await, durable.hot().await).with_hot_first()).await;
}
