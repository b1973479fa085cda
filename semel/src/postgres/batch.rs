//! A batch as statements.
//!
//! Owners' writes come first, then replaces, opens and reads, each as one statement over all of its items. A statement that
//! changes something commits by itself; several go into one transaction. All are sent without waiting for each other.

use futures_util::TryStreamExt;
use futures_util::future::{BoxFuture, join_all};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, Row, Statement};

use super::committer::{Answer, Asked, Question, Ready, What};
use super::id::Id;
use super::row::{self, Column as Place};
use super::statements::{self, Column};
use super::values::Moment;
use crate::ask::{Ask, Durability};
use crate::backend::{Opened, Replaced, Written};
use crate::change::{Replace, Write};
use crate::error::StoreError;
use crate::key::Key;
use crate::lease::Fence;
use crate::record::Record;
use crate::slot;
use crate::time::Timestamp;

/// The items of one statement: each id once, in order, with the place of its question in the batch.
struct Round<'a, I> {
    items: Vec<(Id, &'a I)>,
    places: Vec<usize>,
}

/// Questions of one kind, in the order they came.
type Questions<'a, I> = Vec<(Id, &'a I, usize)>;

pub(super) struct Batch<'a> {
    writes: Vec<Round<'a, Write>>,
    replaces: Vec<Round<'a, Replace>>,
    opens: Round<'a, Ask>,
    /// Further claims of keys that the batch opens already: each with the claim that goes first.
    repeats: Vec<(usize, &'a Ask, Id)>,
    reads: Questions<'a, Key>,
    count: usize,
}

