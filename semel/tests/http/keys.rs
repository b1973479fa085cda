//! Keys: their syntax, and their scopes.

use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use axum::routing::{any, post};
use semel::http::IdempotencyLayer;
use semel::{MemoryStore, Scope};
use testkit::gates::{Gate, Through};

use crate::server::{Count, Server, sharing};

async fn counting(layer: IdempotencyLayer) -> (Server, Count) {
    let count = Count::default();
    let counted = count.clone();
    let handler = any(move || async move { format!("run {}", counted.up()) });
    (Server::start(Router::new().route("/charges", handler).layer(layer)).await, count)
}

#[tokio::test]
async fn an_invalid_key_is_refused_before_any_store_is_asked() {
    let gate = Gate::new();
    let (server, count) = counting(sharing(Through(gate.clone()))).await;
    let long = "k".repeat(256);
    let bad: &[&[u8]] = &[
        b"",
        b"   ",
        long.as_bytes(),
        b"a\tb",
        b"cl\xc3\xa9",
        b"\xff",
        b"\"a\", \"b\"",
        b"a,b",
        b"\"a\";v=1",
        b"a;v=1",
        b"\"a",
        b"\"\"",
        b"\" a\"",
        b"a\"",
        b"\"a\\b\"",
        b"\"a\"b",
    ];
    for value in bad {
        let reply = server.request(Method::POST, "/charges").header("idempotency-key", value).send().await;
        reply.problem(400, "idempotency_key_invalid");
    }
    let twice = server
        .request(Method::POST, "/charges")
        .header("idempotency-key", "a")
        .header("idempotency-key", "a");
    twice.send().await.problem(400, "idempotency_key_invalid");
    assert_eq!((count.get(), gate.calls("claim"), gate.calls("now")), (0, 0, 0));
    // A NUL does not get that far: the server itself refuses it.
    let nul = b"POST /charges HTTP/1.1\r\nhost: x\r\nidempotency-key: a\0b\r\ncontent-length: 0\r\n\r\n";
    assert!(server.raw(nul, Duration::from_millis(500)).await.starts_with("HTTP/1.1 400 "));
    assert_eq!(count.get(), 0);
}

#[tokio::test]
async fn quoted_and_bare_are_one_key() {
    let (server, count) = counting(sharing(MemoryStore::new())).await;
    let bare = server.post("/charges", "8e03978e-40d5", "{}").send().await;
    let quoted = server.post("/charges", "\"8e03978e-40d5\"", "{}").send().await;
    assert!(!bare.is_replay() && quoted.is_replay());
    assert_eq!((count.get(), &bare.body), (1, &quoted.body));
}

#[tokio::test]
async fn strict_keys_are_quoted() {
    let (server, _) = counting(sharing(MemoryStore::new()).with_strict_keys(true)).await;
    server.post("/charges", "a", "{}").send().await.problem(400, "idempotency_key_invalid");
    assert_eq!(server.post("/charges", "\"a\"", "{}").send().await.text(), "run 1");
}

#[tokio::test]
async fn safe_methods_ignore_a_key_even_a_wrong_one() {
    let (server, count) = counting(sharing(MemoryStore::new()).with_required_key(true)).await;
    for expected in ["run 1", "run 2"] {
        let reply = server.request(Method::GET, "/charges").header("idempotency-key", "a,b").send().await;
        assert_eq!(reply.text(), expected);
    }
    assert_eq!(count.get(), 2);
}

#[tokio::test]
async fn methods_and_the_name_of_the_header_can_be_chosen() {
    let layer = sharing(MemoryStore::new())
        .with_methods([Method::POST])
        .with_header_name(HeaderName::from_static("x-request-id"));
    let (server, _) = counting(layer).await;
    let send = async |method: Method, header: &str| {
        server.request(method, "/charges").header(header, "k").send().await.text().to_owned()
    };
    assert_eq!(send(Method::POST, "x-request-id").await, "run 1");
    assert_eq!(send(Method::POST, "x-request-id").await, "run 1");
    assert_eq!(send(Method::POST, "idempotency-key").await, "run 2");
    assert_eq!(send(Method::PUT, "x-request-id").await, "run 3");
}

#[tokio::test]
async fn callers_with_other_credentials_have_other_keys() {
    let (server, _) = counting(sharing(MemoryStore::new())).await;
    let send = async |name: &str, value: &str| {
        server.post("/charges", "k", "{}").header(name, value).send().await.text().to_owned()
    };
    assert_eq!(send("authorization", "Bearer ann").await, "run 1");
    assert_eq!(send("authorization", "Bearer bob").await, "run 2");
    assert_eq!(send("x-auth-token", "Bearer ann").await, "run 3");
    assert_eq!(send("x-api-key", "Bearer ann").await, "run 4");
    // These callers share their keys, as configured; cookies do not count.
    assert_eq!(send("x-other", "1").await, "run 5");
    assert_eq!(send("cookie", "session=ann").await, "run 5");
    assert_eq!(send("authorization", "Bearer ann").await, "run 1");
}

#[tokio::test]
async fn a_prefix_that_a_router_takes_off_counts() {
    let count = Count::default();
    let counted = count.clone();
    let charges = post(move || async move { format!("run {}", counted.up()) });
    let version = Router::new().route("/charges", charges).layer(sharing(MemoryStore::new()));
    let server = Server::start(Router::new().nest("/v1", version.clone()).nest("/v2", version)).await;
    assert_eq!(server.post("/v1/charges", "k", "{}").send().await.text(), "run 1");
    server.post("/v2/charges", "k", "{}").send().await.problem(422, "idempotency_key_reused");
}

/// The user that an authentication layer has identified.
#[derive(Clone)]
struct User(String);

/// Admits users whose token is not revoked, and adds their identity.
async fn authenticate(mut request: Request, next: Next) -> axum::response::Response {
    let user = match request.headers().get("authorization").and_then(|value| value.to_str().ok()) {
        Some("Bearer ann-1" | "Bearer ann-2") => User("ann".into()),
        Some("Bearer bob") => User("bob".into()),
        _ => return StatusCode::UNAUTHORIZED.into_response(),
    };
    request.extensions_mut().insert(user);
    next.run(request).await
}

#[tokio::test]
async fn authentication_comes_first_and_the_user_is_the_scope() {
    let layer = sharing(MemoryStore::new()).with_scope(|parts| {
        let user: &User = parts.extensions.get()?;
        Scope::new("shop").ok()?.with_principal(&user.0).ok()
    });
    let count = Count::default();
    let counted = count.clone();
    let charges = post(move || async move { format!("run {}", counted.up()) });
    let app = Router::new().route("/charges", charges).layer(layer).layer(middleware::from_fn(authenticate));
    let server = Server::start(app).await;
    let send =
        async |token: &str| server.post("/charges", "k", "{}").header("authorization", token).send().await;
    assert_eq!(send("Bearer ann-1").await.text(), "run 1");
    // A refreshed token is the same user, another user has another key.
    let refreshed = send("Bearer ann-2").await;
    assert!(refreshed.is_replay() && refreshed.text() == "run 1");
    assert_eq!(send("Bearer bob").await.text(), "run 2");
    // After the access was revoked there is no replay.
    let revoked = send("Bearer ann-0").await;
    assert_eq!((revoked.status.as_u16(), revoked.text()), (401, ""));
    assert_eq!(count.get(), 2);
}
