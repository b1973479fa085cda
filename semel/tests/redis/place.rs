//! A prefix of its own for each test, on the server that `cargo xtask test` starts or on one of its own.

use redis::aio::MultiplexedConnection;
use semel::store::{Claim, RedisOptions, Token};
use semel::{Key, Lease, Outcome, RedisStore, Store};

pub(crate) use crate::claims::{ask, ask_at, granted, retried};
use crate::server::connection;

/// Where the records of one test are.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) prefix: String,
}

impl Place {
    /// On the server that all tests share.
    pub(crate) fn shared() -> Self {
        let variable = "SEMEL_TEST_REDIS_URL";
        let url = std::env::var(variable)
            .unwrap_or_else(|_| panic!("{variable} is not set; run the tests by `cargo xtask test`"));
        Self::on(url)
    }

    /// On this server.
    pub(crate) fn on(url: impl Into<String>) -> Self {
        Self { url: url.into(), prefix: format!("test-{}", Token::random()) }
    }

    pub(crate) fn options(&self) -> RedisOptions {
        RedisOptions::new(&self.url).unwrap().with_prefix(&self.prefix).unwrap()
    }

    /// A store with connections of its own, as another process would have.
    pub(crate) async fn store(&self) -> RedisStore {
        self.options().connect().await.unwrap()
    }

    /// A plain connection, as a user would have.
    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        connection(&self.url).await
    }

    /// What the record of a key that `ask` claims is called in Redis.
    pub(crate) fn name(&self, key: &str) -> String {
        format!("{}:tests::{key}", self.prefix)
    }
}

/// An outcome that only this key has.
pub(crate) fn outcome(name: &str) -> Outcome {
    Outcome::json(name).unwrap()
}

pub(crate) fn lease(claim: Claim) -> Lease {
    match claim {
        Claim::Granted(lease) => lease,
        other => panic!("not granted: {other:?}"),
    }
}

/// A key that has an outcome.
pub(crate) async fn done(store: &impl Store, name: &str) -> Key {
    let lease = granted(store, &ask(store, name).await).await;
    store.complete(&lease, &outcome(name)).await.unwrap().applied().unwrap();
    lease.key().clone()
}

/// Whether a claim of somebody new is answered from the record that `done` has left.
pub(crate) fn is_replayed(claim: &Claim, name: &str) -> bool {
    matches!(claim, Claim::Done(done) if done.outcome == outcome(name))
}
