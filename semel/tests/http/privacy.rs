//! Logs and metrics: they contain no secret, and count every answer by its name.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::sync::Once;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use semel::http::Settle;
use semel::{Lease, Policy};
use testkit::gates::{Fault, Gate, Through};
use tracing::{Instrument, Level, field};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;

use crate::server::{Server, Stop, leased, sharing};
use crate::wire::Wire;

thread_local! {
    /// The log of this thread, which is the log of its test: these tests have a runtime on one
    /// thread.
    static LOGGED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A writer to the log of its thread.
struct Log;

impl Log {
    /// Captures the log from now on. There is one subscriber for all threads: the interest in an
    /// event is remembered for the whole process, and a subscriber of one thread would miss events
    /// that another thread has met first.
    fn capture() {
        static CAPTURED: Once = Once::new();
        CAPTURED.call_once(|| {
            let wanted =
                Targets::new().with_target("semel", Level::TRACE).with_target("application", Level::TRACE);
            let all = tracing_subscriber::fmt::layer()
                .with_ansi(false)
                .with_span_events(FmtSpan::CLOSE)
                .with_writer(|| Log)
                .with_filter(wanted);
            tracing::subscriber::set_global_default(tracing_subscriber::registry().with(all))
                .expect("the first");
        });
    }

    fn text() -> String {
        LOGGED.with_borrow(|logged| String::from_utf8(logged.clone()).expect("text"))
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOGGED.with_borrow_mut(|logged| logged.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A server with a handler for each kind of ending, and its store.
async fn everything() -> (Gate, Server, Stop) {
    let (gate, stop) = (Gate::new(), Stop::default());
    let stops = stop.clone();
    let app = Router::new()
        .route("/charges", post(|_: String| async { "answer-secret" }))
        .route("/releases", post(|| async { (StatusCode::TOO_MANY_REQUESTS, "answer-secret") }))
        .route("/abandons", post(|| async { (Settle::Abandon("no answer".into()), "answer-secret") }))
        .route("/panics", post(|| async { assert_eq!(1, 2, "a bug") }))
        .route(
            "/stops",
            post(move |lease: Lease| async move {
                stops.here().await;
                lease.lost().await;
                "answer-secret"
            }),
        )
        .route("/large", post(|| async { "answer-secret".repeat(100) }));
    let policy = leased(Policy::hold(), 800).with_patience(Duration::from_millis(20));
    let policy = policy.with_max_body_bytes(1_000);
    let layer = sharing(Through(gate.clone())).with_policy(policy).with_required_key(true);
    (gate, Server::start(app.layer(layer)).await, stop)
}

/// Sends a request with secrets in it, under a key of this name.
async fn send(server: &Server, path: &str, name: &str) -> u16 {
    let request = server.post(path, &format!("key-{name}-secret"), "body-secret");
    let request = request.header("authorization", "Bearer token-secret").header("cookie", "s=cookie-secret");
    request.header("x-api-key", "api-secret").send().await.status.as_u16()
}

/// Sends requests with every possible result.
async fn every_way(gate: &Gate, server: &Server, stop: &Stop) {
    for (path, name, first, again) in [
        ("/charges?query=query-secret", "a", 200, 200),
        ("/releases", "b", 429, 429),
        ("/abandons", "c", 200, 409),
        ("/panics", "d", 500, 409),
        ("/large", "e", 200, 200),
    ] {
        assert_eq!(
            (send(server, path, name).await, send(server, path, name).await),
            (first, again),
            "{path}"
        );
    }
    assert_eq!(send(server, "/charges", "a").await, 422, "without its query it is another request");
    assert_eq!(server.post("/charges", "key-secret, b", "body-secret").send().await.status, 400);
    assert_eq!(server.post("/charges", "key-secret\"", "body-secret").send().await.status, 400);
    let long = format!("key-secret-{}", "x".repeat(256));
    assert_eq!(server.post("/charges", &long, "body-secret").send().await.status, 400);
    // A lease is lost while another request asks.
    gate.disturb("renew", Fault::Unavailable);
    let (first, ()) = tokio::join!(send(server, "/stops", "f"), async {
        stop.arrival().await;
        assert_eq!(send(server, "/stops", "f").await, 409);
        stop.go();
    });
    assert_eq!(first, 200);
    gate.heal();
    gate.disturb("claim", Fault::Unavailable);
    assert_eq!(send(server, "/charges", "g").await, 503);
    gate.heal();
    gate.disturb("complete", Fault::Unavailable);
    assert_eq!(send(server, "/charges", "h").await, 503);
    gate.heal();
    gate.disturb("complete", Fault::Refused);
    assert_eq!(send(server, "/charges", "i").await, 500);
    gate.heal();
}

#[tokio::test]
async fn logs_hold_no_whole_keys_no_bodies_and_no_credentials() {
    Log::capture();
    let (gate, server, stop) = everything().await;
    every_way(&gate, &server, &stop).await;
    let text = Log::text();
    for told in [
        "POST /charges",
        "answer=\"first\"",
        "answer=\"replayed\"",
        "answer=\"idempotency_key_reused\"",
        "answer=\"idempotency_key_pending\"",
        "the handler failed",
        "lost a lease",
        "the key could not be claimed",
        "the outcome is not recorded yet",
        "the outcome could not be recorded",
    ] {
        assert!(text.contains(told), "no {told:?} in {text}");
    }
    let leak = text.lines().find(|line| line.contains("secret"));
    assert_eq!(leak, None);
}

#[tokio::test]
async fn a_short_key_is_not_logged_whole_either() {
    Log::capture();
    let (_, server, _) = everything().await;
    assert_eq!(server.post("/charges", "7q9z", "{}").send().await.status, 200);
    let text = Log::text();
    assert!(text.contains("answer=\"first\"") && !text.contains("7q9z"), "{text}");
}

#[tokio::test]
async fn the_text_of_a_client_cannot_forge_a_line_or_a_statement() {
    Log::capture();
    let (_, server, _) = everything().await;
    // The path contains quotation marks, an encoded line feed, SQL, a raw next-line character and a
    // raw change of direction, and is as long as a key allows.
    let path = "/a\"b'%0a%0DERROR%20forged;drop%20table%20records;--\u{85}\u{202e}\u{e9}";
    let key = r#""x\"'; drop table records; --""#;
    for replayed in [false, true] {
        let mut wire = Wire::to(&server).await;
        wire.send(format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n")).await;
        wire.send(format!("idempotency-key: {key}\r\ncontent-length: 0\r\n\r\n")).await;
        let heard = wire.hear_all().await;
        assert!(heard.starts_with("HTTP/1.1 404 "), "{heard}");
        assert_eq!(heard.contains("idempotency-replayed"), replayed);
    }
    let text = Log::text();
    assert!(text.contains(r#"POST /a\"b'%0a%0DERROR%20forged"#), "{text}");
    assert!(!text.contains(['\u{85}', '\u{202e}', '\r', '\0', '\u{1b}']), "{text:?}");
    assert!(!text.contains("drop table"), "the key is not logged whole");
    // Each line begins with its time, so no client has begun one.
    assert!(text.lines().all(|line| line.starts_with("20")), "{text}");
}

/// All counters, by name and labels.
fn counters(snapshotter: &Snapshotter, into: &mut BTreeMap<String, u64>) {
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<_> =
            key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let name = format!("{} {}", key.key().name(), labels.join(" "));
        match value {
            DebugValue::Counter(count) => *into.entry(name).or_default() += count,
            DebugValue::Histogram(values) => *into.entry(name).or_default() += values.len() as u64,
            DebugValue::Gauge(_) => panic!("{name} is a gauge"),
        }
    }
}

#[tokio::test]
async fn every_answer_is_counted_under_its_name() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let (gate, server, stop) = everything().await;
    every_way(&gate, &server, &stop).await;
    let mut counted = BTreeMap::new();
    counters(&snapshotter, &mut counted);
    for (name, count) in [
        // The first answers are those of a, b (twice), c, e and f; d is not an answer of a handler.
        // The rest are replays and refusals.
        ("semel_http_requests_total answer=first", 6),
        ("semel_http_requests_total answer=replayed", 2),
        ("semel_http_requests_total answer=handler_failed", 1),
        ("semel_http_requests_total answer=idempotency_outcome_unknown", 2),
        ("semel_http_requests_total answer=idempotency_key_reused", 1),
        ("semel_http_requests_total answer=idempotency_key_invalid", 3),
        ("semel_http_requests_total answer=idempotency_key_pending", 1),
        ("semel_http_requests_total answer=store_unavailable", 1),
        ("semel_http_requests_total answer=outcome_pending", 1),
        ("semel_http_requests_total answer=outcome_unrecorded", 1),
        ("semel_claims_total store=through answer=granted", 9),
        ("semel_claims_total store=through answer=done", 2),
        ("semel_claims_total store=through answer=held", 2),
        ("semel_claims_total store=through answer=mismatch", 1),
        ("semel_claims_total store=through answer=running", 1),
        ("semel_claims_total store=through answer=unavailable", 1),
        ("semel_settlements_total store=through answer=completed", 3),
        ("semel_settlements_total store=through answer=released", 2),
        ("semel_settlements_total store=through answer=abandoned", 2),
        ("semel_settlements_total store=through answer=pending", 1),
        ("semel_settlements_total store=through answer=refused", 1),
        ("semel_leases_lost_total store=through", 1),
        ("semel_claim_seconds store=through", 16),
        ("semel_settle_seconds store=through", 9),
        ("semel_work_seconds store=through", 9),
    ] {
        assert_eq!(counted.get(name), Some(&count), "{name} in {counted:#?}");
    }
    assert!(counted.keys().all(|name| !name.contains("secret")), "{counted:#?}");
}

#[tokio::test]
async fn a_refusal_before_the_claim_is_not_noted_in_a_span_of_the_application() {
    Log::capture();
    let outer = axum::middleware::from_fn(
        |request: axum::extract::Request, next: axum::middleware::Next| async move {
            let span = tracing::info_span!(target: "application", "request", answer = field::Empty);
            let response = next.run(request).instrument(span.clone()).await;
            span.in_scope(|| tracing::info!(target: "application", "done"));
            response
        },
    );
    let gate = Gate::new();
    let layer = sharing(Through(gate)).with_required_key(true);
    let app = Router::new().route("/charges", post(|| async {})).layer(layer).layer(outer);
    let server = Server::start(app).await;
    assert_eq!(server.request(axum::http::Method::POST, "/charges").send().await.status, 400);
    let text = Log::text();
    let done = text.lines().find(|line| line.ends_with("done")).expect("the application's line");
    assert!(!done.contains("answer"), "{done}");
}
