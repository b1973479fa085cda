//! The answer to each operation of a batch, from the rows that the statements returned.

use tokio_postgres::{Error, Row};

use super::batch::{Batch, Questions, Round};
use super::committer::Answer;
use crate::protocol::ask::Ask;
use crate::protocol::draft::{Replace, Write};
use crate::protocol::slot;
use crate::store::backend::{Opened, Replaced, Written};
use crate::store::postgres::row;
use crate::store::postgres::values::Moment;
use crate::store::shared::group_commit::Reply;
use crate::store::shared::question::What;
use crate::store::shared::record_id::Id;
use crate::words::error::StoreError;
use crate::words::key::Key;
use crate::words::lease::Fence;
use crate::words::record::Record;
use crate::words::time::Timestamp;

/// An item that was not applied.
pub(crate) enum Unapplied<'a> {
    Write(Id, &'a Write, usize),
    Replace(Id, &'a Replace, usize),
}

impl Unapplied<'_> {
    pub(crate) fn id(&self) -> Id {
        match self {
            Self::Write(id, ..) | Self::Replace(id, ..) => *id,
        }
    }
}

/// The reason why an operation of a committed batch has no answer.
pub(crate) enum Unanswered {
    Failed(StoreError),
    /// The outcome for it was left out, and has this many bytes.
    LeftOut(usize),
}

impl From<StoreError> for Unanswered {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// The replies, by the places of their operations.
pub(crate) struct Sorted(Vec<Option<Reply<Answer>>>);

impl Sorted {
    pub(crate) fn new(count: usize) -> Self {
        Self(std::iter::repeat_with(|| None).take(count).collect())
    }

    pub(crate) fn into_vec(self) -> Vec<Reply<Answer>> {
        let unanswered = || Reply::Answer(Err(StoreError::unknown("Postgres left an operation unanswered")));
        self.0.into_iter().map(|reply| reply.unwrap_or_else(unanswered)).collect()
    }

    fn put(&mut self, place: usize, answer: Result<Answer, Unanswered>) {
        self.0[place] = Some(match answer {
            Ok(answer) => Reply::Answer(Ok(answer)),
            Err(Unanswered::Failed(error)) => Reply::Answer(Err(error)),
            Err(Unanswered::LeftOut(bytes)) => Reply::Later(bytes),
        });
    }

    pub(crate) fn written<'a>(&mut self, round: &Round<'a, Write>, rows: &[Row]) -> Vec<Unapplied<'a>> {
        let mut unapplied = Vec::new();
        for ((row, (id, item)), place) in
            by_id(rows, &round.items).into_iter().zip(&round.items).zip(&round.places)
        {
            match row {
                Some(row) => {
                    let applied = |now| Answer::of(now, What::Written(Written::Applied));
                    self.put(*place, row::clock(row).map(applied).map_err(Unanswered::from));
                }
                None => unapplied.push(Unapplied::Write(*id, item, *place)),
            }
        }
        unapplied
    }

    pub(crate) fn replaced<'a>(&mut self, round: &Round<'a, Replace>, rows: &[Row]) -> Vec<Unapplied<'a>> {
        let mut unapplied = Vec::new();
        for ((row, (id, item)), place) in
            by_id(rows, &round.items).into_iter().zip(&round.items).zip(&round.places)
        {
            match row {
                Some(row) => self.put(*place, replaced(row).map_err(Unanswered::from)),
                None => unapplied.push(Unapplied::Replace(*id, item, *place)),
            }
        }
        unapplied
    }

    /// Explains each item that was not applied, from the records that were found.
    pub(crate) fn explain(&mut self, unapplied: Vec<Unapplied<'_>>, found: &mut Found<'_>) {
        for item in unapplied {
            let (place, answer) = match item {
                Unapplied::Write(id, item, place) => (
                    place,
                    found.shared(id, &item.key, None).map(|(now, record)| {
                        let fence = item.action.fence();
                        let met_a_lock = record
                            .as_ref()
                            .is_some_and(|it| it.is_owned_by(item.token, fence.unwrap_or(it.fence)));
                        Answer { now, what: What::Written(Written::Unapplied(record)), met_a_lock }
                    }),
                ),
                Unapplied::Replace(id, item, place) => (
                    place,
                    found.shared(id, &item.key, None).map(|(now, record)| {
                        let why = unreplaced(item, record.as_deref(), now);
                        Answer { now, what: What::Replaced(why), met_a_lock: why == Replaced::Locked }
                    }),
                ),
            };
            self.put(place, answer);
        }
    }

    /// Sorts the answers to claims. Each record is read from its row once; repeats of a claim get a
    /// copy that shares the outcome.
    pub(crate) fn opened(
        &mut self,
        Batch { opens, repeats, .. }: &Batch<'_>,
        created: &[Option<&Row>],
        there: &mut Found<'_>,
    ) {
        let mut opened = |at: usize, look: Look| -> Result<(Timestamp, Opened), Unanswered> {
            let (id, ask) = opens.items[at];
            if let Some(row) = created[at] {
                let now = row::clock(row)?;
                let fence = row::created_fence(row)
                    .ok_or_else(|| StoreError::corrupt("a created record is shown without its fence"))?;
                let lease_until = now.after(ask.terms.lease());
                return Ok((now, Opened::Created { fence, lease_until }));
            }
            let (now, record) = look(there, id, ask)?;
            Ok(match record {
                Some(record) => (now, Opened::Found(record)),
                None if now > ask.not_after => (now, Opened::Late),
                None => (now, Opened::Unseen),
            })
        };
        for (place, ask, first) in repeats {
            let answer = opened(*first, |there, id, ask| there.shared(id, &ask.key, Some(ask)));
            let answer = answer.map(|(now, first_opened)| {
                Answer::of(now, What::Opened(behind(first_opened, opens.items[*first].1, ask, now)))
            });
            self.put(*place, answer);
        }
        for (at, place) in opens.places.iter().enumerate() {
            let answer = opened(at, |there, id, ask| there.taken(id, &ask.key, Some(ask)));
            self.put(*place, answer.map(|(now, opened)| Answer::of(now, What::Opened(opened))));
        }
    }

    pub(crate) fn read(&mut self, questions: &Questions<'_, Key>, found: &mut Found<'_>) {
        for (id, key, place) in questions {
            let read = found.shared(*id, key, None);
            self.put(*place, read.map(|(now, record)| Answer::of(now, What::Read(record))));
        }
    }
}

