//! The store on Postgres.
//!
//! - `options`: the URL and the limits of a store.
//! - `batching/`: from a batch of operations to SQL statements and answers, over one connection.
//! - `row`, `values`: from rows to records.
//! - `wire`, `session`, `side`: the driver of a connection, the connections of committers, and one
//!   for everything else.
//! - `operator`, `listing`: the verbs of the operator.
//! - `upkeep/`: removing expired records, and finding unsettled ones without reading the whole
//!   table.
//! - `migrate`: the schema; `migrations/` has its steps.
//! - `transaction/`: completion in the transaction of the user.
//! - `errors`: the meaning of an error code.
//! - `schema`: the name of the schema, and its place in the statements.
//! - `sql/`: the statements of the operator; those of `batching/` and `upkeep/` are beside their
//!   code.

mod options;
mod batching;
mod row;
mod values;
mod schema;
mod migrate;
mod operator;
mod listing;
mod upkeep;
mod side;
mod transaction;
mod session;
mod wire;
mod errors;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::time::sleep;

pub use options::PostgresOptions;
pub use transaction::InTransaction;

use crate::protocol::ask::Ask;
use crate::protocol::draft::{Replace, Write};
use crate::store::backend::{Answers, Backend, Opened, Replaced, Written};
use crate::store::inspect::{ListQuery, Page, Stats};
use crate::store::shared::group_commit::Batcher;
use crate::store::shared::migration::MigrationStatus;
use crate::store::shared::server_clock::ServerClock;
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::Transactions;

use crate::store::Prune;
use crate::store::shared::question::{Item, Question};
use crate::words::record::Record;
use crate::words::size::StoreSize;
use crate::words::time::Timestamp;
use batching::committer::{Answer, Committer, Common};
use operator::Operator;
use schema::Schema;
use upkeep::prune::Sweeper;

/// A store in Postgres: durable, fast by group commit, and on request within the user's own
/// transaction.
///
/// The operations of all callers go through a queue to a few connections; operations that wait when
/// a connection is free form one batch, which is committed together. Operations on one key are
/// applied in the order of the calls.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use semel::{Once, PostgresStore};
///
/// let store = PostgresStore::connect("postgres://app@localhost/app").await?;
/// store.migrate().await?;
/// let once = Once::new(store);
/// # Ok(())
/// # }
/// ```
///
/// # What it promises
/// An answered operation survives a crash of every process and of the server. It does not survive
/// the loss of the disk, nor the promotion of an asynchronous standby. See docs/postgres.md.
///
/// Clones share the queue and the connections.
///
/// It has the methods of [`Store`](crate::Store), such as `find` and `claim`, and those of
/// [`Inspect`](crate::admin::Inspect) for operators, such as `list`, `resolve` and `stats`.
#[derive(Clone)]
pub struct PostgresStore {
    shared: Arc<Shared>,
}

struct Shared {
    options: Arc<PostgresOptions>,
    batcher: Batcher<Committer>,
    operator: Operator,
    sweeper: Sweeper,
    clock: ServerClock,
    transactions: Transactions,
}

/// The pauses before looking again at a row that another transaction has locked.
const LOCK_PAUSES: [Duration; 3] =
    [Duration::from_millis(2), Duration::from_millis(8), Duration::from_millis(30)];

