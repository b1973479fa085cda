//! A folder of its own for each test, with one file in it.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use semel::store::{SqliteOptions, Token};
use semel::{Key, SqliteStore};

pub(crate) use crate::claims::{ask, ask_at, granted, retried};

/// A folder that is removed with this, and the file in it.
pub(crate) struct Place {
    folder: PathBuf,
    path: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("semel-test-{}", Token::random()));
        std::fs::create_dir(&folder).unwrap();
        // A name that only works if it is taken as it is.
        let path = folder.join("odd name?mode=ro#%20'é.db");
        Self { folder, path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn options(&self) -> SqliteOptions {
        SqliteOptions::new(&self.path)
    }

    /// A store with connections of its own, as another process would have.
    pub(crate) async fn store(&self) -> SqliteStore {
        let store = self.options().open().await.unwrap();
        store.migrate().await.unwrap();
        store
    }

    /// A plain connection, as a user would have.
    pub(crate) fn client(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }

    /// The file beside it with this at the end of its name.
    pub(crate) fn beside(&self, end: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(end);
        name.into()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Lets the lease of a key be over, as if its owner had been silent for that long.
pub(crate) fn end_lease(client: &Connection, key: &Key) {
    let end = "update semel_records set lease_until = 1 where key = ?1";
    assert_eq!(client.execute(end, [key.value()]).unwrap(), 1);
}
