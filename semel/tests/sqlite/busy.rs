//! A lock that another connection holds.

use std::time::Duration;

use rusqlite::Connection;
use semel::admin::{Inspect, ListQuery, Prune};
use semel::store::{Ack, Claim};
use semel::{Outcome, SqliteStore, Store, StoreError};
use testkit::claims::{ask, granted};
use testkit::stores::sqlite::Place;
use testkit::until::LONG;
use tokio::time::{Instant, sleep, timeout};

const SHORT: Duration = Duration::from_millis(50);

/// A store that does not wait for long, and a user that holds the lock.
async fn locked(place: &Place, wait: Duration) -> (SqliteStore, Connection) {
    place.store().await.close().await;
    let store = place.options().with_busy_timeout(wait).open().await.unwrap();
    let user = place.client();
    user.execute_batch("begin immediate").unwrap();
    (store, user)
}

fn is_busy(error: &StoreError, place: &Place) {
    assert!(error.is_transient() && !error.is_unknown(), "{error}");
    let said = error.to_string();
    assert!(
        said.contains("another connection has") && said.contains(&place.path().display().to_string()),
        "{said}"
    );
}

#[tokio::test]
async fn a_wait_for_the_lock_that_is_too_long_is_an_error_and_applies_nothing() {
    let place = Place::new();
    let (store, user) = locked(&place, SHORT).await;
    let asked = ask(&store, "key").await;
    let began = Instant::now();
    let error = store.claim(&asked).await.expect_err("another connection has the lock");
    is_busy(&error, &place);
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    let error = store.prune(&Prune::default()).await.expect_err("another connection has the lock");
    is_busy(&error, &place);
    user.execute_batch("commit").unwrap();
    assert_eq!(store.find(&asked.key).await.unwrap(), None);
    let lease = granted(&store, &asked).await;

    user.execute_batch("begin immediate").unwrap();
    let outcome = Outcome::json("done").unwrap();
    is_busy(&store.complete(&lease, &outcome).await.expect_err("another connection has the lock"), &place);
    user.execute_batch("commit").unwrap();
    assert_eq!(store.complete(&lease, &outcome).await.unwrap(), Ack::Applied);
}

#[tokio::test]
async fn a_lock_that_is_given_back_in_time_is_waited_for() {
    let place = Place::new();
    let (store, user) = locked(&place, Duration::from_secs(60)).await;
    let asked = ask(&store, "key").await;
    let claim = store.claim(&asked);
    tokio::pin!(claim);
    assert!(timeout(Duration::from_millis(300), &mut claim).await.is_err(), "it did not wait");
    user.execute_batch("commit").unwrap();
    assert!(matches!(claim.await.unwrap(), Claim::Granted(_)));
}

#[tokio::test]
async fn a_reader_does_not_wait_for_the_lock() {
    let place = Place::new();
    let store = place.store().await;
    let lease = granted(&store, &ask(&store, "key").await).await;
    let outcome = Outcome::json("done").unwrap();
    store.complete(&lease, &outcome).await.unwrap().applied().unwrap();
    let user = place.client();
    user.execute_batch("begin immediate; delete from semel_records").unwrap();
    let looks = async {
        let claim = store.claim(&ask(&store, "key").await).await.unwrap();
        assert!(matches!(claim, Claim::Done(done) if done.outcome == outcome));
        assert!(store.find(lease.key()).await.unwrap().is_some());
        assert_eq!(store.list(&ListQuery::default()).await.unwrap().records.len(), 1);
        assert_eq!(Inspect::stats(&store).await.unwrap().done, 1);
    };
    timeout(LONG, looks).await.expect("it waited for a writer");
    user.execute_batch("rollback").unwrap();
}

/// The clock is read once the lock is held: with the time of the call, a claim could be granted
/// long after it was given up.
#[tokio::test]
async fn a_claim_that_waited_for_the_lock_until_it_was_over_is_late() {
    let place = Place::new();
    let (store, user) = locked(&place, Duration::from_secs(60)).await;
    let now = store.now().await.unwrap();
    let soon = now.after(Duration::from_millis(200));
    let asked = ask(&store, "key").await.with_not_after(soon);
    let claim = store.claim(&asked);
    tokio::pin!(claim);
    assert!(timeout(Duration::from_millis(100), &mut claim).await.is_err(), "it did not wait");
    while store.now().await.unwrap() <= soon {
        sleep(Duration::from_millis(10)).await;
    }
    user.execute_batch("commit").unwrap();
    assert!(matches!(claim.await.unwrap(), Claim::Late));
    assert_eq!(store.find(&asked.key).await.unwrap(), None);
}

#[tokio::test]
async fn a_file_that_is_locked_while_it_is_opened_is_waited_for() {
    let place = Place::new();
    let user = place.client();
    // The file has no write-ahead log yet, so that this excludes all other connections.
    user.execute_batch("create table theirs (x); begin exclusive").unwrap();
    let options = place.options().with_busy_timeout(SHORT);
    is_busy(&options.open().await.err().expect("it is locked"), &place);
    let opening = place.options().open();
    tokio::pin!(opening);
    assert!(timeout(Duration::from_millis(200), &mut opening).await.is_err(), "it did not wait");
    user.execute_batch("commit").unwrap();
    opening.await.unwrap().migrate().await.unwrap();
}
