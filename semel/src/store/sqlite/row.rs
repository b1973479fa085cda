//! The conversion between rows and records.

use std::num::TryFromIntError;
use std::time::Duration;

use rusqlite::types::{FromSqlResult, ValueRef};
use rusqlite::{CachedStatement, Connection, Row, params};

use crate::store::shared::decode;
use crate::store::shared::record_id::Id;
use crate::words::error::StoreError;
use crate::words::fingerprint::Fingerprint;
use crate::words::intent::Intent;
use crate::words::key::{Key, Scope};
use crate::words::lease::{Fence, Token};
use crate::words::outcome::Outcome;
use crate::words::record::{Note, Owner, Record, RecordState};
use crate::words::terms::AfterCrash;
use crate::words::time::Timestamp;

/// The columns of a record in the statements, in their order.
#[derive(Debug, Clone, Copy)]
enum Column {
    Id,
    Version,
    Token,
    Fence,
    Attempt,
    State,
    LeaseUntil,
    HeartbeatAt,
    CreatedAt,
    UpdatedAt,
    Retention,
    AfterCrash,
    FinishedAt,
    Operation,
    Resource,
    Fingerprint,
    FingerprintVersion,
    Owner,
    NoteAt,
    Note,
    Status,
    Subtype,
    Headers,
    Body,
    #[expect(dead_code, reason = "it is written for pruning, and derived when a record is read")]
    ExpiresAt,
    Realm,
    Principal,
    Key,
}

/// A number in the range of SQLite. Moments and fences are far below its end, except for those that
/// stand for "never".
pub(super) fn number(found: u64) -> i64 {
    i64::try_from(found).unwrap_or(i64::MAX)
}

fn micros(retention: Duration) -> i64 {
    i64::try_from(retention.as_micros()).unwrap_or(i64::MAX)
}

fn moment(at: Timestamp) -> i64 {
    number(at.as_micros())
}

/// The prepared statements that write records.
pub(super) struct Writer<'a> {
    create: CachedStatement<'a>,
    update: CachedStatement<'a>,
}

impl<'a> Writer<'a> {
    pub(super) fn prepare(connection: &'a Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            create: connection.prepare_cached(include_str!("sql/create.sql"))?,
            update: connection.prepare_cached(include_str!("sql/update.sql"))?,
        })
    }

    /// Writes a record under its id, either as a new row or over an older version.
    pub(super) fn put(&mut self, id: Id, record: &Record, is_new: bool) -> rusqlite::Result<()> {
        let (intent, scope, note) = (&record.intent, record.key.scope(), record.note.as_ref());
        let fingerprint = intent.fingerprint();
        let (state, done) = match &record.state {
            RecordState::Running => ("running", None),
            RecordState::Released => ("released", None),
            RecordState::Done { outcome, finished_at } => ("done", Some((outcome, *finished_at))),
        };
        let outcome = done.map(|(outcome, _)| outcome);
        let columns = params![
            id.as_bytes(),
            number(record.version),
            record.token.as_bytes(),
            number(record.fence.get()),
            record.attempt,
            state,
            moment(record.lease_until),
            moment(record.heartbeat_at),
            moment(record.created_at),
            moment(record.updated_at),
            micros(record.retention),
            record.after_crash.as_str(),
            done.map(|(_, finished_at)| moment(finished_at)),
            intent.operation(),
            intent.resource(),
            fingerprint.as_bytes(),
            fingerprint.version(),
            record.owner.as_str(),
            note.map(|note| moment(note.at)),
            note.map(|note| &*note.text),
            outcome.map(Outcome::status),
            outcome.and_then(Outcome::subtype),
            outcome.map(Outcome::stored_headers),
            outcome.and_then(Outcome::body).map(|body| &**body),
            // The end of the retention is for pruning alone: a reader derives it from the other
            // columns.
            record.expires_at().map(moment),
            scope.realm(),
            scope.principal(),
            record.key.value(),
        ];
        if is_new {
            self.create.execute(columns)?;
        } else {
            // The columns of the key stay as they are.
            self.update.execute(&columns[..Column::Realm as usize])?;
        }
        Ok(())
    }
}

/// The id of the record in a row.
pub(super) fn id<'a>(row: &'a Row<'_>) -> Result<&'a [u8], StoreError> {
    bytes(row, Column::Id)
}

/// The number of bytes of an outcome in a row.
pub(super) fn outcome_bytes(row: &Row<'_>) -> usize {
    let bytes =
        |column| row.get_ref(column as usize).map_or(0, |value| value.as_blob().map_or(0, <[u8]>::len));
    bytes(Column::Headers) + bytes(Column::Body)
}

/// The key of a row that was not found by its key.
pub(super) fn key(row: &Row<'_>) -> Result<Key, StoreError> {
    let (principal, value) = (text(row, Column::Principal)?, text(row, Column::Key)?);
    Scope::new(text(row, Column::Realm)?)
        .and_then(|scope| scope.with_principal(principal))
        .and_then(|scope| scope.key(value))
        .map_err(|e| corrupt("key", e))
}

