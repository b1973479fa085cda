//! A separate folder for each test, with one file in it.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use semel::store::{SqliteOptions, Token};
use semel::{Key, SqliteStore};

/// A folder that is removed when this is dropped, and the file in it.
pub struct Place {
    folder: PathBuf,
    path: PathBuf,
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    /// A new folder, without the file.
    pub fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("semel-test-{}", Token::random()));
        std::fs::create_dir(&folder).unwrap();
        // The name only works if it is used unchanged.
        let path = folder.join("odd name?mode=ro#%20'é.db");
        Self { folder, path }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The options of its stores.
    pub fn options(&self) -> SqliteOptions {
        SqliteOptions::new(&self.path)
    }

    /// A store with connections of its own, as another process would have.
    pub async fn store(&self) -> SqliteStore {
        let store = self.options().open().await.unwrap();
        store.migrate().await.unwrap();
        store
    }

    /// A plain connection, as a user would have.
    pub fn client(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }

    /// The file beside it whose name has this suffix.
    pub fn beside(&self, end: &str) -> PathBuf {
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

/// Ends the lease of a key, as if its owner had been silent for that long.
pub fn end_lease(client: &Connection, key: &Key) {
    let end = "update semel_records set lease_until = 1 where key = ?1";
    assert_eq!(client.execute(end, [key.value()]).unwrap(), 1);
}
