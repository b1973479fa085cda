//! A standby that does not answer: a write that it has not received is not acknowledged.
//!
//! A commit whose wait for the standby is cut short is reported as a success, with a warning. The
//! record is then visible to all connections, and lost if the standby takes over.

use std::time::Duration;

use semel::store::{Ack, Claim};
use semel::{Outcome, PostgresStore, Store, StoreError};
use testkit::claims::{ask, granted};
use testkit::servers::Servers;
use testkit::stores::postgres::{Backends, Place, pid};
use testkit::until::until;
use tokio::time::sleep;
use tokio_postgres::Client;

/// The number of repeats while the standby is down: enough for every connection to have its turn.
const TURNS: usize = 4;

pub(crate) struct Primary {
    client: Client,
    place: Place,
    pub(crate) backends: Backends,
    _server: Servers,
}

impl Primary {
    pub(crate) async fn start() -> Self {
        let server = Servers::postgres(&[]).unwrap();
        let (place, backends) = Backends::on(server.url()).await;
        Self { client: place.client().await, place, backends, _server: server }
    }

    pub(crate) async fn store(&self) -> PostgresStore {
        // This step is slow on a busy machine, and not a matter of the timeout.
        self.place.store().await.close().await;
        self.place.options().with_timeout(Duration::from_secs(2)).connect().await.unwrap()
    }

    /// Makes commits wait for a standby that does not exist.
    pub(crate) async fn lose_standby(&self) {
        self.client.batch_execute("alter system set synchronous_standby_names = 'nobody'").await.unwrap();
        self.client.batch_execute("select pg_reload_conf()").await.unwrap();
        // It takes a moment until all processes have noticed it: until a commit with a write waits.
        let writer = self.place.client().await;
        let pid = pid(&writer).await;
        let waits = format!("pid = {pid} and wait_event = 'SyncRep'");
        loop {
            let writes = writer.batch_execute("select pg_logical_emit_message(true, 'test', '')");
            let waiting = until("a commit waits", async || !self.backends.that(&waits).await.is_empty());
            tokio::select! {
                written = writes => written.unwrap(),
                () = waiting => break,
            }
        }
        self.place.kill(pid).await;
    }

    pub(crate) async fn find_standby(&self) {
        self.client.batch_execute("alter system reset synchronous_standby_names").await.unwrap();
        self.client.batch_execute("select pg_reload_conf()").await.unwrap();
    }

    /// Waits until the connection that lost something is replaced, so that all connections are free
    /// for the next operations.
    async fn await_rest(&self) {
        until("the store has found back", async || {
            let of_late = self.backends.that("state <> 'idle' or state_change > now() - interval '100 ms'");
            of_late.await.is_empty() && !self.backends.of_committers().await.is_empty()
        })
        .await;
    }

    /// The answer while every wait for the standby is cut short.
    async fn impatiently<T>(&self, answer: impl Future<Output = T>) -> T {
        let cancelling = async {
            loop {
                self.backends.cancel_waits_for_standby().await;
                sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::select! {
            answer = answer => answer,
            () = cancelling => unreachable!("it goes on forever"),
        }
    }
}

/// The answer once the store has recovered.
async fn settled<T>(mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
}

#[tokio::test]
async fn claim_that_the_standby_may_not_have_is_not_granted() {
    let primary = Primary::start().await;
    let store = primary.store().await;
    let asked = ask(&store, "key").await;
    primary.lose_standby().await;
    for turn in 0..TURNS {
        let answer = primary.impatiently(store.claim(&asked)).await;
        let error = answer.err().unwrap_or_else(|| panic!("answered in turn {turn}"));
        assert!(error.is_unknown(), "{error}");
        primary.await_rest().await;
    }
    let there = "select fence from records where key = 'key'";
    let fence: i64 = primary.client.query_one(there, &[]).await.unwrap().get(0);

    primary.find_standby().await;
    let claim = settled(async || store.claim(&asked).await).await;
    let Claim::Granted(lease) = claim else { panic!("{claim:?}") };
    assert_eq!(lease.fence().get(), fence.unsigned_abs());
    assert_eq!(lease.attempt(), 1);
}

#[tokio::test]
async fn outcome_that_the_standby_may_not_have_is_not_acknowledged() {
    let primary = Primary::start().await;
    let store = primary.store().await;
    let lease = granted(&store, &ask(&store, "key").await).await;
    let (outcome, repeat) = (Outcome::json("charged").unwrap(), ask(&store, "key").await);
    primary.lose_standby().await;
    for turn in 0..TURNS {
        let answer = primary.impatiently(store.complete(&lease, &outcome)).await;
        let error = answer.err().unwrap_or_else(|| panic!("answered in turn {turn}"));
        assert!(error.is_unknown(), "{error}");
        primary.await_rest().await;
        // The outcome is not replayed to other callers either, which would take it for recorded.
        let answer = primary.impatiently(store.claim(&repeat)).await;
        assert!(answer.is_err(), "{answer:?}");
        primary.await_rest().await;
    }

    primary.find_standby().await;
    let ack = settled(async || store.complete(&lease, &outcome).await).await;
    assert_eq!(ack, Ack::Repeated);
    let claim = settled(async || store.claim(&repeat).await).await;
    assert!(matches!(&claim, Claim::Done(done) if done.outcome == outcome), "{claim:?}");
}

#[tokio::test]
async fn nothing_is_answered_while_the_standby_does_not_answer() {
    let primary = Primary::start().await;
    let store = primary.store().await;
    let asked = ask(&store, "key").await;
    primary.lose_standby().await;
    // Only the store ends the wait, together with the connection, when its time limit is over.
    for _ in 0..2 {
        let error = store.claim(&asked).await.expect_err("there is no standby");
        assert!(error.is_unknown(), "{error}");
    }
    primary.find_standby().await;
    let claim = settled(async || store.claim(&asked).await).await;
    assert!(matches!(claim, Claim::Granted(_)), "{claim:?}");
}
