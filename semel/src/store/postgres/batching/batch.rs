//! A batch as SQL statements.
//!
//! Owners' writes come first, then replaces, new records and reads, each as one statement over all
//! of its items. A single statement commits by itself; several statements form one transaction. All
//! are pipelined: sent without waiting for each other.
//!
//! Items that were not applied are read afterwards, in one more statement: the record shows the
//! reason.

use futures_util::future::{BoxFuture, join_all};
use tokio::sync::Semaphore;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, Row};

use super::answers::{Found, Sorted, Unapplied, by_id};
use super::committer::Answer;
use super::reading::{Readable, Reader, query};
use super::statements::{self, Statements};
use crate::protocol::ask::Ask;
use crate::protocol::draft::{Action, Replace, Write};
use crate::store::postgres::row;
use crate::store::shared::group_commit::Reply;
use crate::store::shared::question::{Asked, Question};
use crate::store::shared::record_id::Id;
use crate::words::key::Key;
use crate::words::terms::AfterCrash;

/// The items of one statement: each id once, in order, with the place of its operation in the
/// batch.
pub(crate) struct Round<'a, I> {
    pub(crate) items: Vec<(Id, &'a I)>,
    pub(crate) places: Vec<usize>,
}

impl<I> Round<'_, I> {
    fn place(&self, id: &[u8]) -> Option<usize> {
        let at = self.items.binary_search_by(|(item, _)| item.as_bytes().cmp(id)).ok()?;
        self.places.get(at).copied()
    }
}

/// Operations of one kind, in the order of their arrival.
pub(crate) type Questions<'a, I> = Vec<(Id, &'a I, usize)>;

pub(crate) struct Batch<'a> {
    completes: Vec<Round<'a, Write>>,
    writes: Vec<Round<'a, Write>>,
    replaces: Vec<Round<'a, Replace>>,
    pub(crate) opens: Round<'a, Ask>,
    /// Further claims of keys that the batch already opens: place, claim, and the open that
    /// precedes it.
    pub(crate) repeats: Vec<(usize, &'a Ask, usize)>,
    reads: Questions<'a, Key>,
    count: usize,
}

/// The options for sending a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// Write a row in any case, so that the commit, and with it everything that was committed
    /// before, waits for the disk and the standby.
    pub(crate) confirm: bool,
    /// Use the statements that tolerate concurrent writers of the same rows, and do not wait for
    /// those. They cost more.
    pub(crate) careful: bool,
    /// Look for records before creating any, because most recent claims were repeats.
    pub(crate) read_first: bool,
    /// The largest size of all outcomes that are read.
    pub(crate) room: usize,
}

/// The reason why a batch has no answers.
pub(crate) struct Fault {
    pub(crate) error: Error,
    /// Set if the error came when everything may have been committed; not set if nothing was.
    pub(crate) after_commit: bool,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self { error, after_commit: false }
    }
}

/// The result of a committed batch.
pub(crate) struct Committed {
    pub(crate) replies: Vec<Reply<Answer>>,
    /// `true` if most claims were repeats; `None` if there were no claims.
    pub(crate) mostly_repeats: Option<bool>,
    /// Set if there was more to read than fits.
    pub(crate) is_full: bool,
}

