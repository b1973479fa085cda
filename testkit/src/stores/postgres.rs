//! A separate schema for each test, on the server that `cargo xtask test` starts.

use std::time::Duration;

use semel::store::{PostgresOptions, Takeover, Token};
use semel::{Key, Lease, PostgresStore, Store};
use tokio_postgres::{Client, NoTls};

use crate::claims::{ask, granted};
use crate::servers::postgres_url;
pub use crate::stores::backends::{Backends, signal, try_signal};

/// A schema, and the server it is on.
pub struct Place {
    /// The URL of the server.
    pub url: String,
    /// The name of the schema, without quotes.
    pub schema: String,
}

impl Place {
    /// A place on the server that all tests share.
    pub fn shared() -> Self {
        Self::on(postgres_url())
    }

    /// A place on this server.
    pub fn on(url: String) -> Self {
        // A name that only works in quotes, so that a statement without them fails.
        Self { url, schema: format!("Test \"{}\"", Token::random()) }
    }

    /// The options of its stores.
    pub fn options(&self) -> PostgresOptions {
        PostgresOptions::new(&self.url).unwrap().with_schema(&self.schema)
    }

    /// A store with connections of its own, as another process would have.
    pub async fn store(&self) -> PostgresStore {
        let store = self.options().connect().await.unwrap();
        store.migrate().await.unwrap();
        store
    }

    /// A plain connection, as a user would have.
    pub async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&format!("set search_path = {}", self.quoted())).await.unwrap();
        client
    }

    /// The name of the schema in the form for statements.
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.schema.replace('"', "\"\""))
    }

    /// Ends a server process, and waits until it is gone.
    pub async fn kill(&self, pid: i32) {
        let client = self.client().await;
        let kill = "select pg_terminate_backend(pid) from pg_stat_activity where pid = $1";
        while !client.query(kill, &[&pid]).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// A separate database on the server that all tests share, without a schema.
pub async fn database() -> String {
    let url = postgres_url();
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let name = format!("test_{}", Token::random());
    client.batch_execute(&format!("create database {name}")).await.unwrap();
    let (base, query) =
        url.split_once('?').map_or((&*url, String::new()), |(base, query)| (base, format!("?{query}")));
    let (server, _) = base.rsplit_once('/').unwrap();
    format!("{server}/{name}{query}")
}

/// The server process behind a connection.
pub async fn pid(client: &Client) -> i32 {
    client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0)
}

/// Ends the lease of a key, as if its owner had been silent for that long.
pub async fn end_lease(client: &Client, key: &Key) {
    let end = "update records set lease_until = clock_timestamp() where key = $1";
    assert_eq!(client.execute(end, &[&key.value()]).await.unwrap(), 1);
}

/// Takes the key over in another process, after ending its lease.
pub async fn taken_over(client: &Client, store: &impl Store, key: &Key) -> Lease {
    end_lease(client, key).await;
    let lost = store.find(key).await.unwrap().unwrap();
    granted(store, &ask(store, key.value()).await.with_takeover(Takeover::Of(lost.fence))).await
}
