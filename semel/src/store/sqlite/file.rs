//! The file itself, before SQLite opens it.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::words::error::StoreError;

/// The lock that is held while a file is created.
///
/// The locks of SQLite belong to a process and a file: closing any handle of the file drops them
/// all. So no thread may open the file by SQLite before the thread that has created it has closed
/// it again.
static CREATING: Mutex<()> = Mutex::new(());

/// Creates the file if it does not exist, empty and readable for this user only, because it will
/// contain the bodies of answers. Returns its absolute path, so that a later change of the working
/// directory does not lead to another file.
///
/// # Errors
/// Refused if the file cannot be created.
pub(super) fn create(path: &Path) -> Result<PathBuf, StoreError> {
    let name = path.to_string_lossy();
    if name.is_empty() || name == ":memory:" {
        return Err(StoreError::refused(format!(
            "{name:?} is not a file, and its records could not be shared; for records in memory use `MemoryStore`"
        )));
    }
    if name.starts_with("file:") {
        return Err(StoreError::refused(format!("{name:?} is a URI; give the path of the file")));
    }
    let path = std::path::absolute(path).map_err(|e| failed(path, e))?;
    let _alone = CREATING.lock();
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

/// The identity of the file at a path. SQLite goes on with a file that was removed or replaced, and
/// its writes are lost when that is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    #[cfg(unix)]
    numbers: (u64, u64),
}

impl Identity {
    pub(super) fn of(path: &Path) -> Option<Self> {
        // The metadata is read without opening the file, see `CREATING`.
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
