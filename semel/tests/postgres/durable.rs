//! Sessions that do not wait for the disk: an outcome survives a crash nevertheless.

use semel::store::{Ack, Claim};
use semel::{Lease, Outcome, PostgresStore, Store};
use testkit::claims::{ask, granted};
use testkit::servers::Servers;
use testkit::stores::postgres::{Place, taken_over};
use testkit::until::until;
use tokio_postgres::Client;

fn outcome() -> Outcome {
    Outcome::json("charged").unwrap()
}

/// Completes by SQL alone.
async fn complete(client: &Client, lease: &Lease) -> String {
    let question = r#"select try_complete('tests', '', $1, $2, $3, 200, '"charged"')"#;
    let fence = lease.fence().get() as i64;
    let row = client.query_one(question, &[&lease.key().value(), &lease.token().to_string(), &fence]).await;
    row.unwrap().get(0)
}

/// A transaction in a session that does not wait for the disk, with an effect and the outcome.
async fn book(place: &Place, store: &PostgresStore, lease: &Lease, by_sql: bool) {
    let mut client = place.client().await;
    client.batch_execute("set synchronous_commit = off").await.unwrap();
    let (effect, key) = ("insert into effects values ($1)", lease.key().value());
    if by_sql {
        client.batch_execute("begin").await.unwrap();
        client.execute(effect, &[&key]).await.unwrap();
        assert_eq!(complete(&client, lease).await, "applied");
        client.batch_execute("commit").await.unwrap();
    } else {
        let mut tx = client.transaction().await.unwrap();
        tx.execute(effect, &[&key]).await.unwrap();
        assert_eq!(store.complete_in(&mut tx, lease, &outcome()).await.unwrap(), Ack::Applied);
        tx.commit().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_of_a_session_that_does_not_wait_for_the_disk_survives_a_crash() {
    // The server writes nothing to the disk by itself during the test.
    let mut server = Servers::postgres(&["wal_writer_delay=10s"]).unwrap();
    let place = Place::on(server.url().to_owned());
    let store = place.store().await;
    place.client().await.batch_execute("create table effects (key text)").await.unwrap();
    for (key, by_sql) in [("rust", false), ("sql", true)] {
        let lease = granted(&store, &ask(&store, key).await).await;
        book(&place, &store, &lease, by_sql).await;
        tokio::task::block_in_place(|| server.crash()).unwrap();
        tokio::task::block_in_place(|| server.start_again()).unwrap();
        let repeat = ask(&place.store().await, key).await;
        until("the store has found back", async || store.claim(&repeat).await.is_ok()).await;
        let claim = store.claim(&repeat).await.unwrap();
        assert!(matches!(&claim, Claim::Done(done) if done.fence == lease.fence()), "{key}: {claim:?}");
        let count = "select count(*) from effects where key = $1";
        let effects: i64 = place.client().await.query_one(count, &[&key]).await.unwrap().get(0);
        assert_eq!(effects, 1, "{key}");
    }
}

async fn setting(client: &Client) -> String {
    client.query_one("show synchronous_commit", &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_completion_waits_for_the_disk_and_leaves_stronger_settings_alone() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    for (of_session, in_transaction) in [
        ("off", "on"),
        ("on", "on"),
        ("local", "local"),
        ("remote_write", "remote_write"),
        ("remote_apply", "remote_apply"),
    ] {
        let lease = granted(&store, &ask(&store, of_session).await).await;
        client.batch_execute(&format!("set synchronous_commit = {of_session}; begin")).await.unwrap();
        assert_eq!(complete(&client, &lease).await, "applied");
        assert_eq!(setting(&client).await, in_transaction);
        client.batch_execute("commit").await.unwrap();
        assert_eq!(setting(&client).await, of_session);
    }
}

#[tokio::test]
async fn a_transaction_without_a_completion_waits_as_its_session_does() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    client.batch_execute("set synchronous_commit = off").await.unwrap();
    let lease = granted(&store, &ask(&store, "taken back").await).await;
    client.batch_execute("begin; savepoint before").await.unwrap();
    assert_eq!(complete(&client, &lease).await, "applied");
    client.batch_execute("rollback to before").await.unwrap();
    assert_eq!(setting(&client).await, "off");
    client.batch_execute("commit").await.unwrap();

    let stale = granted(&store, &ask(&store, "lost").await).await;
    let _winner = taken_over(&client, &store, stale.key()).await;
    client.batch_execute("begin").await.unwrap();
    assert_eq!(complete(&client, &stale).await, "superseded");
    assert_eq!(setting(&client).await, "off");
}
