//! A store for each test, on every store that a command can open by its URL.

use std::sync::Arc;

use semel::admin::Inspect;
use semel::store::Token;
use semel::{PostgresStore, RedisStore, SqliteStore};
use tempfile::TempDir;
use testkit::servers::redis_url;
use testkit::stores::postgres::database;

use crate::process::{Ran, semel};

/// A store of a test, or a realm in a store that other tests use, too.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) cache: Option<String>,
    /// The realm of this test alone.
    pub(crate) realm: String,
    pub(crate) store: Arc<dyn Inspect>,
    /// Set if the store has records of other tests.
    pub(crate) is_shared: bool,
    /// The folder, removed with the test.
    _folder: Option<TempDir>,
}

/// The URL of a file that does not exist yet, and its folder.
pub(crate) fn file() -> (String, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (format!("sqlite:{}", folder.path().join("semel.db").display()), folder)
}

impl Place {
    fn new(url: String, store: Arc<dyn Inspect>) -> Self {
        let realm = format!("tests-{}", Token::random());
        Self { url, cache: None, realm, store, is_shared: false, _folder: None }
    }

    pub(crate) async fn sqlite() -> Self {
        let (url, folder) = file();
        let store = SqliteStore::open(folder.path().join("semel.db")).await.unwrap();
        store.migrate().await.unwrap();
        Self { _folder: Some(folder), ..Self::new(url, Arc::new(store)) }
    }

    pub(crate) async fn postgres() -> Self {
        let url = database().await;
        let store = PostgresStore::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        Self::new(url, Arc::new(store))
    }

    pub(crate) async fn redis() -> Self {
        let url = redis_url();
        let store = RedisStore::connect(&url).await.unwrap();
        Self { is_shared: true, ..Self::new(url, Arc::new(store)) }
    }

    /// Redis in front of SQLite.
    pub(crate) async fn cached() -> Self {
        Self { cache: Some(redis_url()), ..Self::sqlite().await }
    }

    /// A command on this store.
    pub(crate) fn semel(&self, args: &[&str]) -> Ran {
        semel(&self.args(args))
    }

    /// A command on the records of this test.
    pub(crate) fn of_realm(&self, args: &[&str]) -> Ran {
        self.semel(&[args, &["--realm", &self.realm]].concat())
    }

    /// The arguments of a command, with those that name the store.
    pub(crate) fn args<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        let mut args = [args, &["--store", &self.url]].concat();
        if let Some(cache) = &self.cache {
            args.extend(["--cache", cache]);
        }
        args
    }
}
