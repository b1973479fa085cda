//! The problems, one test for each row of the table.

use std::time::Duration;

use axum::Router;
use axum::http::{Method, Response, StatusCode};
use axum::routing::{any, post};
use bytes::Bytes;
use semel::admin::Ceiling;
use semel::http::{IdempotencyLayer, Rejection, Settle};
use semel::{MemoryStore, Policy, Scope};
use std::sync::Arc;
use testkit::gates::{Fault, Gate, Through};
use tokio::sync::Notify;

use crate::server::{Count, Server, leased, sharing};

/// A limit longer than any step here.
const LONG: Duration = Duration::from_secs(120);

/// A handler that counts, behind this layer.
async fn counting(layer: IdempotencyLayer) -> (Server, Count) {
    let count = Count::default();
    let counted = count.clone();
    let handler = any(move || async move { format!("run {}", counted.up()) });
    (Server::start(Router::new().route("/charges", handler).layer(layer)).await, count)
}

fn layer() -> IdempotencyLayer {
    sharing(MemoryStore::new())
}

/// A layer over a store that a test can disturb, with a short patience.
fn gated() -> (Gate, IdempotencyLayer) {
    let gate = Gate::new();
    let policy = Policy::hold().with_patience(Duration::from_millis(50));
    (gate.clone(), sharing(Through(gate)).with_policy(policy))
}

#[tokio::test]
async fn a_required_key_that_is_missing_is_400() {
    let (server, count) = counting(layer().with_required_key(true)).await;
    for method in [Method::POST, Method::PATCH] {
        let reply = server.request(method, "/charges").send().await;
        reply.problem(400, "idempotency_key_missing");
    }
    assert_eq!(count.get(), 0);
    for method in [Method::PUT, Method::DELETE, Method::GET] {
        assert_eq!(server.request(method, "/charges").send().await.status, 200);
    }
    assert_eq!(count.get(), 3);
}

#[tokio::test]
async fn an_invalid_key_is_400_and_says_why() {
    let (server, count) = counting(layer()).await;
    let reply = server.post("/charges", "a, b", "{}").send().await;
    let problem = reply.problem(400, "idempotency_key_invalid");
    assert!(problem["detail"].as_str().unwrap().contains("a key with a comma must be quoted"));
    assert_eq!(count.get(), 0);
}

#[tokio::test]
async fn a_running_key_is_409_with_retry_after_from_the_lease() {
    let (started, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (starts, goes_on) = (Arc::clone(&started), Arc::clone(&go_on));
    let handler = post(move || async move {
        starts.notify_one();
        goes_on.notified().await;
        "done"
    });
    let policy = leased(Policy::hold(), 7_500);
    let server =
        Server::start(Router::new().route("/charges", handler).layer(layer().with_policy(policy))).await;
    let (first, ()) = tokio::join!(server.post("/charges", "k", "{}").send(), async {
        started.notified().await;
        let reply = server.post("/charges", "k", "{}").send().await;
        let problem = reply.problem(409, "idempotency_key_pending");
        let seconds: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=8).contains(&seconds), "{seconds}");
        assert!(problem["since"].as_str().unwrap().ends_with('Z'));
        // A mismatch takes precedence over pending.
        server.post("/charges", "k", "{ }").send().await.problem(422, "idempotency_key_reused");
        go_on.notify_one();
    });
    assert_eq!((first.status.as_u16(), first.text()), (200, "done"));
}

