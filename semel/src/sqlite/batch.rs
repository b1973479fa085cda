//! What is asked, in one transaction.
//!
//! SQLite has one writer at a time. Whoever has its lock can read a record, let [`slot`] change it, and write it back,
//! and nobody has changed it meanwhile: so there is no rule here, and no expectation in the statements.

use std::sync::Arc;

use rusqlite::{CachedStatement, Transaction, TransactionBehavior};

use super::errors::{self, Fault};
use super::row::{self, Writer};
use super::session::Session;
use crate::error::StoreError;
use crate::question::{Asked, Question, What};
use crate::record::Record;
use crate::slot;
use crate::time::Timestamp;

/// What became of a question, with the clock of the store.
pub(super) struct Answer {
    pub(super) now: Timestamp,
    pub(super) what: What,
}

pub(super) type Answers = Vec<Result<Answer, StoreError>>;

/// Applies the questions in their order, all or none, and answers each.
///
/// Claims of keys that have a record change nothing. If there is nothing else, they are answered without the lock, and
/// nothing is written.
pub(super) fn commit(session: &Session, questions: &[Arc<Question>]) -> Result<Answers, Fault> {
    if questions.iter().all(|question| matches!(question.asked, Asked::Open(_) | Asked::Read(_))) {
        let view = session.begin_fitting(TransactionBehavior::Deferred)?;
        if let Some(answers) = apply(session, &view, questions, false).map_err(|e| session.fault(e))? {
            return Ok(answers);
        }
    }
    let change = session.begin_fitting(TransactionBehavior::Immediate)?;
    let answers = apply(session, &change, questions, true).map_err(|e| session.fault(e))?;
    session.commit(change)?;
    Ok(answers.unwrap_or_default())
}

/// The answers; nothing if there is something to write, and that may not be.
fn apply(
    session: &Session,
    transaction: &Transaction<'_>,
    questions: &[Arc<Question>],
    may_write: bool,
) -> rusqlite::Result<Option<Answers>> {
    // Not before: a wait for the lock would have made it old.
    let now = Timestamp::of_host();
    let mut read = transaction.prepare_cached(include_str!("sql/read.sql"))?;
    let mut writer = may_write.then(|| Writer::prepare(transaction)).transpose()?;
    let mut answers = Vec::with_capacity(questions.len());
    for question in questions {
        let found =
            find(&mut read, question).or_else(|error| errors::of_record(session.path(), error).map(Err))?;
        let mut record = match found {
            Ok(found) => found,
            Err(unreadable) => {
                answers.push(Err(unreadable));
                continue;
            }
        };
        let before = version(&record);
        let what = answer(&question.asked, &mut record, now);
        if let Some(record) = record.filter(|record| Some(record.version) != before) {
            let Some(writer) = &mut writer else { return Ok(None) };
            writer.put(question.id, &record, before.is_none())?;
        }
        answers.push(Ok(Answer { now, what }));
    }
    Ok(Some(answers))
}

/// Every write raises it.
fn version(record: &Option<Box<Record>>) -> Option<u64> {
    record.as_ref().map(|record| record.version)
}

/// The record that a question is about, if there is one.
fn find(
    read: &mut CachedStatement<'_>,
    question: &Question,
) -> rusqlite::Result<Result<Option<Box<Record>>, StoreError>> {
    let mut rows = read.query([question.id.as_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(Ok(None)) };
    let likely = match &question.asked {
        Asked::Open(ask) => Some(&ask.intent),
        Asked::Replace(_) | Asked::Write(_) | Asked::Read(_) => None,
    };
    Ok(row::record(row, question.asked.key().clone(), likely).map(|record| Some(Box::new(record))))
}

/// What a question comes to, and what becomes of its record.
fn answer(asked: &Asked, record: &mut Option<Box<Record>>, now: Timestamp) -> What {
    match asked {
        Asked::Open(ask) => What::Opened(slot::open(record, ask, now)),
        Asked::Replace(item) => What::Replaced(slot::replace(record, item, now)),
        Asked::Write(item) => What::Written(slot::write(record, item, now)),
        Asked::Read(_) => What::Read(record.clone()),
    }
}
