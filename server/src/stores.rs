//! Stores by their URLs.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use semel::admin::{Inspect, MigrationStatus, StoreSize};
use semel::store::{MemoryCache, PostgresOptions, RedisOptions, SqliteOptions};
use semel::{
    AfterCrash, Key, MemoryStore, Policy, PostgresStore, RedisStore, SqliteStore, Store, StoreError, Tiered,
};

use crate::cache::LateRedis;
use crate::config::{Place, Size};

/// The store unless one is configured.
const DEFAULT: &str = "sqlite:semel.db";

impl Place {
    /// Refuses URLs of no known store or cache, without opening either.
    ///
    /// # Errors
    /// If a URL is wrong; the message says why.
    pub(crate) fn check(&self) -> Result<()> {
        let url = self.store_url();
        let store = match scheme(url) {
            "memory" => Ok(()),
            "sqlite" => sqlite_file(url).map(drop).context("it names no file"),
            "postgres" | "postgresql" => PostgresOptions::new(url).map(drop).map_err(Into::into),
            scheme if scheme.starts_with("redis") => RedisOptions::new(url).map(drop).map_err(Into::into),
            _ => Err(no_store()),
        };
        store.with_context(|| format!("the store {} cannot be used", redacted(url)))?;
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
        let url = self.store_url();
        let is_postgres = matches!(scheme(url), "postgres" | "postgresql");
        ensure!(
            is_postgres || policy.after_crash() != AfterCrash::Transactional,
            "the policy `transactional` needs a Postgres store, which the service completes in, and {} is none: set the store \
             to a postgres:// URL, or the policy to `hold` or `retry`",
            redacted(url)
        );
        Ok(())
    }

    /// The URL of the store, or the default.
    pub(crate) fn store_url(&self) -> &str {
        self.store.as_deref().unwrap_or(DEFAULT)
    }

    /// The file that holds the records, if it is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        sqlite_file(self.store_url())
    }
}

/// An open store, behind its cache if it has one.
#[derive(Clone)]
pub(crate) struct Opened {
    /// The store for all verbs.
    pub(crate) store: Arc<dyn Inspect>,
    kind: Kind,
}

/// The concrete store, for operations that not every store has.
#[derive(Clone)]
enum Kind {
    Memory(MemoryStore),
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
    Redis(RedisStore),
}

impl Opened {
    /// Opens the store of these URLs, and its cache.
    ///
    /// # Errors
    /// If a URL is not that of a store, or either cannot be reached.
    pub(crate) async fn open(place: &Place) -> Result<Self> {
        Self::open_with(place, Cache::Needed).await
    }

    /// Opens the store of these URLs, for a caller that can start before the cache is available.
    ///
    /// # Errors
    /// If a URL is not that of a store, or the store cannot be reached.
    pub(crate) async fn open_before_cache(place: &Place) -> Result<Self> {
        Self::open_with(place, Cache::MayCome).await
    }

    async fn open_with(place: &Place, cache: Cache) -> Result<Self> {
        let url = place.store_url();
        let kind = Kind::open(url).await.with_context(|| unopened(url))?;
        let store = match &place.cache {
            None => kind.store(),
            Some(url) => {
                let shown = redacted(url);
                let cached = cached(kind.store(), url, cache).await;
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
        matches!(self.kind, Kind::Sqlite(_))
    }

    /// Migrates the schema to the newest version, and returns the number of applied migrations.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) async fn migrate(&self) -> Result<u32, StoreError> {
        match &self.kind {
            Kind::Sqlite(store) => store.migrate().await,
            Kind::Postgres(store) => store.migrate().await,
            Kind::Memory(_) | Kind::Redis(_) => Ok(0),
        }
    }

    /// Migrates the schema down to a version, and returns the number of reverted migrations.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) async fn migrate_down(&self, to: u32) -> Result<u32, StoreError> {
        match &self.kind {
            Kind::Sqlite(store) => store.migrate_down(to).await,
            Kind::Postgres(store) => store.migrate_down(to).await,
            Kind::Memory(_) | Kind::Redis(_) => Ok(0),
        }
    }

    /// Every migration; `None` if the store has no schema.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) async fn migration_status(&self) -> Result<Option<Vec<MigrationStatus>>, StoreError> {
        match &self.kind {
            Kind::Sqlite(store) => store.migration_status().await.map(Some),
            Kind::Postgres(store) => store.migration_status().await.map(Some),
            Kind::Memory(_) | Kind::Redis(_) => Ok(None),
        }
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
    pub(crate) fn script(place: &Place) -> Result<Option<String>> {
        let url = place.store_url();
        match scheme(url) {
            "sqlite" => Ok(sqlite_file(url).map(|file| SqliteOptions::new(file).print_migrations())),
            "postgres" | "postgresql" => Ok(Some(PostgresOptions::new(url)?.print_migrations())),
            "memory" => Ok(None),
            scheme if scheme.starts_with("redis") => Ok(None),
            _ => Err(no_store()).with_context(|| unopened(url)),
        }
    }

