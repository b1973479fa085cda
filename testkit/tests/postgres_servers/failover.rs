//! Pairs of servers: the writes that a failover loses, and those that it keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use testkit::servers::PostgresServers;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

use crate::{LONG, connect, count};

async fn pair() -> PostgresServers {
    let mut servers = PostgresServers::new().unwrap();
    servers.start("a", &[]).unwrap();
    let client = connect(&servers.url("a").unwrap()).await;
    client.batch_execute("create table numbers (number bigint primary key)").await.unwrap();
    servers.standby("b", "a", &[]).unwrap();
    servers
}

/// Writes numbers, each in a transaction, until the server is gone. The counter has the
/// acknowledged ones.
fn writer(client: Client, acknowledged: Arc<AtomicI64>) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let number = acknowledged.load(Ordering::SeqCst) + 1;
            if client
                .execute("insert into numbers values ($1) on conflict do nothing", &[&number])
                .await
                .is_err()
            {
                return;
            }
            acknowledged.store(number, Ordering::SeqCst);
        }
    })
}

/// Waits until this many more were acknowledged.
async fn await_more(acknowledged: &AtomicI64, more: i64) {
    let goal = acknowledged.load(Ordering::SeqCst) + more;
    let reached = async {
        while acknowledged.load(Ordering::SeqCst) < goal {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LONG, reached).await.expect("nothing is acknowledged");
}

/// The length of the sequence of numbers from one on without a gap.
async fn without_gap(client: &Client) -> i64 {
    let query = "select coalesce(max(number), 0), count(*) from numbers";
    let row = client.query_one(query, &[]).await.unwrap();
    let (max, count): (i64, i64) = (row.get(0), row.get(1));
    assert_eq!(max, count, "there is a gap");
    max
}

#[tokio::test]
async fn synchronous_standby_loses_nothing_that_was_acknowledged() {
    // One round takes about a second; SEMEL_FAILOVERS sets another number of them.
    let rounds = std::env::var("SEMEL_FAILOVERS").map_or(5, |rounds| rounds.parse().unwrap());
    let mut servers = pair().await;
    let acknowledged = Arc::new(AtomicI64::new(0));
    let (mut primary, mut standby) = ("a", "b");
    for round in 0..rounds {
        servers.sync_names(primary, standby).unwrap();
        let client = connect(&servers.url(primary).unwrap()).await;
        let writer = writer(client, acknowledged.clone());
        await_more(&acknowledged, 100).await;
        servers.crash(primary).unwrap();
        writer.await.unwrap();

        let began = Instant::now();
        servers.promote(standby).unwrap();
        let promoted = began.elapsed();
        let client = connect(&servers.url(standby).unwrap()).await;
        let (there, told) = (without_gap(&client).await, acknowledged.load(Ordering::SeqCst));
        // The last write may have arrived without an answer.
        assert!((told..=told + 1).contains(&there), "{told} acknowledged, {there} there, in round {round}");

        let began = Instant::now();
        servers.rebuild(primary, standby).unwrap();
        println!(
            "round {round}: {told} acknowledged; promoted in {promoted:?}, rebuilt in {:?}",
            began.elapsed()
        );
        (primary, standby) = (standby, primary);
    }
}

#[tokio::test]
async fn commits_wait_for_a_synchronous_standby_that_is_gone() {
    let mut servers = pair().await;
    servers.sync_names("a", "b").unwrap();
    let client = connect(&servers.socket_url("a").unwrap()).await;
    client.batch_execute("insert into numbers values (1)").await.unwrap();
    servers.crash("b").unwrap();
    let write = client.batch_execute("insert into numbers values (2)");
    tokio::pin!(write);
    assert!(timeout(Duration::from_millis(300), &mut write).await.is_err());
    // The old primary is back with all its data, and continues from there.
    servers.start("b", &[]).unwrap();
    timeout(LONG, &mut write).await.expect("still waits").unwrap();

    servers.crash("b").unwrap();
    servers.sync_names("a", "").unwrap();
    timeout(LONG, client.batch_execute("insert into numbers values (3)"))
        .await
        .expect("still waits")
        .unwrap();
}

#[tokio::test]
async fn stalled_standby_loses_what_was_acknowledged() {
    let mut servers = pair().await;
    for alive in [false, true] {
        let client = connect(&servers.url("a").unwrap()).await;
        client.batch_execute("truncate numbers").await.unwrap();
        servers.rebuild("b", "a").unwrap();
        servers.stall_receiver("b").unwrap();
        client.batch_execute("insert into numbers select generate_series(1, 100)").await.unwrap();
        if !alive {
            servers.crash("a").unwrap();
        }
        servers.promote("b").unwrap();
        let promoted = connect(&servers.url("b").unwrap()).await;
        assert_eq!(count(&promoted).await, 0, "the primary is alive: {alive}");
        promoted.batch_execute("insert into numbers values (1)").await.unwrap();
        if !alive {
            servers.start("a", &[]).unwrap();
        }
        let old = connect(&servers.url("a").unwrap()).await;
        assert_eq!(count(&old).await, 100);
    }
}

#[tokio::test]
async fn standby_that_receives_again_has_everything() {
    let mut servers = pair().await;
    let client = connect(&servers.url("a").unwrap()).await;
    servers.stall_receiver("b").unwrap();
    client.batch_execute("insert into numbers values (1)").await.unwrap();
    let standby = connect(&servers.url("b").unwrap()).await;
    assert_eq!(count(&standby).await, 0);
    servers.resume_receiver("b").unwrap();
    servers.sync_names("a", "b").unwrap();
    client.batch_execute("insert into numbers values (2)").await.unwrap();
    servers.crash("a").unwrap();
    servers.promote("b").unwrap();
    assert_eq!(count(&connect(&servers.url("b").unwrap()).await).await, 2);
}
