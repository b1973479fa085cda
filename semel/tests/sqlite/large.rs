//! Large outcomes: many at once need no more memory than a few.

use std::collections::HashSet;

use futures_util::future::join_all;
use semel::store::{Ack, Claim};
use semel::{Outcome, SqliteStore, Store};
use testkit::claims::{ask, granted};
use testkit::stores::sqlite::Place;

const MEBIBYTE: usize = 1 << 20;

fn outcome(number: usize) -> Outcome {
    Outcome::new(201).unwrap().with_body(vec![u8::try_from(number % 251).unwrap(); MEBIBYTE]).unwrap()
}

async fn replay(store: &SqliteStore, number: usize) -> Outcome {
    match store.claim(&ask(store, &format!("key-{number}")).await).await.unwrap() {
        Claim::Done(done) => done.outcome,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn repeats_of_one_large_outcome_share_it_and_others_are_answered_in_parts() {
    let place = Place::new();
    let store = place.store().await;
    let mut leases = Vec::new();
    for number in 0..40 {
        let lease = granted(&store, &ask(&store, &format!("key-{number}")).await).await;
        store.complete(&lease, &outcome(number)).await.unwrap().applied().unwrap();
        leases.push(lease);
    }
    let repeats = join_all((0..400).map(|_| replay(&store, 7))).await;
    let bodies: HashSet<_> = repeats.iter().map(|replay| replay.body().unwrap().as_ptr()).collect();
    assert!(bodies.len() <= 4, "{} copies", bodies.len());

    let again = leases
        .iter()
        .enumerate()
        .map(async |(number, lease)| store.complete(lease, &outcome(number)).await.unwrap());
    let replays = (0..40).map(|number| replay(&store, number));
    let (again, replays) = tokio::join!(join_all(again), join_all(replays));
    assert!(again.iter().all(|ack| *ack == Ack::Repeated), "{again:?}");
    for (number, replay) in replays.iter().enumerate() {
        assert_eq!(*replay, outcome(number), "{number}");
    }
}
