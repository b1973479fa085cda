//! A server that does not answer, and then does.

use std::future::pending;

use redis::aio::MultiplexedConnection;
use semel::admin::Prune;
use semel::store::{Ask, Claim, Void};
use semel::{RedisStore, Store};
use testkit::claims::{ask, granted, lease};
use testkit::stores::redis::{PATIENCE, Place, Server, say, settled};
use testkit::until::until;
use tokio::io::copy;
use tokio::net::{TcpListener, UnixStream};

/// A store with one connection, and another process that has one of its own.
async fn two_stores(place: &Place) -> (RedisStore, RedisStore) {
    let options = place.options().with_timeout(PATIENCE).with_connections(1);
    let store = options.connect().await.unwrap();
    let before = ask(&store, "before").await;
    lease(settled(async || store.claim(&before).await).await);
    (store, place.store().await)
}

/// Sends a claim to a server that does not answer. The server could still apply it at any time, so
/// that the result has to be unknown.
async fn ask_in_vain(store: &RedisStore, asked: &Ask) {
    let error = store.claim(asked).await.expect_err("the server does not answer");
    assert!(error.is_unknown(), "{error}");
}

#[tokio::test]
async fn a_claim_in_the_hands_of_a_frozen_server_is_granted_once_it_is_settled() {
    let mut server = Server::start("");
    let place = server.place();
    let (store, other) = two_stores(&place).await;
    let asked = ask(&store, "key").await;
    server.freeze();
    ask_in_vain(&store, &asked).await;
    // The result for this key is unknown; for another key it is known that nothing was sent.
    let error = store.claim(&ask(&store, "another").await).await.expect_err("the server is frozen");
    assert!(error.is_transient() && !error.is_unknown(), "{error}");
    server.go_on();
    let lease = lease(settled(async || store.claim(&asked).await).await);
    let record = other.find(&asked.key).await.unwrap().unwrap();
    assert!(record.is_owned_by(asked.token, lease.fence()), "{record:?}");
    assert_eq!((lease.attempt(), record.version), (1, 1));
}

/// Regression: the store asked for the time when there was no answer, and the failure to get it
/// replaced the result of the claim: "nothing was applied".
#[tokio::test]
async fn a_claim_in_the_hands_of_a_frozen_server_is_unknown_to_a_store_that_has_heard_nothing_yet() {
    let mut server = Server::start("");
    let place = server.place();
    let options = place.options().with_timeout(PATIENCE).with_connections(1);
    let store = options.connect().await.unwrap();
    let asked = ask(&place.store().await, "key").await;
    // There is a connection now. Without a record, this call does not learn the time.
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 0);
    server.freeze();
    ask_in_vain(&store, &asked).await;
    server.go_on();
    lease(settled(async || store.claim(&asked).await).await);
}

#[tokio::test]
async fn a_claim_in_the_hands_of_a_frozen_server_stays_voided() {
    for is_late in [false, true] {
        let mut server = Server::start("");
        let place = server.place();
        let (store, other) = two_stores(&place).await;
        let not_after = store.now().await.unwrap().after(3 * PATIENCE);
        let asked = ask(&store, "key").await.with_not_after(not_after);
        server.freeze();
        ask_in_vain(&store, &asked).await;
        if is_late {
            // A clock that is known continues.
            until("the claim is late", async || store.now().await.unwrap() > not_after).await;
        }
        server.go_on();
        until("the claim is voided", async || {
            other.void(&asked.key, asked.token, not_after).await.unwrap() == Void::Final
        })
        .await;
        let claim = settled(async || store.claim(&asked).await).await;
        assert!(matches!(claim, Claim::Late), "{claim:?}");
        let lease = granted(&other, &ask(&other, "key").await).await;
        // The store has recovered and sends nothing by itself any more.
        granted(&store, &ask(&store, "after").await).await;
        assert!(other.find(&asked.key).await.unwrap().unwrap().is_owned_by(lease.token(), lease.fence()));
    }
}

