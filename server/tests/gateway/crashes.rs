//! Gateways that die or are stopped while the upstream works, over stores that outlive them.

use std::time::{Duration, Instant};

use testkit::on_every_store;
use testkit::stores::postgres::database;
use tokio::time::sleep;

use crate::process::{Gateway, Setup};
use crate::stop::Stop;
use crate::upstream::Upstream;

const LEASE: Duration = Duration::from_millis(600);

/// The kinds of stores that outlive a gateway.
#[derive(Debug, Clone, Copy)]
enum Kept {
    Sqlite,
    Postgres,
}

impl Kept {
    async fn sqlite() -> Self {
        Self::Sqlite
    }

    async fn postgres() -> Self {
        Self::Postgres
    }
}

on_every_store! {
    crate::crashes::Kept [sqlite, postgres] {
        after_a_kill_the_key_is_held_and_nothing_runs_again,
        after_a_kill_the_next_attempt_takes_over_under_retry,
        what_was_answered_before_a_kill_is_replayed_after_it,
        two_gateways_on_one_store_run_a_key_once,
        a_gateway_that_stood_still_finishes_under_hold,
        a_gateway_that_stood_still_does_not_overwrite_who_took_over,
    }
}

async fn setup(kept: Kept, policy: &str) -> (Upstream, Stop, Setup) {
    let (upstream, stop) = Upstream::stopping().await;
    let setup = Setup::before(upstream.address).with("--lease", "600ms").with("--policy", policy);
    let setup = match kept {
        Kept::Sqlite => setup,
        Kept::Postgres => setup.with("--store", &database().await).with("--migrate", "true"),
    };
    (upstream, stop, setup)
}

/// Kills a gateway while the upstream works, which continues, and starts another one over the same
/// store.
async fn killed_within(kept: Kept, policy: &str) -> (Upstream, Stop, Gateway) {
    let (upstream, stop, setup) = setup(kept, policy).await;
    let mut gateway = setup.start().await;
    let first = gateway.posting("k", "{}");
    stop.arrival().await;
    gateway.kill();
    assert!(first.await.unwrap().is_none(), "the caller has no answer");
    stop.go();
    (upstream, stop, setup.start().await)
}

async fn after_a_kill_the_key_is_held_and_nothing_runs_again(kept: Kept) {
    let (upstream, _stop, gateway) = killed_within(kept, "hold").await;
    let held = gateway.post_until_settled("k", "{}").await;
    let problem = held.problem(409, "idempotency_outcome_unknown");
    assert_eq!(problem["attempt"], 1);
    for _ in 0..3 {
        gateway.post("k", "{}").await.problem(409, "idempotency_outcome_unknown");
    }
    assert_eq!(upstream.count(), 1);
}

async fn after_a_kill_the_next_attempt_takes_over_under_retry(kept: Kept) {
    let (upstream, stop, gateway) = killed_within(kept, "retry").await;
    let asked = Instant::now();
    stop.go();
    let reply = gateway.post_until_settled("k", "{}").await;
    assert_eq!(reply.told(), (200, "run 2".to_owned(), false), "{kept:?} after {:?}", asked.elapsed());
    let seen = upstream.seen();
    assert_eq!(seen[1].header("semel-attempt"), Some("2"));
    let fence = |at: usize| seen[at].header("semel-fence").and_then(|fence| fence.parse::<u64>().ok());
    assert!(fence(0) < fence(1));
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "run 2".to_owned(), true));
    assert_eq!(upstream.count(), 2);
}

async fn what_was_answered_before_a_kill_is_replayed_after_it(kept: Kept) {
    let (upstream, stop, setup) = setup(kept, "hold").await;
    let mut gateway = setup.start().await;
    stop.go();
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "run 1".to_owned(), false));
    gateway.kill();
    let gateway = setup.start().await;
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "run 1".to_owned(), true));
    gateway.post("k", "other").await.problem(422, "idempotency_key_reused");
    assert_eq!(upstream.count(), 1);
}

