//! A row that a user's transaction has locked: no other operation waits for it.

use std::time::Duration;

use futures_util::future::join_all;
use semel::store::{Ack, Claim, RecordState, Takeover};
use semel::{Lease, Outcome, PostgresStore, Store};
use testkit::claims::{ask, granted, retried};
use testkit::stores::postgres::{Place, end_lease};
use testkit::until::LONG;
use tokio::time::timeout;
use tokio_postgres::Client;

/// The limit for operations that write nothing, and so do not wait for the disk. Waiting for the
/// lock would take a second at least.
const AT_ONCE: Duration = Duration::from_millis(500);
/// A busy machine may take longer than that by itself, but not every time.
const TRIES: usize = 20;

fn outcome() -> Outcome {
    Outcome::json("charged").unwrap()
}

/// The answer, which must come without waiting.
async fn at_once<T>(mut ask: impl AsyncFnMut() -> T) -> T {
    for _ in 0..TRIES {
        if let Ok(answer) = timeout(AT_ONCE, ask()).await {
            return answer;
        }
    }
    panic!("it waited for a transaction of a user")
}

/// A key whose lease is over while its outcome is recorded, but not committed yet.
async fn locked(store: &PostgresStore, client: &mut Client, commit: impl AsyncFnOnce(&Lease)) -> Lease {
    let lease = granted(store, &retried(ask(store, "locked").await)).await;
    end_lease(client, lease.key()).await;
    let mut tx = client.transaction().await.unwrap();
    let ack = store.complete_in(&mut tx, &lease, &outcome()).await.unwrap();
    assert_eq!(ack, Ack::Applied);
    commit(&lease).await;
    tx.commit().await.unwrap();
    lease
}

#[tokio::test]
async fn no_operation_waits_for_a_transaction_of_a_user() {
    let place = Place::shared();
    let (store, mut client) = (place.store().await, place.client().await);
    let other = place.store().await;
    let takeover = ask(&other, "locked").await.with_takeover(Takeover::WhenOver);
    let lease = locked(&store, &mut client, async |lease| {
        let renewed = at_once(async || store.renew(lease, Duration::from_secs(30)).await).await;
        assert_eq!(renewed.unwrap(), Ack::Repeated);
        for store in [&store, &other] {
            let claimed = at_once(async || store.claim(&takeover).await).await.unwrap();
            assert!(matches!(claimed, Claim::Running { .. }), "{claimed:?}");
            let found = at_once(async || store.find(lease.key()).await).await.unwrap().unwrap();
            assert_eq!(found.state, RecordState::Running);
        }
        for refused in [
            at_once(async || store.complete(lease, &outcome()).await).await,
            at_once(async || other.complete(lease, &outcome()).await).await,
            at_once(async || store.release(lease).await).await,
            at_once(async || store.abandon(lease, "test").await).await,
        ] {
            let refused = refused.expect_err("the row is locked");
            assert!(refused.is_transient() && !refused.is_unknown(), "{refused}");
        }
    })
    .await;
    for store in [&store, &other] {
        assert!(
            matches!(store.claim(&takeover).await.unwrap(), Claim::Done(done) if done.outcome == outcome())
        );
        assert_eq!(store.renew(&lease, Duration::from_secs(30)).await.unwrap(), Ack::Finished);
        assert_eq!(store.complete(&lease, &outcome()).await.unwrap(), Ack::Repeated);
        assert_eq!(store.release(&lease).await.unwrap(), Ack::Finished);
    }
}

#[tokio::test]
async fn other_keys_go_on_while_one_is_locked() {
    let place = Place::shared();
    let (store, mut client) = (place.store().await, place.client().await);
    locked(&store, &mut client, async |lease| {
        // The same batches always contain operations about the locked key.
        let nagging = async {
            loop {
                let _locked = store.complete(lease, &outcome()).await;
            }
        };
        let working = join_all((0..64).map(async |n| {
            let lease = granted(&store, &ask(&store, &format!("other-{n}")).await).await;
            store.complete(&lease, &outcome()).await.unwrap()
        }));
        let acks = tokio::select! {
            // These operations wait for the disk, and with the locked row in their batches they
            // would fail in the end.
            acks = timeout(LONG, working) => acks.expect("they waited, too"),
            () = nagging => unreachable!("it never ends"),
        };
        assert!(acks.into_iter().all(|ack| ack == Ack::Applied));
    })
    .await;
}
