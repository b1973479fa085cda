//! Connections with prepared statements, each for one caller at a time.

use std::ops::Deref;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::{Client, NoTls, Statement};

/// The number of connections of the designs that hold one for each call.
pub(super) const POOL: usize = 16;

/// A pool like that of most libraries: a caller gets the connection that was used last.
pub(super) struct Pool {
    free: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) statements: Vec<Statement>,
}

impl Pool {
    /// A pool of this size, whose connections have these statements prepared, for tables of this
    /// schema.
    pub(super) async fn connect(url: &str, size: usize, schema: &str, statements: &[&str]) -> Result<Self> {
        let mut free = Vec::new();
        for _ in 0..size {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            client.batch_execute(&format!("set search_path = {schema}")).await?;
            let mut prepared = Vec::new();
            for statement in statements {
                prepared.push(client.prepare(statement).await.with_context(|| (*statement).to_owned())?);
            }
            free.push(Connection { client, statements: prepared });
        }
        Ok(Self { free: Mutex::new(free), permits: Semaphore::new(size) })
    }

    /// A connection, until it is dropped.
    pub(super) async fn take(&self) -> Result<Taken<'_>> {
        let permit = self.permits.acquire().await?;
        let connection = self.free.lock().pop();
        let connection = Some(connection.context("there is a connection for each permit")?);
        Ok(Taken { pool: self, connection, _permit: permit })
    }
}

/// A connection that returns to the pool when it is dropped.
pub(super) struct Taken<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
    _permit: SemaphorePermit<'a>,
}

impl Deref for Taken<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut free = self.pool.free.lock();
        free.extend(self.connection.take());
    }
}
