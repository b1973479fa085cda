//! Repeats that wait for an attempt whose transaction outlasts its lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use semel::{Failure, Intent, Key, Lease, Once, Outcome, Policy, PostgresStore, Ran, StoreError};
use testkit::gates::{Path, Through};
use testkit::stores::postgres::Place;
use testkit::until::until;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

const LEASE: Duration = Duration::from_millis(300);
const REPEATS: usize = 200;

/// A store handle that counts claims.
#[derive(Clone)]
struct Counting {
    store: PostgresStore,
    claims: Arc<AtomicUsize>,
}

impl Path for Counting {
    type End = PostgresStore;

    async fn pass<T, F>(
        &self,
        verb: &'static str,
        call: impl Fn(PostgresStore) -> F + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        if verb == "claim" {
            self.claims.fetch_add(1, Ordering::Relaxed);
        }
        call(self.store.clone()).await
    }
}

/// Regression: each repeat asked by itself, as often as the store was polled: 8,702 claims in five
/// seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeats_of_a_locked_key_ask_together() {
    let place = Place::shared();
    let counting = Counting { store: place.store().await, claims: Arc::default() };
    let policy = Policy::transactional().with_lease(LEASE);
    let policy = policy.with_wait(Duration::from_secs(60));
    let once = Once::new(Through(counting.clone())).with_policy(policy);
    let (key, intent) = (Key::new("tests", "waited for").unwrap(), Intent::of("charge", "", &1).unwrap());
    let (locked, may_commit) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let first = {
        let (store, mut client) = (counting.store.clone(), place.client().await);
        let (locked, may_commit) = (Arc::clone(&locked), Arc::clone(&may_commit));
        let work = move |lease: Lease| async move {
            let mut tx = client.transaction().await?;
            store.complete_in(&mut tx, &lease, &Outcome::json(&1)?).await?.applied()?;
            locked.notify_one();
            may_commit.notified().await;
            tx.commit().await?;
            Ok::<_, Failure>(1)
        };
        let (once, key, intent) = (once.clone(), key.clone(), intent.clone());
        tokio::spawn(async move { once.run(&key, &intent, work).await })
    };
    locked.notified().await;
    let began = Instant::now();
    let repeats: Vec<_> = (0..REPEATS)
        .map(|_| {
            let (once, key, intent) = (once.clone(), key.clone(), intent.clone());
            let again = |_lease| async { Ok::<_, Failure>(2) };
            tokio::spawn(async move { once.run(&key, &intent, again).await })
        })
        .collect();
    until("all have asked", async || counting.claims.load(Ordering::Relaxed) > REPEATS).await;
    // The row is locked by its owner for the length of some leases.
    sleep(LEASE * 6).await;
    assert!(repeats.iter().all(|repeat| !repeat.is_finished()));
    may_commit.notify_one();
    assert_eq!(first.await.unwrap().unwrap(), Ran::new(1, false));
    for repeat in join_all(repeats).await {
        assert_eq!(repeat.unwrap().unwrap(), Ran::new(1, true));
    }
    let claims = counting.claims.load(Ordering::Relaxed);
    let polls = began.elapsed().as_millis() as usize / 25;
    assert!(claims <= 1 + 2 * REPEATS + 20 + polls, "{claims} claims of {REPEATS} repeats");
}
