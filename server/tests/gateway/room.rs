//! A store that is full: by its ceiling, or because the disk is full.

use std::process::Command;
use std::time::{Duration, Instant};

use testkit::servers::SmallDisk;
use tokio::time::sleep;

use crate::process::{BOUND, Gateway, Setup};
use crate::upstream::{Upstream, answer};
use crate::wire::Reply;

/// An upstream with large answers.
async fn large() -> Upstream {
    Upstream::start(|seen| async move {
        answer("200 OK", "", format!("run {} {}", seen.number, "x".repeat(50_000)))
    })
    .await
}

/// Uses new keys until one gets this answer.
async fn until_refused(gateway: &Gateway, name: &str, code: &str) -> Reply {
    let began = Instant::now();
    for number in 0.. {
        let reply = gateway.post(&format!("{name}-{number}"), "{}").await;
        if reply.text().contains(code) {
            return reply;
        }
        assert!(began.elapsed() < BOUND * 2, "{} {}", reply.status, reply.text());
    }
    unreachable!("it ends before")
}

async fn until_ready(gateway: &Gateway, status: u16) -> String {
    let began = Instant::now();
    loop {
        let ready = gateway.admin("/readyz").await;
        if ready.status == status {
            return ready.text();
        }
        assert!(began.elapsed() < BOUND, "readyz stays {}", ready.text());
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_store_at_its_ceiling_refuses_new_keys_replays_and_recovers() {
    let upstream = large().await;
    let setup = Setup::before(upstream.address).with("--max-store", "400KiB");
    let gateway = setup.with("--lease", "1s").with("--retention", "1s").start().await;
    let refused = until_refused(&gateway, "new", "store_full").await;
    refused.problem(503, "store_full");
    assert!(refused.header("retry-after").is_some());
    let began = Instant::now();
    // Expired records are removed once a minute by the gateway itself, and now by an operator.
    loop {
        let config = gateway.admin("/config").await.text();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        let mut prune = Command::new(env!("CARGO_BIN_EXE_semel"));
        prune.args(["prune", "--store", config["store"].as_str().unwrap()]);
        assert!(prune.status().unwrap().success());
        if gateway.post("later", "{}").await.status == 200 {
            break;
        }
        assert!(began.elapsed() < BOUND, "new keys stay refused");
        sleep(Duration::from_millis(200)).await;
    }
    gateway.metric(&["semel_gateway_store_bytes"]).await;
}

/// Regression: the first measurement began with the first requests, which had no limit.
#[tokio::test]
async fn a_store_at_its_ceiling_refuses_the_first_request_after_a_start() {
    let upstream = large().await;
    let setup = Setup::before(upstream.address);
    let mut gateway = setup.start().await;
    for key in 0..10 {
        assert_eq!(gateway.post(&format!("k-{key}"), "{}").await.status, 200);
    }
    gateway.kill();
    let limited = setup.with("--max-store", "100KiB");
    for start in 0..3 {
        let mut gateway = limited.start().await;
        gateway.post(&format!("first-{start}"), "{}").await.problem(503, "store_full");
        assert!(gateway.post("k-1", "{}").await.is_replay());
        gateway.kill();
    }
    assert_eq!(upstream.count(), 10);
}

#[tokio::test]
async fn at_the_ceiling_replays_and_mismatches_are_answered() {
    let upstream = Upstream::counting().await;
    let setup = Setup::before(upstream.address).with("--store", "memory:").with("--max-store", "3records");
    let gateway = setup.start().await;
    assert_eq!(gateway.post("done", "{}").await.status, 200);
    until_refused(&gateway, "new", "store_full").await;
    let runs = upstream.count();
    assert_eq!(gateway.post("done", "{}").await.told(), (200, "run 1".to_owned(), true));
    gateway.post("done", "other").await.problem(422, "idempotency_key_reused");
    assert_eq!(upstream.count(), runs);
    assert!(gateway.metric(&["semel_gateway_store_records"]).await >= 3.0);
}

/// Regression: the full store can still be read, and `/readyz` tested only that.
#[tokio::test]
async fn on_a_full_disk_the_gateway_is_not_ready_and_it_recovers() {
    let Some(disk) = SmallDisk::for_test(4 << 20) else { return };
    let upstream = large().await;
    let store = format!("sqlite:{}", disk.path().join("semel.db").display());
    let gateway = Setup::before(upstream.address).with("--store", &store).start().await;
    assert_eq!(gateway.post("done", "{}").await.status, 200);
    until_ready(&gateway, 200).await;
    disk.fill().unwrap();
    for name in ["a", "b", "c"] {
        until_refused(&gateway, name, "store_unavailable").await;
    }
    let why = until_ready(&gateway, 503).await;
    assert!(why.contains("the store takes no writes"), "{why}");
    assert!(gateway.post("done", "{}").await.is_replay(), "it can be read");
    disk.free().unwrap();
    until_ready(&gateway, 200).await;
    assert_eq!(gateway.post("later", "{}").await.status, 200);
}
