//! Pruning of a table that is locked, partitioned or behind a lost connection.

use std::time::Duration;

use semel::admin::{Prune, Pruning, continuously_prune};
use semel::{Outcome, PostgresStore, Store};
use testkit::claims::{ask, granted};
use testkit::servers::postgres_url;
use testkit::stores::postgres::{Backends, Place};
use testkit::until::{LONG, until};
use tokio::time::timeout;
use tokio_postgres::Client;

/// A key that is done and whose retention is over.
async fn expired(store: &PostgresStore, client: &Client, name: &str) {
    let lease = granted(store, &ask(store, name).await).await;
    store.complete(&lease, &Outcome::json(name).unwrap()).await.unwrap().applied().unwrap();
    let expire = "update records set retention = 0 where key = $1";
    assert_eq!(client.execute(expire, &[&name]).await.unwrap(), 1);
}

async fn names(client: &Client) -> Vec<String> {
    let rows = client.query("select key from records order by key collate \"C\"", &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn a_record_that_is_locked_is_left_for_another_time() {
    let place = Place::shared();
    let (store, client, user) = (place.store().await, place.client().await, place.client().await);
    for name in ["locked", "free"] {
        expired(&store, &client, name).await;
    }
    user.batch_execute("begin; select from records where key = 'locked' for key share").await.unwrap();
    let removed = timeout(LONG, store.prune(&Prune::default())).await;
    assert_eq!(removed.expect("it waited for somebody's transaction").unwrap(), 1);
    assert_eq!(names(&client).await, ["locked"]);
    user.batch_execute("commit").await.unwrap();
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 1);
}

#[tokio::test]
async fn partitions_are_pruned_each_by_itself() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    let split = "
        alter table records rename to whole;
        create table records (like whole including all) partition by hash (id);
        create table \"part 0\" partition of records for values with (modulus 3, remainder 0);
        create table part_1 partition of records for values with (modulus 3, remainder 1)
            partition by hash (id);
        create table part_1_all partition of part_1 for values with (modulus 1, remainder 0);
        create table part_2 partition of records for values with (modulus 3, remainder 2);
        drop table whole cascade";
    client.batch_execute(split).await.unwrap();
    let mut kept = Vec::new();
    for number in 10..40 {
        // Each partition has both kinds, at the same addresses.
        expired(&store, &client, &format!("over-{number}")).await;
        kept.push(format!("kept-{number}"));
        let lease = granted(&store, &ask(&store, &kept[kept.len() - 1]).await).await;
        store.complete(&lease, &Outcome::json("kept").unwrap()).await.unwrap().applied().unwrap();
    }
    let filled = "select count(distinct tableoid) from records";
    assert_eq!(client.query_one(filled, &[]).await.unwrap().get::<_, i64>(0), 3);
    assert_eq!(store.prune(&Prune::default().with_limit(20)).await.unwrap(), 20);
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 10);
    assert_eq!(names(&client).await, kept);
}

#[tokio::test]
async fn pruning_in_the_background_goes_on_over_a_new_connection() {
    let (own, backends) = Backends::on(&postgres_url()).await;
    let place = Place { schema: own.schema.clone(), ..Place::shared() };
    let (store, client) = (place.store().await, place.client().await);
    let pruning = Pruning::default().with_idle(Duration::from_millis(20)).with_busy(Duration::from_millis(5));
    let pruner = continuously_prune(own.store().await, pruning);
    for _ in 0..2 {
        expired(&store, &client, "record").await;
        until("it is pruned", async || names(&client).await.is_empty()).await;
        assert!(backends.terminate().await > 0);
    }
    timeout(LONG, pruner.stop()).await.expect("it ends when told to");
}
