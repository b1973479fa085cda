//! A service whose charges are safe to retry, with defaults.
//!
//! ```text
//! cargo run -p semel --example axum --features axum
//! curl -i localhost:3000/charges -H 'idempotency-key: "a1"' -d 42
//! curl -i localhost:3000/charges -H 'idempotency-key: "a1"' -d 42    # the same answer, marked as a replay
//! curl -i localhost:3000/charges -H 'idempotency-key: "a1"' -d 43    # 422: another request under the same key
//! ```

use axum::Router;
use axum::routing::post;
use semel::MemoryStore;
use semel::http::{Anonymous, IdempotencyLayer};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    axum::serve(TcpListener::bind("127.0.0.1:3000").await?, app()).await
}

fn app() -> Router {
    // Records in memory end with the process; see PostgresStore for those that do not. Callers without credentials are one
    // caller here, as nothing that is answered is for one of them alone; unless that is said, they are refused.
    let layer = IdempotencyLayer::new(MemoryStore::new()).with_anonymous_callers(Anonymous::Share);
    Router::new().route("/charges", post(charge)).layer(layer)
}

async fn charge(cents: String) -> String {
    format!("charged {cents} cents\n")
}

#[cfg(test)]
mod tests {
    use testkit::http::charges_once;

    use super::*;

    #[tokio::test]
    async fn a_charge_runs_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app()).await });
        charges_once(address, "a1").await;
    }
}
