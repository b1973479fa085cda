//! Callers that are dropped, and a store that is closed.

use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt, poll};
use semel::store::Ask;
use semel::{Key, Store};
use testkit::claims::{ask, granted, lease, outcome};
use testkit::stores::redis::{PATIENCE, Place, Server, say, settled};
use testkit::until::{LONG, until};
use tokio::time::timeout;

#[tokio::test]
async fn dropped_callers_cancel_nothing_and_cost_nothing() {
    let mut server = Server::start("");
    let place = server.place();
    let store = place.options().with_connections(1).connect().await.unwrap();
    let asked = ask(&store, "key").await;
    server.freeze();
    // This claim is sent. More than the queue has room for follow, and are dropped before they are
    // sent.
    let mut sent = Box::pin(store.claim(&asked));
    assert!(timeout(Duration::from_millis(100), &mut sent).await.is_err());
    drop(sent);
    for number in 0..5_000 {
        let key = Key::new("tests", &format!("gone-{number}")).unwrap();
        let asked = asked.clone().with_key(key);
        assert!(poll!(store.claim(&asked)).is_pending());
    }
    server.go_on();
    let another = asked.clone().with_key(Key::new("tests", "another").unwrap());
    lease(settled(async || store.claim(&another).await).await);
    let mut client = server.connection().await;
    assert_eq!(say::<Vec<String>>(&mut client, &format!("KEYS {}*gone*", place.prefix)).await.len(), 0);
    let lease = granted(&store, &asked).await;
    assert!(store.find(&asked.key).await.unwrap().unwrap().is_owned_by(asked.token, lease.fence()));
    assert_eq!(lease.attempt(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_dropped_at_any_moment_leave_whole_records_behind() {
    let place = Place::shared();
    let store = place.store().await;
    for round in 0..300_u64 {
        let asked = ask(&store, &format!("key-{round}")).await;
        // The limit varies, so that every step is cut off some time.
        let _ = timeout(Duration::from_micros(round * 5), store.claim(&asked)).await;
        let lease = granted(&store, &asked).await;
        assert_eq!(lease.attempt(), 1);
        let outcome = outcome("key");
        let _ = timeout(Duration::from_micros(round * 5), store.complete(&lease, &outcome)).await;
        assert!(store.complete(&lease, &outcome).await.unwrap().stands());
    }
}

#[tokio::test]
async fn close_answers_what_is_queued_and_takes_nothing_more() {
    let place = Place::shared();
    let (store, other) = (place.store().await, place.store().await);
    let now = ask(&store, "key").await;
    let asks: Vec<Ask> =
        (0..1_000).map(|n| now.clone().with_key(Key::new("tests", &format!("key-{n}")).unwrap())).collect();
    let mut claims: Vec<_> = asks.iter().map(|asked| Box::pin(store.claim(asked))).collect();
    for claim in &mut claims {
        assert!(claim.as_mut().now_or_never().is_none(), "it cannot have been answered yet");
    }
    let (claims, ()) = tokio::join!(join_all(claims), store.close());
    for (claim, asked) in claims.into_iter().zip(&asks) {
        let lease = lease(claim.unwrap());
        assert!(other.find(&asked.key).await.unwrap().unwrap().is_owned_by(asked.token, lease.fence()));
    }
    let error = store.claim(&asks[0]).await.expect_err("it is closed");
    assert!(error.is_transient() && !error.is_unknown(), "{error}");
    assert!(error.to_string().contains("closed"), "{error}");
    // A second close does no harm, and clones are closed with it.
    timeout(LONG, store.clone().close()).await.unwrap();
}

#[tokio::test]
async fn close_leaves_no_connections_behind() {
    let server = Server::start("");
    let mut client = server.connection().await;
    let store = server.place().store().await;
    granted(&store, &ask(&store, "key").await).await;
    store.close().await;
    let mut one_left = async |what: &str| {
        until(what, async || {
            let clients: String = say(&mut client, "CLIENT LIST TYPE normal").await;
            clients.lines().count() == 1
        })
        .await;
    };
    one_left("the connections are closed").await;
    let dropped = server.place().store().await;
    granted(&dropped, &ask(&dropped, "key").await).await;
    drop(dropped);
    one_left("a store that is dropped closes them, too").await;
}

#[tokio::test]
async fn close_does_not_wait_for_a_server_that_does_not_answer() {
    let mut server = Server::start("");
    let store = server.place().options().with_timeout(PATIENCE).connect().await.unwrap();
    let asked = ask(&store, "key").await;
    server.freeze();
    let (claim, ()) =
        timeout(LONG, async { tokio::join!(store.claim(&asked), store.close()) }).await.expect("it ends");
    let error = claim.expect_err("the server is frozen");
    assert!(error.is_transient(), "{error}");
    server.go_on();
}
