//! Handlers: how they settle their keys, and the events that interrupt them.

use std::collections::HashSet;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, Response, StatusCode};
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use axum::routing::post;
use futures_util::future::join_all;
use semel::admin::{Inspect, ListQuery};
use semel::http::{IdempotencyLayer, ReadAhead, Settle};
use semel::store::{Phase, Record};
use semel::{Lease, MemoryStore, Policy, Store};
use testkit::gates::{Fault, Gate, Through};
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service, ServiceExt};

use crate::server::{BOUND, Count, Reply, Server, Stop, leased, sharing, until};
use crate::wire::Wire;

fn layer() -> IdempotencyLayer {
    sharing(MemoryStore::new())
}

/// A handler behind a layer.
async fn serving<H, T>(layer: IdempotencyLayer, handler: H) -> Server
where
    H: axum::handler::Handler<T, ()>,
    T: 'static,
{
    Server::start(Router::new().route("/charges", post(handler)).layer(layer)).await
}

/// A server whose handler counts its runs, stops, and answers with the number of its attempt.
async fn stopping(layer: IdempotencyLayer) -> (Server, Count, Stop) {
    let (count, stop) = (Count::default(), Stop::default());
    let (counted, stops) = (count.clone(), stop.clone());
    let handler = move |lease: Lease| async move {
        counted.up();
        stops.here().await;
        format!("attempt {}", lease.attempt())
    };
    (serving(layer, handler).await, count, stop)
}

/// A request in progress while the test continues.
fn asked(server: &Server, key: &'static str) -> tokio::task::JoinHandle<Reply> {
    let server = Server::at(server.address);
    tokio::spawn(async move { server.post("/charges", key, "{}").send().await })
}

/// The only record, and its phase.
async fn only(store: &MemoryStore) -> (Record, Phase) {
    let record = store.list(&ListQuery::default()).await.unwrap().records.remove(0);
    let phase = record.phase(store.now().await.unwrap());
    (record, phase)
}

