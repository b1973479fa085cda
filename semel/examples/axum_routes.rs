//! Policies per route, the authenticated user as the scope, and the order of the layers.
//!
//! ```text
//! cargo run -p semel --example axum_routes --features axum
//! curl -i localhost:3000/charges -H 'authorization: Bearer ann' -H 'idempotency-key: "a1"' -d 42
//! curl -i localhost:3000/reports -H 'authorization: Bearer ann' -H 'idempotency-key: "a1"'
//! curl -s localhost:3000/.well-known/idempotency
//! ```

use std::error::Error;
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use semel::http::{IdempotencyLayer, RequestFingerprint, Settle};
use semel::{Lease, MemoryStore, Policy};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (app, layer) = app()?;
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    let stopped = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    axum::serve(listener, app).with_graceful_shutdown(stopped).await?;
    // What clients did not wait for is finished, too.
    layer.drain().await;
    Ok(())
}

fn app() -> Result<(Router, IdempotencyLayer), Box<dyn Error>> {
    // All routes share a store. The key of one user is not the key of another, whatever token they use today.
    let layer = IdempotencyLayer::new(MemoryStore::new())
        .with_problem_page("https://example.com/docs/idempotency")
        .with_realm("shop")
        .with_principal(|parts| Some(parts.extensions.get::<User>()?.0.clone()));

    // A charge runs at most once. Repeats wait a little for the one that runs.
    let charges = layer
        .clone()
        .with_required_key(true)
        .with_fingerprint(RequestFingerprint::canonical_json())
        .with_policy(Policy::hold().with_wait(Duration::from_secs(2)));
    // A report may be made twice, so a lost attempt is taken over after ten seconds.
    let reports = layer.clone().with_policy(Policy::retry().with_lease(Duration::from_secs(10)));

    let published = charges.published();
    let app = Router::new()
        .route("/charges", post(charge).route_layer(charges))
        .route("/reports", post(report).route_layer(reports))
        // What is added last comes first: authentication is asked before any record is, on replays, too.
        .layer(middleware::from_fn(authenticate))
        .route("/.well-known/idempotency", get(async || Json(published)));
    Ok((app, layer))
}

/// Who calls.
#[derive(Clone)]
struct User(String);

async fn authenticate(mut request: Request, next: Next) -> Response {
    let token = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let Some(user) = token.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    request.extensions_mut().insert(User(user));
    next.run(request).await
}

/// The bank gets the fence, so that it can refuse a lower one.
async fn charge(lease: Lease, Extension(user): Extension<User>, cents: String) -> Response {
    match cents.trim().parse::<u32>() {
        Ok(cents) => format!("charged {} {cents} cents, fence {}\n", user.0, lease.fence()).into_response(),
        Err(_) => (StatusCode::BAD_REQUEST, "not a number\n").into_response(),
    }
}

/// A report that notices when another attempt has taken over, and does not let its own answer count.
async fn report(lease: Lease) -> Response {
    tokio::select! {
        report = async { "all is well\n" } => report.into_response(),
        () = lease.lost() => (StatusCode::SERVICE_UNAVAILABLE, Settle::Release, "another attempt is at it\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use testkit::http::send;

    use super::*;

    #[tokio::test]
    async fn each_user_has_own_keys_and_each_route_its_policy() {
        let (app, layer) = app().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        let (key, ann) = ("idempotency-key: \"a1\"", "authorization: Bearer ann");
        let charge =
            async |headers: &[&str], cents: &str| send(address, "POST /charges", headers, cents).await;
        let first = charge(&[key, ann], "42").await;
        assert!(first.body.starts_with("charged ann 42 cents, fence "), "{first:?}");
        assert!(charge(&[key, ann], "42.0").await.is_replay());
        let bob = charge(&[key, "authorization: Bearer bob"], "42").await;
        assert!(bob.body.starts_with("charged bob"), "{bob:?}");
        assert_eq!(charge(&[key], "42").await.status, 401);
        let unkeyed = charge(&[ann], "42").await;
        assert_eq!(unkeyed.status, 400);
        let problem: Value = serde_json::from_str(&unkeyed.body).unwrap();
        assert_eq!(problem["type"], "https://example.com/docs/idempotency#idempotency_key_missing");
        let report = send(address, "POST /reports", &["idempotency-key: \"a2\"", ann], "").await;
        assert_eq!(report.body, "all is well\n");
        let published = send(address, "GET /.well-known/idempotency", &[], "").await;
        let published: Value = serde_json::from_str(&published.body).unwrap();
        assert_eq!(published["required_on"], json!(["POST", "PATCH"]));
        assert_eq!(published["fingerprint"], "canonical-json");
        assert_eq!(published["wait_seconds"], 2.0);
        layer.drain().await;
    }
}
