//! Servers of Postgres that are crashed, promoted, copied and stopped.

mod disk;
mod failover;
mod server;

use std::time::Duration;

use tokio_postgres::{Client, NoTls};

/// A time limit longer than any step needs, also on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(90);

/// A connection to a server that accepts them.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) async fn count(client: &Client) -> i64 {
    client.query_one("select count(*) from numbers", &[]).await.unwrap().get(0)
}
