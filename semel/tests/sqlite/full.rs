//! A file that is full.

use futures_util::future::join_all;
use semel::admin::Prune;
use semel::store::{Ack, Claim};
use semel::{Lease, Outcome, Store};
use testkit::claims::{ask, granted};
use testkit::stores::sqlite::Place;

const MAX_BYTES: u64 = 200 << 10;

fn large() -> Outcome {
    Outcome::new(200).unwrap().with_body(vec![7; 20_000]).unwrap()
}

#[tokio::test]
async fn when_it_is_full_nothing_is_applied_and_it_recovers() {
    let place = Place::new();
    let store = place.options().with_max_bytes(MAX_BYTES).open().await.unwrap();
    store.migrate().await.unwrap();
    let early = granted(&store, &ask(&store, "early").await).await;
    let mut done: Vec<Lease> = Vec::new();
    let unfinished = loop {
        let lease = granted(&store, &ask(&store, &format!("key-{}", done.len())).await).await;
        match store.complete(&lease, &large()).await {
            Ok(ack) => assert_eq!(ack, Ack::Applied),
            Err(full) => {
                assert!(full.is_transient() && !full.is_unknown(), "{full}");
                assert!(full.to_string().contains(&place.path().display().to_string()), "{full}");
                break lease;
            }
        }
        done.push(lease);
        assert!(done.len() < 100, "it never was full");
    };
    assert!(done.len() > 2, "{}", done.len());
    // The attempt still runs, and other attempts may finish that need no space.
    assert!(store.find(unfinished.key()).await.unwrap().unwrap().outcome().is_none());
    assert_eq!(store.release(&early).await.unwrap(), Ack::Applied);
    let replay = store.claim(&ask(&store, "key-0").await).await.unwrap();
    assert!(matches!(replay, Claim::Done(found) if found.outcome == large()));

    let client = place.client();
    client.execute("update semel_records set expires_at = 1 where state = 'done'", []).unwrap();
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), done.len() as u64);
    assert_eq!(store.complete(&unfinished, &large()).await.unwrap(), Ack::Applied);
}

/// A batch is all or nothing. A batch that fails is halved, so that the operations that still fit
/// are applied.
#[tokio::test]
async fn of_a_batch_that_has_no_room_what_fails_is_not_applied() {
    let place = Place::new();
    let store = place.options().with_max_bytes(MAX_BYTES).open().await.unwrap();
    store.migrate().await.unwrap();
    let leases = (0..20).map(async |n| granted(&store, &ask(&store, &format!("key-{n}")).await).await);
    let leases = join_all(leases).await;
    let body = large();
    let acks = join_all(leases.iter().map(|lease| store.complete(lease, &body))).await;
    for (lease, ack) in leases.iter().zip(acks) {
        let is_done = store.find(lease.key()).await.unwrap().unwrap().outcome().is_some();
        match ack {
            Ok(ack) => assert!(is_done && ack == Ack::Applied),
            Err(full) => assert!(!is_done && full.is_transient() && !full.is_unknown(), "{full}"),
        }
    }
}

#[tokio::test]
async fn the_bytes_in_use_fall_when_records_are_pruned() {
    let place = Place::new();
    let store = place.store().await;
    let used = async || store.size().await.unwrap().bytes.unwrap();
    let empty = used().await;
    for number in 0..20 {
        let lease = granted(&store, &ask(&store, &format!("key-{number}")).await).await;
        store.complete(&lease, &large()).await.unwrap().applied().unwrap();
    }
    let full = used().await;
    assert!(full >= empty + 20 * 20_000, "{full} and {empty}");
    place.client().execute("update semel_records set expires_at = 1", []).unwrap();
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 20);
    assert!(used().await < empty + 20_000, "{} and {empty}", used().await);
}
