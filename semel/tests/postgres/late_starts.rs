//! Attempts that start late: their lease was over before they processed the answer to their claim.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use semel::store::{Phase, Token};
use semel::{Failure, Intent, Key, Lease, Once, Policy, PostgresStore, Ran, Reconciled, RunError, Store};
use testkit::claims::{ask, granted};
use testkit::stores::postgres::Place;
use testkit::until::until;
use tokio::time::sleep;

use crate::standby::Primary;

const LEASE: Duration = Duration::from_millis(500);

fn key() -> Key {
    Key::new("tests", "late").unwrap()
}

/// Counts how often the work is started.
#[derive(Clone, Default)]
struct Starts(Arc<AtomicU32>);

impl Starts {
    fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    async fn run(self, once: Once) -> Result<Ran<u32>, RunError> {
        let intent = Intent::of("charge", "", &1).unwrap();
        let work = move |_: Lease| async move { Ok::<_, Failure>(self.0.fetch_add(1, Ordering::SeqCst) + 1) };
        once.run(&key(), &intent, work).await
    }
}

/// A run whose claim was granted, and whose lease is over before it goes on.
async fn late(
    store: &PostgresStore,
    starts: &Starts,
    patience: Duration,
) -> Pin<Box<impl Future<Output = Result<Ran<u32>, RunError>> + use<>>> {
    // The store knows its clock from then on, so that the claim is the first request.
    let _warm = granted(store, &ask(store, &Token::random().to_string()).await).await;
    let policy = Policy::hold().with_lease(LEASE).with_patience(patience);
    let once = Once::new(store.clone()).with_policy(policy);
    let mut run = Box::pin(starts.clone().run(once));
    let sent = std::future::poll_fn(|context| Poll::Ready(run.as_mut().poll(context).is_pending())).await;
    assert!(sent);
    until("the lease of the attempt is over", async || {
        let now = store.now().await.unwrap();
        store.find(&key()).await.unwrap().is_some_and(|record| record.phase(now) == Phase::Held)
    })
    .await;
    run
}

/// Regression: both were started under `hold`: the renewal of the first met the row that the
/// takeover had locked, and that was taken for a confirmation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_of_a_takeover_in_its_commit_confirms_nothing() {
    let primary = Primary::start().await;
    let (store, other) = (primary.store().await, primary.store().await);
    let starts = Starts::default();
    let first = late(&store, &starts, Duration::from_millis(100)).await;
    primary.lose_standby().await;
    // The finding is true: the first attempt has not started.
    let hook = |_, _, _| async { Reconciled::DidNotHappen };
    let taking_over = tokio::spawn(starts.clone().run(Once::new(other.clone()).with_reconcile(hook)));
    until("the takeover is in its commit", async || {
        !primary.backends.that("wait_event = 'SyncRep'").await.is_empty()
    })
    .await;
    let refused = first.await;
    assert!(matches!(refused, Err(RunError::Unavailable(_))), "{refused:?}");
    assert_eq!(starts.count(), 0);

    primary.find_standby().await;
    let mut ran = taking_over.await.unwrap();
    while let Err(error) = ran {
        assert!(matches!(error, RunError::Unavailable(_)), "{error:?}");
        ran = starts.clone().run(Once::new(other.clone()).with_reconcile(hook)).await;
    }
    assert_eq!(starts.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_attempt_starts_once_the_lock_is_gone_and_the_key_is_its_own() {
    let place = Place::shared();
    let (store, mut client) = (place.store().await, place.client().await);
    let starts = Starts::default();
    let late = late(&store, &starts, Duration::from_secs(30)).await;
    let locking = client.transaction().await.unwrap();
    locking.execute("select from records where key = 'late' for update", &[]).await.unwrap();
    let running = tokio::spawn(late);
    sleep(LEASE).await;
    assert_eq!(starts.count(), 0);
    locking.rollback().await.unwrap();
    assert_eq!(running.await.unwrap().unwrap(), Ran::new(1, false));
}
