//! Options per route, and the policy that is published to clients.

use std::time::Duration;

use axum::Router;
use axum::http::Method;
use axum::routing::{get, post};
use semel::{AfterCrash, Lease, MemoryStore, Policy};

use crate::server::{Count, Server, leased, sharing};

#[tokio::test]
async fn every_route_has_options_of_its_own_over_one_store() {
    let count = Count::default();
    let (charges, reports) = (count.clone(), count.clone());
    let layer = sharing(MemoryStore::new());
    let strict = layer.clone().with_required_key(true).with_max_request_bytes(4);
    let lenient = layer.with_policy(leased(Policy::retry(), 5_000));
    let app = Router::new()
        .route("/charges", post(move || async move { format!("{}", charges.up()) }).route_layer(strict))
        .route("/reports", post(move || async move { format!("{}", reports.up()) }).route_layer(lenient));
    let server = Server::start(app).await;
    server.request(Method::POST, "/charges").send().await.problem(400, "idempotency_key_missing");
    assert_eq!(server.request(Method::POST, "/reports").send().await.text(), "1");
    server.post("/charges", "k", "12345").send().await.problem(413, "request_too_large");
    assert_eq!(server.post("/reports", "k", "12345").send().await.text(), "2");
    // All routes share one store: a key that one route has used is not free for another.
    server.post("/charges", "k", "1234").send().await.problem(422, "idempotency_key_reused");
}

#[tokio::test]
async fn of_two_layers_on_a_request_the_outer_one_counts() {
    let count = Count::default();
    let counted = count.clone();
    let layer = sharing(MemoryStore::new());
    let waiting = layer.clone().with_policy(Policy::hold().with_wait(Duration::from_secs(5)));
    let handler =
        post(move |lease: Lease| async move { format!("run {}, attempt {}", counted.up(), lease.attempt()) });
    let app = Router::new().route("/charges", handler.layer(waiting)).layer(layer);
    let server = Server::start(app).await;
    let first = server.post("/charges", "k", "{}").send().await;
    assert_eq!((first.status.as_u16(), first.text()), (200, "run 1, attempt 1"));
    assert!(server.post("/charges", "k", "{}").send().await.is_replay());
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn a_refusal_from_further_in_is_not_recorded() {
    let inner =
        sharing(MemoryStore::new()).with_header_name("x-inner-key".parse().unwrap()).with_required_key(true);
    // The lease is removed on the way, so that the inner layer does not see the outer one's key.
    let strip = axum::middleware::map_request(|mut request: axum::extract::Request| async move {
        request.extensions_mut().remove::<Lease>();
        request
    });
    let app = Router::new().route("/charges", post(|| async { "charged" }));
    let app = app.layer(inner).layer(strip).layer(sharing(MemoryStore::new()));
    let server = Server::start(app).await;
    server.post("/charges", "k", "{}").send().await.problem(400, "idempotency_key_missing");
    let second = server.post("/charges", "k", "{}").header("x-inner-key", "i").send().await;
    assert_eq!((second.status.as_u16(), second.text()), (200, "charged"));
}

#[tokio::test]
async fn the_policy_is_published() {
    let policy = Policy::retry().with_retention(Duration::from_secs(3_600));
    assert_eq!(policy.after_crash(), AfterCrash::Retry);
    let layer = sharing(MemoryStore::new()).with_policy(policy).with_strict_keys(true);
    let published = layer.published();
    let app = Router::new().route("/.well-known/idempotency", get(|| async { axum::Json(published) }));
    let server = Server::start(app.layer(layer)).await;
    let reply = server.request(Method::GET, "/.well-known/idempotency").send().await;
    let published: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(published["header"], "idempotency-key");
    assert_eq!(published["methods"], serde_json::json!(["POST", "PUT", "PATCH", "DELETE"]));
    assert_eq!(published["required_on"], serde_json::json!([]));
    assert_eq!(published["key"]["max_length"], 255);
    assert_eq!(published["key"]["syntax"], "sf-string");
    assert_eq!(published["retention_seconds"], 3_600);
    assert_eq!(published["after_crash"], "retry");
    let codes: Vec<_> =
        published["problems"].as_array().unwrap().iter().map(|problem| &problem["code"]).collect();
    for code in [
        "idempotency_key_missing",
        "idempotency_key_reused",
        "idempotency_outcome_unknown",
        "store_unavailable",
    ] {
        assert!(codes.contains(&&code.into()), "{code}");
    }
}
