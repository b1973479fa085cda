//! The examples, run as they are.

use axum::http::Method;
use testkit::servers::postgres_url;
use tokio::net::TcpListener;

use crate::server::Server;

#[path = "../../examples/axum.rs"]
#[expect(dead_code, reason = "a test has a main of its own")]
mod axum_defaults;
#[path = "../../examples/axum_routes.rs"]
#[expect(dead_code, reason = "a test has a main of its own")]
mod axum_routes;
#[path = "../../examples/axum_transaction.rs"]
#[expect(dead_code, reason = "a test has a main of its own")]
mod axum_transaction;
#[path = "../../examples/hyper.rs"]
#[expect(dead_code, reason = "a test has a main of its own")]
mod plain_hyper;

/// A first request, its repeat, and a different request under the same key.
async fn walk(server: &Server, key: &str) {
    let first = server.post("/charges", key, "42").send().await;
    assert_eq!(first.status, 200, "{}", first.text());
    let again = server.post("/charges", key, "42").send().await;
    assert!(!first.is_replay() && again.is_replay());
    assert_eq!(first.body, again.body);
    server.post("/charges", key, "43").send().await.problem(422, "idempotency_key_reused");
}

#[tokio::test]
async fn axum_with_defaults() {
    walk(&Server::start(axum_defaults::app()).await, "a1").await;
}

#[tokio::test]
async fn hyper_without_axum() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::at(listener.local_addr().unwrap());
    tokio::spawn(plain_hyper::serve(listener));
    walk(&server, "a1").await;
}

#[tokio::test]
async fn axum_with_routes() {
    let (app, layer) = axum_routes::app().unwrap();
    let server = Server::start(app).await;
    let charge = |user: &str, body: &'static str| {
        server.post("/charges", "a1", body).header("authorization", format!("Bearer {user}")).send()
    };
    let ann = charge("ann", "42").await;
    assert!(ann.text().starts_with("charged ann 42 cents, fence "), "{}", ann.text());
    assert!(charge("ann", "42.0").await.is_replay());
    assert!(charge("bob", "42").await.text().starts_with("charged bob"));
    assert_eq!(server.post("/charges", "a1", "42").send().await.status, 401);
    let unkeyed = server.request(Method::POST, "/charges").header("authorization", "Bearer ann").send().await;
    let problem = unkeyed.problem(400, "idempotency_key_missing");
    assert_eq!(problem["type"], "https://example.com/docs/idempotency#idempotency_key_missing");
    let report = server.post("/reports", "a2", "").header("authorization", "Bearer ann").send().await;
    assert_eq!(report.text(), "all is well\n");
    let published = server.request(Method::GET, "/.well-known/idempotency").send().await;
    let published: serde_json::Value = serde_json::from_slice(&published.body).unwrap();
    assert_eq!(published["required_on"], serde_json::json!(["POST", "PATCH"]));
    assert_eq!(
        (&published["fingerprint"], &published["wait_seconds"]),
        (&"canonical-json".into(), &2.0.into())
    );
    layer.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axum_with_a_transaction() {
    let server = Server::start(axum_transaction::app(&postgres_url()).await.unwrap()).await;
    walk(&server, &semel::store::Token::random().to_string()).await;
}
