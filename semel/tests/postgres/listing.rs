//! The views of operators, while other processes write.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use semel::admin::{Inspect, ListQuery};
use testkit::claims::{ask, granted};
use testkit::stores::postgres::Place;
use testkit::until::{LONG, until};
use tokio::time::timeout;

#[tokio::test]
async fn pages_hold_each_record_once_while_others_are_added() {
    let place = Place::shared();
    let store = place.store().await;
    let add = async |name: String| granted(&store, &ask(&store, &name).await).await;
    let before: BTreeSet<String> = (0..200).map(|n| format!("before-{n}")).collect();
    join_all(before.iter().cloned().map(add)).await;

    let (done, added) = (AtomicBool::new(false), AtomicUsize::new(0));
    let adding = async {
        while !done.load(Ordering::Relaxed) {
            let number = added.fetch_add(1, Ordering::Relaxed);
            let _lease = add(format!("meanwhile-{number}")).await;
        }
    };
    let paging = async {
        let mut seen = BTreeSet::new();
        let mut query = ListQuery::default().with_limit(7);
        loop {
            let page = store.list(&query).await.unwrap();
            assert!(page.records.len() <= 7);
            for record in page.records {
                let name = record.key.value().to_owned();
                assert!(seen.insert(name.clone()), "{name} was on two pages");
            }
            if page.next.is_none() {
                done.store(true, Ordering::Relaxed);
                return seen;
            }
            query.after = page.next;
        }
    };
    let ((), seen) = tokio::join!(adding, paging);
    assert!(seen.is_superset(&before));
    assert!(added.load(Ordering::Relaxed) > 1, "nothing was added meanwhile");
}

#[tokio::test]
async fn a_count_that_took_long_is_kept_for_longer() {
    let place = Place::shared();
    let (store, client, user) = (place.store().await, place.client().await, place.client().await);
    let lock = "begin; lock table records in access exclusive mode";
    let _first = granted(&store, &ask(&store, "first").await).await;

    // The table is locked, so that the count takes a second at least.
    user.batch_execute(lock).await.unwrap();
    let slow = async {
        let waits = "select from pg_locks where not granted and relation = to_regclass($1)";
        let table = format!("{}.records", place.quoted());
        while client.query(waits, &[&table]).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        user.batch_execute("commit").await.unwrap();
    };
    let (counted, ()) = tokio::join!(store.stats(), slow);
    assert_eq!(counted.unwrap().running, 1);

    // With the table locked, only a count that reads nothing is answered.
    let _second = granted(&store, &ask(&store, "second").await).await;
    user.batch_execute(lock).await.unwrap();
    let kept = timeout(LONG, store.stats()).await.expect("it counted again");
    assert_eq!(kept.unwrap().running, 1);
    user.batch_execute("commit").await.unwrap();

    let recounted = async {
        while store.stats().await.unwrap().running != 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, recounted).await.expect("a kept count is not kept for good");
}

#[tokio::test]
async fn the_size_is_known_without_reading_the_table() {
    let place = Place::shared();
    let store = place.store().await;
    let bytes = async || store.size().await.unwrap().bytes.unwrap();
    let empty = bytes().await;
    join_all((0..500).map(async |n| granted(&store, &ask(&store, &format!("key-{n}")).await).await)).await;
    assert!(bytes().await > empty);
    // The server counts the reports of its processes, which arrive now and then.
    until("the records are counted", async || store.size().await.unwrap().records >= Some(500)).await;
}

#[tokio::test]
async fn the_last_page_says_so() {
    let place = Place::shared();
    let store = place.store().await;
    for number in 0..25 {
        let _lease = granted(&store, &ask(&store, &format!("key-{number}")).await).await;
    }
    let page = store.list(&ListQuery::default().with_limit(25)).await.unwrap();
    assert_eq!((page.records.len(), page.next), (25, None));
}
