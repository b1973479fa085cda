//! What the rows of a batch mean, each for its question.

use tokio_postgres::{Error, Row};

use super::batch::{Batch, Questions, Round};
use super::committer::Answer;
use super::row;
use super::values::Moment;
use crate::ask::Ask;
use crate::backend::{Opened, Replaced, Written};
use crate::change::{Replace, Write};
use crate::error::StoreError;
use crate::id::Id;
use crate::key::Key;
use crate::lease::Fence;
use crate::question::What;
use crate::record::Record;
use crate::slot;
use crate::time::Timestamp;

/// Something that was not applied.
pub(super) enum Unapplied<'a> {
    Write(Id, &'a Write, usize),
    Replace(Id, &'a Replace, usize),
}

impl Unapplied<'_> {
    pub(super) fn id(&self) -> Id {
        match self {
            Self::Write(id, ..) | Self::Replace(id, ..) => *id,
        }
    }
}

/// The answers by the places of their questions.
pub(super) struct Sorted(Vec<Option<Result<Answer, StoreError>>>);

impl Sorted {
    pub(super) fn new(count: usize) -> Self {
        Self(std::iter::repeat_with(|| None).take(count).collect())
    }

    pub(super) fn into_vec(self) -> Vec<Result<Answer, StoreError>> {
        let unanswered = || Err(StoreError::unknown("Postgres left a question unanswered"));
        self.0.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect()
    }

    fn put(&mut self, place: usize, answer: Result<(Timestamp, What), StoreError>) {
        self.0[place] = Some(answer.map(|(now, what)| Answer { now, what, met_a_lock: false }));
    }

    pub(super) fn written<'a>(&mut self, round: &Round<'a, Write>, rows: &[Row]) -> Vec<Unapplied<'a>> {
        let mut unapplied = Vec::new();
        for ((row, (id, item)), place) in
            by_id(rows, &round.items).into_iter().zip(&round.items).zip(&round.places)
        {
            match row {
                Some(row) => {
                    self.put(*place, row::clock(row).map(|now| (now, What::Written(Written::Applied))))
                }
                None => unapplied.push(Unapplied::Write(*id, item, *place)),
            }
        }
        unapplied
    }

    pub(super) fn replaced<'a>(&mut self, round: &Round<'a, Replace>, rows: &[Row]) -> Vec<Unapplied<'a>> {
        let mut unapplied = Vec::new();
        for ((row, (id, item)), place) in
            by_id(rows, &round.items).into_iter().zip(&round.items).zip(&round.places)
        {
            match row {
                Some(row) => self.put(*place, replaced(row)),
                None => unapplied.push(Unapplied::Replace(*id, item, *place)),
            }
        }
        unapplied
    }

    /// Says why something was not applied, from what is there.
    pub(super) fn explain(&mut self, unapplied: Vec<Unapplied<'_>>, found: &Found<'_>) {
        for item in unapplied {
            let (place, answer) = match item {
                Unapplied::Write(id, item, place) => (
                    place,
                    found.record(id, &item.key).map(|(now, record)| {
                        let fence = item.action.fence();
                        let met_a_lock = record
                            .as_ref()
                            .is_some_and(|it| it.is_owned_by(item.token, fence.unwrap_or(it.fence)));
                        Answer { now, what: What::Written(Written::Unapplied(record)), met_a_lock }
                    }),
                ),
                Unapplied::Replace(id, item, place) => (
                    place,
                    found.record(id, &item.key).map(|(now, record)| {
                        let why = unreplaced(item, record.as_deref(), now);
                        Answer { now, what: What::Replaced(why), met_a_lock: why == Replaced::Locked }
                    }),
                ),
            };
            self.0[place] = Some(answer);
        }
    }

    pub(super) fn opened(
        &mut self,
        Batch { opens, repeats, .. }: &Batch<'_>,
        seen: &[Option<&Row>],
        created: &[Option<&Row>],
        there: &Found<'_>,
    ) {
        let opened = |at: usize| {
            let (id, ask) = opens.items[at];
            if let Some(row) = seen[at] {
                let record = row::record(row, ask.key.clone(), Some(ask))?;
                return Ok((row::clock(row)?, Opened::Found(Box::new(record))));
            }
            if let Some(row) = created[at] {
                let now = row::clock(row)?;
                let lease_until = now.after(ask.terms.lease());
                return Ok((now, Opened::Created { fence: Fence::next(None, now), lease_until }));
            }
            let (now, record) = there.record(id, &ask.key)?;
            Ok(match record {
                Some(record) => (now, Opened::Found(record)),
                None if now > ask.not_after => (now, Opened::Late),
                None => (now, Opened::Unseen),
            })
        };
        for (place, ask, first) in repeats {
            let answer = opened(*first).map(|(now, first_opened)| {
                (now, What::Opened(behind(first_opened, opens.items[*first].1, ask, now)))
            });
            self.put(*place, answer);
        }
        for (at, place) in opens.places.iter().enumerate() {
            self.put(*place, opened(at).map(|(now, opened)| (now, What::Opened(opened))));
        }
    }

    pub(super) fn read(&mut self, questions: &Questions<'_, Key>, rows: &[Row]) {
        let found = Found::of(rows, Vec::new());
        for (id, key, place) in questions {
            self.put(*place, found.record(*id, key).map(|(now, record)| (now, What::Read(record))));
        }
    }
}

/// The row of each item, if there is one.
pub(super) fn by_id<'r, I>(rows: &'r [Row], items: &[(Id, &I)]) -> Vec<Option<&'r Row>> {
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

/// Rows of records, to be found by id, with the clock.
pub(super) struct Found<'r> {
    now: Option<Timestamp>,
    rows: Vec<(&'r [u8], &'r Row)>,
    /// Those that are there, or were, and cannot be read.
    damaged: Vec<(Id, StoreError)>,
}

impl<'r> Found<'r> {
    pub(super) fn of(rows: &'r [Row], damaged: Vec<(Id, StoreError)>) -> Self {
        let now = rows.first().and_then(|row| row::clock(row).ok());
        let mut rows: Vec<_> = rows.iter().filter_map(|row| row::id(row).map(|id| (id, row))).collect();
        rows.sort_unstable_by_key(|(id, _)| *id);
        Self { now, rows, damaged }
    }

    fn record(&self, id: Id, key: &Key) -> Result<(Timestamp, Option<Box<Record>>), StoreError> {
        if let Some((_, error)) = self.damaged.iter().find(|(damaged, _)| *damaged == id) {
            return Err(error.clone());
        }
        let now = self.now.ok_or_else(|| StoreError::unknown("Postgres did not tell its time"))?;
        let Ok(at) = self.rows.binary_search_by_key(&id.as_bytes(), |(id, _)| *id) else {
            return Ok((now, None));
        };
        let record = row::record(self.rows[at].1, key.clone(), None)?;
        Ok((now, Some(Box::new(record))))
    }
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

/// A row of `replace.sql`: clock, id, fence and end of the lease.
fn replaced(row: &Row) -> Result<(Timestamp, What), StoreError> {
    let corrupt = |e: Error| StoreError::corrupt("a replaced record is not shown as expected").with_source(e);
    let fence: i64 = row.try_get(2).map_err(corrupt)?;
    let Moment(lease_until) = row.try_get(3).map_err(corrupt)?;
    let applied = Replaced::Applied { fence: Fence::new(fence.unsigned_abs()), lease_until };
    Ok((row::clock(row)?, What::Replaced(applied)))
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
