//! The lifetimes of records, and fences, which rise through all of them.

use std::time::Duration;

use semel::admin::{Inspect, OperatorAck, Prune};
use semel::store::Terms;
use semel::{AfterCrash, Lease, RedisStore, Store, Timestamp};
use testkit::claims::{ask, done, granted};
use testkit::stores::redis::{Place, Server, say};
use testkit::until::until;

/// The time for which Redis keeps an expired record.
const GRACE: Duration = Duration::from_secs(60);

/// A claim that expires soon after its lease is over.
async fn short_lived(store: &RedisStore, name: &str) -> Lease {
    let terms = Terms::new(Terms::MIN_LEASE, Terms::MIN_LEASE).unwrap();
    let terms = terms.with_after_crash(AfterCrash::Retry);
    granted(store, &ask(store, name).await.with_terms(terms)).await
}

async fn until_expired(store: &RedisStore, lease: &Lease) {
    until("the record is over", async || store.find(lease.key()).await.unwrap().is_none()).await;
}

#[tokio::test]
async fn fences_rise_over_expiry_and_prune_and_a_flush() {
    let server = Server::start("");
    let place = server.place();
    let (store, other) = (place.store().await, place.store().await);
    let mut client = server.connection().await;
    let first = short_lived(&store, "key").await;
    until_expired(&store, &first).await;
    let taken = short_lived(&other, "key").await;
    assert!(taken.fence() > first.fence());
    // The record counts as absent: the next claim begins a new life of the key.
    assert_eq!(taken.attempt(), 1);

    until_expired(&store, &taken).await;
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 1);
    assert!(!say::<bool>(&mut client, &format!("EXISTS {}", place.name("key"))).await);
    let pruned = granted(&store, &ask(&store, "key").await).await;
    assert!(pruned.fence() > taken.fence());

    say::<()>(&mut client, "FLUSHALL").await;
    let flushed = granted(&other, &ask(&other, "key").await).await;
    assert!(flushed.fence() > pruned.fence());
    // The previous owner has lost the key, and is told so.
    assert!(!store.release(&pruned).await.unwrap().stands());
}

#[tokio::test]
async fn redis_removes_a_record_a_while_after_it_has_expired() {
    let place = Place::shared();
    let (store, mut client) = (place.store().await, place.connection().await);
    let mut is_removed_in_time = async |lease: &Lease| {
        let name = place.name(lease.key().value());
        let millis: i64 = say(&mut client, &format!("PEXPIRETIME {name}")).await;
        let removed = Timestamp::from_micros(u64::try_from(millis).expect("it is removed") * 1_000);
        let over = store.find(lease.key()).await.unwrap().unwrap().expires_at().expect("it expires");
        removed >= over.after(GRACE) && removed < over.after(GRACE + Duration::from_millis(2))
    };
    let terms = Terms::new(Duration::from_secs(5), Duration::from_secs(100)).unwrap();
    let terms = terms.with_after_crash(AfterCrash::Retry);

    let lease = granted(&store, &ask(&store, "key").await.with_terms(terms)).await;
    assert!(is_removed_in_time(&lease).await);
    for length in [500, 5] {
        store.renew(&lease, Duration::from_secs(length)).await.unwrap().applied().unwrap();
        assert!(is_removed_in_time(&lease).await);
    }
    store.complete(&lease, &testkit::claims::outcome("key")).await.unwrap().applied().unwrap();
    assert!(is_removed_in_time(&lease).await);
    let released = granted(&store, &ask(&store, "released").await).await;
    store.release(&released).await.unwrap().applied().unwrap();
    assert!(is_removed_in_time(&released).await);
}

#[tokio::test]
async fn redis_keeps_what_runs_under_hold_until_it_is_settled() {
    let place = Place::shared();
    let (store, mut client) = (place.store().await, place.connection().await);
    let mut is_kept = async || say::<i64>(&mut client, &format!("PTTL {}", place.name("key"))).await == -1;
    let lease = granted(&store, &ask(&store, "key").await).await;
    assert!(is_kept().await);
    store.renew(&lease, Duration::from_secs(5)).await.unwrap().applied().unwrap();
    assert!(is_kept().await);
    store.abandon(&lease, "lost").await.unwrap().applied().unwrap();
    assert!(is_kept().await);
    let outcome = testkit::claims::outcome("key");
    assert_eq!(
        store.resolve(lease.key(), lease.fence(), &outcome, "seen").await.unwrap(),
        OperatorAck::Applied
    );
    assert!(!is_kept().await);
}

#[tokio::test]
async fn the_longest_terms_are_kept_to_the_microsecond() {
    let place = Place::shared();
    let store = place.store().await;
    let terms = Terms::new(Terms::MAX_LEASE, Terms::MAX_RETENTION).unwrap();
    let lease = granted(&store, &ask(&store, "key").await.with_terms(terms)).await;
    let record = store.find(lease.key()).await.unwrap().unwrap();
    assert_eq!(record.retention, Terms::MAX_RETENTION);
    assert_eq!(record.lease_until.since(record.created_at), Terms::MAX_LEASE);
    assert_eq!(record.fence, lease.fence());
}

#[tokio::test]
async fn prune_removes_what_has_been_over_for_less_than_a_millisecond() {
    let place = Place::shared();
    let store = place.store().await;
    for number in 0..10 {
        let lease = short_lived(&store, &format!("key-{number}")).await;
        while store.find(lease.key()).await.unwrap().is_some() {}
        assert_eq!(store.prune(&Prune::default()).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn prune_removes_what_is_over_and_nothing_else() {
    let place = Place::shared();
    let store = place.store().await;
    let mut over = Vec::new();
    for number in 0..30 {
        over.push(short_lived(&store, &format!("over-{number}")).await);
        done(&store, &format!("done-{number}")).await;
    }
    for lease in &over {
        until_expired(&store, lease).await;
    }
    assert_eq!(store.prune(&Prune::default().with_limit(0)).await.unwrap(), 0);
    assert_eq!(store.prune(&Prune::default().with_realm(Some("test".into()))).await.unwrap(), 0);
    assert_eq!(store.prune(&Prune::default().with_limit(20)).await.unwrap(), 20);
    assert_eq!(
        store.prune(&Prune::default().with_realm(Some("tests".into())).with_limit(20)).await.unwrap(),
        10
    );
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 0);
    let mut client = place.connection().await;
    let left: Vec<String> = say(&mut client, &format!("KEYS {}:*", place.prefix)).await;
    assert_eq!(left.len(), 30);
    assert!(left.iter().all(|name| name.contains("done-")));
}