/// Repeats a request until the answer contains this text.
async fn ask_until(server: &Server, text: &str) -> Reply {
    let began = Instant::now();
    loop {
        let reply = server.post("/charges", "k", "{}").send().await;
        if reply.text().contains(text) {
            return reply;
        }
        assert!(began.elapsed() < BOUND, "no {text}, but {}", reply.text());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_does_not_stop_the_handler() {
    let (count, stop, store) = (Count::default(), Stop::default(), MemoryStore::new());
    let (counted, stops) = (count.clone(), stop.clone());
    let handler = move || async move {
        stops.here().await;
        format!("run {}", counted.up())
    };
    // The layers outside of this one are dropped when the server notices that the client has
    // disconnected.
    let gone = CancellationToken::new();
    let leaves = gone.clone();
    let outer = middleware::from_fn(move |request: Request, next: Next| {
        let guard = leaves.clone().drop_guard();
        async move {
            let response = next.run(request).await;
            drop(guard.disarm());
            response
        }
    });
    let app = Router::new().route("/charges", post(handler));
    let server = Server::start(app.layer(sharing(store.clone())).layer(outer)).await;
    let mut wire = Wire::to(&server).await;
    wire.send("POST /charges HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n").await;
    wire.send("idempotency-key: k\r\ncontent-length: 2\r\n\r\n{}").await;
    stop.arrival().await;
    drop(wire);
    tokio::time::timeout(BOUND, gone.cancelled()).await.expect("the server notices");
    stop.go();
    until(|| count.get() == 1).await;
    let again = ask_until(&server, "run").await;
    assert_eq!((again.text(), again.is_replay(), count.get()), ("run 1", true, 1));
}

#[tokio::test]
async fn a_panic_is_500_and_the_key_is_held() {
    let (count, store) = (Count::default(), MemoryStore::new());
    let counted = count.clone();
    let handler = move || async move {
        if counted.up() > 0 {
            panic!("no such account");
        }
    };
    let server = serving(sharing(store.clone()), handler).await;
    let first = server.post("/charges", "k", "{}").send().await;
    let problem = first.problem(500, "handler_failed");
    assert!(problem["detail"].as_str().unwrap().contains("A new key is not safe"));
    assert!(!first.text().contains("no such account"), "what a panic says is not for the caller");
    for _ in 0..3 {
        let again = server.post("/charges", "k", "{}").send().await;
        assert_eq!(again.problem(409, "idempotency_outcome_unknown")["attempt"], 1);
    }
    let (record, phase) = only(&store).await;
    assert_eq!((phase, count.get()), (Phase::Held, 1));
    assert_eq!(record.note.unwrap().text.to_string(), "abandoned: the work panicked: no such account");
}

#[tokio::test]
async fn after_a_panic_the_next_attempt_takes_over_under_retry() {
    let count = Count::default();
    let counted = count.clone();
    let handler = move |lease: Lease| async move {
        counted.up();
        assert!(lease.is_takeover(), "the first attempt panics");
        format!("attempt {}", lease.attempt())
    };
    let server = serving(layer().with_policy(Policy::retry()), handler).await;
    server.post("/charges", "k", "{}").send().await.problem(500, "handler_failed");
    let second = server.post("/charges", "k", "{}").send().await;
    assert_eq!((second.text(), second.is_replay()), ("attempt 2", false));
    let third = server.post("/charges", "k", "{}").send().await;
    assert_eq!((third.text(), third.is_replay(), count.get()), ("attempt 2", true, 2));
}

#[tokio::test]
async fn a_body_that_panics_while_it_is_read_is_a_panic_of_the_handler() {
    let handler = || async {
        let panics = futures_util::stream::poll_fn(|_| -> Poll<Option<Result<bytes::Bytes, Infallible>>> {
            panic!("in the body")
        });
        Body::from_stream(panics)
    };
    let server = serving(layer(), handler).await;
    server.post("/charges", "k", "{}").send().await.problem(500, "handler_failed");
    server.post("/charges", "k", "{}").send().await.problem(409, "idempotency_outcome_unknown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_thread_keeps_its_lease() {
    // The lease is long enough for a renewal to be in time on a busy machine.
    const LEASE_MS: u64 = 2_000;
    let (gate, count) = (Gate::new(), Count::default());
    let policy = leased(Policy::retry(), LEASE_MS);
    let (counted, renewed) = (count.clone(), gate.clone());
    let handler = move || async move {
        let run = counted.up();
        // The loop lasts longer than a lease, which is renewed each third of its length.
        while renewed.calls("renew") < 4 {
            std::thread::sleep(Duration::from_millis(20));
        }
        format!("run {run}")
    };
    let server = serving(sharing(Through(gate.clone())).with_policy(policy.clone()), handler).await;
    // Another process, which would take over as soon as the lease is over.
    let other = sharing(gate.store.clone()).with_policy(policy);
    let counted = count.clone();
    let other = serving(other, move || async move { format!("run {}", counted.up()) }).await;
    let first = asked(&server, "k");
    until(|| count.get() == 1).await;
    while !first.is_finished() {
        let reply = other.post("/charges", "k", "{}").send().await;
        assert!(reply.status == 200 || reply.status == 409, "{}", reply.text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let first = first.await.unwrap();
    assert_eq!((first.text(), first.is_replay(), count.get()), ("run 1", false, 1));
}

/// A server whose renewals fail, and another over the same store that works.
struct Cut {
    gate: Gate,
    server: Server,
    count: Count,
    stop: Stop,
    other: Server,
    others: Count,
}

impl Cut {
    async fn new(policy: Policy) -> Self {
        let gate = Gate::new();
        gate.disturb("renew", Fault::Unavailable);
        let policy = leased(policy, 300);
        let (server, count, stop) =
            stopping(sharing(Through(gate.clone())).with_policy(policy.clone())).await;
        let others = Count::default();
        let counted = others.clone();
        let other = sharing(gate.store.clone()).with_policy(policy);
        let other = serving(other, move |lease: Lease| async move {
            counted.up();
            format!("attempt {} elsewhere", lease.attempt())
        });
        Self { gate, server, count, stop, other: other.await, others }
    }
}

#[tokio::test]
async fn under_hold_a_handler_that_outlives_its_lease_is_recorded_late() {
    let cut = Cut::new(Policy::hold()).await;
    let first = asked(&cut.server, "k");
    cut.stop.arrival().await;
    ask_until(&cut.other, "idempotency_outcome_unknown").await;
    // In the process in which the attempt runs, it is known to be alive.
    let here = cut.server.post("/charges", "k", "{}").send().await;
    here.problem(409, "idempotency_key_pending");
    cut.stop.go();
    let first = first.await.unwrap();
    assert_eq!((first.text(), first.is_replay()), ("attempt 1", false));
    for server in [&cut.server, &cut.other] {
        let again = server.post("/charges", "k", "{}").send().await;
        assert_eq!((again.text(), again.is_replay()), ("attempt 1", true));
    }
    assert_eq!((cut.count.get(), cut.others.get()), (1, 0));
    assert!(cut.gate.calls("renew") > 0);
}

#[tokio::test]
async fn under_retry_the_loser_answers_with_what_the_winner_recorded() {
    let cut = Cut::new(Policy::retry()).await;
    let first = asked(&cut.server, "k");
    cut.stop.arrival().await;
    let winner = ask_until(&cut.other, "elsewhere").await;
    assert_eq!((winner.text(), winner.is_replay()), ("attempt 2 elsewhere", false));
    cut.stop.go();
    let loser = first.await.unwrap();
    assert_eq!((loser.text(), loser.is_replay()), ("attempt 2 elsewhere", true));
    for server in [&cut.server, &cut.other] {
        let again = server.post("/charges", "k", "{}").send().await;
        assert_eq!((again.text(), again.is_replay()), ("attempt 2 elsewhere", true));
    }
    assert_eq!((cut.count.get(), cut.others.get()), (1, 1));
}

#[tokio::test]
async fn a_loser_says_nothing_of_its_own_while_the_winner_still_runs() {
    let store = MemoryStore::new();
    let gate = Gate::to(&store);
    gate.disturb("renew", Fault::Unavailable);
    let policy = leased(Policy::retry(), 300);
    let (server, _, stop) = stopping(sharing(Through(gate)).with_policy(policy.clone())).await;
    let (other, others, stop_other) = stopping(sharing(store).with_policy(policy)).await;
    let first = asked(&server, "k");
    stop.arrival().await;
    let winner = tokio::spawn({
        let other = Server::at(other.address);
        async move { ask_until(&other, "attempt").await }
    });
    stop_other.arrival().await;
    stop.go();
    first.await.unwrap().problem(409, "idempotency_key_pending");
    stop_other.go();
    assert_eq!(winner.await.unwrap().text(), "attempt 2");
    assert_eq!(others.get(), 1);
}

#[tokio::test]
async fn a_handler_learns_that_its_lease_is_lost() {
    let store = MemoryStore::new();
    let policy = leased(Policy::retry(), 300);
    let (count, stop) = (Count::default(), Stop::default());
    let (counted, stops) = (count.clone(), stop.clone());
    let handler = move |lease: Lease| async move {
        stops.here().await;
        assert!(!lease.is_takeover() && !lease.is_lost());
        lease.lost().await;
        assert!(lease.is_lost());
        counted.up();
        (Settle::Abandon("somebody else took over".into()), "lost")
    };
    let layer = sharing(store.clone()).with_policy(policy.clone());
    let server = serving(layer, handler).await;
    let other = sharing(store.clone()).with_policy(policy);
    let other = serving(other, |lease: Lease| async move { format!("attempt {}", lease.attempt()) }).await;
    let first = asked(&server, "k");
    stop.arrival().await;
    // The clock moves as if the process had slept; the next renewal notices it.
    store.memory_clock().advance(Duration::from_millis(300));
    let winner = other.post("/charges", "k", "{}").send().await;
    assert_eq!((winner.text(), winner.is_replay()), ("attempt 2", false));
    stop.go();
    let loser = first.await.unwrap();
    assert_eq!((loser.text(), loser.is_replay(), count.get()), ("attempt 2", true, 1));
}

#[tokio::test]
async fn a_handler_has_the_lease_that_the_store_granted() {
    let store = MemoryStore::new();
    let handler = |lease: Lease| async move {
        let (token, fence) = (lease.token(), lease.fence());
        let (attempt, takeover) = (lease.attempt(), lease.is_takeover());
        let settle = if takeover { Settle::Complete } else { Settle::Abandon("try again".into()) };
        (settle, format!("{token} {fence} {attempt} {takeover} {}", lease.key().value()))
    };
    let layer = sharing(store.clone()).with_policy(Policy::retry());
    let server = serving(layer, handler).await;
    let mut fences = Vec::new();
    for (attempt, takeover) in [(1, false), (2, true)] {
        let reply = server.post("/charges", "k", "{}").send().await;
        let (record, _) = only(&store).await;
        let (token, fence) = (record.token, record.fence);
        assert_eq!(reply.text(), format!("{token} {fence} {attempt} {takeover} k"));
        fences.push(fence);
    }
    assert!(fences[0] < fences[1]);
}

#[tokio::test]
async fn a_lease_needs_a_key_and_a_layer() {
    let app = Router::new()
        .route("/needs", post(|_: Lease| async { "leased" }))
        .route("/takes", post(|lease: Option<Lease>| async move { format!("{}", lease.is_some()) }));
    let without = Server::start(app.clone()).await;
    let with = Server::start(app.layer(layer())).await;
    with.request(Method::POST, "/needs").send().await.problem(400, "idempotency_key_missing");
    assert_eq!(with.post("/needs", "k", "{}").send().await.text(), "leased");
    let bare = without.post("/needs", "k", "{}").send().await;
    assert_eq!((bare.status, bare.text()), (StatusCode::INTERNAL_SERVER_ERROR, ""));
    assert_eq!(with.request(Method::POST, "/takes").send().await.text(), "false");
    assert_eq!(with.post("/takes", "o", "{}").send().await.text(), "true");
    assert_eq!(without.post("/takes", "o", "{}").send().await.text(), "false");
}

/// Sends 64 concurrent repeats to a handler that stops until all have been sent.
async fn sixty_four(policy: Policy) -> (Vec<Reply>, Count) {
    let (server, count, stop) = stopping(layer().with_policy(policy)).await;
    let first = asked(&server, "k");
    stop.arrival().await;
    // The last request has a key of its own, so that all have been sent when it arrives.
    let repeats: Vec<_> = (0..63).map(|_| asked(&server, "k")).collect();
    let last = asked(&server, "last");
    stop.arrival().await;
    stop.go();
    stop.go();
    last.await.unwrap();
    let mut replies = vec![first.await.unwrap()];
    replies.extend(join_all(repeats).await.into_iter().map(Result::unwrap));
    (replies, count)
}

#[tokio::test]
async fn of_64_concurrent_requests_one_runs_and_the_rest_are_refused() {
    let (replies, count) = sixty_four(Policy::hold()).await;
    assert_eq!(replies.iter().filter(|reply| reply.status == 200 && !reply.is_replay()).count(), 1);
    for reply in &replies {
        match reply.status.as_u16() {
            200 => assert_eq!(reply.text(), "attempt 1"),
            _ => drop(reply.problem(409, "idempotency_key_pending")),
        }
    }
    assert!(replies.iter().any(|reply| reply.status == 409), "some have met a running attempt");
    assert_eq!(count.get(), 2, "one for the key, and one for the last");
}

#[tokio::test]
async fn of_64_that_wait_all_get_the_same_bytes() {
    let (replies, count) = sixty_four(Policy::hold().with_wait(BOUND)).await;
    let bodies: HashSet<_> = replies.iter().map(|reply| (reply.status, reply.body.clone())).collect();
    assert_eq!(Vec::from_iter(bodies), [(StatusCode::OK, "attempt 1".into())]);
    assert_eq!(replies.iter().filter(|reply| !reply.is_replay()).count(), 1);
    assert_eq!(count.get(), 2, "one for the key, and one for the last");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_64_that_race_for_many_keys_one_runs_for_each() {
    let count = Count::default();
    let counted = count.clone();
    let policy = Policy::hold().with_wait(BOUND);
    let server = serving(layer().with_policy(policy), move || async move {
        tokio::task::yield_now().await;
        format!("run {}", counted.up())
    })
    .await;
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for (number, key) in keys.iter().enumerate() {
        let replies = join_all((0..64).map(|_| asked(&server, key))).await;
        let texts: HashSet<_> = replies.iter().map(|reply| reply.as_ref().unwrap().body.clone()).collect();
        assert_eq!((texts.len(), count.get()), (1, number as u32 + 1));
        assert_eq!(replies.iter().filter(|reply| !reply.as_ref().unwrap().is_replay()).count(), 1);
    }
}

#[tokio::test]
async fn another_request_under_a_running_key_is_refused_at_once_and_does_not_wait() {
    let (server, count, stop) = stopping(layer().with_policy(Policy::hold().with_wait(BOUND))).await;
    let first = asked(&server, "k");
    stop.arrival().await;
    // The handler continues only after this, so a request that waited would wait in vain.
    server.post("/charges", "k", "{ }").send().await.problem(422, "idempotency_key_reused");
    stop.go();
    assert_eq!(first.await.unwrap().text(), "attempt 1");
    server.post("/charges", "k", "{ }").send().await.problem(422, "idempotency_key_reused");
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn a_repeat_that_waits_is_let_go_with_its_time() {
    let wait = Duration::from_millis(200);
    let (server, count, stop) = stopping(layer().with_policy(Policy::hold().with_wait(wait))).await;
    let first = asked(&server, "k");
    stop.arrival().await;
    let began = Instant::now();
    server.post("/charges", "k", "{}").send().await.problem(409, "idempotency_key_pending");
    assert!(began.elapsed() >= wait);
    stop.go();
    first.await.unwrap();
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn an_error_of_a_service_ends_the_connection_and_the_key_is_held() {
    let count = Count::default();
    let counted = count.clone();
    let service = tower::service_fn(move |_: Request<ReadAhead<hyper::body::Incoming>>| {
        counted.up();
        ready(Err::<Response<Body>, _>(std::io::Error::other("the disk is full")))
    });
    let store = MemoryStore::new();
    let server = Server::start_service(sharing(store.clone()).layer(service)).await;
    for (key, runs) in [("k", 1), ("other", 2)] {
        assert!(server.post("/charges", key, "{}").open().await.is_err());
        server.post("/charges", key, "{}").send().await.problem(409, "idempotency_outcome_unknown");
        assert_eq!(count.get(), runs);
    }
    // Without a key it is also an error, each time.
    assert!(server.request(Method::POST, "/charges").open().await.is_err());
    let notes = store.list(&ListQuery::default()).await.unwrap().records;
    assert!(notes.iter().all(|record| {
        let note = record.note.as_ref().unwrap();
        *note.text == *"abandoned: the service failed: the disk is full"
    }));
}

/// A service that must be polled ready before each call, as a clone, too.
#[derive(Default)]
struct Strict {
    count: Count,
    ready: bool,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { count: self.count.clone(), ready: false }
    }
}

impl<B> Service<Request<B>> for Strict {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Ready at the second try, so that one call cannot be enough.
        if std::mem::replace(&mut self.ready, true) {
            return Poll::Ready(Ok(()));
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without having been polled ready");
        ready(Ok(format!("run {}", self.count.up()).into_response()))
    }
}

#[tokio::test]
async fn a_service_is_called_only_when_it_is_ready() {
    let strict = Strict::default();
    let server = Server::start_service(layer().layer(strict.clone())).await;
    for (key, text, replayed) in [("a", "run 1", false), ("a", "run 1", true), ("b", "run 2", false)] {
        let reply = server.post("/charges", key, "{}").send().await;
        assert_eq!((reply.text(), reply.is_replay()), (text, replayed));
    }
    assert_eq!(server.request(Method::POST, "/charges").send().await.text(), "run 3");
    assert_eq!(server.request(Method::GET, "/charges").send().await.text(), "run 4");

    // The same service and clones of it are called repeatedly without a server in between.
    let mut service = layer().layer(strict);
    for number in 0..6 {
        let mut clone = service.clone();
        let called = if number % 2 == 0 { &mut service } else { &mut clone };
        let mut request = Request::builder().method(Method::POST).uri("/charges");
        if number < 4 {
            request = request.header("idempotency-key", format!("{}", number / 2));
        }
        let request = request.body(Body::empty()).unwrap();
        let ready = ServiceExt::<Request<Body>>::ready(called).await.unwrap();
        let response = ready.call(request).await.unwrap();
        assert_eq!(response.status(), 200, "{number}");
    }
}