async fn two_gateways_on_one_store_run_a_key_once(kept: Kept) {
    let (upstream, stop, setup) = setup(kept, "hold").await;
    // A busy machine must not miss a renewal.
    let lease = Duration::from_secs(2);
    let setup = setup.with("--wait", "30s").with("--lease", "2s");
    let gateways = [setup.start().await, setup.start().await];
    let all: Vec<_> = (0..64).map(|number| gateways[number % 2].posting("k", "{}")).collect();
    stop.arrival().await;
    // The pause is longer than a lease: it is renewed, and requests at the other gateway continue
    // to wait.
    sleep(lease + lease / 4).await;
    assert!(all.iter().all(|reply| !reply.is_finished()));
    stop.go();
    let mut firsts = 0;
    for reply in all {
        let reply = reply.await.unwrap().unwrap();
        assert_eq!((reply.status, reply.text()), (200, "run 1".to_owned()));
        firsts += usize::from(!reply.is_replay());
    }
    assert_eq!((firsts, upstream.count()), (1, 1));
}

async fn a_gateway_that_stood_still_finishes_under_hold(kept: Kept) {
    stopped_for_three_leases(kept, "hold").await;
}

async fn a_gateway_that_stood_still_does_not_overwrite_who_took_over(kept: Kept) {
    stopped_for_three_leases(kept, "retry").await;
}

/// Stops a gateway for three leases while the upstream works, and sends requests to another one in
/// that time.
async fn stopped_for_three_leases(kept: Kept, policy: &str) {
    let (upstream, stop, setup) = setup(kept, policy).await;
    let (gateway, other) = (setup.start().await, setup.start().await);
    let first = gateway.posting("k", "{}");
    stop.arrival().await;
    gateway.signal("STOP");
    let stopped = Instant::now();
    if policy == "retry" {
        let taken = tokio::spawn(async move { (other.post_until_settled("k", "{}").await, other) });
        stop.arrival().await;
        // The answer to the first request is on the wire, and not read yet; then the second request
        // gets its own.
        stop.go();
        stop.go();
        let (reply, other) = taken.await.unwrap();
        assert_eq!((reply.status, reply.is_replay()), (200, false));
        assert_eq!(upstream.seen()[1].header("semel-attempt"), Some("2"));
        sleep((LEASE * 3).saturating_sub(stopped.elapsed())).await;
        gateway.signal("CONT");
        let late = first.await.unwrap().unwrap();
        assert_eq!(late.told(), (200, reply.text(), true), "it is told what stands");
        assert_eq!(other.post("k", "{}").await.told(), (200, reply.text(), true));
        assert_eq!(upstream.count(), 2);
        return;
    }
    other.post_until_settled("k", "{}").await.problem(409, "idempotency_outcome_unknown");
    sleep((LEASE * 3).saturating_sub(stopped.elapsed())).await;
    stop.go();
    gateway.signal("CONT");
    assert_eq!(first.await.unwrap().unwrap().told(), (200, "run 1".to_owned(), false));
    assert_eq!(other.post("k", "{}").await.told(), (200, "run 1".to_owned(), true));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_store_that_is_gone_stops_everything_with_a_key_and_nothing_else() {
    let upstream = Upstream::counting().await;
    let setup = Setup::before(upstream.address);
    let gateway = setup.start().await;
    assert_eq!(gateway.admin("/readyz").await.told(), (200, "ready\n".to_owned(), false));
    assert_eq!(gateway.post("k", "{}").await.status, 200);
    for name in ["semel.db", "semel.db-wal", "semel.db-shm"] {
        let _not_there = std::fs::rename(setup.path(name), setup.path(&format!("away-{name}")));
    }
    let refused = gateway.post("l", "{}").await;
    refused.problem(503, "store_unavailable");
    assert!(refused.header("retry-after").is_some());
    gateway.post("k", "{}").await.problem(503, "store_unavailable");
    let ready = gateway.admin("/readyz").await;
    assert_eq!(ready.status, 503);
    assert!(ready.text().contains("is not there"), "{}", ready.text());
    assert_eq!(gateway.admin("/livez").await.status, 200);
    assert_eq!(gateway.ask("POST /charges", "", "{}").await.status, 200);
    assert_eq!(upstream.count(), 2);
}
