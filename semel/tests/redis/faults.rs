//! Connections that are ended under load.

use std::time::Duration;

use testkit::load::Load;
use testkit::stores::redis::{Server, say, settled};
use testkit::until::until;
use tokio::time::sleep;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_done_twice_when_connections_are_ended_under_load() {
    let server = Server::start("");
    let place = server.place();
    let mut client = server.connection().await;
    let mut load = Load::start(&place.store().await);
    load.goes_on().await;
    let mut ended = 0;
    for _ in 0..100 {
        ended += say::<u64>(&mut client, "CLIENT KILL TYPE normal").await;
        sleep(Duration::from_millis(20)).await;
    }
    until("enough connections were ended", async || {
        ended += say::<u64>(&mut client, "CLIENT KILL TYPE normal").await;
        ended >= 10
    })
    .await;
    load.goes_on().await;
    load.judge(&place.store().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_done_twice_when_the_server_stands_still_under_load() {
    let mut server = Server::start("");
    let place = server.place();
    let timeout = Duration::from_millis(500);
    let connect = async || place.options().with_timeout(timeout).connect().await;
    let mut load = Load::start(&settled(connect).await);
    for pause in [100, 700, 1_500] {
        load.goes_on().await;
        server.freeze();
        sleep(Duration::from_millis(pause)).await;
        server.go_on();
    }
    load.goes_on().await;
    load.judge(&place.store().await).await;
}
