//! Stores by their URLs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use semel::admin::{Inspect, MigrationStatus, StoreSize};
pub(crate) use semel::store::redacted;
use semel::store::{
    AnyStore, MemoryCache, PostgresOptions, RedisOptions, SqliteOptions, StoreUrl, TieredOptions,
};
use semel::{AfterCrash, Key, Policy, Store, StoreError};

use crate::cache::LateRedis;
use crate::config::{Size, StoreSettings};
use crate::exit::Exit;

/// The store unless one is configured.
const DEFAULT: &str = "sqlite:semel.db";

impl StoreSettings {
    /// Refuses URLs of no known store or cache, without opening either.
    ///
    /// # Errors
    /// If a URL is wrong; the message says why.
    pub(crate) fn check(&self) -> Result<()> {
        self.parsed().with_context(|| format!("the store {} cannot be used", redacted(self.store_url())))?;
        let Some(url) = self.cache.as_deref() else { return Ok(()) };
        let cache = match scheme(url) {
            "memory" => cache_size(url).map(drop),
            scheme if scheme.starts_with("redis") => RedisOptions::new(url).map(drop).map_err(Into::into),
            _ => Err(no_cache()),
        };
        cache.with_context(|| format!("the cache {} cannot be used", redacted(url)))
    }

    /// Refuses a policy whose promise the store cannot keep, without opening it.
    ///
    /// # Errors
    /// If the policy is `transactional`, and the store is not Postgres.
    pub(crate) fn check_policy(&self, policy: &Policy) -> Result<()> {
        let can = self.parsed().is_ok_and(|url| url.completes_in_transactions());
        ensure!(
            can || policy.after_crash() != AfterCrash::Transactional,
            "the policy `transactional` needs a Postgres store, which the service completes in, and {} is none: set the store \
             to a postgres:// URL, or the policy to `hold` or `retry`",
            redacted(self.store_url())
        );
        Ok(())
    }

    /// Refuses to erase the bytes of removed records in a store that is not SQLite, without opening
    /// it.
    ///
    /// # Errors
    /// If the store is not SQLite, or the URL is wrong.
    pub(crate) fn check_erasable(&self) -> Result<()> {
        self.check()?;
        if self.file().is_none() {
            return Err(Exit::Usage.because(format!(
                "--erase is for SQLite, and the store {} is none, so nothing was removed: leave the flag out, and have the server \
                 write its files anew (`vacuum full` of Postgres, `bgrewriteaof` of Redis); memory has none",
                redacted(self.store_url())
            )));
        }
        Ok(())
    }

    /// The URL of the store, or the default.
    pub(crate) fn store_url(&self) -> &str {
        self.store.as_deref().unwrap_or(DEFAULT)
    }

    /// The file that holds the records, if it is one.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.parsed().ok()?.file().map(Path::to_owned)
    }

    fn parsed(&self) -> Result<StoreUrl, StoreError> {
        self.store_url().parse()
    }
}

/// An open store, behind its cache if it has one.
#[derive(Clone)]
pub(crate) struct Opened {
    /// The store for all verbs.
    pub(crate) store: Arc<dyn Inspect>,
    kind: AnyStore,
}

impl Opened {
    /// Opens the store of these URLs, and its cache.
    ///
    /// # Errors
    /// If a URL is not that of a store, or either cannot be reached.
    pub(crate) async fn open(place: &StoreSettings) -> Result<Self> {
        Self::open_with(place, Cache::Needed).await
    }

    /// Opens the store of these URLs, for a caller that can start before the cache is available.
    ///
    /// # Errors
    /// If a URL is not that of a store, or the store cannot be reached.
    pub(crate) async fn open_before_cache(place: &StoreSettings, cache_first: bool) -> Result<Self> {
        Self::open_with(place, Cache::MayCome { first: cache_first }).await
    }

    async fn open_with(place: &StoreSettings, cache: Cache) -> Result<Self> {
        let url = place.store_url();
        let opened = async { place.parsed()?.open().await };
        let kind = opened.await.with_context(|| unopened(url))?;
        let store: Arc<dyn Inspect> = match &place.cache {
            None => Arc::new(kind.clone()),
            Some(url) => {
                let shown = redacted(url);
                let cached = cached(Arc::new(kind.clone()), url, cache).await;
                cached.with_context(|| format!("could not open the cache {shown}"))?
            }
        };
        Ok(Self { store, kind })
    }