/// Puts the first item of each id into the first statement, the second item into another, and so
/// on: a statement can write a row only once.
fn rounds<I>(mut questions: Questions<'_, I>) -> Vec<Round<'_, I>> {
    questions.sort_by_key(|(id, ..)| *id);
    let mut rounds: Vec<Round<'_, I>> = Vec::new();
    for same in questions.chunk_by(|(one, ..), (other, ..)| one == other) {
        for (turn, (id, item, place)) in same.iter().enumerate() {
            if turn == rounds.len() {
                // Nearly all items are in the first statement.
                let room = if turn == 0 { questions.len() } else { 0 };
                rounds.push(Round { items: Vec::with_capacity(room), places: Vec::with_capacity(room) });
            }
            rounds[turn].items.push((*id, *item));
            rounds[turn].places.push(*place);
        }
    }
    rounds
}

impl<'a> Batch<'a> {
    pub(crate) fn of(questions: &[&'a Question]) -> Self {
        let mut batch = Self {
            completes: Vec::new(),
            writes: Vec::new(),
            replaces: Vec::new(),
            opens: Round { items: Vec::new(), places: Vec::new() },
            repeats: Vec::new(),
            reads: Vec::new(),
            count: questions.len(),
        };
        let (mut writes, mut replaces) = (Vec::new(), Vec::new());
        // Under load, most operations are one of these.
        let (mut completes, mut opens) = (Vec::with_capacity(batch.count), Vec::with_capacity(batch.count));
        for (place, Question { id, asked }) in questions.iter().enumerate() {
            match asked {
                Asked::Write(item) if matches!(item.action, Action::Complete { .. }) => {
                    completes.push((*id, item, place))
                }
                Asked::Write(item) => writes.push((*id, item, place)),
                Asked::Replace(item) => replaces.push((*id, &**item, place)),
                Asked::Open(item) => opens.push((*id, item, place)),
                Asked::Read(item) => batch.reads.push((*id, item, place)),
            }
        }
        batch.completes = rounds(completes);
        batch.writes = rounds(writes);
        batch.replaces = rounds(replaces);
        let mut opens = rounds(opens).into_iter();
        batch.opens = opens.next().unwrap_or(batch.opens);
        for Round { items, places } in opens {
            for ((id, ask), place) in items.into_iter().zip(places) {
                if let Ok(first) = batch.opens.items.binary_search_by_key(&id, |(id, _)| *id) {
                    batch.repeats.push((place, ask, first));
                }
            }
        }
        batch
    }

    /// Sends all statements, and returns the answers when the batch is committed.
    pub(crate) async fn commit(
        &self,
        client: &Client,
        prepared: &Statements,
        manner: Manner,
        large: &Semaphore,
    ) -> Result<Committed, Fault> {
        let reader = Reader { client, statement: &prepared.read, room: manner.room, large };
        let seen = if manner.read_first && !self.opens.items.is_empty() {
            reader.read(self.opens.items.iter().map(|(id, _)| *id).collect()).await?
        } else {
            Vec::new()
        };
        let are_seen = by_id(&seen, &self.opens.items);
        let missing = self.opens.items.iter().enumerate().filter(|(at, _)| are_seen[*at].is_none());
        let missing: Vec<(Id, &Ask)> = missing.map(|(_, item)| *item).collect();
        let Shown { mut written, replaced, created, found } =
            self.send(reader, prepared, manner, &missing).await?;

        let mut answers = Sorted::new(self.count);
        let mut unapplied = Vec::new();
        for round in self.completes.iter().chain(&self.writes) {
            unapplied.extend(answers.written(round, &written.remove(0)));
        }
        for (round, rows) in self.replaces.iter().zip(replaced) {
            unapplied.extend(answers.replaced(round, &rows));
        }
        let created = by_id(&created, &self.opens.items);
        let unseen: Vec<Id> = (0..self.opens.items.len())
            .filter(|at| are_seen[*at].is_none() && created[*at].is_none())
            .map(|at| self.opens.items[at].0)
            .collect();
        let looked_at: Vec<Id> = unapplied.iter().map(Unapplied::id).chain(unseen).collect();
        let after_commit = |error| Fault { error, after_commit: true };
        let there = match looked_at.is_empty() {
            true => Readable::default(),
            false => reader.read_what_can_be(looked_at).await.map_err(after_commit)?,
        };
        let shown = seen.iter().chain(&there.rows).chain(&found);
        let rest = reader.read_left_out(shown, |id| self.place(id)).await.map_err(after_commit)?;
        let is_full = !(rest.rows.is_empty() && rest.damaged.is_empty());

        let damaged: Vec<_> = there.damaged.into_iter().chain(rest.damaged).collect();
        let mut looked_up = Found::of([&rest.rows, &there.rows, &seen], &damaged);
        answers.explain(unapplied, &mut looked_up);
        answers.opened(self, &created, &mut looked_up);
        answers.read(&self.reads, &mut Found::of([&rest.rows, &found, &[]], &damaged));
        let repeats = are_seen.iter().chain(&by_id(&there.rows, &self.opens.items)).flatten().count();
        let mostly_repeats = (!self.opens.items.is_empty()).then_some(repeats * 2 > self.opens.items.len());
        Ok(Committed { replies: answers.into_vec(), mostly_repeats, is_full })
    }

    /// The place of the first operation about an id.
    fn place(&self, id: &[u8]) -> usize {
        let of_write = |round: &Round<'_, Write>| round.place(id);
        let writes = self.completes.iter().chain(&self.writes).filter_map(of_write);
        let replaces = self.replaces.iter().filter_map(|round| round.place(id));
        let reads = self.reads.iter().filter(|(read, ..)| read.as_bytes() == id).map(|(.., place)| *place);
        let opens = self.opens.place(id);
        writes.chain(replaces).chain(reads).chain(opens).min().unwrap_or(self.count)
    }

    /// Sends all statements at once, and waits for their rows: written, replaced, created and read
    /// ones.
    async fn send(
        &self,
        reader: Reader<'_>,
        prepared: &Statements,
        manner: Manner,
        missing: &[(Id, &Ask)],
    ) -> Result<Shown, Fault> {
        let client = reader.client;
        let relaxed = !manner.confirm
            && !missing.is_empty()
            && missing.iter().all(|(_, ask)| ask.terms.after_crash() == AfterCrash::Transactional);
        let changes =
            self.completes.len() + self.writes.len() + self.replaces.len() + usize::from(!missing.is_empty());
        // A read beside a change belongs to its transaction: if the read failed by itself, it would
        // be unknown whether anything was applied.
        let hasty = manner.careful && !missing.is_empty();
        let together =
            changes + usize::from(!self.reads.is_empty()) > 1 || manner.confirm || relaxed || hasty;
        let plain = !(manner.careful || manner.confirm || relaxed) && self.reads.is_empty();
        if let ([completes], false) = (&*self.completes, missing.is_empty())
            && plain
            && changes == 2
        {
            return Ok(send_both(client, prepared, completes, missing).await?);
        }

        let mut sent: Vec<BoxFuture<'_, Result<Vec<Row>, Error>>> = Vec::new();
        if together {
            sent.push(Box::pin(command(client, "begin")));
        }
        if relaxed {
            sent.push(Box::pin(command(client, "set local synchronous_commit = off")));
        }
        if hasty {
            // The batch has already waited for the transaction that has created one of the records
            // and does not commit.
            sent.push(Box::pin(command(client, "set local lock_timeout = '5ms'")));
        }
        let before = sent.len();
        for round in &self.completes {
            sent.push(match manner.careful {
                false => Box::pin(query(
                    client,
                    prepared.complete.of(round.items.len()),
                    statements::complete(&round.items),
                )),
                true => Box::pin(query(client, &prepared.write, statements::write(&round.items))),
            });
        }
        for round in &self.writes {
            sent.push(Box::pin(query(client, &prepared.write, statements::write(&round.items))));
        }
        for round in &self.replaces {
            sent.push(Box::pin(query(client, &prepared.replace, statements::replace(&round.items))));
        }
        if !missing.is_empty() {
            let create = match manner.careful {
                true => &prepared.create_carefully,
                false => prepared.create.of(missing.len()),
            };
            sent.push(Box::pin(query(client, create, statements::create(missing))));
        }
        if !self.reads.is_empty() {
            let ids = self.reads.iter().map(|(id, ..)| *id).collect();
            sent.push(Box::pin(reader.read(ids)));
        }
        if manner.confirm {
            sent.push(Box::pin(command(client, "select pg_logical_emit_message(true, 'semel', '')")));
        }
        if together {
            sent.push(Box::pin(command(client, "commit")));
        }
        let mut shown = succeeded(join_all(sent).await, together)?.into_iter().skip(before);
        let written = shown.by_ref().take(self.completes.len() + self.writes.len()).collect();
        let replaced = shown.by_ref().take(self.replaces.len()).collect();
        let created = if missing.is_empty() { Vec::new() } else { shown.next().unwrap_or_default() };
        let found = if self.reads.is_empty() { Vec::new() } else { shown.next().unwrap_or_default() };
        Ok(Shown { written, replaced, created, found })
    }
}

/// The rows that the statements of a batch returned.
struct Shown {
    written: Vec<Vec<Row>>,
    replaced: Vec<Vec<Row>>,
    created: Vec<Row>,
    found: Vec<Row>,
}

/// Completes and creates in one statement, which is a transaction by itself.
async fn send_both(
    client: &Client,
    prepared: &Statements,
    completes: &Round<'_, Write>,
    missing: &[(Id, &Ask)],
) -> Result<Shown, Error> {
    let mut columns = statements::complete(&completes.items);
    columns.extend(statements::create(missing));
    let both = query(client, &prepared.complete_and_create, columns).await?;
    let (created, completed) = both.into_iter().partition(|row| row::created_fence(row).is_some());
    Ok(Shown { written: vec![completed], replaced: Vec::new(), created, found: Vec::new() })
}

async fn command(client: &Client, text: &str) -> Result<Vec<Row>, Error> {
    client.batch_execute(text).await.map(|()| Vec::new())
}

/// All answers, or the first error: the errors behind it only say that the transaction is over. If
/// `begin` itself failed, there was no transaction, and the statements behind it may have been
/// committed one by one.
fn succeeded(results: Vec<Result<Vec<Row>, Error>>, in_transaction: bool) -> Result<Vec<Vec<Row>>, Fault> {
    let mut rows = Vec::new();
    let mut failed = None;
    let has_begun = !in_transaction || results.first().is_some_and(Result::is_ok);
    for result in results {
        match result {
            Ok(some) => rows.push(some),
            Err(error) => {
                let aftermath = error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION);
                if failed.as_ref().is_none_or(|(_, earlier)| *earlier && !aftermath) {
                    failed = Some((error, aftermath));
                }
            }
        }
    }
    match failed {
        Some((error, _)) => Err(Fault { error, after_commit: !has_begun }),
        None => Ok(rows),
    }
}
