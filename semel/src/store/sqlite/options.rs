//! The options of a store in a file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::SqliteStore;
use super::migrate;
use crate::store::limits;
use crate::words::error::StoreError;

/// The options of a store in a file: its path and its limits.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), semel::StoreError> {
/// use std::time::Duration;
///
/// use semel::store::SqliteOptions;
///
/// let options = SqliteOptions::new("/var/lib/shop/semel.db").with_busy_timeout(Duration::from_secs(1));
/// let store = options.open().await?;
/// # Ok(())
/// # }
/// ```
///
/// The setters take any value in any order. [`open`](Self::open) checks all values, and its error
/// names the setter and the values that it accepts.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    pub(super) path: PathBuf,
    pub(super) busy_timeout: Duration,
    pub(super) max_bytes: Option<u64>,
}

impl SqliteOptions {
    /// The time limit for the lock of another writer, unless set.
    pub const DEFAULT_BUSY_TIMEOUT: Duration = Duration::from_secs(5);

    /// Options for the file at a path. The text is always a path, never a URI.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned(), busy_timeout: Self::DEFAULT_BUSY_TIMEOUT, max_bytes: None }
    }

    /// Sets the time limit for the lock of another writer: of another process, or of a user who has
    /// an open transaction on the file. It is from 10 ms to 10 minutes. After it the callers get
    /// "unavailable", and nothing was applied. A batch is tried again until about two seconds are
    /// over in all, so a shorter wait is not the last one.
    #[must_use]
    pub fn with_busy_timeout(self, timeout: Duration) -> Self {
        Self { busy_timeout: timeout, ..self }
    }

    /// Sets the largest size of the file, rounded down to whole pages. When it is full, new keys
    /// are refused as unavailable until some records are pruned; so is every outcome that does not
    /// fit. The write-ahead log beside it is not counted. Unless set, the disk is the limit.
    #[must_use]
    pub fn with_max_bytes(self, bytes: u64) -> Self {
        Self { max_bytes: Some(bytes), ..self }
    }

    /// Checks all values that were set.
    ///
    /// # Errors
    /// Refused if one is out of its limits; the message names its setter and the limits.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        limits::time("with_busy_timeout", self.busy_timeout, Duration::from_millis(10), limits::MAX_TIMEOUT)
    }

    /// The whole schema as a script for the shell of SQLite, for operators who run migrations with
    /// their own tools. It opens no file.
    pub fn print_migrations(&self) -> String {
        migrate::print()
    }

    /// Opens the file, and creates it if it does not exist, readable for this user only. The schema
    /// may still be missing, see [`SqliteStore::migrate`].
    ///
    /// # Errors
    /// Refused if a value is out of its limits, there is no such folder, the file cannot be written,
    /// is not an SQLite database, or cannot have a write-ahead log; unavailable if another connection
    /// has it locked for longer than the timeout.
    pub async fn open(self) -> Result<SqliteStore, StoreError> {
        SqliteStore::with_options(self).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_timeout_out_of_its_limits_is_refused_by_setter_and_no_file_is_created() {
        let path = std::env::temp_dir().join(format!("semel-options-{}.db", std::process::id()));
        let refused = SqliteOptions::new(&path).with_busy_timeout(Duration::ZERO).open().await;
        assert_eq!(
            refused.err().expect("refused").to_string(),
            "store refused: with_busy_timeout(0ns): set a time from 10ms to 600s"
        );
        assert!(!path.exists());
    }
}
