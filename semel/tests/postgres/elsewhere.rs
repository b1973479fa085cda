//! The knowledge about a batch whose connection was lost, where the next connection leads to
//! another server; and about one whose transaction could not be begun.

use std::time::Duration;

use semel::store::Claim;
use semel::{PostgresStore, Store};
use testkit::claims::{ask, granted};
use testkit::gates::{Cut, Proxy};
use testkit::servers::PostgresServers;
use testkit::servers::Servers;
use testkit::stores::postgres::{Backends, Place};
use testkit::until::until;

/// A store with one connection through a proxy, to a server that has the schema.
async fn through_a_proxy(url: String) -> (Place, PostgresStore, Proxy) {
    let place = Place::on(url);
    let (behind, proxy) = Proxy::to(&place);
    let options = behind.options().with_connections(1).with_additional_connections(0);
    let store = options.with_timeout(Duration::from_secs(5)).connect().await.unwrap();
    store.migrate().await.unwrap();
    granted(&store, &ask(&store, "before").await).await;
    (place, store, proxy)
}

#[tokio::test]
async fn a_process_unknown_to_a_standby_is_not_taken_for_gone() {
    let mut servers = PostgresServers::new().unwrap();
    servers.start("one", &[]).unwrap();
    let (place, store, proxy) = through_a_proxy(servers.socket_url("one").unwrap()).await;
    servers.standby("two", "one", &[]).unwrap();
    let asked = ask(&store, "key").await;
    // The request is held back. The process that could apply it belongs to the primary, and the
    // standby does not know it.
    proxy.cut(Cut::Unnoticed, 0);
    proxy.lead_to(&servers.socket_url("two").unwrap());
    let unknown = store.claim(&asked).await.expect_err("the standby cannot tell");
    assert!(unknown.is_unknown(), "{unknown}");
    assert!(proxy.heal());
    let again = store.claim(&asked).await.expect_err("it is not settled yet");
    assert!(again.is_transient() && !again.is_unknown(), "{again}");
    proxy.lead_to(&servers.socket_url("one").unwrap());
    let mut answer = None;
    until("the way leads to the primary again", async || {
        answer = store.claim(&asked).await.ok();
        answer.is_some()
    })
    .await;
    let Some(Claim::Granted(lease)) = answer else { panic!("{answer:?}") };
    // The process was terminated before the claim was sent again, so that no copy of it arrives
    // late.
    let client = place.client().await;
    assert_eq!(client.execute("delete from records where key = 'key'", &[]).await.unwrap(), 1);
    proxy.deliver().await;
    assert_eq!(place.store().await.find(lease.key()).await.unwrap(), None);
}

#[tokio::test]
async fn another_database_system_says_nothing_about_a_lost_batch() {
    let (one, two) = (Servers::postgres(&[]).unwrap(), Servers::postgres(&[]).unwrap());
    let (place, store, proxy) = through_a_proxy(one.url().to_owned()).await;
    let beyond = Place { url: two.url().to_owned(), schema: place.schema.clone() };
    beyond.store().await;
    let asked = ask(&store, "key").await;
    proxy.cut(Cut::Unnoticed, 0);
    proxy.lead_to(two.url());
    let unknown = store.claim(&asked).await.expect_err("the other system cannot tell");
    assert!(unknown.is_unknown() && unknown.to_string().contains("another database system"), "{unknown}");
    assert!(proxy.heal());
    // From now on the other system decides.
    until("the store has found its way", async || store.claim(&asked).await.is_ok()).await;
    assert!(beyond.store().await.find(&asked.key).await.unwrap().is_some());
}

/// Without its `begin`, each statement of a batch is committed by itself: the batch may have been
/// applied, in whole or in part, so its connection is given up, and it is sent again.
#[tokio::test]
async fn batch_that_could_not_begin_is_not_taken_for_not_applied() {
    let (named, backends) = Backends::on(&Place::shared().url).await;
    let (_, store, proxy) = through_a_proxy(named.url).await;
    let before = backends.of_committers().await;
    proxy.spoil_begins(true);
    let (first, second) = (ask(&store, "first").await, ask(&store, "second").await);
    // A claim and a read form a transaction.
    let (claim, found) = tokio::join!(store.claim(&first), store.find(&second.key));
    let unknown = claim.expect_err("it may have been applied");
    assert!(unknown.is_unknown(), "{unknown}");
    assert!(found.is_err());
    proxy.spoil_begins(false);
    until("the store has found back", async || store.claim(&first).await.is_ok()).await;
    granted(&store, &first).await;
    let now = backends.of_committers().await;
    assert!(before.iter().all(|pid| !now.contains(pid)), "{before:?} {now:?}");
}
