//! A separate place for each test, on the servers that `cargo xtask test` starts or on other ones.

use semel::store::{Hot, MemoryCache, PostgresOptions, RedisOptions, TieredOptions, Token};
use semel::{PostgresStore, RedisStore, Store, Tiered};

use crate::servers::{RedisServers, postgres_url, redis_url};

/// A schema, and a prefix.
pub struct Place {
    /// The URL of the Postgres.
    pub postgres: String,
    /// The URL of the Redis.
    pub redis: String,
    /// The name of the schema, and the prefix.
    pub name: String,
}

impl Place {
    /// A place on the servers that all tests share.
    pub fn shared() -> Self {
        Self::on(redis_url())
    }

    /// A place on this Redis, and the Postgres that all tests share.
    pub fn on(redis: String) -> Self {
        Self { postgres: postgres_url(), redis, name: format!("tier-{}", Token::random()) }
    }

    /// A place on this Postgres, and the Redis that all tests share.
    pub fn over(postgres: &str) -> Self {
        Self { postgres: postgres.to_owned(), ..Self::shared() }
    }

    /// The hot store on Redis, which may evict records.
    pub async fn hot(&self) -> RedisStore {
        self.hot_options().connect().await.unwrap()
    }

    /// The options of the hot store.
    pub fn hot_options(&self) -> RedisOptions {
        RedisOptions::new(&self.redis).unwrap().with_prefix(&self.name).with_eviction_allowed()
    }

    /// The durable store.
    pub async fn durable(&self) -> PostgresStore {
        let options = PostgresOptions::new(&self.postgres).unwrap().with_schema(&self.name);
        let store = options.connect().await.unwrap();
        store.migrate().await.unwrap();
        store
    }

    /// Redis in front of Postgres, as another process would have it. The hot store has every outcome
    /// and is asked first, so that a test sees what it does.
    pub async fn tier(&self) -> Tiered<RedisStore, PostgresStore> {
        self.tier_with(TieredOptions::new().with_hot_first()).await
    }

    /// The same with these options.
    pub async fn tier_with(&self, options: TieredOptions) -> Tiered<RedisStore, PostgresStore> {
        options.open(self.hot().await, self.durable().await).unwrap()
    }
}

/// A hot store in front of a durable one, which has every outcome and is asked first, so that a test
/// sees what it does.
pub fn hot_first<H: Hot, D: Store>(hot: H, durable: D) -> Tiered<H, D> {
    TieredOptions::new().with_hot_first().open(hot, durable).unwrap()
}

/// A separate Redis in front of the Postgres that all tests share.
pub struct Own {
    /// The only server.
    pub servers: RedisServers,
    /// A place on it.
    pub place: Place,
}

impl Own {
    /// Starts the separate Redis.
    pub fn start() -> Self {
        let mut servers = RedisServers::new().unwrap();
        let redis = servers.start("hot", "").unwrap();
        Self { servers, place: Place::on(redis) }
    }
}

/// Makes Redis forget everything.
pub async fn flush(url: &str) {
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let _: () = redis::cmd("FLUSHALL").query_async(&mut connection).await.unwrap();
}

/// A cache that is large enough for every test.
pub fn cache() -> MemoryCache {
    MemoryCache::new(64 << 20)
}