#[tokio::test]
async fn a_completion_in_the_hands_of_a_frozen_server_is_applied_once() {
    let mut server = Server::start("");
    let place = server.place();
    let (store, other) = two_stores(&place).await;
    let lease = granted(&store, &ask(&store, "key").await).await;
    server.freeze();
    let outcome = testkit::claims::outcome("key");
    let error = store.complete(&lease, &outcome).await.expect_err("the server is frozen");
    assert!(error.is_unknown(), "{error}");
    server.go_on();
    assert!(settled(async || store.complete(&lease, &outcome).await).await.stands());
    let record = other.find(lease.key()).await.unwrap().unwrap();
    assert_eq!((record.outcome(), record.version), (Some(&outcome), 2));
}

/// The clients whose command is held back.
async fn blocked(client: &mut MultiplexedConnection) -> Vec<String> {
    let clients: String = say(client, "CLIENT LIST TYPE normal").await;
    let blocked = clients.lines().filter(|line| line.contains(" flags=b"));
    blocked.filter_map(|line| line.split(' ').next()).map(ToOwned::to_owned).collect()
}

/// A path to a server that does not learn when the other end is closed, as if a machine in between
/// had died.
async fn way_without_ends(server: &Server, place: &Place) -> Place {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let socket = server.url.strip_prefix("redis+unix://").unwrap().to_owned();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let (mut from_near, mut to_near) = near.into_split();
            let (mut from_far, mut to_far) = UnixStream::connect(&socket).await.unwrap().into_split();
            tokio::spawn(async move { copy(&mut from_far, &mut to_near).await });
            tokio::spawn(async move {
                let _ = copy(&mut from_near, &mut to_far).await;
                pending::<()>().await;
            });
        }
    });
    Place { url: format!("redis://127.0.0.1:{port}"), prefix: place.prefix.clone() }
}

/// `CLIENT PAUSE … WRITE` holds back every script, but still allows connecting, looking and
/// killing: a command that is held back becomes a stray copy as soon as its connection is given up.
#[tokio::test]
async fn a_claim_that_was_given_up_has_no_copy_on_its_way() {
    let server = Server::start("");
    let place = server.place();
    let (store, other) = two_stores(&way_without_ends(&server, &place).await).await;
    let mut client = server.connection().await;
    let asked = ask(&store, "key").await;
    say::<()>(&mut client, "CLIENT PAUSE 600000 WRITE").await;
    tokio::join!(
        ask_in_vain(&store, &asked),
        until("a copy is held back", async || !blocked(&mut client).await.is_empty())
    );
    until("the last copy is gone", async || blocked(&mut client).await.is_empty()).await;
    say::<()>(&mut client, "CLIENT UNPAUSE").await;
    let lease = granted(&other, &ask(&other, "key").await).await;
    assert_eq!(lease.attempt(), 1);
    let claim = settled(async || store.claim(&asked).await).await;
    assert!(matches!(claim, Claim::Running { .. }), "{claim:?}");
    assert!(other.find(&asked.key).await.unwrap().unwrap().is_owned_by(lease.token(), lease.fence()));
}

#[tokio::test]
async fn a_claim_that_is_sent_again_is_there_only_once() {
    let server = Server::start("");
    let place = server.place();
    let (store, _other) = two_stores(&way_without_ends(&server, &place).await).await;
    let mut client = server.connection().await;
    let asked = ask(&store, "key").await;
    say::<()>(&mut client, "CLIENT PAUSE 600000 WRITE").await;
    let sending = async {
        // Over as many connections as there is time for.
        let mut seen = Vec::new();
        until("it was sent over two connections", async || {
            let now = blocked(&mut client).await;
            assert!(now.len() <= 1, "there are two copies: {now:?}");
            seen.extend(now);
            seen.dedup();
            seen.len() >= 2
        })
        .await;
        say::<()>(&mut client, "CLIENT UNPAUSE").await;
    };
    let (claim, ()) = tokio::join!(settled(async || store.claim(&asked).await), sending);
    let lease = lease(claim);
    assert_eq!(store.find(&asked.key).await.unwrap().unwrap().version, 1);
    assert_eq!(lease.attempt(), 1);
}
