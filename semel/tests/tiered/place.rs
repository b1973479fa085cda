//! A place of its own for each test, on the servers that `cargo xtask test` starts or on some of its own.

use std::path::PathBuf;

use semel::store::{MemoryCache, PostgresOptions, RedisOptions, Token};
use semel::{Outcome, PostgresStore, RedisStore, SqliteStore, Tiered};
use xtask::redis_servers::RedisServers;

fn url(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set; run the tests by `cargo xtask test`"))
}

/// A schema, and a prefix.
pub(crate) struct Place {
    pub(crate) postgres: String,
    pub(crate) redis: String,
    /// The name of the schema, and the prefix.
    pub(crate) name: String,
}

impl Place {
    /// On the servers that all tests share.
    pub(crate) fn shared() -> Self {
        Self::on(url("SEMEL_TEST_REDIS_URL"))
    }

    /// On this Redis, and the Postgres that all tests share.
    pub(crate) fn on(redis: String) -> Self {
        Self { postgres: url("SEMEL_TEST_POSTGRES_URL"), redis, name: format!("tier-{}", Token::random()) }
    }

    /// On this Postgres, and the Redis that all tests share.
    pub(crate) fn over(postgres: &str) -> Self {
        Self { postgres: postgres.to_owned(), ..Self::shared() }
    }

    /// Redis, whatever it may do to its memory.
    pub(crate) async fn hot(&self) -> RedisStore {
        self.hot_options().connect().await.unwrap()
    }

    pub(crate) fn hot_options(&self) -> RedisOptions {
        RedisOptions::new(&self.redis).unwrap().with_prefix(&self.name).unwrap().with_eviction_allowed()
    }

    pub(crate) async fn durable(&self) -> PostgresStore {
        let options = PostgresOptions::new(&self.postgres).unwrap().with_schema(&self.name).unwrap();
        let store = options.connect().await.unwrap();
        store.migrate().await.unwrap();
        store
    }

    /// Redis before Postgres, as another process would have it.
    pub(crate) async fn tier(&self) -> Tiered<RedisStore, PostgresStore> {
        Tiered::new(self.hot().await, self.durable().await)
    }
}

/// A Redis of one's own before the Postgres that all tests share.
pub(crate) struct Own {
    pub(crate) servers: RedisServers,
    pub(crate) place: Place,
}

impl Own {
    pub(crate) fn start() -> Self {
        let mut servers = RedisServers::new().unwrap();
        let redis = servers.start("hot", "").unwrap();
        Self { servers, place: Place::on(redis) }
    }
}

/// A folder for a file, which is removed with this.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("semel-test-{}", Token::random()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) async fn store(&self) -> SqliteStore {
        let store = SqliteStore::open(self.0.join("semel.db")).await.unwrap();
        store.migrate().await.unwrap();
        store
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Lets Redis forget everything.
pub(crate) async fn flush(url: &str) {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let _: () = redis::cmd("FLUSHALL").query_async(&mut connection).await.unwrap();
}

/// A cache with room for everything.
pub(crate) fn cache() -> MemoryCache {
    MemoryCache::new(64 << 20)
}

/// An outcome that only this key has.
pub(crate) fn outcome(name: &str) -> Outcome {
    Outcome::json(name).unwrap()
}
