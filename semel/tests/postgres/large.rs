//! Large outcomes: many at once need no more memory than a few.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;
use semel::store::{Ack, Ask, Claim};
use semel::{Lease, Outcome, PostgresStore, Store, StoreError, Timestamp};
use testkit::claims::{ask, ask_at, granted};
use testkit::gates::Proxy;
use testkit::stores::postgres::{Backends, Place};
use tokio::time::timeout;

const MEBIBYTE: usize = 1 << 20;
/// The largest size of all answers of a batch, with a margin for everything but the bodies.
const LARGEST_ANSWER: usize = 4 * MEBIBYTE + (64 << 10);

fn outcome(number: usize, bytes: usize) -> Outcome {
    let body = vec![u8::try_from(number % 251).unwrap(); bytes];
    Outcome::new(201).unwrap().with_headers([("etag", "7")]).unwrap().with_body(body).unwrap()
}

/// A store with one connection, so that concurrent operations form a batch; and the counted answers
/// of its server.
struct Counted {
    store: PostgresStore,
    proxy: Proxy,
    now: Timestamp,
    _place: Place,
}

impl Counted {
    async fn start() -> Self {
        let (place, _) = Backends::on(&Place::shared().url).await;
        let (behind, proxy) = Proxy::to(&place);
        let store =
            behind.options().with_connections(1).with_additional_connections(0).connect().await.unwrap();
        store.migrate().await.unwrap();
        let now = store.now().await.unwrap();
        Self { store, proxy, now, _place: behind }
    }

    /// Makes this many done keys, with bodies of this size.
    async fn complete(&self, keys: usize, bytes: usize) -> Vec<Lease> {
        let mut leases = Vec::new();
        for number in 0..keys {
            let lease = granted(&self.store, &self.ask(number)).await;
            self.store.complete(&lease, &outcome(number, bytes)).await.unwrap().applied().unwrap();
            leases.push(lease);
        }
        // Most recent claims are repeats now, and nothing disturbs the counting.
        replayed(self.store.claim(&self.ask(0)).await);
        self.proxy.traffic();
        leases
    }

    fn ask(&self, number: usize) -> Ask {
        ask_at(self.now, &format!("key-{number}"))
    }

    /// Claims all these keys concurrently.
    async fn replays(&self, keys: impl IntoIterator<Item = usize>) -> Vec<Outcome> {
        let asks: Vec<Ask> = keys.into_iter().map(|number| self.ask(number)).collect();
        join_all(asks.iter().map(|ask| self.store.claim(ask))).await.into_iter().map(replayed).collect()
    }
}

fn replayed(claim: Result<Claim, StoreError>) -> Outcome {
    match claim {
        Ok(Claim::Done(done)) => done.outcome,
        other => panic!("not replayed: {other:?}"),
    }
}

#[tokio::test]
async fn repeats_of_one_large_outcome_share_it() {
    let counted = Counted::start().await;
    counted.complete(1, MEBIBYTE).await;
    let replays = counted.replays(std::iter::repeat_n(0, 2_000)).await;
    assert!(replays.iter().all(|replay| *replay == outcome(0, MEBIBYTE)));
    let bodies: HashSet<_> = replays.iter().map(|replay| replay.body().unwrap().as_ptr()).collect();
    let headers: HashSet<_> =
        replays.iter().map(|replay| replay.headers().next().unwrap().1.as_ptr()).collect();
    // 512 operations form one batch.
    assert_eq!((bodies.len(), headers.len()), (4, 4), "one copy for each batch");
    let (_, largest) = counted.proxy.traffic();
    assert!(largest < 2 * MEBIBYTE, "{largest}");
}

#[tokio::test]
async fn finds_of_one_large_outcome_share_it() {
    let counted = Counted::start().await;
    counted.complete(1, MEBIBYTE).await;
    let found = join_all((0..100).map(|_| async {
        counted.store.find(&counted.ask(0).key).await.unwrap().unwrap().outcome().unwrap().clone()
    }));
    let bodies: HashSet<_> = found.await.iter().map(|found| found.body().unwrap().as_ptr()).collect();
    assert_eq!(bodies.len(), 1);
}