#[tokio::test]
async fn a_lost_attempt_is_409_and_says_that_a_new_key_is_not_safe() {
    let handler = post(|| async {
        (StatusCode::GATEWAY_TIMEOUT, Settle::Abandon("the bank did not answer".into()), "")
    });
    let server = Server::start(Router::new().route("/charges", handler).layer(layer())).await;
    assert_eq!(server.post("/charges", "k", "{}").send().await.status, 504);
    let reply = server.post("/charges", "k", "{}").send().await;
    let problem = reply.problem(409, "idempotency_outcome_unknown");
    assert_eq!(problem["attempt"], 1);
    assert!(problem["since"].is_string());
    assert!(problem["detail"].as_str().unwrap().contains("A new key is not safe"));
    assert_eq!(reply.header("retry-after"), None);
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_before_the_claim() {
    let (gate, layer) = gated();
    let (server, count) = counting(layer.with_max_request_bytes(10)).await;
    server.post("/charges", "k", "12345678901").send().await.problem(413, "request_too_large");
    let chunked =
        b"POST /charges HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\ntransfer-encoding: chunked\r\n\r\n\
        8\r\n12345678\r\n3\r\n901\r\n0\r\n\r\n";
    let heard = server.raw(chunked, Duration::from_millis(500)).await;
    assert!(heard.starts_with("HTTP/1.1 413 "), "{heard}");
    assert_eq!((count.get(), gate.calls("claim")), (0, 0));
    assert_eq!(server.post("/charges", "k", "1234567890").send().await.status, 200);
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_408_before_the_claim() {
    let (gate, layer) = gated();
    let (server, count) = counting(layer.with_request_timeout(Duration::from_millis(100))).await;
    let half = b"POST /charges HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\ncontent-length: 4\r\n\r\nab";
    let heard = server.raw(half, Duration::from_secs(2)).await;
    assert!(heard.starts_with("HTTP/1.1 408 ") && heard.contains("request_timeout"), "{heard}");
    assert_eq!((count.get(), gate.calls("claim")), (0, 0));
}

#[tokio::test]
async fn another_request_under_the_same_key_is_422_and_poisons_nothing() {
    let (server, count) = counting(layer()).await;
    let first = server.post("/charges", "k", r#"{"a":1}"#).send().await;
    server.post("/charges", "k", r#"{"a":2}"#).send().await.problem(422, "idempotency_key_reused");
    server.post("/charges?x=1", "k", r#"{"a":1}"#).send().await.problem(422, "idempotency_key_reused");
    let put = server
        .request(Method::PUT, "/charges")
        .header("idempotency-key", "k")
        .header("content-type", "application/json");
    put.body(r#"{"a":1}"#).send().await.problem(422, "idempotency_key_reused");
    let again = server.post("/charges", "k", r#"{"a":1}"#).send().await;
    assert!(again.is_replay());
    assert_eq!(again.body, first.body);
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn a_store_that_is_out_is_503_and_nothing_runs() {
    let (gate, layer) = gated();
    let (server, count) = counting(layer).await;
    gate.disturb("claim", Fault::Unavailable);
    let reply = server.post("/charges", "k", "{}").send().await;
    reply.problem(503, "store_unavailable");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(count.get(), 0);
    gate.heal();
    assert_eq!(server.post("/charges", "k", "{}").send().await.text(), "run 1");
}

#[tokio::test]
async fn an_outcome_that_is_not_recorded_yet_is_503_and_replayed_later() {
    let (gate, layer) = gated();
    let (server, count) = counting(layer).await;
    gate.disturb("complete", Fault::Unavailable);
    let reply = server.post("/charges", "k", "{}").send().await;
    reply.problem(503, "outcome_pending");
    gate.heal();
    let replayed = async {
        loop {
            let reply = server.post("/charges", "k", "{}").send().await;
            if reply.status == 200 {
                break reply;
            }
            reply.problem(409, "idempotency_key_pending");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let replayed = tokio::time::timeout(LONG, replayed).await.expect("it is recorded before long");
    assert!(replayed.is_replay());
    assert_eq!((replayed.text(), count.get()), ("run 1", 1));
}

#[tokio::test]
async fn an_outcome_that_the_store_refuses_is_500_and_the_key_is_held() {
    let (gate, layer) = gated();
    let (server, count) = counting(layer).await;
    gate.disturb("complete", Fault::Refused);
    server.post("/charges", "k", "{}").send().await.problem(500, "outcome_unrecorded");
    let held = async {
        loop {
            let reply = server.post("/charges", "k", "{}").send().await;
            // It is abandoned in the background.
            if reply.status == 409 && reply.text().contains("outcome_unknown") {
                break reply;
            }
        }
    };
    let held = tokio::time::timeout(LONG, held).await.expect("it is held before long");
    held.problem(409, "idempotency_outcome_unknown");
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn a_caller_unknown_to_the_application_is_refused() {
    let layer = layer().with_scope(|parts| Scope::new(parts.headers.get("x-tenant")?.to_str().ok()?).ok());
    let (server, count) = counting(layer).await;
    server.post("/charges", "k", "{}").send().await.problem(500, "scope_unknown");
    assert_eq!(count.get(), 0);
    assert_eq!(server.post("/charges", "k", "{}").header("x-tenant", "a").send().await.text(), "run 1");
    assert_eq!(server.post("/charges", "k", "{}").header("x-tenant", "b").send().await.text(), "run 2");
}

#[tokio::test]
async fn refusals_can_look_as_the_user_likes() {
    let own = |rejection: &Rejection| {
        let mut response = Response::new(Bytes::from(format!("no: {}", rejection.code())));
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    };
    let outer = axum::middleware::map_response(|mut response: axum::response::Response| async move {
        if let Some(rejection) = response.extensions().get::<Rejection>() {
            let code = rejection.code();
            response.headers_mut().insert("x-refused", code.parse().unwrap());
        }
        response
    });
    let app = Router::new().route("/charges", post(|| async {}));
    let app = app.layer(layer().with_required_key(true).with_rejections(own)).layer(outer);
    let server = Server::start(app).await;
    let reply = server.request(Method::POST, "/charges").send().await;
    assert_eq!((reply.status.as_u16(), reply.text()), (418, "no: idempotency_key_missing"));
    assert_eq!(reply.header("x-refused"), Some("idempotency_key_missing"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn a_problem_points_at_the_users_page() {
    let (server, _) =
        counting(layer().with_required_key(true).with_problem_page("https://example.com/problems")).await;
    let problem =
        server.request(Method::POST, "/charges").send().await.problem(400, "idempotency_key_missing");
    assert_eq!(problem["type"], "https://example.com/problems#idempotency_key_missing");
}

#[tokio::test]
async fn with_no_attempt_left_what_would_run_is_503_and_nothing_is_claimed() {
    let (gate, layer) = gated();
    let (server, count) = counting(layer.clone()).await;
    server.post("/charges", "done", "{}").send().await;
    let claims = gate.calls("claim");
    let (server, none) = counting(layer.with_max_attempts(0)).await;
    let reply = server.post("/charges", "k", "{}").send().await;
    reply.problem(503, "too_many_attempts");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert!(server.post("/charges", "done", "{}").send().await.is_replay());
    assert_eq!((count.get(), none.get(), gate.calls("claim")), (1, 0, claims));
}

#[tokio::test]
async fn a_caller_over_its_quota_is_429_and_others_are_not() {
    let layer = layer().with_max_new_per_caller(1, Duration::from_secs(3_600));
    let (server, count) = counting(layer).await;
    let ask = async |caller: &str, key: &str| {
        server.post("/charges", key, "{}").header("authorization", caller).send().await
    };
    assert_eq!(ask("Bearer ann", "a").await.status, 200);
    let reply = ask("Bearer ann", "b").await;
    reply.problem(429, "idempotency_quota_exceeded");
    let seconds: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((3_500..=3_600).contains(&seconds), "{seconds}");
    assert!(ask("Bearer ann", "a").await.is_replay());
    assert_eq!(ask("Bearer ben", "b").await.status, 200);
    assert_eq!(count.get(), 2);
}

#[tokio::test]
async fn a_new_key_under_a_ceiling_is_503_and_replays_go_on() {
    let ceiling = Ceiling::new();
    let (server, count) = counting(layer().with_ceiling(ceiling.clone())).await;
    assert_eq!(server.post("/charges", "done", "{}").send().await.status, 200);
    ceiling.set_reached(true);
    let reply = server.post("/charges", "k", "{}").send().await;
    reply.problem(503, "store_full");
    assert_eq!(reply.header("retry-after"), Some("30"));
    assert!(server.post("/charges", "done", "{}").send().await.is_replay());
    assert_eq!(count.get(), 1);
}
