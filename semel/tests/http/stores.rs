//! Stores that fail, are slow or silent, and recover; and the clean end of a server.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use semel::admin::{Inspect, ListQuery};
use semel::http::{Memory, Settle};
use semel::store::Phase;
use semel::{MemoryStore, Policy, Store};
use testkit::gates::{Fault, Gate, Through};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::server::{BOUND, Count, Reply, Server, Stop, leased, sharing, until};

/// The time after which the engine stops waiting for an answer of a silent store, and asks again.
const PATIENCE: Duration = Duration::from_secs(1);
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// A margin for a busy machine: a wait that is not given up in time would last for ever.
const SLACK: Duration = Duration::from_secs(60);

/// A server over a store that can be disturbed, whose handler counts its runs.
struct Disturbed {
    gate: Gate,
    server: Server,
    count: Count,
}

impl Disturbed {
    async fn new() -> Self {
        let (gate, count) = (Gate::new(), Count::default());
        let counted = count.clone();
        let handler = post(move || async move { format!("run {}", counted.up()) });
        let policy = Policy::hold().with_patience(PATIENCE);
        let layer = sharing(Through(gate.clone())).with_policy(policy);
        let server = Server::start(Router::new().route("/charges", handler).layer(layer)).await;
        Self { gate, server, count }
    }

    async fn ask(&self) -> Reply {
        self.server.post("/charges", "k", "{}").send().await
    }

