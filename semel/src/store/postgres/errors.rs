//! The meaning of an error of the server.

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::store::shared::group_commit::Failed;
use crate::words::error::StoreError;

/// The meaning of an error of a batch. It is recognised by its code, never by its text; an error
/// without a code came from the connection, and it is unknown whether anything was applied.
pub(super) fn of_batch(error: Error) -> Failed {
    let Some(code) = error.code() else {
        return Failed::Lost(StoreError::unknown("the connection to Postgres was lost").with_source(error));
    };
    match Meaning::of(code) {
        // A row or a page of one of the operations is damaged: the other operations can go on
        // without it.
        Meaning::Damaged => Failed::Refused(damaged(error)),
        Meaning::Unreadable | Meaning::Contended => Failed::Refused(unavailable(error)),
        Meaning::Lost => {
            Failed::Lost(StoreError::unknown("Postgres ended the connection").with_source(error))
        }
        Meaning::Transient => Failed::Again(unavailable(error)),
        Meaning::Refused => {
            Failed::Refused(StoreError::refused("Postgres refused the statement").with_source(error))
        }
    }
}

/// The meaning of an error of a read-only or repeatable question: it does not matter whether it was
/// applied.
pub(super) fn of_question(error: Error) -> StoreError {
    match error.code().map(Meaning::of) {
        Some(Meaning::Refused) => StoreError::refused("Postgres refused the statement").with_source(error),
        Some(Meaning::Damaged) => damaged(error),
        Some(Meaning::Transient | Meaning::Unreadable | Meaning::Contended | Meaning::Lost) | None => {
            unavailable(error)
        }
    }
}

/// Returns `true` if an error may be the fault of a single row.
pub(super) fn is_about_a_row(code: &SqlState) -> bool {
    matches!(Meaning::of(code), Meaning::Damaged | Meaning::Unreadable)
}

fn damaged(error: Error) -> StoreError {
    StoreError::corrupt(format!("Postgres: {}", said(&error))).with_source(error)
}

fn unavailable(error: Error) -> StoreError {
    StoreError::unavailable(format!("Postgres: {}", said(&error))).with_source(error)
}

fn said(error: &Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned())
}

/// Returns `true` if a retry may help after an error with this code.
#[cfg(any(feature = "sqlx", feature = "sqlx08"))]
pub(super) fn is_transient(code: &str) -> bool {
    !matches!(Meaning::of(&SqlState::from_code(code)), Meaning::Refused | Meaning::Damaged)
}

/// Returns `true` if an error means that the schema is missing, or differs from the one that the
/// statements were written for.
pub(super) fn is_about_schema(code: &SqlState) -> bool {
    [
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_COLUMN,
        SqlState::UNDEFINED_FUNCTION,
        SqlState::INVALID_SCHEMA_NAME,
    ]
    .contains(code)
}

/// Returns `true` if an error means that a concurrent transaction has created or locked the same
/// row.
pub(super) fn is_contention(code: &SqlState) -> bool {
    [SqlState::UNIQUE_VIOLATION, SqlState::LOCK_NOT_AVAILABLE].contains(code)
}

/// Returns `true` if a connection is useless after this error: it leads to a server that cannot
/// write, its statements no longer fit the schema, or it is in a transaction whose end was
/// cancelled.
pub(super) fn ends_session(code: &SqlState) -> bool {
    *code == SqlState::READ_ONLY_SQL_TRANSACTION
        || *code == SqlState::IN_FAILED_SQL_TRANSACTION
        || *code == SqlState::FEATURE_NOT_SUPPORTED
        || is_about_schema(code)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Rolled back; a retry may work.
    Transient,
    /// Rolled back; a retry would fail in the same way.
    Refused,
    /// Rolled back; a page of a table or an index is not what Postgres wrote.
    Damaged,
    /// Rolled back; a file could not be read or written, possibly only a part of it.
    Unreadable,
    /// Rolled back; a concurrent transaction has locked a row, or has created it and not committed
    /// yet.
    Contended,
    /// The server ended the connection, possibly after the commit.
    Lost,
}

impl Meaning {
    fn of(code: &SqlState) -> Self {
        let lost = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::IDLE_SESSION_TIMEOUT];
        if lost.contains(code) {
            return Self::Lost;
        }
        if ends_session(code) {
            return Self::Transient;
        }
        if [SqlState::DATA_CORRUPTED, SqlState::INDEX_CORRUPTED].contains(code) {
            return Self::Damaged;
        }
        if *code == SqlState::LOCK_NOT_AVAILABLE {
            return Self::Contended;
        }
        match code.code().get(..2) {
            // Connection exceptions.
            Some("08") => Self::Lost,
            // Errors outside of Postgres.
            Some("58") => Self::Unreadable,
            // Transaction rollback, an object in use, operator intervention, insufficient resources
            // (full disk, too many connections), an aborted transaction, internal errors.
            Some("40" | "55" | "57" | "53" | "25" | "XX") => Self::Transient,
            _ => Self::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_what_the_server_did() {
        let of = |code: &str| Meaning::of(&SqlState::from_code(code));
        for transient in [
            "40001", "40P01", "53100", "53300", "55006", "57014", "57P03", "25006", "0A000", "42P01", "XX000",
        ] {
            assert_eq!(of(transient), Meaning::Transient, "{transient}");
        }
        for (code, meaning) in [
            ("XX001", Meaning::Damaged),
            ("XX002", Meaning::Damaged),
            ("58030", Meaning::Unreadable),
            ("55P03", Meaning::Contended),
        ] {
            assert_eq!(of(code), meaning, "{code}");
        }
        for lost in ["57P01", "57P02", "08006", "57P05"] {
            assert_eq!(of(lost), Meaning::Lost, "{lost}");
        }
        for refused in ["23514", "22P02", "42501", "54000", "22021"] {
            assert_eq!(of(refused), Meaning::Refused, "{refused}");
        }
    }
}
