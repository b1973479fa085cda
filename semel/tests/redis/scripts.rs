//! Scripts that Redis has forgotten.

use std::time::Duration;

use semel::Store;
use semel::admin::{Inspect, ListQuery};
use testkit::claims::{ask, granted, is_replayed, outcome};
use testkit::load::Load;
use testkit::stores::redis::{Server, say};
use tokio::time::{Instant, sleep};

#[tokio::test]
async fn every_verb_goes_on_when_the_scripts_are_gone() {
    let server = Server::start("");
    let (store, mut client) = (server.place().store().await, server.connection().await);
    let mut flush = async || say::<()>(&mut client, "SCRIPT FLUSH").await;
    let asked = ask(&store, "key").await;
    flush().await;
    let lease = granted(&store, &asked).await;
    flush().await;
    store.renew(&lease, Duration::from_secs(60)).await.unwrap().applied().unwrap();
    flush().await;
    assert!(store.find(&asked.key).await.unwrap().is_some());
    flush().await;
    store.release(&lease).await.unwrap().applied().unwrap();
    let again = ask(&store, "key").await;
    flush().await;
    let lease = granted(&store, &again).await;
    assert_eq!(lease.attempt(), 2);
    flush().await;
    store.complete(&lease, &outcome("key")).await.unwrap().applied().unwrap();
    flush().await;
    assert_eq!(store.list(&ListQuery::default()).await.unwrap().records.len(), 1);
    flush().await;
    assert!(is_replayed(&store.claim(&ask(&store, "key").await).await.unwrap(), "key"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_lost_under_load_are_loaded_again_unnoticed() {
    let server = Server::start("");
    let place = server.place();
    let mut client = server.connection().await;
    let mut load = Load::start(&place.store().await);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        say::<()>(&mut client, "SCRIPT FLUSH").await;
        sleep(Duration::from_millis(2)).await;
    }
    load.goes_on().await;
    load.judge(&place.store().await).await;
}
