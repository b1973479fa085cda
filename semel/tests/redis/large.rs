//! Large outcomes: many at once need no more memory than a few.

use std::collections::HashSet;

use futures_util::future::join_all;
use semel::store::{Ack, Claim, Done, Hot, Remembered};
use semel::{Fence, Intent, Key, Outcome, RedisStore, Store};
use testkit::claims::{ask_at, granted};
use testkit::stores::redis::{Place, Server, say};
use testkit::until::LONG;

const MEBIBYTE: u64 = 1 << 20;
const KEYS: usize = 40;

fn outcome(number: usize) -> Outcome {
    let body = vec![u8::try_from(number % 251).unwrap(); MEBIBYTE as usize];
    Outcome::new(201).unwrap().with_body(body).unwrap()
}

async fn replay(store: &RedisStore, number: usize) -> Outcome {
    let now = store.now().await.unwrap();
    match store.claim(&ask_at(now, &format!("key-{number}"))).await.unwrap() {
        Claim::Done(done) => done.outcome,
        other => panic!("{other:?}"),
    }
}

/// The number of bytes that the server has sent so far.
async fn sent(place: &Place) -> u64 {
    let info: String = say(&mut place.connection().await, "INFO stats").await;
    let line = info.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
    line.unwrap().parse().unwrap()
}

#[tokio::test]
async fn large_outcomes_that_are_asked_for_at_once_are_sent_once_for_each_batch() {
    let server = Server::start("");
    let place = server.place();
    let options = place.options().with_timeout(LONG).with_connections(1);
    let store = options.connect().await.unwrap();
    let mut leases = Vec::new();
    for number in 0..KEYS {
        let now = store.now().await.unwrap();
        let lease = granted(&store, &ask_at(now, &format!("key-{number}"))).await;
        store.complete(&lease, &outcome(number)).await.unwrap().applied().unwrap();
        leases.push(lease);
    }
    let before = sent(&place).await;
    let repeats = join_all((0..400).map(|_| replay(&store, 7))).await;
    assert!(repeats.iter().all(|replay| *replay == outcome(7)));
    let bodies: HashSet<_> = repeats.iter().map(|replay| replay.body().unwrap().as_ptr()).collect();
    assert!(bodies.len() <= 4, "{} copies", bodies.len());
    let repeated = sent(&place).await - before;
    assert!(repeated < 5 * MEBIBYTE, "{repeated}");

    let again = leases
        .iter()
        .enumerate()
        .map(async |(number, lease)| store.complete(lease, &outcome(number)).await.unwrap());
    let found = leases.iter().map(async |lease| store.find(lease.key()).await.unwrap().unwrap());
    let replays = (0..KEYS).map(|number| replay(&store, number));
    let (again, found, replays) = tokio::join!(join_all(again), join_all(found), join_all(replays));
    assert!(again.iter().all(|ack| *ack == Ack::Repeated), "{again:?}");
    for (number, replay) in replays.iter().enumerate() {
        assert_eq!(*replay, outcome(number), "{number}");
        assert_eq!(found[number].outcome(), Some(replay), "{number}");
    }
}

/// The entry of a hot store for a key with a large outcome.
async fn entry(store: &RedisStore, number: usize) -> (Key, Remembered) {
    let expires_at = store.now().await.unwrap().after(LONG);
    let done = Done::new(outcome(number), Fence::new(1), expires_at);
    let intent = Intent::of("charge", "", &number).unwrap();
    (Key::new("tests", &format!("key-{number}")).unwrap(), Remembered::new(intent, done))
}

#[tokio::test]
async fn a_hot_store_recalls_large_outcomes_in_small_batches_and_shares_them() {
    let server = Server::start("");
    let place = server.place();
    let options = place.options().with_timeout(LONG).with_connections(1);
    let store = options.connect().await.unwrap();
    let mut entries = Vec::new();
    for number in 0..KEYS {
        let (key, remembered) = entry(&store, number).await;
        store.plant(&key, &remembered, LONG, LONG).await.unwrap();
        entries.push((key, remembered));
    }
    let before = sent(&place).await;
    let (hot, planted) = &entries[7];
    let repeats = join_all((0..400).map(|_| store.recall(hot))).await;
    let repeats: Vec<_> = repeats.into_iter().map(|recalled| recalled.unwrap().unwrap()).collect();
    assert!(repeats.iter().all(|recalled| recalled == planted));
    let bodies: HashSet<_> =
        repeats.iter().map(|recalled| recalled.done.outcome.body().unwrap().as_ptr()).collect();
    assert!(bodies.len() <= 4, "{} copies", bodies.len());
    let repeated = sent(&place).await - before;
    assert!(repeated < 9 * MEBIBYTE, "{repeated}");

    // The server closes a connection for which it would have to keep more than a batch may read.
    let mut limit = redis::cmd("CONFIG");
    limit.arg("SET").arg("client-output-buffer-limit").arg("normal 12mb 0 0");
    limit.exec_async(&mut place.connection().await).await.unwrap();
    let recalled = join_all(entries.iter().map(|(key, _)| store.recall(key))).await;
    for ((key, planted), recalled) in entries.iter().zip(recalled) {
        assert_eq!(recalled.unwrap().as_ref(), Some(planted), "{key:?}");
    }
}

#[tokio::test]
async fn a_hot_store_recalls_outcomes_of_every_size() {
    let place = Place::shared();
    let store = place.store().await;
    let (key, mut remembered) = entry(&store, 1).await;
    // The first request reads 8 KiB of an entry.
    for (headers, body) in
        [(0, 0), (0, 7_000), (0, 8_090), (0, 9_000), (8_090, 9_000), (9_000, 0), (60_000, 9_000)]
    {
        let outcome = Outcome::new(201).unwrap().with_body(vec![7; body]).unwrap();
        let outcome = outcome.with_headers([("link", "x".repeat(headers))]).unwrap();
        for size in 0..40 {
            let subtype = "s".repeat(size + 1);
            remembered.done.fence = Fence::new(remembered.done.fence.get() + 1);
            remembered.done.outcome = outcome.clone().with_subtype(&subtype).unwrap();
            store.plant(&key, &remembered, LONG, LONG).await.unwrap();
            let recalled = store.recall(&key).await.unwrap();
            assert_eq!(recalled.as_ref(), Some(&remembered), "{headers} {body} {size}");
        }
    }
}