    /// Repeats the request until the handler's answer comes; until then, only *pending* answers are
    /// allowed.
    async fn settles(&self) -> Reply {
        let began = Instant::now();
        loop {
            let reply = self.ask().await;
            if reply.status == 200 {
                return reply;
            }
            assert!(reply.status == 409 || reply.status == 503, "{}", reply.text());
            assert!(began.elapsed() < BOUND, "not settled, but {}", reply.text());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Checks that the first caller gets this code within the limit under this fault, and that the
    /// key settles with one run once the fault is over.
    async fn is_answered(fault: (&'static str, Fault), code: &str, limit: Duration, ran_before: u32) {
        let disturbed = Self::new().await;
        disturbed.gate.disturb(fault.0, fault.1);
        let began = Instant::now();
        disturbed.ask().await.problem(503, code);
        assert!(began.elapsed() < limit, "{fault:?} took {:?}", began.elapsed());
        assert_eq!(disturbed.count.get(), ran_before, "{fault:?}");
        disturbed.gate.heal();
        let settled = disturbed.settles().await;
        assert_eq!((settled.text(), settled.is_replay()), ("run 1", ran_before == 1), "{fault:?}");
        assert!(disturbed.ask().await.is_replay(), "{fault:?}");
        assert_eq!(disturbed.count.get(), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_store_that_is_out_before_the_claim_runs_nothing() {
    let quick = PATIENCE + SLACK;
    for verb in ["now", "claim"] {
        Disturbed::is_answered((verb, Fault::Unavailable), "store_unavailable", quick, 0).await;
    }
    // The sender does not know whether the claim arrived: it did not.
    Disturbed::is_answered(("claim", Fault::Lost), "store_unavailable", quick, 0).await;
}

#[tokio::test]
async fn a_store_that_goes_out_after_the_handler_ran_is_told_later() {
    let quick = PATIENCE + SLACK;
    for fault in [Fault::Unavailable, Fault::Lost] {
        Disturbed::is_answered(("complete", fault), "outcome_pending", quick, 1).await;
    }
    // The complete did arrive, and only its answers are lost.
    Disturbed::is_answered(("complete", Fault::AnswerLost), "outcome_pending", quick, 1).await;
}

#[tokio::test]
async fn a_silent_store_is_given_up_in_time_and_nothing_runs_twice() {
    let limit = CALL_LIMIT + PATIENCE + SLACK;
    let claim = "store_unavailable";
    let complete = "outcome_pending";
    tokio::join!(
        Disturbed::is_answered(("now", Fault::Hang), claim, limit, 0),
        Disturbed::is_answered(("claim", Fault::Hang), claim, limit, 0),
        Disturbed::is_answered(("claim", Fault::Silence), claim, limit, 0),
        Disturbed::is_answered(("claim", Fault::CopyLater(PATIENCE * 5)), claim, limit, 0),
        Disturbed::is_answered(("complete", Fault::Hang), complete, limit, 1),
        Disturbed::is_answered(("complete", Fault::Silence), complete, limit, 1),
    );
}

#[tokio::test]
async fn a_slow_store_is_waited_for() {
    let disturbed = Disturbed::new().await;
    let slow = Duration::from_millis(150);
    for verb in ["now", "claim", "complete"] {
        disturbed.gate.disturb(verb, Fault::Slow(slow));
    }
    let began = Instant::now();
    let first = disturbed.ask().await;
    assert_eq!((first.text(), first.is_replay()), ("run 1", false));
    assert!(began.elapsed() >= slow * 3);
    let again = disturbed.ask().await;
    assert_eq!((again.text(), again.is_replay(), disturbed.count.get()), ("run 1", true, 1));
}

#[tokio::test]
async fn a_lease_that_was_over_when_its_claim_was_answered_is_renewed_before_anything_runs() {
    let gate = Gate::new();
    let renewed = gate.clone();
    let handler = post(move || async move { format!("{} renewals", renewed.calls("renew")) });
    let policy = leased(Policy::hold(), 1_500);
    let layer = sharing(Through(gate.clone())).with_policy(policy);
    let server = Server::start(Router::new().route("/charges", handler).layer(layer)).await;
    gate.disturb_calls("claim", 1..=1, Fault::SlowAnswer(Duration::from_millis(1_600)));
    assert_eq!(server.post("/charges", "k", "{}").send().await.text(), "1 renewals");
}

#[tokio::test]
async fn a_store_that_is_back_within_the_patience_is_not_noticed() {
    let disturbed = Disturbed::new().await;
    for (verb, fault) in
        [("now", Fault::Unavailable), ("claim", Fault::AnswerLost), ("complete", Fault::AnswerLost)]
    {
        disturbed.gate.disturb_calls(verb, 1..=2, fault);
    }
    let first = disturbed.ask().await;
    assert_eq!((first.text(), first.is_replay()), ("run 1", false));
    let again = disturbed.ask().await;
    assert_eq!((again.text(), again.is_replay(), disturbed.count.get()), ("run 1", true, 1));
}

#[tokio::test]
async fn repeats_are_refused_while_the_store_is_out_and_replayed_when_it_is_back() {
    let disturbed = Disturbed::new().await;
    assert_eq!(disturbed.ask().await.text(), "run 1");
    disturbed.gate.disturb("claim", Fault::Unavailable);
    disturbed.ask().await.problem(503, "store_unavailable");
    disturbed.gate.heal();
    assert!(disturbed.ask().await.is_replay());
    assert_eq!(disturbed.count.get(), 1);
}

#[tokio::test]
async fn an_answer_that_released_its_key_reaches_its_caller_when_the_store_is_out() {
    let (gate, count) = (Gate::new(), Count::default());
    let counted = count.clone();
    let handler = post(move || async move { (Settle::Release, format!("run {}", counted.up())) });
    let policy = Policy::hold().with_patience(PATIENCE);
    let layer = sharing(Through(gate.clone())).with_policy(policy);
    let server = Server::start(Router::new().route("/charges", handler).layer(layer)).await;
    gate.disturb("release", Fault::Unavailable);
    assert_eq!(server.post("/charges", "k", "{}").send().await.text(), "run 1");
    server.post("/charges", "k", "{}").send().await.problem(409, "idempotency_key_pending");
    gate.heal();
    let began = Instant::now();
    while count.get() == 1 {
        server.post("/charges", "k", "{}").send().await;
        assert!(began.elapsed() < BOUND, "the key is not released");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_store_that_panics_is_not_the_end_of_the_server() {
    let disturbed = Disturbed::new().await;
    disturbed.gate.disturb("claim", Fault::Panic);
    // The caller sees what it would see of a handler that panics: the connection ends, or an error.
    let broken = disturbed.server.post("/charges", "k", "{}").try_send().await;
    assert!(broken.is_none_or(|reply| reply.status.is_server_error()));
    disturbed.gate.heal();
    assert_eq!(disturbed.ask().await.text(), "run 1");
}

#[tokio::test]
async fn a_graceful_shutdown_finishes_running_attempts_and_ends_waits() {
    let store = MemoryStore::new();
    let gate = Gate::to(&store);
    let policy = Policy::hold().with_wait(Duration::from_secs(300));
    let layer = sharing(Through(gate.clone())).with_policy(policy);
    let (count, stop) = (Count::default(), Stop::default());
    let (counted, stops) = (count.clone(), stop.clone());
    let handler = post(move || async move {
        stops.here().await;
        format!("run {}", counted.up())
    });
    let app = Router::new().route("/charges", handler).layer(layer.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::at(listener.local_addr().unwrap());
    let terminated = CancellationToken::new();
    let serving = axum::serve(listener, app).with_graceful_shutdown(terminated.clone().cancelled_owned());
    let serving = tokio::spawn(serving.into_future());
    let asked = || {
        let server = Server::at(server.address);
        tokio::spawn(async move { server.post("/charges", "k", "{}").send().await })
    };
    let first = asked();
    stop.arrival().await;
    let waits = asked();
    until(|| gate.calls("find_many") > 0).await;

    terminated.cancel();
    let draining = tokio::spawn(async move { layer.drain().await });
    // Waiting repeats end at once, although they would have waited for minutes.
    waits.await.unwrap().problem(409, "idempotency_key_pending");
    assert!(!draining.is_finished() && !first.is_finished());
    stop.go();
    let first = first.await.unwrap();
    assert_eq!((first.text(), first.is_replay()), ("run 1", false));
    tokio::time::timeout(BOUND, draining).await.expect("it drains").unwrap();
    tokio::time::timeout(BOUND, serving).await.expect("it ends").unwrap().unwrap();
    let record = store.list(&ListQuery::default()).await.unwrap().records.remove(0);
    assert_eq!(record.phase(store.now().await.unwrap()), Phase::Done);
    assert_eq!((count.get(), gate.calls("release"), gate.calls("void")), (1, 0, 0));
}

#[tokio::test]
async fn an_outcome_is_charged_until_the_store_has_taken_it() {
    let gate = Gate::new();
    let memory = Memory::new(1 << 20);
    let policy = Policy::hold().with_patience(PATIENCE);
    let layer = sharing(Through(gate.clone())).with_policy(policy).with_memory(memory.clone());
    let app = Router::new().route("/charges", post(|| async { "x".repeat(100_000) })).layer(layer.clone());
    let server = Server::start(app).await;
    gate.disturb("complete", Fault::Unavailable);
    server.post("/charges", "k", "{}").send().await.problem(503, "outcome_pending");
    // The client has its answer, and the outcome is still in memory.
    assert!(memory.responses_in_use() >= 100_000, "{memory:?}");
    gate.heal();
    until(|| memory.responses_in_use() == 0).await;
    let replay = server.post("/charges", "k", "{}").send().await;
    assert_eq!((replay.text().len(), replay.is_replay()), (100_000, true));
}

#[tokio::test]
async fn a_shutdown_while_the_store_is_out_releases_nothing() {
    let gate = Gate::new();
    let policy = Policy::hold().with_patience(PATIENCE);
    let layer = sharing(Through(gate.clone())).with_policy(policy);
    let app = Router::new().route("/charges", post(|| async { "charged" })).layer(layer.clone());
    let server = Server::start(app).await;
    gate.disturb("complete", Fault::Unavailable);
    server.post("/charges", "k", "{}").send().await.problem(503, "outcome_pending");
    tokio::time::timeout(BOUND, layer.drain()).await.expect("it drains, though the store is out");
    let (completes, renews) = (gate.calls("complete"), gate.calls("renew"));
    gate.heal();
    // No task is left to complete, renew or release: the key stays as it is, and is held when its
    // lease is over.
    gate.store.memory_clock().advance(Duration::from_secs(31));
    server.post("/charges", "k", "{}").send().await.problem(409, "idempotency_outcome_unknown");
    assert_eq!((gate.calls("complete"), gate.calls("renew")), (completes, renews));
    assert_eq!((gate.calls("release"), gate.calls("abandon"), gate.calls("void")), (0, 0, 0));
}