    /// Sends a request to the store to check that it answers and its schema fits.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) async fn probe(&self) -> Result<(), StoreError> {
        let key = Key::new("semel", "is-it-there").map_err(|e| StoreError::refused(e.to_string()))?;
        self.store.find(&key).await.map(drop)
    }

    /// Returns `true` if the schema is migrated without being asked: the file belongs to the
    /// binary.
    pub(crate) fn migrates_itself(&self) -> bool {
        matches!(self.kind, AnyStore::Sqlite(_))
    }

    /// Migrates the schema to the newest version, and returns the number of applied migrations.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) async fn migrate(&self) -> Result<u32, StoreError> {
        self.kind.migrate().await
    }

    /// Migrates the schema down to a version, and returns the number of reverted migrations.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) async fn migrate_down(&self, to: u32) -> Result<u32, StoreError> {
        self.kind.migrate_down(to).await
    }

    /// Every migration; `None` if the store has no schema.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) async fn migration_status(&self) -> Result<Option<Vec<MigrationStatus>>, StoreError> {
        self.kind.migration_status().await
    }

    /// The missing migrations beside which processes of an older version cannot run, such as
    /// `2 (retention)`; none for a new schema, which no process uses.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) async fn missing_breaking(&self) -> Result<Vec<String>, StoreError> {
        let steps = self.migration_status().await?.unwrap_or_default();
        let is_new = steps.iter().all(|step| step.applied_at.is_none());
        let breaking = steps.iter().filter(|step| !is_new && step.applied_at.is_none() && step.breaking);
        Ok(breaking.map(|step| format!("{} ({})", step.version, step.name)).collect())
    }

    /// The schema of the store of these URLs as a script; `None` if it has none. No connection is
    /// opened.
    ///
    /// # Errors
    /// If a URL is not that of a store.
    pub(crate) fn script(place: &StoreSettings) -> Result<Option<String>> {
        let url = place.store_url();
        Ok(match place.parsed().with_context(|| unopened(url))? {
            StoreUrl::Sqlite(file) => Some(SqliteOptions::new(file).print_migrations()),
            StoreUrl::Postgres(url) => Some(PostgresOptions::new(url.expose())?.print_migrations()?),
            _ => None,
        })
    }

    /// The size of the store.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) async fn size(&self) -> Result<StoreSize, StoreError> {
        self.kind.size().await
    }

    /// Empties the log of a SQLite store, which may contain bytes of removed records; `false` if it
    /// was in use all the time. Other stores have none.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) async fn empty_log(&self) -> Result<bool, StoreError> {
        match &self.kind {
            AnyStore::Sqlite(store) => store.empty_log().await,
            _ => Ok(true),
        }
    }

    /// Leaves no byte of removed records in the files of a SQLite store.
    ///
    /// # Errors
    /// The error of the store; another store refuses ([`StoreSettings::check_erasable`]).
    pub(crate) async fn erase_pruned(&self) -> Result<(), StoreError> {
        match &self.kind {
            AnyStore::Sqlite(store) => store.erase_pruned().await,
            _ => Err(StoreError::refused("only the file of a SQLite store can be erased")),
        }
    }

    /// Answers the queued operations, and closes the store.
    pub(crate) async fn close(&self) {
        self.kind.close().await;
    }
}

/// The treatment of a cache that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cache {
    /// An error: forgetting a key has to reach the cache.
    Needed,
    /// Tolerated: a gateway serves without it.
    MayCome {
        /// Set if it gets every outcome, and is asked first for every claim.
        first: bool,
    },
}

/// A store behind a cache.
async fn cached(store: Arc<dyn Inspect>, url: &str, cache: Cache) -> Result<Arc<dyn Inspect>> {
    let tiers = match cache {
        Cache::MayCome { first: true } => TieredOptions::new().with_hot_first(),
        Cache::Needed | Cache::MayCome { first: false } => TieredOptions::new(),
    };
    match scheme(url) {
        "memory" => Ok(Arc::new(tiers.open(MemoryCache::new(cache_size(url)?.0 as u64), store)?)),
        scheme if scheme.starts_with("redis") => {
            // A store that only remembers outcomes may also lose them.
            let options = RedisOptions::new(url)?.with_eviction_allowed();
            match options.clone().connect().await {
                Ok(hot) => Ok(Arc::new(tiers.open(hot, store)?)),
                Err(error) if cache != Cache::Needed && error.is_transient() => {
                    tracing::warn!(%error, "the cache is down; the gateway starts without it, and tries to connect");
                    Ok(Arc::new(tiers.open(LateRedis::search(options), store)?))
                }
                Err(error) => Err(error.into()),
            }
        }
        _ => Err(no_cache()),
    }
}

fn unopened(url: &str) -> String {
    format!("could not open the store {}", redacted(url))
}

fn no_cache() -> anyhow::Error {
    anyhow!("it is neither redis://HOST nor memory:64MiB")
}

/// The capacity of a cache in memory.
fn cache_size(url: &str) -> Result<Size> {
    match url.trim_start_matches("memory:") {
        "" => Ok(Size(64 << 20)),
        size => size.parse().map_err(anyhow::Error::msg),
    }
}

fn scheme(url: &str) -> &str {
    url.split_once(':').map_or("", |(scheme, _)| scheme)
}
