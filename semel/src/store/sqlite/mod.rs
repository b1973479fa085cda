//! The store in a file, by SQLite.
//!
//! Other stores teach their database the three primitives, as statements or scripts. SQLite needs
//! none of that: it has one writer at a time, and the holder of its lock reads a record, lets
//! [`slot`](crate::protocol::slot) change it, and writes it back. No other writer can intervene, so
//! the write need not name the state that it expects.
//!
//! - `options`, `file`: the path and the limits of a store, and the file with its permissions.
//! - `committer`, `batch`: batches under the lock of the only writer.
//! - `row`: a record as SQLite holds it.
//! - `session`, `thread`, `side`: connections, the thread of each, and the connection for
//!   everything but batches.
//! - `operator`: listing, counting, pruning, and the secret beside the records.
//! - `migrate`: the schema; `migrations/` has its steps.
//! - `errors`: the meaning of an error code.

mod options;
mod committer;
mod batch;
mod row;
mod migrate;
mod operator;
mod side;
mod thread;
mod session;
mod file;
mod errors;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;

pub use options::SqliteOptions;

use crate::protocol::ask::Ask;
use crate::protocol::draft::{Replace, Write};
use crate::store::Prune;
use crate::store::backend::{Answers, Backend, Opened, Replaced, Written};
use crate::store::inspect::{ListQuery, Page, Stats};
use crate::store::shared::cached_stats::Counted;
use crate::store::shared::group_commit::Batcher;
use crate::store::shared::migration::MigrationStatus;
use crate::store::shared::question::{Item, Question};
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::Transactions;
use crate::words::record::Record;
use crate::words::size::StoreSize;
use crate::words::time::Timestamp;
use batch::Answer;
use committer::Committer;
use side::Side;

/// The number of records that are removed in one transaction, during which no other connection can
/// write.
const PRUNED_AT_ONCE: u64 = 500;

/// A store in a file: durable, for the processes of one host, without a server.
///
/// The operations of all callers go through a queue to one thread with one connection; operations
/// that wait when it is free form one batch, which is committed together. Operations on one key are
/// applied in the order of the calls. Another connection lists, counts and prunes, so that it does
/// not delay them.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use semel::{Once, SqliteStore};
///
/// let store = SqliteStore::open("/var/lib/shop/semel.db").await?;
/// store.migrate().await?;
/// let once = Once::new(store);
/// # Ok(())
/// # }
/// ```
///
/// # What it promises
/// An answered operation survives a crash of every process and of the host. It does not survive the
/// loss of the disk. Several processes of one host may have the file open; processes of two hosts
/// must not, because the locks of network file systems are not reliable. The clock is that of the
/// host. See docs/sqlite.md.
///
/// Clones share the queue and the connections.
///
/// It has the methods of [`Store`](crate::Store), such as `find` and `claim`, and those of
/// [`Inspect`](crate::admin::Inspect) for operators, such as `list`, `resolve` and `stats`.
#[derive(Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
}

struct Shared {
    batcher: Batcher<Committer>,
    /// The threads of the committer, until their connections are closed.
    committing: TaskTracker,
    side: Side,
    counted: Counted,
}

