//! Reading records within a limit of bytes for the outcomes of a batch.
//!
//! Each record may have its share of the limit, and larger outcomes are replaced by their lengths;
//! as many of these as fit are read by a second statement. Ordinary outcomes are small, so that one
//! statement reads all of them. Operations whose outcomes do not fit are sent again with another
//! batch. A store runs few of the second statements at a time, whatever the number of its
//! connections, since each may bring an outcome that is larger than the limit.

use futures_util::TryStreamExt;
use tokio::sync::Semaphore;
use tokio_postgres::{Client, Error, Row, Statement};

use super::statements::{self, Column};
use crate::store::postgres::errors;
use crate::store::postgres::row;
use crate::store::shared::record_id::Id;
use crate::words::error::StoreError;

/// The means to read records on a connection.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) client: &'a Client,
    pub(crate) statement: &'a Statement,
    /// The largest size of all outcomes.
    pub(crate) room: usize,
    /// The permits to read what was left out.
    pub(crate) large: &'a Semaphore,
}

/// The readable rows, and the errors of the other records.
#[derive(Default)]
pub(crate) struct Readable {
    pub(crate) rows: Vec<Row>,
    pub(crate) damaged: Vec<(Id, StoreError)>,
}

impl Reader<'_> {
    /// Reads records, and leaves out outcomes that exceed their share of the limit.
    pub(crate) async fn read(self, mut ids: Vec<Id>) -> Result<Vec<Row>, Error> {
        ids.sort_unstable();
        ids.dedup();
        let limit = self.share(ids.len());
        self.read_up_to(limit, ids).await
    }

    /// Reads all readable records: a set with a damaged record in it is halved until that record is
    /// alone.
    pub(crate) async fn read_what_can_be(self, mut ids: Vec<Id>) -> Result<Readable, Error> {
        ids.sort_unstable();
        ids.dedup();
        let limit = self.share(ids.len());
        self.read_what_can_be_up_to(limit, ids).await
    }

    /// Reads as many of the left-out outcomes as still fit, those of the oldest operations first;
    /// at least one, however large it is.
    pub(crate) async fn read_left_out<'r>(
        self,
        rows: impl Iterator<Item = &'r Row> + Clone,
        age: impl Fn(&[u8]) -> usize,
    ) -> Result<Readable, Error> {
        let mut left_out: Vec<(&[u8], usize)> =
            rows.clone().filter_map(|row| Some((row::id(row)?, row::left_out(row)?))).collect();
        if left_out.is_empty() {
            return Ok(Readable::default());
        }
        left_out.sort_by_key(|(id, _)| (age(id), *id));
        left_out.dedup_by_key(|(id, _)| *id);
        let mut room = self.room.saturating_sub(rows.map(row::outcome_bytes).sum());
        let mut ids = Vec::new();
        for (id, bytes) in left_out {
            if (bytes <= room || ids.is_empty())
                && let Some(id) = Id::from_bytes(id)
            {
                room = room.saturating_sub(bytes);
                ids.push(id);
            }
        }
        ids.sort_unstable();
        let limit = if ids.len() == 1 { usize::MAX } else { self.room };
        // The semaphore is never closed.
        let _permit = self.large.acquire().await;
        self.read_what_can_be_up_to(limit, ids).await
    }

    fn share(self, count: usize) -> usize {
        self.room / count.max(1)
    }

    async fn read_up_to(self, limit: usize, ids: Vec<Id>) -> Result<Vec<Row>, Error> {
        query(self.client, self.statement, statements::read(&ids, limit)).await
    }

    async fn read_what_can_be_up_to(self, limit: usize, ids: Vec<Id>) -> Result<Readable, Error> {
        let mut readable = Readable::default();
        let mut sets = vec![ids];
        while let Some(mut ids) = sets.pop() {
            match self.read_up_to(limit, ids.clone()).await {
                Ok(rows) => readable.rows.extend(rows),
                Err(error) if error.code().is_some_and(errors::is_about_a_row) => match *ids {
                    [id] => readable.damaged.push((id, errors::of_question(error))),
                    _ => {
                        let rest = ids.split_off(ids.len() / 2);
                        sets.extend([rest, ids]);
                    }
                },
                Err(error) => return Err(error),
            }
        }
        Ok(readable)
    }
}

/// The rows that a statement returns.
pub(crate) async fn query(
    client: &Client,
    statement: &Statement,
    columns: Vec<Column<'_>>,
) -> Result<Vec<Row>, Error> {
    client.query_raw(statement, columns).await?.try_collect().await
}
