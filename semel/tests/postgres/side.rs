//! The connections beside those that commit batches, over a server process that does not answer.

use std::time::Duration;

use semel::Store;
use semel::admin::{Inspect, ListQuery, Prune};
use testkit::claims::ask;
use testkit::servers::Servers;
use testkit::stores::postgres::{Backends, try_signal};
use testkit::until::until;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_millis(100);

/// The processes that do not commit batches are stopped while they are idle, and the next caller
/// notices it.
#[tokio::test]
async fn listing_counting_and_pruning_go_on_over_another_connection_than_one_that_hangs() {
    let server = Servers::postgres(&[]).unwrap();
    let (place, backends) = Backends::on(server.url()).await;
    let store = place.options().with_timeout(PATIENCE).unwrap().connect().await.unwrap();
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