    /// The size of the store.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) async fn size(&self) -> Result<StoreSize, StoreError> {
        match &self.kind {
            Kind::Memory(store) => Ok(store.size()),
            Kind::Sqlite(store) => store.size().await,
            Kind::Postgres(store) => store.size().await,
            Kind::Redis(store) => store.size().await,
        }
    }

    /// Empties the log of a SQLite store, which may contain bytes of removed records; `false` if it
    /// was in use all the time. Other stores have none.
    ///
    /// # Errors
    /// The error of the store.
    pub(crate) async fn empty_log(&self) -> Result<bool, StoreError> {
        match &self.kind {
            Kind::Sqlite(store) => store.empty_log().await,
            Kind::Memory(_) | Kind::Postgres(_) | Kind::Redis(_) => Ok(true),
        }
    }

    /// Leaves no byte of removed records in the files of a SQLite store.
    ///
    /// # Errors
    /// The error of the store, or that another store has other files.
    pub(crate) async fn erase_pruned(&self) -> Result<()> {
        match &self.kind {
            Kind::Sqlite(store) => Ok(store.erase_pruned().await?),
            Kind::Memory(_) | Kind::Postgres(_) | Kind::Redis(_) => bail!(
                "--erase is for SQLite: the files of Postgres and Redis are written by their servers (`vacuum full`, \
                 `bgrewriteaof`), and memory has none"
            ),
        }
    }

    /// Answers the queued operations, and closes the store.
    pub(crate) async fn close(&self) {
        match &self.kind {
            Kind::Memory(_) => {}
            Kind::Sqlite(store) => store.close().await,
            Kind::Postgres(store) => store.close().await,
            Kind::Redis(store) => store.close().await,
        }
    }
}

impl Kind {
    async fn open(url: &str) -> Result<Self> {
        Ok(match scheme(url) {
            "memory" => Self::Memory(MemoryStore::new()),
            "sqlite" => Self::Sqlite(SqliteStore::open(sqlite_file(url).context("it names no file")?).await?),
            "postgres" | "postgresql" => Self::Postgres(PostgresStore::connect(url).await?),
            scheme if scheme.starts_with("redis") => Self::Redis(RedisStore::connect(url).await?),
            _ => return Err(no_store()),
        })
    }

    fn store(&self) -> Arc<dyn Inspect> {
        match self {
            Self::Memory(store) => Arc::new(store.clone()),
            Self::Sqlite(store) => Arc::new(store.clone()),
            Self::Postgres(store) => Arc::new(store.clone()),
            Self::Redis(store) => Arc::new(store.clone()),
        }
    }
}

/// The treatment of a cache that is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cache {
    /// An error: forgetting a key has to reach the cache.
    Needed,
    /// Tolerated: a gateway serves without it.
    MayCome,
}

/// A store behind a cache.
async fn cached(store: Arc<dyn Inspect>, url: &str, cache: Cache) -> Result<Arc<dyn Inspect>> {
    match scheme(url) {
        "memory" => Ok(Arc::new(Tiered::new(MemoryCache::new(cache_size(url)?.0 as u64), store))),
        scheme if scheme.starts_with("redis") => {
            // A store that only remembers outcomes may also lose them.
            let options = RedisOptions::new(url)?.with_eviction_allowed();
            match options.clone().connect().await {
                Ok(hot) => Ok(Arc::new(Tiered::new(hot, store))),
                Err(error) if cache == Cache::MayCome && error.is_transient() => {
                    tracing::warn!(%error, "the cache is down; the gateway starts without it, and tries to connect");
                    Ok(Arc::new(Tiered::new(LateRedis::search(options), store)))
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

fn no_store() -> anyhow::Error {
    anyhow!("it is none of sqlite:FILE, postgres://USER:PASSWORD@HOST/DATABASE, redis://HOST and memory:")
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

/// The file in a SQLite URL.
fn sqlite_file(url: &str) -> Option<&Path> {
    let rest = url.strip_prefix("sqlite:")?;
    Some(rest.strip_prefix("//").unwrap_or(rest)).filter(|path| !path.is_empty()).map(Path::new)
}

fn scheme(url: &str) -> &str {
    url.split_once(':').map_or("", |(scheme, _)| scheme)
}

/// A URL without its login and its parameters, which may hold another login. If they cannot be told
/// apart, because passwords may contain any character, the host is hidden, too.
pub(crate) fn redacted(url: &str) -> String {
    let (shown, parameters) = url.split_once('?').unwrap_or((url, ""));
    match shown.split_once("://") {
        // libpq also accepts the form `host=… password=…`.
        _ if url.split(':').next().is_some_and(|scheme| scheme.contains('=')) => "***".to_owned(),
        Some((scheme, _)) if parameters.contains('@') => format!("{scheme}://***"),
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, place)) => format!("{scheme}://***@{place}"),
            None => shown.to_owned(),
        },
        // A text that is not a URL may be a mistyped one with its password.
        None if ["sqlite", "memory"].contains(&scheme(url)) => shown.to_owned(),
        None => format!("{}:***", scheme(url)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_not_shown() {
        for (url, shown) in [
            ("postgres://ann:secret@db/app?sslpassword=secret", "postgres://***@db/app"),
            ("postgres://ann:se@cret@db/app", "postgres://***@db/app"),
            ("redis://:secret@cache:6379/1", "redis://***@cache:6379/1"),
            ("redis://cache", "redis://cache"),
            ("sqlite:semel.db", "sqlite:semel.db"),
            ("host=db password=secret", "***"),
            ("postgres:/ann:secret@db", "postgres:***"),
            ("redis:secret@cache", "redis:***"),
            ("secret", ":***"),
            ("host=db password=a://secret", "***"),
            ("postgres://ann:se?cret@db/app", "postgres://***"),
            ("postgres://ann:s@e?cret@db/app", "postgres://***"),
            ("postgres://db/app?password=se@cret", "postgres://***"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }

    #[test]
    fn a_file_is_named_with_or_without_slashes() {
        for url in ["sqlite:/var/semel.db", "sqlite:///var/semel.db"] {
            assert_eq!(sqlite_file(url), Some(Path::new("/var/semel.db")));
        }
        assert_eq!(sqlite_file("sqlite:semel.db"), Some(Path::new("semel.db")));
        assert_eq!(sqlite_file("sqlite:"), None);
    }
}
