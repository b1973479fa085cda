//! The verbs of the operator: listing, counting, pruning, and the secret beside the records.

use std::time::Duration;

use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};

use super::errors::Fault;
use super::row;
use super::session::Session;
use crate::store::Prune;
use crate::store::inspect::{ListQuery, Page, Stats};
use crate::store::shared::record_id::{self, Id};
use crate::words::error::StoreError;
use crate::words::record::{Phase, Record};
use crate::words::time::Timestamp;

/// The end of all ids, which have 32 bytes.
const END: [u8; 33] = [0xff; 33];

/// The range of ids that may be on a page.
struct Range {
    first: Vec<u8>,
    last: Vec<u8>,
}

impl Range {
    fn of(query: &ListQuery) -> Result<Self, StoreError> {
        let mut first = Vec::new();
        if let Some(after) = &query.after {
            first = record_id::position(after, 32)?;
            // The next possible value after some bytes is the same bytes followed by a zero.
            first.push(0);
        }
        Ok(match query.whole_key()?.map(|key| Id::of(&key)) {
            Some(only) => Self { first: first.max(only.as_bytes().to_vec()), last: only.as_bytes().to_vec() },
            None => Self { first, last: END.to_vec() },
        })
    }
}

/// A page of the matching records.
pub(super) fn scan(session: &Session, query: &ListQuery) -> Result<Page, Fault> {
    let range = Range::of(query).map_err(Fault::of)?;
    let view = session.begin_fitting(TransactionBehavior::Deferred)?;
    let now = Timestamp::of_host();
    let found = find(&view, query, &range, now).map_err(|e| session.fault(e))?;
    let mut records = found.into_iter().collect::<Result<Vec<_>, _>>().map_err(Fault::of)?;
    let more = records.len() > query.limit as usize;
    records.truncate(query.limit as usize);
    let next = records.last().filter(|_| more).map(|(last, _)| record_id::cursor(last));
    Ok(Page { now, records: records.into_iter().map(|(_, record)| record).collect(), next })
}

type Found = Vec<Result<(Vec<u8>, Record), StoreError>>;

/// The records of a page, and one more if there is a next page.
fn find(view: &Transaction<'_>, query: &ListQuery, range: &Range, now: Timestamp) -> rusqlite::Result<Found> {
    let now = row::number(now.as_micros());
    let age = |age: Duration| now.saturating_sub(i64::try_from(age.as_micros()).unwrap_or(i64::MAX));
    let over = |is_held: Option<bool>| Some((0, now, is_held));
    let leases = match query.phase {
        Some(Phase::Running) if !query.stale => Some((now + 1, i64::MAX, None)),
        Some(Phase::Held) => over(Some(true)),
        Some(Phase::Lost) => over(Some(false)),
        None if query.stale => over(None),
        Some(Phase::Running | Phase::Done | Phase::Released) if query.stale => return Ok(Vec::new()),
        Some(Phase::Running | Phase::Done | Phase::Released) | None => None,
    };
    let (first_end, last_end, is_held) = leases.unwrap_or_default();
    let asked = params![
        range.first,
        range.last,
        query.phase.map(Phase::as_str),
        query.realm,
        query.principal,
        query.value,
        query.operation,
        query.expired,
        query.min_age.map(age),
        now,
        i64::from(query.limit) + 1,
        query.unheard_for.map(age),
        first_end,
        last_end,
        is_held,
    ];
    let (statement, asked) = match leases {
        Some(_) => (include_str!("sql/running.sql"), asked),
        None => (include_str!("sql/scan.sql"), &asked[..12]),
    };
    let mut statement = view.prepare_cached(statement)?;
    let rows = statement.query_map(asked, |row| {
        let record = row::key(row).and_then(|key| row::record(row, key, None));
        Ok(row::id(row).and_then(|id| Ok((id.to_vec(), record?))))
    })?;
    rows.collect()
}

/// The number of records in each phase.
pub(super) fn count(session: &Session) -> Result<Stats, Fault> {
    let view = session.begin_fitting(TransactionBehavior::Deferred)?;
    let now = row::number(Timestamp::of_host().as_micros());
    let count = view.query_row(include_str!("sql/stats.sql"), [now], |row| {
        let count = |at: usize| row.get::<_, i64>(at).map(i64::unsigned_abs);
        Ok(Stats {
            running: count(0)?,
            held: count(1)?,
            lost: count(2)?,
            done: count(3)?,
            released: count(4)?,
            estimated: false,
        })
    });
    count.map_err(|e| session.fault(e))
}

/// The number of bytes of the file in use.
pub(super) fn used_bytes(session: &Session) -> Result<u64, Fault> {
    let view = session.begin_fitting(TransactionBehavior::Deferred)?;
    let number = |pragma: &str| {
        view.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
    };
    let used = || Ok((number("page_count")? - number("freelist_count")?) * number("page_size")?);
    used().map_err(|e| session.fault(e))
}

/// Removes at most this many of the expired records, in one transaction, and returns their number.
/// When the last of them is removed, their bytes leave the write-ahead log.
pub(super) fn prune(session: &Session, prune: &Prune, limit: u64) -> Result<u64, Fault> {
    let change = session.begin_fitting(TransactionBehavior::Immediate)?;
    let cutoff = row::number(prune.cutoff(Timestamp::of_host()).as_micros());
    let removed = change
        .prepare_cached(include_str!("sql/prune.sql"))
        .and_then(|mut statement| statement.execute(params![cutoff, prune.realm, row::number(limit)]))
        .map_err(|e| session.fault(e))?;
    session.commit(change)?;
    if removed > 0 {
        session.leave_behind();
    }
    if (removed as u64) < limit {
        session.clear_log();
    }
    Ok(removed as u64)
}

/// Writes the secret if there is none, or if it is exactly the expected one; returns the secret
/// that is stored afterwards.
pub(super) fn keep_secret(
    session: &Session,
    expected: Option<&[u8]>,
    value: &[u8],
) -> Result<Vec<u8>, Fault> {
    // The secret usually exists, and is only read, which needs no lock.
    let view = session.begin_fitting(TransactionBehavior::Deferred)?;
    let kept = read_secret(&view).map_err(|e| session.fault(e))?;
    drop(view);
    if let Some(kept) = kept.filter(|kept| expected != Some(kept)) {
        return Ok(kept);
    }
    let change = session.begin_fitting(TransactionBehavior::Immediate)?;
    let kept = read_secret(&change).map_err(|e| session.fault(e))?;
    if let Some(kept) = kept.filter(|kept| expected != Some(kept)) {
        return Ok(kept);
    }
    change.execute(include_str!("sql/keep_secret.sql"), [value]).map_err(|e| session.fault(e))?;
    session.commit(change)?;
    Ok(value.to_vec())
}

fn read_secret(within: &Transaction<'_>) -> rusqlite::Result<Option<Vec<u8>>> {
    within.query_row(include_str!("sql/secret.sql"), [], |row| row.get(0)).optional()
}