impl SqliteStore {
    /// Opens the file at a path with the default options, and creates it if it does not exist; see
    /// [`SqliteOptions::open`].
    ///
    /// # Errors
    /// Refused if there is no such folder, the file cannot be written, is not an SQLite database,
    /// or cannot have a write-ahead log; unavailable if another connection has it locked.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        SqliteOptions::new(path).open().await
    }

    async fn with_options(options: SqliteOptions) -> Result<Self, StoreError> {
        options.check()?;
        let options = SqliteOptions { path: file::create(&options.path)?, ..options };
        let side = Side::open(options.clone()).await?;
        let committing = TaskTracker::new();
        let batcher = Batcher::start(vec![Committer::new(options, committing.clone())], Vec::new());
        Ok(Self { shared: Arc::new(Shared { batcher, committing, side, counted: Counted::default() }) })
    }

    /// Brings the schema up to date, and returns the number of applied migrations. Several
    /// processes may do so at once. Other tables in the same file stay untouched: the names of
    /// semel's tables begin with `semel_`.
    ///
    /// # Errors
    /// Refused if the schema is newer than this code and cannot be used with it, or was changed by
    /// other means.
    pub async fn migrate(&self) -> Result<u32, StoreError> {
        self.shared.side.run(migrate::up).await
    }

    /// Reverts the schema to a version, and returns the number of reverted migrations. At 0, only
    /// the file is left.
    ///
    /// # Errors
    /// Refused if the file has migrations that this code does not know.
    pub async fn migrate_down(&self, to: u32) -> Result<u32, StoreError> {
        self.shared.side.run(move |session| migrate::down(session, to)).await
    }

    /// Every migration that is known here or to the file, in order.
    ///
    /// # Errors
    /// Unavailable if the file cannot be read.
    pub async fn migration_status(&self) -> Result<Vec<MigrationStatus>, StoreError> {
        self.shared.side.run(migrate::status).await
    }

    /// The whole schema as a script for the shell of SQLite, for operators who run migrations with
    /// their own tools.
    pub fn print_migrations(&self) -> String {
        migrate::print()
    }

    /// The number of bytes of the file in use, without those that pruned records have left for new
    /// ones. Other tables in the file are included; the write-ahead log is not. The number of
    /// records is not known without counting them.
    ///
    /// # Errors
    /// Unavailable if the file cannot be read.
    pub async fn size(&self) -> Result<StoreSize, StoreError> {
        let bytes = self.shared.side.run(operator::used_bytes).await?;
        Ok(StoreSize { bytes: Some(bytes), records: None })
    }

    /// Copies the write-ahead log into the file and truncates it: it may contain bytes of records
    /// that were pruned. Waits for connections that use it, for as long as for a lock, and returns
    /// `false` if one of them used it all the time.
    ///
    /// # Errors
    /// Unavailable if the file cannot be written.
    pub async fn empty_log(&self) -> Result<bool, StoreError> {
        self.shared.side.run(|session| session.empty_log()).await
    }

    /// Leaves no byte of pruned records in the file and its log: writes the file anew (`vacuum`),
    /// and empties the log. Writers wait meanwhile, and the disk needs room for two copies of the
    /// file. Pruning alone leaves copies that SQLite made when it moved a record to another page.
    ///
    /// # Errors
    /// Unavailable if the lock or the log was in use by another connection all the time, or if there
    /// is no room.
    pub async fn erase_pruned(&self) -> Result<(), StoreError> {
        let emptied = self.shared.side.run(|session| {
            session.rewrite()?;
            session.empty_log()
        });
        match emptied.await? {
            true => Ok(()),
            false => Err(StoreError::unavailable(
                "the write-ahead log was in use by another connection all the time, and may contain removed records",
            )),
        }
    }

    /// Answers the queued operations, accepts no more, and closes the connections. Closing the last
    /// connection of all processes leaves one file without a log beside it.
    pub async fn close(&self) {
        self.shared.batcher.close().await;
        // The connections are closed one after the other: of two that are closed at once, SQLite
        // takes neither for the last one.
        self.shared.committing.close();
        self.shared.committing.wait().await;
        self.shared.side.close().await;
    }

    async fn ask<I: Item>(&self, item: &I) -> Result<Answer, StoreError> {
        let question = || Arc::new(Question::new(item.asked()));
        self.shared.batcher.ask(I::LANE, question).await?.answer().await
    }

    /// Sends each item, and returns the answers in their order.
    async fn ask_all<I: Item>(&self, items: &[I]) -> Result<Answers<I::Answer>, StoreError> {
        let results = match items {
            [item] => vec![self.ask(item).await],
            _ => join_all(items.iter().map(|item| self.ask(item))).await,
        };
        let latest = results.iter().flatten().map(|answer| answer.now).max();
        let answers = results.into_iter().map(|result| {
            I::answer(result?.what).ok_or_else(|| StoreError::unknown("SQLite answered another operation"))
        });
        Ok(Answers { now: latest.unwrap_or_else(Timestamp::of_host), items: answers.collect() })
    }
}

#[async_trait]
impl Backend for SqliteStore {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn clock(&self) -> Result<Timestamp, StoreError> {
        Ok(Timestamp::of_host())
    }

    fn known_clock(&self) -> Option<Timestamp> {
        Some(Timestamp::of_host())
    }

    fn transactions(&self) -> Option<Transactions> {
        None
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
        let query = query.clone();
        self.shared.side.run(move |session| operator::scan(session, &query)).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        self.shared.counted.or_count(self.shared.side.run(operator::count)).await
    }

    async fn prune(&self, prune: &Prune) -> Result<u64, StoreError> {
        let limit = u64::from(prune.limit);
        let mut removed = 0;
        loop {
            let (asked, part) = (prune.clone(), PRUNED_AT_ONCE.min(limit - removed));
            let began = Instant::now();
            let gone = self.shared.side.run(move |session| operator::prune(session, &asked, part)).await?;
            removed += gone;
            if gone < part || removed == limit {
                return Ok(removed);
            }
            // The pause leaves the lock to other writers.
            sleep(began.elapsed()).await;
        }
    }

    async fn keep_secret(&self, expected: Option<&[u8]>, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let (expected, value) = (expected.map(<[u8]>::to_vec), value.to_vec());
        self.shared.side.run(move |session| operator::keep_secret(session, expected.as_deref(), &value)).await
    }
}
