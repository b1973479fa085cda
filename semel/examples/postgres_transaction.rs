//! A charge whose effect and outcome are committed in one Postgres transaction.
//!
//! ```text
//! DATABASE_URL=postgres://app@localhost/app cargo run --example postgres_transaction --features postgres
//! ```
//!
//! It runs the same charge three times under one key: the first time the process "crashes" before its commit,
//! the second time it commits, and the third time it is answered from the record. The account is charged once.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use semel::{Failure, Intent, Key, Lease, Once, Outcome, Policy, PostgresStore};
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")
        .map_err(|_| "set DATABASE_URL to a database to use, such as postgres://app@localhost/app")?;
    let charged = run(&url).await?;
    println!("charged {charged} time(s)");
    Ok(())
}

/// Charges an invoice three times over, and counts how often that left a trace.
async fn run(url: &str) -> Result<i64, Box<dyn Error>> {
    let store = PostgresStore::connect(url).await?;
    store.migrate().await?;

    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    client
        .batch_execute("create table if not exists charges (invoice text not null, cents bigint not null)")
        .await?;
    let app = App { client: Arc::new(Mutex::new(client)) };

    // A lost attempt is taken over as soon as its lease is over: its transaction was rolled back.
    let policy = Policy::transactional().with_lease(Duration::from_millis(500));
    let once = Once::new(store).with_policy(policy);
    let invoice = format!("invoice-{}", semel::store::Token::random());
    let key = Key::new("billing", &invoice)?;
    let intent = Intent::of("charge", &invoice, &1_000)?;

    for crash in [true, false, false] {
        let (app, invoice) = (app.clone(), invoice.clone());
        let ran = once
            .run_outcome(&key, &intent, move |lease| async move { app.charge(lease, &invoice, crash).await })
            .await;
        match ran {
            Ok(ran) => println!("answered {}, replayed: {}", ran.value.status(), ran.replayed),
            Err(error) => println!("failed: {error}"),
        }
    }
    let client = app.client.lock().await;
    let row = client.query_one("select count(*) from charges where invoice = $1", &[&invoice]).await?;
    Ok(row.get(0))
}

#[derive(Clone)]
struct App {
    client: Arc<Mutex<Client>>,
}

impl App {
    async fn charge(&self, lease: Lease, invoice: &str, crash: bool) -> Result<Outcome, Failure> {
        let mut client = self.client.lock().await;
        let mut tx = client.transaction().await?;
        tx.execute("insert into charges (invoice, cents) values ($1, 1000)", &[&invoice]).await?;
        let outcome = Outcome::json(&"charged")?;
        lease.complete_in(&mut tx, &outcome).await?;
        if crash {
            return Err(Failure::unknown("the power went out before the commit"));
        }
        tx.commit().await?;
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_invoice_is_charged_once() {
        assert_eq!(super::run(&testkit::servers::postgres_url()).await.unwrap(), 1);
    }
}
