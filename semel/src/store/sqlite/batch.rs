//! A batch of operations in one transaction.
//!
//! SQLite has one writer at a time. The holder of its lock can read a record, let [`slot`] change
//! it, and write it back, and no other writer can change it in between: so there is no rule here,
//! and no expectation in the statements.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rusqlite::{CachedStatement, Transaction, TransactionBehavior};

use super::errors::{self, Fault};
use super::row::{self, Writer};
use super::session::Session;
use crate::protocol::slot;
use crate::store::shared::group_commit::{MAX_ANSWER_BYTES, Reply};
use crate::store::shared::question::{Asked, Question, What};
use crate::store::shared::record_id::Id;
use crate::words::error::StoreError;
use crate::words::record::Record;
use crate::words::time::Timestamp;

/// The answer to an operation, with the clock of the store.
pub(super) struct Answer {
    pub(super) now: Timestamp,
    pub(super) what: What,
}

pub(super) type Replies = Vec<Reply<Answer>>;

/// Applies the operations in their order, all or none, and answers each.
///
/// Claims of keys that have a record change nothing. If the batch has nothing else, they are
/// answered without the lock, and nothing is written.
pub(super) fn commit(session: &Session, questions: &[Arc<Question>]) -> Result<Replies, Fault> {
    if questions.iter().all(|question| matches!(question.asked, Asked::Open(_) | Asked::Read(_))) {
        let view = session.begin_fitting(TransactionBehavior::Deferred)?;
        if let Some(replies) = apply(session, &view, questions, false).map_err(|e| session.fault(e))? {
            return Ok(replies);
        }
    }
    let change = session.begin_fitting(TransactionBehavior::Immediate)?;
    let replies = apply(session, &change, questions, true).map_err(|e| session.fault(e))?;
    session.commit(change)?;
    Ok(replies.unwrap_or_default())
}

/// The replies; `None` if there is something to write without the right to do so.
fn apply(
    session: &Session,
    transaction: &Transaction<'_>,
    questions: &[Arc<Question>],
    may_write: bool,
) -> rusqlite::Result<Option<Replies>> {
    // The clock is read only now: the wait for the lock would have made an earlier reading old.
    let now = Timestamp::of_host();
    let mut read = transaction.prepare_cached(include_str!("sql/read.sql"))?;
    let mut writer = may_write.then(|| Writer::prepare(transaction)).transpose()?;
    let mut load = Load::default();
    let mut replies = Vec::with_capacity(questions.len());
    for question in questions {
        let found = find(&mut read, question, &mut load)
            .or_else(|error| errors::of_record(session.path(), error).map(Found::Unreadable))?;
        let mut record = match found {
            Found::Record(found) => found,
            Found::Unreadable(error) => {
                replies.push(Reply::Answer(Err(error)));
                continue;
            }
            Found::LeftOut(bytes) => {
                replies.push(Reply::Later(bytes));
                continue;
            }
        };
        let before = version(&record);
        let what = answer(&question.asked, &mut record, now);
        if let Some(record) = record.filter(|record| Some(record.version) != before) {
            let Some(writer) = &mut writer else { return Ok(None) };
            writer.put(question.id, &record, before.is_none())?;
            load.large.remove(&question.id);
        }
        replies.push(Reply::Answer(Ok(Answer { now, what })));
    }
    Ok(Some(replies))
}

/// The size from which an outcome counts as large: the operations of a batch share a record that
/// has one.
const LARGE: usize = 16 << 10;

/// The outcomes that a batch has loaded.
#[derive(Default)]
struct Load {
    bytes: usize,
    /// The records with a large outcome, for further operations about them.
    large: HashMap<Id, Box<Record>>,
    /// The records whose outcomes did not fit. All operations about them go later, so that they
    /// stay in order.
    left_out: HashSet<Id>,
}

impl Load {
    /// Returns `true` if an outcome of this size fits. There is always room for one.
    fn has_room(&mut self, id: Id, bytes: usize) -> bool {
        let fits = self.bytes == 0 || self.bytes + bytes <= MAX_ANSWER_BYTES;
        if bytes > 0 && (!fits || self.left_out.contains(&id)) {
            self.left_out.insert(id);
            return false;
        }
        self.bytes += bytes;
        true
    }
}

/// The record for an operation.
enum Found {
    Record(Option<Box<Record>>),
    /// The record cannot be read.
    Unreadable(StoreError),
    /// The outcome of the record, of this size, does not fit.
    LeftOut(usize),
}

/// The version, which every write raises.
fn version(record: &Option<Box<Record>>) -> Option<u64> {
    record.as_ref().map(|record| record.version)
}

/// The record that an operation is about, if there is one.
fn find(read: &mut CachedStatement<'_>, question: &Question, load: &mut Load) -> rusqlite::Result<Found> {
    if let Some(record) = load.large.get(&question.id) {
        return Ok(Found::Record(Some(record.clone())));
    }
    let mut rows = read.query([question.id.as_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(Found::Record(None)) };
    let bytes = row::outcome_bytes(row);
    if !load.has_room(question.id, bytes) {
        return Ok(Found::LeftOut(bytes));
    }
    let likely = match &question.asked {
        Asked::Open(ask) => Some(&ask.intent),
        Asked::Replace(_) | Asked::Write(_) | Asked::Read(_) => None,
    };
    Ok(match row::record(row, question.asked.key().clone(), likely) {
        Ok(record) => {
            let record = Box::new(record);
            if bytes >= LARGE {
                load.large.insert(question.id, record.clone());
            }
            Found::Record(Some(record))
        }
        Err(error) => Found::Unreadable(error),
    })
}

/// The answer to an operation, which also changes its record.
fn answer(asked: &Asked, record: &mut Option<Box<Record>>, now: Timestamp) -> What {
    match asked {
        Asked::Open(ask) => What::Opened(slot::open(record, ask, now)),
        Asked::Replace(item) => What::Replaced(slot::replace(record, item, now)),
        Asked::Write(item) => What::Written(slot::write(record, item, now)),
        Asked::Read(_) => What::Read(record.clone()),
    }
}
