//! Which file to use, and how.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::SqliteStore;
use super::migrate;
use crate::store::shared::limits;
use crate::words::error::StoreError;

/// Which file to use, and how.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), semel::StoreError> {
/// use std::time::Duration;
///
/// use semel::store::SqliteOptions;
///
/// let options = SqliteOptions::new("/var/lib/shop/semel.db").with_busy_timeout(Duration::from_secs(1))?;
/// let store = options.open().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    pub(super) path: PathBuf,
    pub(super) busy_timeout: Duration,
    pub(super) max_bytes: Option<u64>,
}

impl SqliteOptions {
    /// For how long the lock of another writer is waited for, unless set.
    pub const DEFAULT_BUSY_TIMEOUT: Duration = Duration::from_secs(5);

    /// Options for the file at a path. It is a path as it is, never a URI.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned(), busy_timeout: Self::DEFAULT_BUSY_TIMEOUT, max_bytes: None }
    }

    /// For how long the lock of another writer is waited for: of another process, or of a user who has an open
    /// transaction on the file. Then those who asked hear "unavailable", and nothing was applied. A batch is tried
    /// again until about two seconds are over in all, so a shorter wait is not the last one.
    ///
    /// # Errors
    /// Refused if it is not within 10 ms and 10 minutes.
    pub fn with_busy_timeout(self, timeout: Duration) -> Result<Self, StoreError> {
        Ok(Self { busy_timeout: limits::timeout(timeout, Duration::from_millis(10))?, ..self })
    }

    /// How large the file may become, rounded down to whole pages. When it is full, new keys are refused as
    /// unavailable until some records are pruned; so is every outcome that needs more room than there is. The
    /// write-ahead log beside it is not counted. Without this, the disk is the limit.
    #[must_use]
    pub fn with_max_bytes(self, bytes: u64) -> Self {
        Self { max_bytes: Some(bytes), ..self }
    }

    /// The whole schema as a script for the shell of SQLite, for those who run their own migrations. It opens no file.
    pub fn print_migrations(&self) -> String {
        migrate::print()
    }

    /// Opens the file, and creates it if it is not there, readable for this user only. The schema may be missing yet,
    /// see [`SqliteStore::migrate`].
    ///
    /// # Errors
    /// Refused if there is no such folder, the file cannot be written, is no SQLite database, or cannot have a
    /// write-ahead log; unavailable if somebody else has it locked for longer than the timeout.
    pub async fn open(self) -> Result<SqliteStore, StoreError> {
        SqliteStore::with_options(self).await
    }
}
