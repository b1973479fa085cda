//! Runtimes that end before the store does.

use std::time::{Duration, Instant};

use semel::store::Ask;
use semel::{Store, StoreError, Timestamp};
use testkit::claims::{ask, ask_at, granted};
use testkit::on_every_store;
use testkit::stores::Place;
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

// Memory needs no runtime, and a tier ends with its stores.
on_every_store! {
    testkit::stores::Place [sqlite, postgres, redis] {
        a_store_whose_runtime_has_ended_refuses_at_once,
        callers_are_answered_while_the_runtime_of_the_store_ends,
    }
}

async fn a_store_whose_runtime_has_ended_refuses_at_once(place: Place) {
    // A runtime can be started and ended on a thread that may block.
    spawn_blocking(move || refuses_when_its_runtime_has_ended(place.store())).await.unwrap();
}

async fn callers_are_answered_while_the_runtime_of_the_store_ends(place: Place) {
    spawn_blocking(move || answers_while_its_runtime_ends(place.store())).await.unwrap();
}

/// The time limit for the refusals of all verbs together: less than if each of them waited for
/// something.
const AT_ONCE: Duration = Duration::from_secs(10);

fn is_refused<T: std::fmt::Debug>(answer: Result<T, StoreError>, verb: &str) {
    let error = answer.expect_err(verb);
    assert!(!error.is_transient(), "{verb}: {error}");
    assert!(error.to_string().contains("the runtime in which it was made has ended"), "{verb}: {error}");
}

/// Checks that every verb of a store whose runtime was dropped refuses at once.
fn refuses_when_its_runtime_has_ended<S: Store>(open: impl Future<Output = S>) {
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let (store, lease, asked) = first.block_on(async {
        let store = open.await;
        let lease = granted(&store, &ask(&store, "granted").await).await;
        let asked = ask(&store, "another").await;
        (store, lease, asked)
    });
    drop(first);
    let began = Instant::now();
    second.block_on(async {
        is_refused(store.claim(&asked).await, "claim");
        is_refused(store.renew(&lease, Duration::from_secs(5)).await, "renew");
        is_refused(store.complete(&lease, &semel::Outcome::json("done").unwrap()).await, "complete");
        is_refused(store.release(&lease).await, "release");
        is_refused(store.abandon(&lease, "lost").await, "abandon");
        is_refused(store.hold(&lease, "lost").await, "hold");
        is_refused(store.void(&asked.key, asked.token, asked.not_after).await, "void");
        is_refused(store.find(lease.key()).await, "find");
        let found = store.find_many(&[lease.key().clone(), asked.key.clone()]).await;
        is_refused(found.and_then(|found| found.into_iter().collect::<Result<Vec<_>, _>>()), "find_many");
    });
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
}

/// Checks that callers in another runtime are answered while the runtime of the store ends.
fn answers_while_its_runtime_ends<S: Store + Clone>(open: impl Future<Output = S>) {
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let (store, now) = first.block_on(async {
        let store = open.await;
        let now = store.now().await.unwrap();
        (store, now)
    });
    let mut callers = JoinSet::new();
    for caller in 0..32 {
        callers.spawn_on(until_refused(store.clone(), now, caller), second.handle());
    }
    std::thread::sleep(Duration::from_millis(200));
    drop(first);
    let granted: u32 = second.block_on(async { callers.join_all().await.into_iter().sum() });
    assert!(granted > 0, "the store was not in use");
}

/// The number of claims that were granted until one was refused for good.
async fn until_refused(store: impl Store, now: Timestamp, caller: u32) -> u32 {
    let mut granted = 0;
    for number in 0.. {
        let ask: Ask = ask_at(now, &format!("{caller}-{number}"));
        match timeout(AT_ONCE, store.claim(&ask)).await.expect("the caller waits") {
            Ok(_) => granted += 1,
            // The operation in flight may be unknown.
            Err(error) if error.is_unknown() => {}
            refused => {
                is_refused(refused, "claim");
                break;
            }
        }
    }
    granted
}
