//! The meaning of an error of SQLite.

use std::path::Path;

use rusqlite::{Error, ErrorCode, ffi};

use crate::store::shared::group_commit::Failed;
use crate::words::error::StoreError;

/// The reason why an operation failed, and its consequence for the connection.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) failed: Failed,
    /// Set if the connection should not be used again.
    pub(super) ends_session: bool,
}

impl Fault {
    /// An error before anything was committed: nothing was applied.
    pub(super) fn before_commit(path: &Path, error: Error) -> Self {
        let meaning = Meaning::of(&error);
        let ends_session = matches!(meaning, Meaning::Broken | Meaning::Unreadable | Meaning::Foreign);
        Self { failed: meaning.failed(path, error), ends_session }
    }

    /// An error of the commit itself, after which the transaction was rolled back.
    ///
    /// A failed write or a failed sync may have left the whole transaction in the write-ahead log,
    /// where it is found if the process dies now.
    pub(super) fn at_commit(path: &Path, error: Error) -> Self {
        match Meaning::of(&error) {
            Meaning::Broken | Meaning::Unreadable => {
                let message = format!("the commit to {} failed half way", path.display());
                let failed = Failed::Lost(StoreError::unknown(message).with_source(error));
                Self { failed, ends_session: true }
            }
            _ => Self::before_commit(path, error),
        }
    }

    /// An error after which nothing was applied, and the connection is as usable as before.
    pub(super) fn of(error: StoreError) -> Self {
        Self { failed: Failed::Again(error), ends_session: false }
    }

    /// The error for the callers.
    pub(super) fn into_error(self) -> StoreError {
        match self.failed {
            Failed::Refused(error) | Failed::Again(error) | Failed::Slow(error) | Failed::Lost(error) => {
                error
            }
        }
    }
}

/// The error of reading one record, for its operation alone, if the rest can go on in the same
/// transaction.
pub(super) fn of_record(path: &Path, error: Error) -> Result<StoreError, Error> {
    // After an error of reading the file, SQLite has rolled the transaction back.
    match Meaning::of(&error) {
        Meaning::Damaged => Ok(Fault::before_commit(path, error).into_error()),
        _ => Err(error),
    }
}

/// Returns `true` if another connection has the lock.
pub(super) fn is_busy(error: &Error) -> bool {
    Meaning::of(error) == Meaning::Busy
}

/// The meaning of an error, which is recognised by its code, never by its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Another connection has the lock.
    Busy,
    /// The disk or the file is full, or there is another transient reason that does not harm the
    /// connection.
    Passing,
    /// The file cannot be read or written; reopening it may help.
    Broken,
    /// A page of the file cannot be read.
    Unreadable,
    /// The file contains data that SQLite did not write.
    Damaged,
    /// The file is not an SQLite database.
    Foreign,
    /// A retry would fail in the same way.
    Refused,
}

impl Meaning {
    fn of(error: &Error) -> Self {
        let extended = error.sqlite_error().map(|failure| failure.extended_code);
        if matches!(extended, Some(ffi::SQLITE_IOERR_READ | ffi::SQLITE_IOERR_CORRUPTFS)) {
            return Self::Unreadable;
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(
                ErrorCode::DiskFull
                | ErrorCode::OutOfMemory
                | ErrorCode::OperationInterrupted
                | ErrorCode::OperationAborted
                | ErrorCode::SchemaChanged,
            ) => Self::Passing,
            Some(
                ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::PermissionDenied
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::InternalMalfunction,
            ) => Self::Broken,
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged,
            Some(ErrorCode::NotADatabase) => Self::Foreign,
            _ => Self::Refused,
        }
    }

    fn failed(self, path: &Path, error: Error) -> Failed {
        let path = path.display();
        match self {
            Self::Busy => {
                let message = format!("another connection has {path} locked");
                Failed::Again(StoreError::unavailable(message).with_source(error))
            }
            Self::Passing | Self::Broken => {
                let message = format!("SQLite could not use {path}: {error}");
                Failed::Again(StoreError::unavailable(message).with_source(error))
            }
            // Possibly only one page is unreadable, and the other operations of the batch are about
            // the rest.
            Self::Unreadable => {
                let message = format!("SQLite could not read a page of {path}: {error}");
                Failed::Refused(StoreError::unavailable(message).with_source(error))
            }
            Self::Damaged => {
                let message = format!("{path} is damaged: {error}");
                Failed::Refused(StoreError::corrupt(message).with_source(error))
            }
            Self::Foreign => {
                let message = format!("{path} is no SQLite database");
                Failed::Refused(StoreError::refused(message).with_source(error))
            }
            Self::Refused => {
                let message = format!("SQLite refused what was asked of {path}: {error}");
                Failed::Refused(StoreError::refused(message).with_source(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i32) -> Error {
        Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn codes_mean_what_sqlite_did() {
        for (code, meaning) in [
            (ffi::SQLITE_BUSY, Meaning::Busy),
            (ffi::SQLITE_BUSY_RECOVERY, Meaning::Busy),
            (ffi::SQLITE_FULL, Meaning::Passing),
            (ffi::SQLITE_IOERR_FSYNC, Meaning::Broken),
            (ffi::SQLITE_IOERR_READ, Meaning::Unreadable),
            (ffi::SQLITE_CANTOPEN, Meaning::Broken),
            (ffi::SQLITE_READONLY_DBMOVED, Meaning::Broken),
            (ffi::SQLITE_CORRUPT, Meaning::Damaged),
            (ffi::SQLITE_NOTADB, Meaning::Foreign),
            (ffi::SQLITE_CONSTRAINT_CHECK, Meaning::Refused),
            (ffi::SQLITE_TOOBIG, Meaning::Refused),
            (ffi::SQLITE_ERROR, Meaning::Refused),
        ] {
            assert_eq!(Meaning::of(&error(code)), meaning, "{code}");
        }
    }

    #[test]
    fn only_a_commit_that_could_not_be_written_is_unknown() {
        let path = Path::new("/some.db");
        let lost = Fault::at_commit(path, error(ffi::SQLITE_IOERR_FSYNC));
        assert!(matches!(lost.failed, Failed::Lost(_)) && lost.ends_session);
        assert!(lost.into_error().is_unknown());
        for (code, ends_session) in [(ffi::SQLITE_FULL, false), (ffi::SQLITE_BUSY, false)] {
            let fault = Fault::at_commit(path, error(code));
            assert!(matches!(fault.failed, Failed::Again(_)), "{code}");
            assert_eq!(fault.ends_session, ends_session, "{code}");
        }
        let page = Fault::before_commit(path, error(ffi::SQLITE_IOERR_READ));
        assert!(matches!(&page.failed, Failed::Refused(error) if error.is_transient()), "{page:?}");
        let before = Fault::before_commit(path, error(ffi::SQLITE_IOERR_FSYNC));
        assert!(matches!(&before.failed, Failed::Again(error) if !error.is_unknown()) && before.ends_session);
        assert!(before.into_error().to_string().contains("/some.db"));
    }
}
