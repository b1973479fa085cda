//! Repeats cost no write.

use std::fs;

use futures_util::future::join_all;
use rusqlite::Connection;
use semel::store::{Ack, Claim};
use semel::{Outcome, Store};
use testkit::claims::{ask, granted};
use testkit::stores::sqlite::Place;

/// The properties that change with every commit that writes: the log, and the version that other
/// connections see.
fn trace(place: &Place, client: &Connection) -> (u64, std::time::SystemTime, i64) {
    let log = fs::metadata(place.beside("-wal")).unwrap();
    let version = client.query_row("pragma data_version", [], |row| row.get(0)).unwrap();
    (log.len(), log.modified().unwrap(), version)
}

#[tokio::test]
async fn a_batch_of_repeats_writes_nothing() {
    let place = Place::new();
    let (store, client) = (place.store().await, place.client());
    let outcome = Outcome::json("done").unwrap();
    let mut leases = Vec::new();
    for number in 0..64 {
        let lease = granted(&store, &ask(&store, &format!("key-{number}")).await).await;
        // Some are done, some run.
        if number % 2 == 0 {
            assert_eq!(store.complete(&lease, &outcome).await.unwrap(), Ack::Applied);
        }
        leases.push(lease);
    }
    let before = trace(&place, &client);
    for _ in 0..4 {
        join_all(leases.iter().enumerate().map(async |(number, lease)| {
            let claim = store.claim(&ask(&store, lease.key().value()).await).await.unwrap();
            match claim {
                Claim::Done(done) => assert!(number % 2 == 0 && done.outcome == outcome),
                Claim::Running { .. } => assert!(number % 2 == 1),
                other => panic!("{other:?}"),
            }
            assert!(store.find(lease.key()).await.unwrap().is_some());
        }))
        .await;
    }
    // A write without an effect leaves no trace either.
    assert_eq!(store.complete(&leases[0], &outcome).await.unwrap(), Ack::Repeated);
    assert_eq!(trace(&place, &client), before);

    let _lease = granted(&store, &ask(&store, "another").await).await;
    assert_ne!(trace(&place, &client), before, "this one is seen");
}