/// Puts the first item of each id into the first statement, the second into another, and so on: a statement can write a row
/// only once.
fn rounds<I>(mut questions: Questions<'_, I>) -> Vec<Round<'_, I>> {
    questions.sort_by_key(|(id, ..)| *id);
    let mut rounds: Vec<Round<'_, I>> = Vec::new();
    for same in questions.chunk_by(|(one, ..), (other, ..)| one == other) {
        for (turn, (id, item, place)) in same.iter().enumerate() {
            if turn == rounds.len() {
                rounds.push(Round { items: Vec::new(), places: Vec::new() });
            }
            rounds[turn].items.push((*id, *item));
            rounds[turn].places.push(*place);
        }
    }
    rounds
}

impl<'a> Batch<'a> {
    pub(super) fn of(questions: &[&'a Question]) -> Self {
        let (mut writes, mut replaces, mut opens, mut reads) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (place, Question { id, asked }) in questions.iter().enumerate() {
            match asked {
                Asked::Write(item) => writes.push((*id, item, place)),
                Asked::Replace(item) => replaces.push((*id, item, place)),
                Asked::Open(item) => opens.push((*id, item, place)),
                Asked::Read(item) => reads.push((*id, item, place)),
            }
        }
        let mut opens = rounds(opens).into_iter();
        let first = opens.next().unwrap_or(Round { items: Vec::new(), places: Vec::new() });
        let repeats = opens.flat_map(|round| round.places.into_iter().zip(round.items));
        Self {
            repeats: repeats.map(|(place, (id, ask))| (place, ask, id)).collect(),
            opens: first,
            writes: rounds(writes),
            replaces: rounds(replaces),
            reads,
            count: questions.len(),
        }
    }

    /// Sends everything, and returns the answers when it is committed. To confirm is to write something in any case, so that the
    /// commit waits for the disk and the standby, and with it everything that was committed before.
    pub(super) async fn commit(
        &self,
        ready: &Ready,
        confirm: bool,
    ) -> Result<Vec<Result<Answer, StoreError>>, Error> {
        let (client, prepared) = (&ready.session.client, &ready.statements);
        let relaxed = !confirm
            && !self.opens.items.is_empty()
            && self.opens.items.iter().all(|(_, ask)| ask.durability == Durability::WithOutcome);
        let changes = self.writes.len() + self.replaces.len() + usize::from(!self.opens.items.is_empty());
        let together = changes > 1 || confirm || relaxed;

        let mut sent: Vec<BoxFuture<'_, Result<Vec<Row>, Error>>> = Vec::new();
        if together {
            sent.push(Box::pin(command(client, "begin")));
        }
        if relaxed {
            sent.push(Box::pin(command(client, "set local synchronous_commit = off")));
        }
        for round in &self.writes {
            sent.push(Box::pin(query(client, &prepared.write, statements::write(&round.items))));
        }
        for round in &self.replaces {
            sent.push(Box::pin(query(client, &prepared.replace, statements::replace(&round.items))));
        }
        if !self.opens.items.is_empty() {
            sent.push(Box::pin(query(client, &prepared.open, statements::open(&self.opens.items))));
        }
        if !self.reads.is_empty() {
            let ids: Vec<Id> = self.reads.iter().map(|(id, ..)| *id).collect();
            sent.push(Box::pin(read(client, &prepared.read, ids)));
        }
        if confirm {
            sent.push(Box::pin(command(client, "select pg_logical_emit_message(true, 'semel', '')")));
        }
        if together {
            sent.push(Box::pin(command(client, "commit")));
        }
        let mut shown = succeeded(join_all(sent).await)?.into_iter().filter(|rows| !rows.is_empty());
        let mut shown = || shown.next().unwrap_or_default();

        let mut answers = Sorted::new(self.count);
        let mut open_ends = Vec::new();
        for round in &self.writes {
            open_ends.extend(answers.written(round, &shown()));
        }
        for round in &self.replaces {
            open_ends.extend(answers.replaced(round, &shown()));
        }
        if !self.opens.items.is_empty() {
            answers.opened(&self.opens, &self.repeats, &shown());
        }
        if !self.reads.is_empty() {
            answers.read(&self.reads, &shown());
        }
        if !open_ends.is_empty() {
            let ids = open_ends.iter().map(|end| end.id()).collect();
            let rows = read(client, &prepared.read, ids).await?;
            answers.tie(open_ends, &rows);
        }
        Ok(answers.into_vec())
    }
}

async fn command(client: &Client, text: &str) -> Result<Vec<Row>, Error> {
    client.batch_execute(text).await.map(|()| Vec::new())
}

async fn query(client: &Client, statement: &Statement, columns: Vec<Column<'_>>) -> Result<Vec<Row>, Error> {
    client.query_raw(statement, columns).await?.try_collect().await
}

async fn read(client: &Client, statement: &Statement, mut ids: Vec<Id>) -> Result<Vec<Row>, Error> {
    ids.sort_unstable();
    ids.dedup();
    let items: Vec<(Id, ())> = ids.into_iter().map(|id| (id, ())).collect();
    query(client, statement, vec![statements::ids(&items)]).await
}

/// All that was answered, or the error that came first: those behind it only say that the transaction is over.
fn succeeded(results: Vec<Result<Vec<Row>, Error>>) -> Result<Vec<Vec<Row>>, Error> {
    let mut rows = Vec::new();
    let mut failed = None;
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
    failed.map_or(Ok(rows), |(error, _)| Err(error))
}

/// Something that was not applied, and why is to be seen in the record.
enum OpenEnd<'a> {
    Write(Id, &'a Write, usize, Timestamp),
    Replace(Id, &'a Replace, usize, Timestamp),
}

impl OpenEnd<'_> {
    fn id(&self) -> Id {
        match self {
            Self::Write(id, ..) | Self::Replace(id, ..) => *id,
        }
    }
}

/// The answers by the places of their questions.
struct Sorted(Vec<Result<Answer, StoreError>>);

impl Sorted {
    fn new(count: usize) -> Self {
        let missing = || Err(StoreError::unknown("Postgres left a question unanswered"));
        Self((0..count).map(|_| missing()).collect())
    }

    fn into_vec(self) -> Vec<Result<Answer, StoreError>> {
        self.0
    }

    fn put(&mut self, place: usize, now: Timestamp, what: Result<What, StoreError>) {
        self.0[place] = what.map(|what| Answer { now, what });
    }

    fn written<'a>(&mut self, round: &Round<'a, Write>, rows: &[Row]) -> Vec<OpenEnd<'a>> {
        let Some(now) = clock(rows) else { return Vec::new() };
        let applied = by_id(rows, &round.items);
        let mut open_ends = Vec::new();
        for (at, (id, item)) in round.items.iter().enumerate() {
            match applied[at] {
                Some(_) => self.put(round.places[at], now, Ok(What::Written(Written::Applied))),
                None => open_ends.push(OpenEnd::Write(*id, item, round.places[at], now)),
            }
        }
        open_ends
    }

    fn replaced<'a>(&mut self, round: &Round<'a, Replace>, rows: &[Row]) -> Vec<OpenEnd<'a>> {
        let Some(now) = clock(rows) else { return Vec::new() };
        let applied = by_id(rows, &round.items);
        let mut open_ends = Vec::new();
        for (at, (id, item)) in round.items.iter().enumerate() {
            let Some(row) = applied[at] else {
                open_ends.push(OpenEnd::Replace(*id, item, round.places[at], now));
                continue;
            };
            let replaced = replaced(row);
            self.put(round.places[at], now, replaced.map(What::Replaced));
        }
        open_ends
    }

    fn opened(&mut self, round: &Round<'_, Ask>, repeats: &[(usize, &Ask, Id)], rows: &[Row]) {
        let Some(now) = clock(rows) else { return };
        let shown = by_id(rows, &round.items);
        let opened = |at: usize| match shown[at] {
            Some(row) => opened(row, &round.items[at].1.key),
            None if now > round.items[at].1.not_after => Ok(Opened::Late),
            None => Ok(Opened::Unseen),
        };
        for (place, ask, id) in repeats {
            let Ok(first) = round.items.binary_search_by_key(id, |(id, _)| *id) else { continue };
            let opened = opened(first).map(|opened| behind(opened, round.items[first].1, ask, now));
            self.put(*place, now, opened.map(What::Opened));
        }
        for at in 0..round.items.len() {
            self.put(round.places[at], now, opened(at).map(What::Opened));
        }
    }

    fn read(&mut self, questions: &Questions<'_, Key>, rows: &[Row]) {
        let Some(now) = clock(rows) else { return };
        let found = Found::of(rows);
        for (id, key, place) in questions {
            self.put(*place, now, found.record(*id, key).map(What::Read));
        }
    }

    fn tie(&mut self, open_ends: Vec<OpenEnd<'_>>, rows: &[Row]) {
        let found = Found::of(rows);
        for open_end in open_ends {
            match open_end {
                OpenEnd::Write(id, item, place, now) => {
                    let there = found.record(id, &item.key);
                    self.put(place, now, there.map(|there| What::Written(Written::Unapplied(there))));
                }
                OpenEnd::Replace(id, item, place, now) => {
                    let there = found.record(id, &item.key);
                    self.put(
                        place,
                        now,
                        there.map(|there| What::Replaced(unreplaced(item, there.as_deref(), now))),
                    );
                }
            }
        }
    }
}