/// The record in a row, for a caller that knows the key. A repeat also passes the intent that the
/// record most likely has, to share its memory.
pub(super) fn record(row: &Row<'_>, key: Key, likely: Option<&Intent>) -> Result<Record, StoreError> {
    let at = |column| get(row, column).map(Timestamp::from_micros);
    let note = optional(row, Column::Note, |note| note.as_str())?;
    Ok(Record {
        key,
        intent: intent(row, likely)?,
        state: state(row)?,
        version: get(row, Column::Version)?,
        token: bytes(row, Column::Token)?
            .try_into()
            .map(Token::from_bytes)
            .map_err(|e| corrupt("token", e))?,
        fence: Fence::new(get(row, Column::Fence)?),
        attempt: get(row, Column::Attempt)?,
        owner: Owner::new(text(row, Column::Owner)?),
        lease_until: at(Column::LeaseUntil)?,
        heartbeat_at: at(Column::HeartbeatAt)?,
        created_at: at(Column::CreatedAt)?,
        updated_at: at(Column::UpdatedAt)?,
        retention: Duration::from_micros(get(row, Column::Retention)?),
        after_crash: after_crash(row)?,
        note: note.map(|text| at(Column::NoteAt).map(|at| Note::new(at, text))).transpose()?,
    })
}

fn after_crash(row: &Row<'_>) -> Result<AfterCrash, StoreError> {
    let word = text(row, Column::AfterCrash)?;
    AfterCrash::from_word(word)
        .ok_or_else(|| StoreError::corrupt(format!("the policy {word:?} is not known here")))
}

fn intent(row: &Row<'_>, likely: Option<&Intent>) -> Result<Intent, StoreError> {
    let version: u8 = get(row, Column::FingerprintVersion)?;
    let digest = bytes(row, Column::Fingerprint)?;
    let (operation, resource) = (text(row, Column::Operation)?, text(row, Column::Resource)?);
    if let Some(likely) = likely
        && likely.fingerprint().version() == version
        && likely.fingerprint().as_bytes() == digest
        && likely.operation() == operation
        && likely.resource() == resource
    {
        return Ok(likely.clone());
    }
    let fingerprint = Fingerprint::from_stored(version, digest).map_err(|e| corrupt("fingerprint", e))?;
    Intent::new(operation, resource, fingerprint).map_err(|e| corrupt("intent", e))
}

fn state(row: &Row<'_>) -> Result<RecordState, StoreError> {
    match text(row, Column::State)? {
        "running" => Ok(RecordState::Running),
        "released" => Ok(RecordState::Released),
        "done" => {
            let finished_at = Timestamp::from_micros(get(row, Column::FinishedAt)?);
            Ok(RecordState::Done { outcome: outcome(row)?, finished_at })
        }
        other => Err(StoreError::corrupt(format!("the state {other:?} is not known here"))),
    }
}

fn outcome(row: &Row<'_>) -> Result<Outcome, StoreError> {
    decode::outcome(
        get(row, Column::Status)?,
        optional(row, Column::Subtype, |subtype| subtype.as_str())?,
        bytes(row, Column::Headers)?,
        optional(row, Column::Body, |body| body.as_blob())?,
    )
}

/// A number of a row, which is not negative and fits the type.
fn get<T: TryFrom<i64, Error = TryFromIntError>>(row: &Row<'_>, column: Column) -> Result<T, StoreError> {
    let number: i64 = row.get(column as usize).map_err(|e| unexpected(column, e))?;
    number.try_into().map_err(|e| unexpected(column, e))
}

fn text<'a>(row: &'a Row<'_>, column: Column) -> Result<&'a str, StoreError> {
    let value = row.get_ref(column as usize).map_err(|e| unexpected(column, e))?;
    value.as_str().map_err(|e| unexpected(column, e))
}

fn bytes<'a>(row: &'a Row<'_>, column: Column) -> Result<&'a [u8], StoreError> {
    let value = row.get_ref(column as usize).map_err(|e| unexpected(column, e))?;
    value.as_blob().map_err(|e| unexpected(column, e))
}

/// A value that may be null.
fn optional<'a, T>(
    row: &'a Row<'_>,
    column: Column,
    read: impl FnOnce(ValueRef<'a>) -> FromSqlResult<T>,
) -> Result<Option<T>, StoreError> {
    match row.get_ref(column as usize).map_err(|e| unexpected(column, e))? {
        ValueRef::Null => Ok(None),
        value => read(value).map(Some).map_err(|e| unexpected(column, e)),
    }
}

/// The error for a row of an unexpected form: the schema is not the one that this code was written
/// for, or another program has written the row.
fn unexpected(column: Column, why: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::corrupt(format!("column {column:?} is not as expected")).with_source(why)
}

fn corrupt(what: &str, why: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::corrupt(format!("the stored {what} breaks a rule")).with_source(why)
}
