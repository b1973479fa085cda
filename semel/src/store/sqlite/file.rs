//! The file itself, before SQLite has to do with it.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::words::error::StoreError;

/// Held while a file is created.
///
/// The locks of SQLite belong to a process and a file: closing any handle of the file drops them all. So nobody may open
/// it by SQLite before whoever has created it has closed it again.
static CREATING: Mutex<()> = Mutex::new(());

/// Creates the file if it is not there, empty and readable for this user only: it will hold the bodies of answers. Says
/// where it is, so that a later change of the working directory does not lead to another.
///
/// # Errors
/// Refused if there cannot be such a file.
pub(super) fn create(path: &Path) -> Result<PathBuf, StoreError> {
    let name = path.to_string_lossy();
    if name.is_empty() || name == ":memory:" {
        return Err(StoreError::refused(format!(
            "{name:?} is no file, and its records could not be shared; for records in memory use `MemoryStore`"
        )));
    }
    if name.starts_with("file:") {
        return Err(StoreError::refused(format!("{name:?} is a URI; give the path of the file")));
    }
    let path = std::path::absolute(path).map_err(|e| failed(path, e))?;
    let _alone = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    match new_file().open(&path) {
        Ok(_empty) => Ok(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(path),
        Err(error) => Err(failed(&path, error)),
    }
}

fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn failed(path: &Path, error: io::Error) -> StoreError {
    let message = format!("could not create {}: {error}", path.display());
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::PermissionDenied
        | ErrorKind::ReadOnlyFilesystem
        | ErrorKind::InvalidFilename
        | ErrorKind::InvalidInput => StoreError::refused(message),
        _ => StoreError::unavailable(message),
    }
    .with_source(error)
}

/// Which file a path leads to. SQLite goes on with a file that was removed or replaced, and what it writes there is gone
/// when it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    #[cfg(unix)]
    numbers: (u64, u64),
}

impl Identity {
    pub(super) fn of(path: &Path) -> Option<Self> {
        // Asks for it without opening it, see above.
        let metadata = fs::metadata(path).ok()?;
        Some(Self::new(&metadata))
    }

    #[cfg(unix)]
    fn new(metadata: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { numbers: (metadata.dev(), metadata.ino()) }
    }

    #[cfg(not(unix))]
    fn new(_: &fs::Metadata) -> Self {
        Self {}
    }
}
