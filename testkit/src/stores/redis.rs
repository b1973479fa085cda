//! A separate prefix for each test, on the server that `cargo xtask test` starts or on another one.

use redis::aio::MultiplexedConnection;
use semel::RedisStore;
use semel::store::{RedisOptions, Token};

use crate::servers::redis_url;
pub use crate::stores::redis_server::{PATIENCE, Server, connection, say, settled};

/// The place for the records of one test.
pub struct Place {
    /// The URL of the server.
    pub url: String,
    /// The prefix of the names of all records.
    pub prefix: String,
}

impl Place {
    /// A place on the server that all tests share.
    pub fn shared() -> Self {
        Self::on(redis_url())
    }

    /// A place on this server.
    pub fn on(url: impl Into<String>) -> Self {
        Self { url: url.into(), prefix: format!("test-{}", Token::random()) }
    }

    /// The options of its stores.
    pub fn options(&self) -> RedisOptions {
        RedisOptions::new(&self.url).unwrap().with_prefix(&self.prefix)
    }

    /// A store with connections of its own, as another process would have.
    pub async fn store(&self) -> RedisStore {
        self.options().connect().await.unwrap()
    }

    /// A plain connection, as a user would have.
    pub async fn connection(&self) -> MultiplexedConnection {
        connection(&self.url).await
    }

    /// The name in Redis of the record of a key that `ask` claims.
    pub fn name(&self, key: &str) -> String {
        format!("{}:tests::{key}", self.prefix)
    }
}
