//! The secret beside the records.

use rusqlite::{OptionalExtension, Transaction, TransactionBehavior};

use super::errors::Fault;
use super::session::Session;

/// Writes the secret if there is none, or if it is exactly the expected one; returns the one that is kept afterwards.
pub(super) fn keep(session: &Session, expected: Option<&[u8]>, value: &[u8]) -> Result<Vec<u8>, Fault> {
    // Mostly it is there, and is only read: that needs no lock.
    let view = session.begin_fitting(TransactionBehavior::Deferred)?;
    let kept = read(&view).map_err(|e| session.fault(e))?;
    drop(view);
    if let Some(kept) = kept.filter(|kept| expected != Some(kept)) {
        return Ok(kept);
    }
    let change = session.begin_fitting(TransactionBehavior::Immediate)?;
    let kept = read(&change).map_err(|e| session.fault(e))?;
    if let Some(kept) = kept.filter(|kept| expected != Some(kept)) {
        return Ok(kept);
    }
    change.execute(include_str!("sql/keep_secret.sql"), [value]).map_err(|e| session.fault(e))?;
    session.commit(change)?;
    Ok(value.to_vec())
}

fn read(within: &Transaction<'_>) -> rusqlite::Result<Option<Vec<u8>>> {
    within.query_row(include_str!("sql/secret.sql"), [], |row| row.get(0)).optional()
}