#[tokio::test]
async fn large_outcomes_that_are_asked_for_at_once_come_in_batches_of_a_few_mebibytes() {
    let counted = Counted::start().await;
    counted.complete(40, MEBIBYTE).await;
    let replays = counted.replays(0..40).await;
    for (number, replay) in replays.iter().enumerate() {
        assert_eq!(*replay, outcome(number, MEBIBYTE), "{number}");
    }
    let (requests, largest) = counted.proxy.traffic();
    assert!(largest > 2 * MEBIBYTE && largest < LARGEST_ANSWER, "{largest}");
    // The left-out outcomes are known from the first batch on, so that each further batch is one
    // request.
    assert!(requests <= 16, "{requests}");
}

#[tokio::test]
async fn outcome_larger_than_a_batch_is_replayed_beside_others() {
    let counted = Counted::start().await;
    counted.complete(3, 12 * MEBIBYTE).await;
    let replays = counted.replays([2, 0, 1, 2]).await;
    for (replay, number) in replays.iter().zip([2, 0, 1, 2]) {
        assert_eq!(*replay, outcome(number, 12 * MEBIBYTE), "{number}");
    }
    let (_, largest) = counted.proxy.traffic();
    assert!(largest < 13 * MEBIBYTE, "{largest}");
}

#[tokio::test]
async fn small_outcomes_and_single_large_ones_take_one_request() {
    let counted = Counted::start().await;
    counted.complete(64, 4_096).await;
    for keys in [0..1, 0..64] {
        counted.replays(keys.clone()).await;
        assert_eq!(counted.proxy.traffic().0, 1, "{keys:?}");
    }
    let counted = Counted::start().await;
    counted.complete(1, 3 * MEBIBYTE).await;
    counted.replays([0]).await;
    assert_eq!(counted.proxy.traffic().0, 1);
}

/// All concurrent operations about large outcomes are answered, although only some of the outcomes
/// fit together.
#[tokio::test]
async fn owners_of_large_outcomes_are_answered_in_parts_too() {
    let counted = Counted::start().await;
    let leases = counted.complete(20, MEBIBYTE).await;
    let (store, other) = (&counted.store, Outcome::json("other").unwrap());
    let again = leases.iter().enumerate().map(|(number, lease)| async move {
        store.complete(lease, &outcome(number, MEBIBYTE)).await.unwrap()
    });
    let late = leases.iter().map(|lease| async { store.complete(lease, &other).await.unwrap() });
    let found = leases.iter().map(|lease| async { store.find(lease.key()).await.unwrap().unwrap() });
    let (again, late, found, replays) =
        tokio::join!(join_all(again), join_all(late), join_all(found), counted.replays(0..20));
    for number in 0..20 {
        assert_eq!((again[number], late[number]), (Ack::Repeated, Ack::Finished), "{number}");
        assert_eq!(found[number].outcome(), Some(&replays[number]));
        assert_eq!(replays[number], outcome(number, MEBIBYTE));
    }
    let (_, largest) = counted.proxy.traffic();
    assert!(largest < 2 * LARGEST_ANSWER, "{largest}");
}

/// All answers together would take far longer than one answer may take.
#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_large_outcomes_are_all_answered() {
    const KEYS: usize = 256;
    let place = Place::shared();
    let store = place.store().await;
    let leases = (0..KEYS).map(|number| {
        let store = store.clone();
        async move {
            let lease = granted(&store, &ask(&store, &format!("key-{number}")).await).await;
            store.complete(&lease, &outcome(number, MEBIBYTE)).await.unwrap().applied().unwrap();
        }
    });
    join_all(leases).await;
    let now = store.now().await.unwrap();
    let replays = (0..KEYS).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            let ask = ask_at(now, &format!("key-{number}"));
            loop {
                match store.claim(&ask).await {
                    Ok(claim) => break assert_eq!(replayed(Ok(claim)), outcome(number, MEBIBYTE)),
                    // On a busy machine a second try may be necessary; but no batch was too large
                    // to be answered.
                    Err(error) => assert!(error.is_transient() && !error.is_unknown(), "{error}"),
                }
            }
        })
    });
    let all = join_all(replays);
    for replayed in timeout(Duration::from_secs(120), all).await.expect("all are answered") {
        replayed.unwrap();
    }
}
