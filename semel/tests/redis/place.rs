//! A prefix of its own for each test, on the server that `cargo xtask test` starts or on one of its own.

use std::time::Duration;

use semel::{
    Ask, Claim, Durability, Intent, Key, Lease, Outcome, Owner, RedisOptions, RedisStore, Store, Takeover,
    Terms, Token,
};

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
}

/// A claim of this key by somebody new.
pub(crate) async fn ask(store: &impl Store, name: &str) -> Ask {
    Ask {
        key: Key::new("tests", name).unwrap(),
        intent: Intent::of("charge", "", &1).unwrap(),
        token: Token::random(),
        owner: Owner::new("tests"),
        terms: Terms::DEFAULT,
        takeover: Takeover::Never,
        durability: Durability::Full,
        not_after: store.now().await.unwrap().after(Duration::from_secs(600)),
    }
}

pub(crate) async fn granted(store: &impl Store, ask: &Ask) -> Lease {
    match store.claim(ask).await.unwrap() {
        Claim::Granted(lease) => lease,
        other => panic!("not granted: {other:?}"),
    }
}

pub(crate) fn outcome(name: &str) -> Outcome {
    Outcome::json(name).unwrap()
}
