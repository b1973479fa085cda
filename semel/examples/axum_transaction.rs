//! A charge and its outcome in one Postgres transaction: committed exactly once, whatever crashes.
//!
//! ```text
//! DATABASE_URL=postgres://app@localhost/app cargo run -p semel --example axum_transaction --features axum,postgres
//! curl -i localhost:3000/charges -H 'idempotency-key: "a1"' -d invoice-42
//! ```

use std::error::Error;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use semel::http::{Anonymous, IdempotencyLayer};
use semel::{Lease, Outcome, Policy, PostgresStore};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")
        .map_err(|_| "set DATABASE_URL to a database to use, such as postgres://app@localhost/app")?;
    axum::serve(TcpListener::bind("127.0.0.1:3000").await?, app(&url).await?).await?;
    Ok(())
}

/// The service with a connection of its own. A real one has a pool.
#[derive(Clone)]
struct App {
    client: Arc<Mutex<Client>>,
}

async fn app(url: &str) -> Result<Router, Box<dyn Error>> {
    let store = PostgresStore::connect(url).await?;
    store.migrate().await?;
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("create table if not exists paid_invoices (invoice text not null)").await?;

    let layer = IdempotencyLayer::new(store)
        .with_policy(Policy::transactional())
        .with_required_key(true)
        // Callers without credentials are one caller here; unless that is said, they are refused.
        .with_anonymous_callers(Anonymous::Share);
    let app = App { client: Arc::new(Mutex::new(client)) };
    Ok(Router::new().route("/charges", post(charge)).layer(layer).with_state(app))
}

async fn charge(lease: Lease, State(app): State<App>, invoice: String) -> Result<Outcome, Failed> {
    let mut client = app.client.lock().await;
    let mut tx = client.transaction().await?;
    tx.execute("insert into paid_invoices (invoice) values ($1)", &[&invoice]).await?;
    let outcome = Outcome::json(&format!("charged {invoice}"))?;
    // Either both are committed or neither is. If another attempt has the key by now, this one leaves no trace.
    lease.complete_in(&mut tx, &outcome).await?;
    tx.commit().await?;
    Ok(outcome)
}

/// Whatever went wrong: the transaction was rolled back, and the key is free for the next attempt.
struct Failed(Box<dyn Error>);

impl<E: Error + 'static> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, format!("not charged: {}\n", self.0)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use semel::store::Token;
    use testkit::http::charges_once;
    use testkit::servers::postgres_url;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_charge_runs_once() {
        let app = app(&postgres_url()).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        charges_once(address, &Token::random().to_string()).await;
    }
}
