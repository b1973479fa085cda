//! Handlers that have to record their outcome in the transaction of their effect, on Postgres.

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use semel::http::Settle;
use semel::store::Token;
use semel::{Lease, MemoryStore, Outcome, Policy};

use crate::processes::Shop;
use crate::server::{Count, Server, sharing};

/// A service whose effects and records are in a schema of their own.
struct Service {
    server: Server,
    shop: Arc<Shop>,
    count: Count,
}

impl Service {
    /// Starts a service whose handler follows the path of the request.
    async fn start() -> Self {
        let shop = Arc::new(Shop::open(&format!("test {}", Token::random())).await);
        let table = format!("create table {} (who text)", shop.effects);
        shop.client().await.batch_execute(&table).await.unwrap();
        let (books, count) = (Arc::clone(&shop), Count::default());
        let counted = count.clone();
        let handler = post(move |lease: Lease, Path((what, status)): Path<(String, u16)>| async move {
            counted.up();
            let status = StatusCode::from_u16(status).unwrap();
            handle(&books, &lease, &what, status).await
        });
        let layer = sharing(shop.store.clone()).with_policy(Policy::transactional());
        let server = Server::start(Router::new().route("/{what}/{status}", handler).layer(layer)).await;
        Self { server, shop, count }
    }

    async fn post(&self, path: &str) -> crate::server::Reply {
        self.server.post(path, path, "{}").send().await
    }
}

async fn handle(shop: &Shop, lease: &Lease, what: &str, status: StatusCode) -> Response {
    let mut client = shop.client().await;
    let mut tx = client.transaction().await.unwrap();
    tx.execute(&format!("insert into {} values ($1)", shop.effects), &[&what]).await.unwrap();
    let outcome = Outcome::new(status.as_u16()).unwrap().with_body("from the record").unwrap();
    match what {
        "completes" => {
            shop.store.complete_in(&mut tx, lease, &outcome).await.unwrap().applied().unwrap();
            tx.commit().await.unwrap();
            (status, "from the record").into_response()
        }
        "forgets" => {
            tx.commit().await.unwrap();
            (status, "an answer").into_response()
        }
        "records" => (status, Settle::Complete, "an answer").into_response(),
        "releases" => (status, Settle::Release, "an answer").into_response(),
        // The transaction is rolled back.
        _ => (status, "an answer").into_response(),
    }
}

#[tokio::test]
async fn success_without_a_completion_is_500_and_its_effect_is_not_repeated() {
    let service = Service::start().await;
    for path in ["/forgets/200", "/forgets/303", "/records/404"] {
        let before = service.count.get();
        let problem = service.post(path).await.problem(500, "completion_missing");
        assert!(
            problem["detail"].as_str().unwrap().contains("in the transaction of its effect"),
            "{problem}"
        );
        for _ in 0..2 {
            service.post(path).await.problem(409, "idempotency_outcome_unknown");
        }
        assert_eq!(service.count.get() - before, 1, "{path}");
    }
    assert_eq!(service.shop.effects().await, ["forgets", "forgets"]);
}

#[tokio::test]
async fn a_failure_and_an_explicit_release_are_passed_on_and_run_again() {
    let service = Service::start().await;
    for path in
        ["/fails/400", "/fails/401", "/fails/404", "/fails/429", "/fails/500", "/fails/503", "/releases/200"]
    {
        let before = service.count.get();
        for _ in 0..2 {
            let reply = service.post(path).await;
            let status: u16 = path[path.len() - 3..].parse().unwrap();
            assert_eq!(
                (reply.status.as_u16(), reply.text(), reply.is_replay()),
                (status, "an answer", false)
            );
        }
        assert_eq!(service.count.get() - before, 2, "{path}");
    }
    assert!(service.shop.effects().await.is_empty());
}

#[tokio::test]
async fn a_completed_outcome_is_replayed_whatever_its_status() {
    let service = Service::start().await;
    for path in ["/completes/201", "/completes/402", "/completes/500"] {
        for replayed in [false, true] {
            let reply = service.post(path).await;
            let status: u16 = path[path.len() - 3..].parse().unwrap();
            assert_eq!((reply.status.as_u16(), reply.text()), (status, "from the record"));
            assert_eq!(reply.is_replay(), replayed, "{path}");
        }
    }
    assert_eq!((service.count.get(), service.shop.effects().await.len()), (3, 3));
}

#[test]
fn a_layer_is_not_made_with_a_promise_that_its_store_cannot_keep() {
    let layer = sharing(MemoryStore::new());
    let refused = layer.try_with_policy(Policy::transactional()).unwrap_err();
    assert!(
        refused.to_string().ends_with("use a Postgres store, or the policy `hold` or `retry`"),
        "{refused}"
    );
}
