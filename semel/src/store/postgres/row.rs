//! The conversion of a row to a record.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::values::Moment;
use crate::protocol::ask::Ask;
use crate::store::shared::decode;
use crate::words::error::StoreError;
use crate::words::fingerprint::Fingerprint;
use crate::words::intent::Intent;
use crate::words::key::{Key, Scope};
use crate::words::lease::{Fence, Token};
use crate::words::outcome::Outcome;
use crate::words::record::{Note, Owner, Record, RecordState};
use crate::words::terms::AfterCrash;
use crate::words::time::Timestamp;

/// The columns of a record in the result of every statement, in their order. They are found by
/// position: looking up two dozen names in each of hundred thousands of rows a second would cost
/// noticeable time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Column {
    Now,
    Id,
    Version,
    Token,
    Fence,
    Attempt,
    State,
    Operation,
    Resource,
    Fingerprint,
    FingerprintVersion,
    Owner,
    LeaseUntil,
    HeartbeatAt,
    CreatedAt,
    UpdatedAt,
    Retention,
    AfterCrash,
    FinishedAt,
    NoteAt,
    Note,
    Status,
    Subtype,
    Headers,
    Body,
    Realm,
    Principal,
    Key,
    IsMore,
    ReachedAt,
    ReachedId,
}

/// The store's clock, which is the first column of every statement.
pub(super) fn clock(row: &Row) -> Result<Timestamp, StoreError> {
    get(row, Column::Now).map(|Moment(now)| now)
}

/// The id, in rows that contain a record.
pub(super) fn id(row: &Row) -> Option<&[u8]> {
    get(row, Column::Id).ok().flatten()
}

/// The fence of a created record, which is in the column behind the id.
pub(super) fn created_fence(row: &Row) -> Option<Fence> {
    let fence: Option<i64> = row.try_get(Column::Id as usize + 1).ok().flatten();
    fence.map(|fence| Fence::new(fence.unsigned_abs()))
}

/// The size of an outcome that `read.sql` has left out, if it has. It is in the column behind the
/// body.
pub(super) fn left_out(row: &Row) -> Option<usize> {
    let bytes: Option<i32> = row.try_get(Column::Body as usize + 1).ok().flatten();
    bytes.map(|bytes| bytes.unsigned_abs() as usize)
}

/// The size of the outcome in a row of `read.sql`.
pub(super) fn outcome_bytes(row: &Row) -> usize {
    let bytes = |column| row.try_get(column as usize).ok().flatten().map_or(0, <[u8]>::len);
    bytes(Column::Headers) + bytes(Column::Body)
}

/// A value of a row. A missing value, or one of another type, means that the schema is not the one
/// that this code was written for.
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: Column) -> Result<T, StoreError> {
    row.try_get(column as usize)
        .map_err(|e| StoreError::corrupt(format!("column {column:?} is not as expected")).with_source(e))
}

fn corrupt(what: &str, why: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::corrupt(format!("the stored {what} breaks a rule")).with_source(why)
}

/// The key of a row that was not found by its key.
pub(super) fn key(row: &Row) -> Result<Key, StoreError> {
    let (principal, value) = (get(row, Column::Principal)?, get(row, Column::Key)?);
    Scope::new(get(row, Column::Realm)?)
        .and_then(|scope| scope.with_principal(principal))
        .and_then(|scope| scope.key(value))
        .map_err(|e| corrupt("key", e))
}

/// The record in a row, for a caller that knows the key. A repeat also passes the intent that the
/// record most likely has, and possibly the owner, to share their memory.
pub(super) fn record(row: &Row, key: Key, likely: Option<&Ask>) -> Result<Record, StoreError> {
    let moment = |column| get(row, column).map(|Moment(at)| at);
    let note: Option<&str> = get(row, Column::Note)?;
    Ok(Record {
        key,
        intent: intent(row, likely.map(|ask| &ask.intent))?,
        state: state(row)?,
        version: unsigned(row, Column::Version)?,
        token: token(row)?,
        fence: Fence::new(unsigned(row, Column::Fence)?),
        attempt: get::<i32>(row, Column::Attempt)?.unsigned_abs(),
        owner: owner(row, likely.map(|ask| &ask.owner))?,
        lease_until: moment(Column::LeaseUntil)?,
        heartbeat_at: moment(Column::HeartbeatAt)?,
        created_at: moment(Column::CreatedAt)?,
        updated_at: moment(Column::UpdatedAt)?,
        retention: Duration::from_micros(unsigned(row, Column::Retention)?),
        after_crash: after_crash(row)?,
        note: note.map(|text| moment(Column::NoteAt).map(|at| Note::new(at, text))).transpose()?,
    })
}

/// Fences and versions are positive; a constraint says so.
pub(super) fn unsigned(row: &Row, column: Column) -> Result<u64, StoreError> {
    get::<i64>(row, column).map(i64::unsigned_abs)
}

fn after_crash(row: &Row) -> Result<AfterCrash, StoreError> {
    let word = get(row, Column::AfterCrash)?;
    AfterCrash::from_word(word)
        .ok_or_else(|| StoreError::corrupt(format!("the policy {word:?} is not known here")))
}

fn token(row: &Row) -> Result<Token, StoreError> {
    get::<&[u8]>(row, Column::Token)?.try_into().map(Token::from_bytes).map_err(|e| corrupt("token", e))
}

fn owner(row: &Row, likely: Option<&Owner>) -> Result<Owner, StoreError> {
    let name = get(row, Column::Owner)?;
    Ok(likely.filter(|likely| likely.as_str() == name).cloned().unwrap_or_else(|| Owner::new(name)))
}

fn intent(row: &Row, likely: Option<&Intent>) -> Result<Intent, StoreError> {
    let version = get::<i16>(row, Column::FingerprintVersion)?;
    let (operation, resource, digest): (&str, &str, &[u8]) =
        (get(row, Column::Operation)?, get(row, Column::Resource)?, get(row, Column::Fingerprint)?);
    if let Some(likely) = likely
        && i16::from(likely.fingerprint().version()) == version
        && likely.fingerprint().as_bytes() == digest
        && likely.operation() == operation
        && likely.resource() == resource
    {
        return Ok(likely.clone());
    }
    let fingerprint = Fingerprint::from_stored(version.try_into().unwrap_or(u8::MAX), digest)
        .map_err(|e| corrupt("fingerprint", e))?;
    Intent::new(operation, resource, fingerprint).map_err(|e| corrupt("intent", e))
}

fn state(row: &Row) -> Result<RecordState, StoreError> {
    match get(row, Column::State)? {
        "running" => Ok(RecordState::Running),
        "released" => Ok(RecordState::Released),
        "done" => {
            let Moment(finished_at) = get(row, Column::FinishedAt)?;
            Ok(RecordState::Done { outcome: outcome(row)?, finished_at })
        }
        other => Err(StoreError::corrupt(format!("the state {other:?} is not known here"))),
    }
}

fn outcome(row: &Row) -> Result<Outcome, StoreError> {
    let status = get::<i16>(row, Column::Status)?.unsigned_abs();
    decode::outcome(status, get(row, Column::Subtype)?, get(row, Column::Headers)?, get(row, Column::Body)?)
}
