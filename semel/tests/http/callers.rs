//! Callers that are distinguished by their credentials, and the secret that this requires.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::header::AUTHORIZATION;
use axum::routing::any;
use semel::http::{Anonymous, Credential, IdempotencyLayer, PROXY_HEADERS};
use semel::{MemoryStore, Store, StoreError};
use testkit::gates::{Fault, Gate, Path, Through};

use crate::server::{Count, Server};

async fn counting(layer: IdempotencyLayer) -> (Server, Count) {
    let count = Count::default();
    let counted = count.clone();
    let handler = any(move || async move { format!("run {}", counted.up()) });
    (Server::start(Router::new().route("/charges", handler).layer(layer)).await, count)
}

async fn pay(server: &Server, fields: &[(&str, &str)]) -> (u16, String) {
    let asking = server.post("/charges", "k", "{}");
    let reply = fields.iter().fold(asking, |asking, (name, value)| asking.header(name, value)).send().await;
    (reply.status.as_u16(), reply.text().to_owned())
}

#[tokio::test]
async fn callers_without_credentials_are_refused_unless_they_are_said_to_share() {
    let (server, count) = counting(IdempotencyLayer::new(MemoryStore::new())).await;
    let refused = server.post("/charges", "k", "{}").header("cookie", "sid=ann").send().await;
    let problem = refused.problem(400, "idempotency_scope_missing");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("authorization") && detail.contains("cookie:NAME"), "{detail}");
    assert_eq!(pay(&server, &[("authorization", " ")]).await.0, 400, "a blank one is none");
    assert_eq!(count.get(), 0);
    assert_eq!(pay(&server, &[("authorization", "Bearer ann")]).await, (200, "run 1".to_owned()));
}

#[tokio::test]
async fn local_callers_share_unless_they_show_a_sign_of_others() {
    let layer = IdempotencyLayer::new(MemoryStore::new()).with_anonymous_callers(Anonymous::ShareLocal);
    let (server, _) = counting(layer).await;
    assert_eq!(pay(&server, &[]).await, (200, "run 1".to_owned()));
    let of_proxies = PROXY_HEADERS.map(|listed| listed.replace('*', "anything"));
    let others = ["cookie", "x-session-id", "x-user-id", "x-tenant"].map(str::to_owned);
    for sign in of_proxies.iter().chain(&others) {
        assert_eq!(pay(&server, &[(sign, "a")]).await.0, 400, "{sign}");
    }
    // Headers that clients send by themselves are no sign.
    for plain in ["user-agent", "traceparent", "x-request-id"] {
        assert_eq!(pay(&server, &[(plain, "a")]).await, (200, "run 1".to_owned()), "{plain}");
    }
}

#[tokio::test]
async fn one_cookie_can_tell_callers_apart() {
    let layer = IdempotencyLayer::new(MemoryStore::new());
    let (server, _) = counting(layer.with_credentials([Credential::cookie("sid")])).await;
    for (jar, run) in [("sid=ann; _ga=1", "run 1"), ("_ga=2; sid=ann", "run 1"), ("sid=bob; _ga=1", "run 2")]
    {
        assert_eq!(pay(&server, &[("cookie", jar)]).await, (200, run.to_owned()), "{jar}");
    }
}

#[tokio::test]
async fn processes_agree_on_a_secret_whatever_is_configured_when() {
    let store = MemoryStore::new();
    let layer = |secrets: &[&str]| {
        IdempotencyLayer::new(store.clone())
            .with_credentials([AUTHORIZATION])
            .with_principal_secrets(secrets.iter().map(|secret| secret.as_bytes()))
    };
    let ann = [("authorization", "Bearer ann")];
    let (plain, _) = counting(layer(&[])).await;
    assert_eq!(pay(&plain, &ann).await, (200, "run 1".to_owned()));
    let (old, new) = ("old 0123456789 old", "new 0123456789 new");
    for secrets in [&[old][..], &[new, old], &[new]] {
        let layer = layer(secrets);
        layer.prepare().await.expect("the secret can be used");
        let (server, count) = counting(layer).await;
        assert_eq!(pay(&server, &ann).await, (200, "run 1".to_owned()), "{secrets:?}");
        assert_eq!(count.get(), 0);
    }
    // The first process continues with its known secret.
    assert_eq!(pay(&plain, &ann).await, (200, "run 1".to_owned()));
    for secrets in [&[][..], &[old]] {
        let refused = layer(secrets).prepare().await.expect_err("it is sealed with the new one");
        assert!(!refused.is_transient() && refused.to_string().contains("sealed"), "{refused}");
        let (server, count) = counting(layer(secrets)).await;
        assert_eq!(pay(&server, &ann).await.0, 503);
        assert_eq!(count.get(), 0);
    }
}

#[tokio::test]
async fn a_short_principal_secret_is_refused() {
    for secrets in [&[""][..], &["fifteen bytes.."], &["sixteen bytes...", "short"]] {
        let layer = IdempotencyLayer::new(MemoryStore::new()).with_principal_secrets(secrets.iter().copied());
        let refused = layer.prepare().await.expect_err("it can be guessed");
        assert!(
            !refused.is_transient() && refused.to_string().contains("shorter than 16 bytes"),
            "{refused}"
        );
        let (server, count) = counting(layer).await;
        assert_eq!(pay(&server, &[("authorization", "Bearer ann")]).await.0, 503);
        assert_eq!(count.get(), 0);
    }
    let layer = IdempotencyLayer::new(MemoryStore::new()).with_principal_secrets(["sixteen bytes..."]);
    layer.prepare().await.expect("it is long enough");
}

#[tokio::test]
async fn without_the_secret_nothing_is_claimed() {
    let gate = Gate::new();
    gate.disturb("keep_secret", Fault::Unavailable);
    let (server, count) = counting(IdempotencyLayer::new(Through(gate.clone()))).await;
    let ann = [("authorization", "Bearer ann")];
    assert_eq!(pay(&server, &ann).await.0, 503);
    assert_eq!(count.get(), 0);
    gate.heal();
    assert_eq!(pay(&server, &ann).await, (200, "run 1".to_owned()));
    // The secret is known now: the store is not asked each time.
    gate.disturb("keep_secret", Fault::Unavailable);
    assert_eq!(pay(&server, &ann).await, (200, "run 1".to_owned()));
}

/// A handle of a store that can be exchanged for an empty one.
#[derive(Clone)]
struct Flushed(Arc<Mutex<MemoryStore>>);

impl Path for Flushed {
    type End = MemoryStore;

    async fn pass<T, F>(
        &self,
        _: &'static str,
        call: impl Fn(MemoryStore) -> F + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let store = self.0.lock().unwrap().clone();
        call(store).await
    }
}

/// Regression: after a flush of Redis, the next process would have made a secret of its own, and
/// one key would have had two ids for as long as both processes lived.
#[tokio::test(start_paused = true)]
async fn a_store_that_lost_the_secret_gets_the_same_one_back() {
    let (before, after) = (MemoryStore::new(), MemoryStore::new());
    let place = Flushed(Arc::new(Mutex::new(before.clone())));
    let layer = IdempotencyLayer::new(Through(place.clone()));
    layer.prepare().await.expect("there is a secret");
    let kept = before.keep_secret(None, b"another").await.expect("a secret");
    *place.0.lock().unwrap() = after.clone();
    tokio::time::advance(Duration::from_secs(11)).await;
    layer.prepare().await.expect("it is known");
    // The secret is restored in the background.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(after.keep_secret(None, b"another").await.expect("a secret"), kept);
}
