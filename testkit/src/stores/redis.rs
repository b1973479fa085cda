//! A prefix of its own for each test, on the server that `cargo xtask test` starts or on one of its own.

use redis::aio::MultiplexedConnection;
use semel::RedisStore;
use semel::store::{RedisOptions, Token};

use crate::servers::redis_url;
pub use crate::stores::redis_server::{PATIENCE, Server, connection, say, settled};

/// Where the records of one test are.
pub struct Place {
    /// The URL of the server.
    pub url: String,
    /// What the names of all records begin with.
    pub prefix: String,
}

impl Place {
    /// On the server that all tests share.
    pub fn shared() -> Self {
        Self::on(redis_url())
    }

    /// On this server.
    pub fn on(url: impl Into<String>) -> Self {
        Self { url: url.into(), prefix: format!("test-{}", Token::random()) }
    }

    /// The options of its stores.
    pub fn options(&self) -> RedisOptions {
        RedisOptions::new(&self.url).unwrap().with_prefix(&self.prefix).unwrap()
    }

    /// A store with connections of its own, as another process would have.
    pub async fn store(&self) -> RedisStore {
        self.options().connect().await.unwrap()
    }

    /// A plain connection, as a user would have.
    pub async fn connection(&self) -> MultiplexedConnection {
        connection(&self.url).await
    }

    /// What the record of a key that `ask` claims is called in Redis.
    pub fn name(&self, key: &str) -> String {
        format!("{}:tests::{key}", self.prefix)
    }
}
