//! The contract of every store, on SQLite.

use std::time::Duration;

use semel::store::conformance::{self, Subject};
use testkit::stores::sqlite::Place;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_keeps_every_promise() {
    let place = Place::new();
    // Two stores have connections of their own, like two processes. A slow machine must not end a
    // lease within a step.
    let subject = Subject::new(place.store().await)
        .with_peer(place.store().await)
        .with_lease(Duration::from_secs(3))
        .with_checks_at_once(64);
    conformance::check(&subject).await.unwrap_or_else(|broken| panic!("{broken}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primitives_of_sqlite_keep_every_promise() {
    let place = Place::new();
    conformance::check_backend(place.store().await).await.unwrap_or_else(|broken| panic!("{broken}"));
}
