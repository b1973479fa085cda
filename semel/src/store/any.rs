//! A store that is chosen when the program runs.

use async_trait::async_trait;

use super::memory::MemoryStore;
#[cfg(feature = "postgres")]
use super::postgres::PostgresStore;
#[cfg(feature = "redis")]
use super::redis::RedisStore;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use super::shared::migration::MigrationStatus;
#[cfg(feature = "sqlite")]
use super::sqlite::SqliteStore;
use crate::protocol::ask::Ask;
use crate::protocol::draft::{Replace, Write};
use crate::store::Prune;
use crate::store::backend::{Answers, Backend, Opened, Replaced, Written};
use crate::store::inspect::{ListQuery, Page, Stats};
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::Transactions;
use crate::words::record::Record;
use crate::words::size::StoreSize;
use crate::words::time::Timestamp;

/// A store of any kind, as [`open`](crate::store::open) returns it.
#[derive(Clone)]
#[non_exhaustive]
pub enum AnyStore {
    /// A store in the memory of this process.
    Memory(MemoryStore),
    /// A store in a file.
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteStore),
    /// A store on Postgres.
    #[cfg(feature = "postgres")]
    Postgres(PostgresStore),
    /// A store on Redis.
    #[cfg(feature = "redis")]
    Redis(RedisStore),
}

/// The same expression for the store of each kind.
macro_rules! each {
    ($any:expr, $store:ident => $then:expr) => {
        match $any {
            AnyStore::Memory($store) => $then,
            #[cfg(feature = "sqlite")]
            AnyStore::Sqlite($store) => $then,
            #[cfg(feature = "postgres")]
            AnyStore::Postgres($store) => $then,
            #[cfg(feature = "redis")]
            AnyStore::Redis($store) => $then,
        }
    };
}

impl AnyStore {
    /// Migrates the schema to the newest version, and returns the number of applied migrations; 0
    /// for a store that has no schema.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn migrate(&self) -> Result<u32, StoreError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.migrate().await,
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.migrate().await,
            _ => Ok(0),
        }
    }

    /// Migrates the schema down to a version, and returns the number of reverted migrations.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn migrate_down(&self, to: u32) -> Result<u32, StoreError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.migrate_down(to).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.migrate_down(to).await,
            _ => {
                let _ = to;
                Ok(0)
            }
        }
    }

    /// Every migration; `None` if the store has no schema.
    ///
    /// # Errors
    /// The error of the store.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub async fn migration_status(&self) -> Result<Option<Vec<MigrationStatus>>, StoreError> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.migration_status().await.map(Some),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.migration_status().await.map(Some),
            _ => Ok(None),
        }
    }

    /// The size of the store.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn size(&self) -> Result<StoreSize, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.size()),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.size().await,
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.size().await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => store.size().await,
        }
    }

    /// Answers the queued operations, and closes the store.
    pub async fn close(&self) {
        match self {
            Self::Memory(_) => {}
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.close().await,
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.close().await,
            #[cfg(feature = "redis")]
            Self::Redis(store) => store.close().await,
        }
    }
}

#[async_trait]
impl Backend for AnyStore {
    fn name(&self) -> &'static str {
        each!(self, store => Backend::name(store))
    }

    async fn clock(&self) -> Result<Timestamp, StoreError> {
        each!(self, store => Backend::clock(store).await)
    }

    fn known_clock(&self) -> Option<Timestamp> {
        each!(self, store => Backend::known_clock(store))
    }

    fn transactions(&self) -> Option<Transactions> {
        each!(self, store => Backend::transactions(store))
    }

    fn needs_pruning(&self) -> bool {
        each!(self, store => Backend::needs_pruning(store))
    }

    async fn open(&self, asks: &[Ask]) -> Result<Answers<Opened>, StoreError> {
        each!(self, store => Backend::open(store, asks).await)
    }

    async fn replace(&self, items: &[Replace]) -> Result<Answers<Replaced>, StoreError> {
        each!(self, store => Backend::replace(store, items).await)
    }

    async fn write(&self, items: &[Write]) -> Result<Answers<Written>, StoreError> {
        each!(self, store => Backend::write(store, items).await)
    }

    async fn read(&self, keys: &[Key]) -> Result<Answers<Option<Record>>, StoreError> {
        each!(self, store => Backend::read(store, keys).await)
    }

    async fn scan(&self, query: &ListQuery) -> Result<Page, StoreError> {
        each!(self, store => Backend::scan(store, query).await)
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        each!(self, store => Backend::stats(store).await)
    }

    async fn prune(&self, prune: &Prune) -> Result<u64, StoreError> {
        each!(self, store => Backend::prune(store, prune).await)
    }

    async fn keep_secret(&self, expected: Option<&[u8]>, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        each!(self, store => Backend::keep_secret(store, expected, value).await)
    }
}
