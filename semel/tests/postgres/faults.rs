//! A server that stops under load, or is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use semel::{Failure, Intent, Once, Policy, RunError, Store};
use testkit::claims::{ask, granted};
use testkit::load::Load;
use testkit::servers::Servers;
use testkit::stores::postgres::{Backends, Place};
use testkit::until::until;
use tokio::time::sleep;
use tokio_postgres::NoTls;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_done_twice_when_connections_are_ended_under_load() {
    let (place, backends) = Backends::on(&Place::shared().url).await;
    let mut load = Load::start(&place.store().await);
    load.goes_on().await;
    let mut ended = 0;
    for _ in 0..40 {
        ended += backends.terminate().await;
        sleep(Duration::from_millis(50)).await;
    }
    until("enough connections were ended", async || {
        ended += backends.terminate().await;
        ended >= 10
    })
    .await;
    load.goes_on().await;
    load.judge(&place.store().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_done_twice_when_the_server_crashes_under_load() {
    let mut server = Servers::postgres(&[]).unwrap();
    let place = Place::on(server.url().to_owned());
    let mut load = Load::start(&place.store().await);
    for _ in 0..2 {
        load.goes_on().await;
        let heard = load.failures();
        tokio::task::block_in_place(|| server.crash()).unwrap();
        until("callers hear of it", async || load.failures() > heard).await;
        tokio::task::block_in_place(|| server.start_again()).unwrap();
        load.goes_on().await;
    }
    load.judge(&place.store().await).await;
}

#[tokio::test]
async fn nothing_runs_while_the_server_has_no_room_for_connections() {
    let server = Servers::postgres(&["max_connections=6", "superuser_reserved_connections=0"]).unwrap();
    let place = Place::on(server.url().to_owned());
    let store = place.store().await;
    let asked = ask(&store, "key").await;
    let client = place.client().await;
    let mut others = Vec::new();
    until("there is no room", async || match tokio_postgres::connect(server.url(), NoTls).await {
        Ok((other, connection)) => {
            tokio::spawn(connection);
            others.push(other);
            false
        }
        Err(_) => true,
    })
    .await;

    let error = store.claim(&asked).await.expect_err("there is no connection");
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
    let records: i64 = client.query_one("select count(*) from records", &[]).await.unwrap().get(0);
    assert_eq!(records, 0);

    drop(others);
    until("it is granted", async || store.claim(&asked).await.is_ok()).await;
    granted(&store, &asked).await;
}