impl PostgresStore {
    /// Connects to the database of a URL, with the default options; see [`PostgresOptions::new`].
    ///
    /// # Errors
    /// Unavailable if the server cannot be reached, refused if it rejects the login, or is too old.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        PostgresOptions::new(url)?.connect().await
    }

    async fn with_options(options: PostgresOptions) -> Result<Self, StoreError> {
        options.check()?;
        let options = Arc::new(options);
        let operator = Operator::new(Arc::clone(&options));
        operator.reach().await?;
        let common = Arc::new(Common::of(&options));
        let committer = |_| Committer::new(Arc::clone(&options), Arc::clone(&common));
        let batcher = Batcher::start(
            (0..options.connections).map(committer).collect(),
            (0..options.additional_connections).map(committer).collect(),
        );
        let sweeper = Sweeper::new(Arc::clone(&options));
        let transactions = Transactions::in_schema(options.schema.name());
        let clock = ServerClock::default();
        let shared = Shared { options, batcher, operator, sweeper, clock, transactions };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Brings the schema up to date, and returns the number of applied migrations. Several
    /// processes may do so at once. Processes of an older version may not be able to run beside the
    /// new schema: [`MigrationStatus::breaking`] says so.
    ///
    /// # Errors
    /// Refused if the schema is newer than this code and cannot be used with it, or was changed by
    /// other means; unavailable if the server does not answer.
    pub async fn migrate(&self) -> Result<u32, StoreError> {
        migrate::up(&self.shared.options).await
    }

    /// Reverts the schema to a version, and returns the number of reverted migrations. At 0,
    /// nothing is left of it.
    ///
    /// # Errors
    /// Refused if the database has migrations that this code does not know; unavailable if the
    /// server does not answer.
    pub async fn migrate_down(&self, to: u32) -> Result<u32, StoreError> {
        migrate::down(&self.shared.options, to).await
    }

    /// Every migration that is known here or to the database, in order.
    ///
    /// # Errors
    /// Unavailable if the server does not answer.
    pub async fn migration_status(&self) -> Result<Vec<MigrationStatus>, StoreError> {
        migrate::status(&self.shared.options).await
    }

    /// The whole schema as a script for psql, for operators who run migrations with their own
    /// tools.
    pub fn print_migrations(&self) -> String {
        migrate::print(self.schema())
    }

    /// The size of the records on disk and their approximate number, without reading the table. The
    /// size includes the indexes and the space that pruned records leave for new ones: pruning does
    /// not reduce it.
    ///
    /// # Errors
    /// Unavailable if the server does not answer.
    pub async fn size(&self) -> Result<StoreSize, StoreError> {
        self.shared.operator.size().await
    }

    /// Answers the queued operations, accepts no more, and closes the connections.
    pub async fn close(&self) {
        self.shared.batcher.close().await;
    }

    fn schema(&self) -> &Schema {
        &self.shared.options.schema
    }

    /// Sends one operation. If the row is locked, it is sent again a few times: other processes
    /// lock rows for a moment, users for as long as they like.
    async fn ask<I: Item>(&self, item: &I) -> Result<Answer, StoreError> {
        let mut pauses = LOCK_PAUSES.iter();
        loop {
            let question = || Question::new(item.asked());
            let answer = self.shared.batcher.ask(I::LANE, question).await?.answer().await?;
            match pauses.next() {
                Some(pause) if answer.met_a_lock => Box::pin(sleep(*pause)).await,
                _ => return Ok(answer),
            }
        }
    }

    /// Sends each item, and returns the answers in their order.
    async fn ask_all<I: Item>(&self, items: &[I]) -> Result<Answers<I::Answer>, StoreError> {
        let mut latest = None;
        let mut answer = |result| {
            let Answer { now, what, .. } = result?;
            latest = latest.max(Some(now));
            I::answer(what).ok_or_else(|| StoreError::unknown("Postgres answered another operation"))
        };
        let answers = match items {
            [item] => vec![answer(self.ask(item).await)],
            // The future is boxed, because there is usually only one item.
            _ => {
                let asked = Box::pin(join_all(items.iter().map(|item| self.ask(item))));
                asked.await.into_iter().map(answer).collect()
            }
        };
        let now = match latest {
            Some(now) => {
                self.shared.clock.hear(now);
                now
            }
            None => self.clock().await?,
        };
        Ok(Answers { now, items: answers })
    }
}

#[async_trait]
impl Backend for PostgresStore {
    fn name(&self) -> &'static str {
        "postgres"
    }

    async fn clock(&self) -> Result<Timestamp, StoreError> {
        self.shared.clock.or_ask(|| Box::pin(self.shared.operator.clock())).await
    }

    fn known_clock(&self) -> Option<Timestamp> {
        self.shared.clock.known()
    }

    fn transactions(&self) -> Option<Transactions> {
        Some(self.shared.transactions.clone())
    }

    fn needs_pruning(&self) -> bool {
        true
    }

    async fn open(&self, asks: &[Ask]) -> Result<Answers<Opened>, StoreError> {
        self.ask_all(asks).await
    }

    async fn replace(&self, items: &[Replace]) -> Result<Answers<Replaced>, StoreError> {
        self.ask_all(items).await
    }

    async fn write(&self, items: &[Write]) -> Result<Answers<Written>, StoreError> {
        self.ask_all(items).await
    }

    async fn read(&self, keys: &[Key]) -> Result<Answers<Option<Record>>, StoreError> {
        self.ask_all(keys).await
    }

    async fn scan(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.shared.operator.scan(query).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.shared.operator.stats().await
    }

    async fn prune(&self, prune: &Prune) -> Result<u64, StoreError> {
        self.shared.sweeper.prune(prune).await
    }

    async fn keep_secret(&self, expected: Option<&[u8]>, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.shared.operator.keep_secret(expected, value).await
    }
}
