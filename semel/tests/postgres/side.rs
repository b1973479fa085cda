//! The connections beside those that commit batches, over a server that does not answer.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use semel::admin::{Inspect, ListQuery, Prune};
use semel::{PostgresStore, Store, StoreError};
use testkit::claims::ask;
use testkit::gates::Proxy;
use testkit::servers::Servers;
use testkit::stores::postgres::{Backends, Place, try_signal};
use testkit::until::{LONG, until};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_millis(100);

/// The processes that do not commit batches are stopped while they are idle, and the next caller
/// notices it.
#[tokio::test]
async fn listing_counting_and_pruning_go_on_over_another_connection_than_one_that_hangs() {
    let server = Servers::postgres(&[]).unwrap();
    let (place, backends) = Backends::on(server.url()).await;
    let store = place.options().with_timeout(PATIENCE).connect().await.unwrap();
    store.migrate().await.unwrap();
    let asked = ask(&store, "key").await;
    until("it is claimed", async || store.claim(&asked).await.is_ok()).await;
    let committers = backends.of_committers().await;
    until("there is a connection for each", async || {
        store.list(&ListQuery::default()).await.is_ok() && store.prune(&Prune::default()).await.is_ok()
    })
    .await;
    for what in ["list", "stats", "prune"] {
        let mut stopped = backends.that("true").await;
        stopped.retain(|pid| !committers.contains(pid));
        // A connection that was given up may end at this moment.
        stopped.retain(|pid| try_signal("STOP", *pid));
        assert!(!stopped.is_empty());
        until(what, async || {
            let answer = async {
                match what {
                    "list" => store.list(&ListQuery::default()).await.is_ok(),
                    "stats" => store.stats().await.is_ok(),
                    _ => store.prune(&Prune::default()).await.is_ok(),
                }
            };
            timeout(100 * PATIENCE, answer).await.expect("it waits for a process that hangs")
        })
        .await;
        for pid in stopped {
            try_signal("CONT", pid);
        }
    }
}

/// The calls that are sent over a connection of their own.
async fn call(what: &str, store: &PostgresStore) -> Result<(), StoreError> {
    match what {
        "migration_status" => store.migration_status().await.map(drop),
        "migrate" => store.migrate().await.map(drop),
        "migrate_down" => store.migrate_down(4).await.map(drop),
        _ => store.prune(&Prune::default().with_paced(true)).await.map(drop),
    }
}

/// A store behind a proxy. Its connections for batches are made when they are first needed.
async fn behind_proxy(place: &Place) -> (PostgresStore, Proxy) {
    let (behind, proxy) = Proxy::to(place);
    let mut connected = None;
    until("it is connected", async || {
        connected = behind.options().with_timeout(3 * PATIENCE).connect().await.ok();
        connected.is_some()
    })
    .await;
    (connected.unwrap(), proxy)
}

/// Whichever request of a call it is that a server accepts and never answers, the call ends.
#[tokio::test]
async fn upkeep_and_migrations_do_not_wait_for_a_server_that_accepts_and_never_answers() {
    let place = Place::shared();
    let first = place.store().await;
    until("a first claim is granted", async || first.claim(&ask(&first, "key").await).await.is_ok()).await;
    for what in ["migration_status", "migrate", "migrate_down", "prune"] {
        let (store, proxy) = behind_proxy(&place).await;
        until("it succeeds", async || {
            proxy.traffic();
            call(what, &store).await.is_ok()
        })
        .await;
        let (requests, _) = proxy.traffic();
        assert!(requests > 3, "{what} sends {requests} requests");
        let silent = (0..requests).map(async |answered| {
            let (store, proxy) = behind_proxy(&place).await;
            proxy.silence(answered);
            let called = timeout(LONG, call(what, &store)).await;
            let called = called.unwrap_or_else(|_| panic!("{what} waits after {answered} requests"));
            if answered == 0 {
                let error = called.expect_err(what);
                assert!(error.is_transient(), "{what}: {error}");
            }
        });
        stream::iter(silent).buffer_unordered(16).collect::<()>().await;
    }
}
