//! A server whose memory is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use semel::{Failure, Intent, Once, Policy, RunError, Store};
use testkit::claims::{ask, done, granted, is_replayed, outcome};
use testkit::stores::redis::{Server, say};

#[tokio::test]
async fn nothing_runs_while_memory_is_full_and_all_goes_on_when_there_is_room() {
    let server = Server::start("--maxmemory-policy noeviction");
    let place = server.place();
    let (store, mut client) = (place.store().await, server.connection().await);
    done(&store, "done").await;
    let lease = granted(&store, &ask(&store, "running").await).await;
    let asked = ask(&store, "key").await;
    say::<()>(&mut client, "CONFIG SET maxmemory 1").await;

    let error = store.claim(&asked).await.expect_err("there is no room");
    assert!(error.is_transient() && !error.is_unknown(), "{error}");
    assert_eq!(store.find(&asked.key).await.unwrap(), None);
    let error = store.complete(&lease, &outcome("running")).await.expect_err("there is no room");
    assert!(error.is_transient() && !error.is_unknown(), "{error}");
    let ran = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&ran);
    let once = Once::new(store.clone()).with_policy(Policy::hold().with_patience(Duration::ZERO));
    let work = |_lease| async move {
        runs.store(true, Ordering::Relaxed);
        Ok::<_, Failure>(())
    };
    let unavailable = once.run(&asked.key, &Intent::of("charge", "", &1).unwrap(), work).await;
    assert!(matches!(unavailable, Err(RunError::Unavailable(_))), "{unavailable:?}");
    assert!(!ran.load(Ordering::Relaxed));
    assert_eq!(say::<u64>(&mut client, "DBSIZE").await, 2);
    // Operations that need no memory are answered, also over a new connection.
    for store in [&store, &place.store().await] {
        assert!(is_replayed(&store.claim(&ask(store, "done").await).await.unwrap(), "done"));
    }

    say::<()>(&mut client, "CONFIG SET maxmemory 0").await;
    assert_eq!(granted(&store, &asked).await.attempt(), 1);
    store.complete(&lease, &outcome("running")).await.unwrap().applied().unwrap();
}
