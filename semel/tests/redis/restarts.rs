//! A server that is killed and started again.

use semel::Store;
use testkit::claims::{ask, done, is_replayed, lease};
use testkit::load::Load;
use testkit::stores::redis::{Server, settled};
use testkit::until::until;

#[tokio::test]
async fn a_store_goes_on_by_itself_when_its_server_comes_back_with_nothing() {
    let mut server = Server::start("");
    let store = server.place().store().await;
    done(&store, "key").await;
    server.kill();
    let asked = ask(&store, "key").await;
    let error = store.claim(&asked).await.expect_err("there is no server");
    assert!(error.is_transient(), "{error}");
    server.start_again();
    // The server kept nothing: as documented, the key runs again.
    let lease = lease(settled(async || store.claim(&asked).await).await);
    assert_eq!((lease.attempt(), lease.token()), (1, asked.token));
    done(&store, "another").await;
}

#[tokio::test]
async fn acknowledged_writes_survive_a_restart_of_a_server_with_a_file() {
    let mut server = Server::start("--appendonly yes --appendfsync always");
    let store = server.place().store().await;
    for number in 0..50 {
        done(&store, &format!("key-{number}")).await;
    }
    server.kill();
    server.start_again();
    for number in 0..50 {
        let name = format!("key-{number}");
        let asked = ask(&store, &name).await;
        assert!(is_replayed(&settled(async || store.claim(&asked).await).await, &name));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_done_twice_when_a_server_with_a_file_is_killed_under_load() {
    let mut server = Server::start("--appendonly yes --appendfsync always");
    let place = server.place();
    let mut load = Load::start(&place.store().await);
    for _ in 0..2 {
        load.goes_on().await;
        let heard = load.failures();
        tokio::task::block_in_place(|| server.kill());
        until("callers hear of it", async || load.failures() > heard).await;
        tokio::task::block_in_place(|| server.start_again());
        load.goes_on().await;
    }
    load.judge(&place.store().await).await;
}