/// The way in which the record of a claim is looked up.
type Look = fn(&mut Found<'_>, Id, &Ask) -> Looked;

/// The record of a key, if there is one, and the clock when it was read.
type Looked = Result<(Timestamp, Option<Box<Record>>), Unanswered>;

/// The row of each item, if there is one.
pub(crate) fn by_id<'r, I>(rows: &'r [Row], items: &[(Id, &I)]) -> Vec<Option<&'r Row>> {
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

/// The rows of records, found by id, with the clock.
pub(crate) struct Found<'r> {
    now: Option<Timestamp>,
    rows: Vec<Entry<'r>>,
    /// The records that exist, or did, and cannot be read.
    damaged: &'r [(Id, StoreError)],
}

struct Entry<'r> {
    id: &'r [u8],
    row: &'r Row,
    /// The record, once it has been read from the row for several operations.
    record: Option<Box<Record>>,
}

impl<'r> Found<'r> {
    /// The rows of several statements. Later statements take precedence: if the same record is in
    /// more than one array, the first array counts.
    pub(crate) fn of(shown: [&'r [Row]; 3], damaged: &'r [(Id, StoreError)]) -> Self {
        let now = shown.iter().rev().find_map(|rows| row::clock(rows.first()?).ok());
        let entry = |row| Some(Entry { id: row::id(row)?, row, record: None });
        let mut rows: Vec<_> = shown.into_iter().flatten().filter_map(entry).collect();
        rows.sort_by_key(|entry| entry.id);
        rows.dedup_by_key(|entry| entry.id);
        Self { now, rows, damaged }
    }

    /// The record, for one of several operations about it.
    fn shared(&mut self, id: Id, key: &Key, likely: Option<&Ask>) -> Looked {
        self.look_up(id, |entry| {
            let record = match entry.record.take() {
                Some(record) => record,
                None => Box::new(row::record(entry.row, key.clone(), likely)?),
            };
            entry.record = Some(record.clone());
            Ok(record)
        })
    }

    /// The record, for the last operation about it.
    fn taken(&mut self, id: Id, key: &Key, likely: Option<&Ask>) -> Looked {
        self.look_up(id, |entry| match entry.record.take() {
            Some(record) => Ok(record),
            None => row::record(entry.row, key.clone(), likely).map(Box::new),
        })
    }

    fn look_up(
        &mut self,
        id: Id,
        record: impl FnOnce(&mut Entry<'r>) -> Result<Box<Record>, StoreError>,
    ) -> Looked {
        if let Some((_, error)) = self.damaged.iter().find(|(damaged, _)| *damaged == id) {
            return Err(error.clone().into());
        }
        let Ok(at) = self.rows.binary_search_by_key(&id.as_bytes(), |entry| entry.id) else {
            let now = self.now.ok_or_else(|| StoreError::unknown("Postgres did not report its time"))?;
            return Ok((now, None));
        };
        let entry = &mut self.rows[at];
        match row::left_out(entry.row) {
            Some(bytes) => Err(Unanswered::LeftOut(bytes)),
            None => Ok((row::clock(entry.row)?, Some(record(entry)?))),
        }
    }
}

/// The result of a claim that follows another claim of the same key in the batch.
fn behind(first: Opened, first_ask: &Ask, ask: &Ask, now: Timestamp) -> Opened {
    if now > ask.not_after {
        return Opened::Late;
    }
    match first {
        Opened::Created { fence, .. } => {
            let mut slot = None;
            let _created = slot::open(&mut slot, first_ask, now);
            if let Some(record) = &mut slot {
                record.fence = fence;
            }
            slot::open(&mut slot, ask, now)
        }
        Opened::Found(record) => Opened::Found(record),
        // The first claim has created nothing, either.
        Opened::Late | Opened::Unseen => Opened::Unseen,
    }
}

/// A row of `replace.sql`: clock, id, fence and end of the lease.
fn replaced(row: &Row) -> Result<Answer, StoreError> {
    let corrupt = |e: Error| StoreError::corrupt("a replaced record is not shown as expected").with_source(e);
    let fence: i64 = row.try_get(2).map_err(corrupt)?;
    let Moment(lease_until) = row.try_get(3).map_err(corrupt)?;
    let applied = Replaced::Applied { fence: Fence::new(fence.unsigned_abs()), lease_until };
    Ok(Answer::of(row::clock(row)?, What::Replaced(applied)))
}

/// The reason why a replace was not applied.
fn unreplaced(item: &Replace, there: Option<&Record>, now: Timestamp) -> Replaced {
    let as_expected = there
        .is_some_and(|record| record.token == item.expected_token && record.version == item.expected_version);
    match item.not_after {
        _ if !as_expected => Replaced::Changed,
        Some(not_after) if now > not_after => Replaced::Late,
        _ => Replaced::Locked,
    }
}
