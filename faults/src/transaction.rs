//! Effects that are rows of the store's own database, committed with their outcome.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use semel::{Lease, Outcome, PostgresStore};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_postgres::{Client, Config, NoTls};

use crate::event::{Effect, Receipt};

/// The largest number of open transactions of a process.
const CONNECTIONS: usize = 8;
/// The time limit of a transaction.
const LIMIT: Duration = Duration::from_secs(5);

/// The table of effects.
#[derive(Clone)]
pub(crate) struct Accounts {
    config: Arc<Config>,
    store: PostgresStore,
    idle: Arc<Mutex<Vec<Client>>>,
    room: Arc<Semaphore>,
}

impl Accounts {
    pub(crate) fn new(url: &str, store: PostgresStore) -> Result<Self> {
        let config = Arc::new(url.parse().context("no URL of Postgres")?);
        Ok(Self { config, store, idle: Arc::default(), room: Arc::new(Semaphore::new(CONNECTIONS)) })
    }

    /// Commits the effect and the outcome together. After an error, the commit may still have been
    /// applied.
    pub(crate) async fn book(&self, receipt: &Receipt, lease: &Lease, outcome: &Outcome) -> Result<()> {
        let _room = self.room.acquire().await?;
        timeout(LIMIT, self.commit(receipt, lease, outcome)).await.context("it took too long")?
    }

    async fn commit(&self, receipt: &Receipt, lease: &Lease, outcome: &Outcome) -> Result<()> {
        let idle = self.idle.lock().pop();
        let mut client = match idle {
            Some(client) => client,
            None => connect(&self.config).await?,
        };
        let mut transaction = client.transaction().await?;
        let row = "insert into effects (caller, key, run) values ($1, $2, $3)";
        transaction.execute(row, &[&receipt.caller, &receipt.key, &receipt.run]).await?;
        self.store.complete_in(&mut transaction, lease, outcome).await?.applied()?;
        transaction.commit().await?;
        self.idle.lock().push(client);
        Ok(())
    }
}

async fn connect(config: &Config) -> Result<Client> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Creates the table.
pub(crate) async fn prepare(client: &Client) -> Result<()> {
    // The table has no constraint: only semel may prevent a second effect.
    let table = "create table effects (caller text not null, key text not null, run text not null)";
    client.batch_execute(table).await.context("could not make the table of effects")
}

/// The committed effects.
pub(crate) async fn effects(client: &Client) -> Result<Vec<Effect>> {
    let rows = client.query("select caller, key, run from effects", &[]).await?;
    Ok(rows.iter().map(|row| Effect { caller: row.get(0), key: row.get(1), run: row.get(2) }).collect())
}
