//! Connections that are ended under load.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::load::Load;
use crate::server::{Server, say};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_done_twice_when_connections_are_ended_under_load() {
    let server = Server::start("");
    let place = server.place();
    let mut client = server.connection().await;
    let mut load = Load::start(&place.store().await);
    load.goes_on().await;
    let began = Instant::now();
    let mut ended = 0;
    while began.elapsed() < Duration::from_secs(2) {
        ended += say::<u64>(&mut client, "CLIENT KILL TYPE normal").await;
        sleep(Duration::from_millis(20)).await;
    }
    assert!(ended >= 10, "{ended} connections were ended");
    load.goes_on().await;
    load.judge(&place).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_done_twice_when_the_server_stands_still_under_load() {
    let mut server = Server::start("");
    let place = server.place();
    let timeout = Duration::from_millis(200);
    let mut load = Load::start(&place.options().with_timeout(timeout).unwrap().connect().await.unwrap());
    for pause in [50, 300, 700] {
        load.goes_on().await;
        server.freeze();
        sleep(Duration::from_millis(pause)).await;
        server.go_on();
    }
    load.goes_on().await;
    load.judge(&place).await;
}
