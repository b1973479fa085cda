//! The end of a store.

use std::time::Duration;

use futures_util::future::join_all;
use semel::admin::{Inspect, ListQuery};
use semel::store::Claim;
use semel::{Outcome, Store};
use testkit::claims::{ask, granted};
use testkit::stores::sqlite::Place;
use testkit::until::{LONG, until};
use tokio::runtime::Runtime;
use tokio::time::timeout;

#[tokio::test]
async fn queued_operations_are_answered_and_one_file_is_left() {
    let place = Place::new();
    let store = place.store().await;
    let asks = join_all((0..32).map(async |n| ask(&store, &format!("key-{n}")).await)).await;
    let claims = join_all(asks.iter().map(|ask| store.claim(ask)));
    let (claims, ()) = tokio::join!(claims, async {
        // The close comes after the claims, which are polled first.
        store.close().await;
    });
    for claim in claims {
        assert!(matches!(claim.unwrap(), Claim::Granted(_)));
    }
    assert!(!place.beside("-wal").exists() && !place.beside("-shm").exists());
    for refused in [
        store.claim(&asks[0]).await.map(drop),
        store.find(&asks[0].key).await.map(drop),
        store.list(&ListQuery::default()).await.map(drop),
        store.migrate().await.map(drop),
    ] {
        let refused = refused.expect_err("it is closed");
        assert!(refused.to_string().contains("the store is closed"), "{refused}");
    }
    let again = place.store().await;
    assert_eq!(again.list(&ListQuery::default()).await.unwrap().records.len(), 32);
}

#[tokio::test]
async fn a_store_that_is_dropped_closes_its_files_in_the_end() {
    let place = Place::new();
    let store = place.store().await;
    let lease = granted(&store, &ask(&store, "key").await).await;
    store.complete(&lease, &Outcome::new(200).unwrap()).await.unwrap().applied().unwrap();
    let client = place.client();
    client.busy_timeout(Duration::ZERO).unwrap();
    // This succeeds only for the only connection to the file.
    let is_alone = || client.execute_batch("pragma journal_mode = delete").is_ok();
    assert!(!is_alone());
    drop(store);
    until("nobody else has the file open", async || is_alone()).await;
}

#[test]
fn a_store_whose_runtime_has_ended_refuses_at_once() {
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let place = Place::new();
    let store = first.block_on(place.store());
    let asked = first.block_on(ask(&store, "key"));
    drop(first);
    second.block_on(async {
        let refused = timeout(LONG, store.claim(&asked)).await.expect("it waits for ever");
        let refused = refused.expect_err("nobody is left to answer");
        assert!(!refused.is_transient() && refused.to_string().contains("the runtime"), "{refused}");
        timeout(LONG, store.close()).await.expect("it waits for ever");
    });
}