fn clock(rows: &[Row]) -> Option<Timestamp> {
    rows.first().and_then(|row| row::clock(row).ok())
}

/// The row of each item, if there is one.
fn by_id<'r, I>(rows: &'r [Row], items: &[(Id, &I)]) -> Vec<Option<&'r Row>> {
    let mut sorted = vec![None; items.len()];
    for row in rows {
        if let Some(id) = row::id(row)
            && let Ok(at) = items.binary_search_by(|(item, _)| item.as_bytes().cmp(id))
        {
            sorted[at] = Some(row);
        }
    }
    sorted
}

/// Rows of records, to be found by id.
struct Found<'r>(Vec<(&'r [u8], &'r Row)>);

impl<'r> Found<'r> {
    fn of(rows: &'r [Row]) -> Self {
        let mut found: Vec<_> = rows.iter().filter_map(|row| row::id(row).map(|id| (id, row))).collect();
        found.sort_unstable_by_key(|(id, _)| *id);
        Self(found)
    }

    fn record(&self, id: Id, key: &Key) -> Result<Option<Box<Record>>, StoreError> {
        let Ok(at) = self.0.binary_search_by_key(&id.as_bytes(), |(id, _)| *id) else {
            return Ok(None);
        };
        row::record(self.0[at].1, key.clone()).map(|record| Some(Box::new(record)))
    }
}

/// A row of `open.sql`: without a version it was just created.
fn opened(row: &Row, key: &Key) -> Result<Opened, StoreError> {
    if row::get::<Option<i64>>(row, Place::Version)?.is_some() {
        return row::record(row, key.clone()).map(|record| Opened::Found(Box::new(record)));
    }
    let Moment(lease_until) = row::get(row, Place::LeaseUntil)?;
    Ok(Opened::Created { fence: Fence::new(row::unsigned(row, Place::Fence)?), lease_until })
}

/// What a claim finds that stands behind another one of the same key in the batch.
fn behind(first: Opened, first_ask: &Ask, ask: &Ask, now: Timestamp) -> Opened {
    if now > ask.not_after {
        return Opened::Late;
    }
    match first {
        Opened::Created { .. } => {
            let mut slot = None;
            let _created = slot::open(&mut slot, first_ask, now);
            slot::open(&mut slot, ask, now)
        }
        Opened::Found(record) => Opened::Found(record),
        // Nobody was first after all.
        Opened::Late | Opened::Unseen => Opened::Unseen,
    }
}

/// A row of `replace.sql`: id, fence and end of the lease, behind the clock.
fn replaced(row: &Row) -> Result<Replaced, StoreError> {
    let corrupt = |e: Error| StoreError::corrupt("a replaced record is not shown as expected").with_source(e);
    let fence: i64 = row.try_get(2).map_err(corrupt)?;
    let Moment(lease_until) = row.try_get(3).map_err(corrupt)?;
    Ok(Replaced::Applied { fence: Fence::new(fence.unsigned_abs()), lease_until })
}

/// Why a replace was not applied.
fn unreplaced(item: &Replace, there: Option<&Record>, now: Timestamp) -> Replaced {
    let as_expected = there
        .is_some_and(|record| record.token == item.expected_token && record.version == item.expected_version);
    match item.not_after {
        _ if !as_expected => Replaced::Changed,
        Some(not_after) if now > not_after => Replaced::Late,
        _ => Replaced::Locked,
    }
}
