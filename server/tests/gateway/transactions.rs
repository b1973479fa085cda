//! A service that shares the Postgres of the gateway, and completes in its own transaction.

use testkit::stores::postgres::database;

use crate::process::{Gateway, Setup};
use crate::upstream::{Upstream, answer};

/// A gateway under `transactional`, with a database of its own.
async fn gateway(upstream: &Upstream, database: &str) -> Gateway {
    let setup = Setup::before(upstream.address).with("--store", database).with("--migrate", "true");
    setup.with("--policy", "transactional").start().await
}

#[tokio::test]
async fn a_service_that_forgets_to_complete_is_told_so_and_its_key_is_held() {
    let upstream = Upstream::counting().await;
    let gateway = gateway(&upstream, &database().await).await;
    gateway.post("k", "{}").await.problem(500, "completion_missing");
    for _ in 0..2 {
        gateway.post("k", "{}").await.problem(409, "idempotency_outcome_unknown");
    }
    assert_eq!(upstream.count(), 1);
    assert!(
        gateway.log().contains("call `complete_in` or `semel.complete` before the commit"),
        "{}",
        gateway.log()
    );
    let published = gateway.ask("GET /.well-known/idempotency", "", "").await.text();
    assert!(published.contains("completion_missing"), "{published}");
}

#[tokio::test]
async fn a_service_that_refuses_or_releases_is_passed_on_and_asked_again() {
    for (status, settle) in
        [("404 Not Found", ""), ("500 Oops", ""), ("200 OK", "Idempotency-Settle: release\r\n")]
    {
        let upstream =
            Upstream::start(
                move |seen| async move { answer(status, settle, format!("run {}", seen.number)) },
            )
            .await;
        let gateway = gateway(&upstream, &database().await).await;
        let code: u16 = status[..3].parse().unwrap();
        for run in ["run 1", "run 2"] {
            assert_eq!(gateway.post("k", "{}").await.told(), (code, run.to_owned(), false), "{status}");
        }
    }
}
