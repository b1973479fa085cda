//! Large outcomes: many at once need no more memory than a few.

use std::collections::HashSet;

use futures_util::future::join_all;
use semel::store::{Ack, Claim};
use semel::{Outcome, RedisStore, Store};
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

/// The number of bytes that the server has sent so far, and the most that it has kept for one
/// connection.
async fn sent(place: &Place) -> u64 {
    let info: String = say(&mut place.connection().await, "INFO stats").await;
    let line = info.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
    line.unwrap().parse().unwrap()
}

#[tokio::test]
async fn large_outcomes_that_are_asked_for_at_once_are_sent_once_for_each_batch() {
    let server = Server::start("");
    let place = server.place();
    let options = place.options().with_timeout(LONG).unwrap().with_connections(1).unwrap();
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
