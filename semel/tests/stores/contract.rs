//! The contract of every store, and of tiers of any two stores.

use std::sync::Arc;

use semel::admin::Inspect;
use semel::store::conformance;
use semel::{MemoryStore, Tiered};
use testkit::contract::keeps_every_promise;
use testkit::on_every_store;
use testkit::stores;
use testkit::stores::tiered::{Place, cache, hot_first};

on_every_store! {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    every_promise_is_kept,
}

async fn every_promise_is_kept(place: stores::Place) {
    let [store, peer] = place.two_stores().await;
    keeps_every_promise(store, peer).await;
}

mod primitives {
    use super::*;

    // A tier has no primitives: it is made of stores that have them.
    on_every_store! {
        testkit::stores::Place [memory, sqlite, postgres, redis] {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            every_promise_is_kept,
        }
    }

    async fn every_promise_is_kept(place: stores::Place) {
        let store = place.opened().await;
        store.migrate().await.unwrap();
        conformance::check_backend(store).await.unwrap_or_else(|broken| panic!("{broken}"));
    }
}

// The second handle of a tier has the same hot store, like two processes with one Redis.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_before_postgres_keeps_every_promise() {
    let (place, cache) = (Place::shared(), cache());
    let tier = hot_first(cache.clone(), place.durable().await);
    keeps_every_promise(tier, hot_first(cache, place.durable().await)).await;
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
    let tier = hot_first(cache.clone(), place.tier().await);
    keeps_every_promise(tier, hot_first(cache, place.tier().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_before_sqlite_keeps_every_promise() {
    let (folder, cache) = (stores::sqlite::Place::new(), cache());
    let tier = hot_first(cache.clone(), folder.store().await);
    keeps_every_promise(tier, hot_first(cache, folder.store().await)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_before_memory_keeps_every_promise() {
    let (place, durable) = (Place::shared(), MemoryStore::new());
    let tier = hot_first(place.hot().await, durable.clone());
    keeps_every_promise(tier, hot_first(place.hot().await, durable)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_before_memory_keeps_every_promise_also_as_a_shared_dyn_store() {
    let shared: Arc<dyn Inspect> = Arc::new(hot_first(cache(), MemoryStore::new()));
    keeps_every_promise(Arc::clone(&shared), shared).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_before_redis_keeps_every_promise() {
    let (place, durable) = (Place::shared(), Place::shared());
    let tier = hot_first(place.hot().await, durable.hot().await);
    keeps_every_promise(tier, hot_first(place.hot().await, durable.hot().await)).await;
}
