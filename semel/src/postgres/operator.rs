//! What operators look at.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::errors;
use super::id::Id;
use super::options::PostgresOptions;
use super::row;
use super::side::Side;
use super::values::Span;
use crate::error::StoreError;
use crate::inspect::{Cursor, Page, Query, Stats};
use crate::key::Scope;
use crate::time::Timestamp;

/// A count is kept for this many times as long as it took, so that counting takes up a twentieth of one
/// connection's time at most, however large the table.
const COUNT_KEPT: u32 = 20;

pub(super) struct Operator {
    side: Side,
    counted: Mutex<Option<Counted>>,
}

struct Counted {
    stats: Stats,
    took: Duration,
    at: Instant,
}

impl Operator {
    pub(super) fn new(options: Arc<PostgresOptions>) -> Self {
        Self { side: Side::new(options), counted: Mutex::new(None) }
    }

    /// Makes sure that the server can be reached.
    pub(super) async fn reach(&self) -> Result<(), StoreError> {
        self.side.session().await.map(drop)
    }

    pub(super) async fn clock(&self) -> Result<Timestamp, StoreError> {
        let session = self.side.session().await?;
        let told = async {
            let told = session.client.query_one("select clock_timestamp()", &[]).await;
            told.map_err(errors::of_question)
        };
        // A claim waits for this, so it must not take forever.
        match self.side.in_time(told).await {
            Ok(row) => row::clock(&row),
            Err(error) => {
                // Whoever asks next should not wait for the same process.
                self.side.give_up(&session).await;
                Err(error)
            }
        }
    }

    pub(super) async fn scan(&self, query: &Query) -> Result<Page, StoreError> {
        let after = query.after.as_ref().map(position).transpose()?;
        let id = whole_key(query)?;
        let limit = i64::from(query.limit) + 1;
        let session = self.side.checked().await?;
        let statement = self.side.statement(include_str!("sql/scan.sql"));
        let rows = session
            .client
            .query(
                &statement,
                &[
                    &query.phase.map(|phase| phase.as_str()),
                    &query.realm,
                    &query.principal,
                    &query.value,
                    &query.operation,
                    &query.expired,
                    &query.min_age.map(Span),
                    &after,
                    &id.as_ref().map(Id::as_bytes),
                    &limit,
                ],
            )
            .await
            .map_err(errors::of_question)?;
        let now = rows.first().map(row::clock).transpose()?;
        let now = now.ok_or_else(|| StoreError::unavailable("Postgres did not tell its time"))?;
        let found = rows.iter().filter(|row| row::id(row).is_some());
        let shown: Vec<_> = found.clone().take(query.limit as usize).collect();
        let more = found.count() > shown.len();
        let next = shown.last().filter(|_| more).and_then(|row| row::id(row)).map(cursor);
        let records =
            shown.into_iter().map(|row| row::record(row, row::key(row)?, None)).collect::<Result<_, _>>()?;
        Ok(Page { now, records, next })
    }

    pub(super) async fn stats(&self) -> Result<Stats, StoreError> {
        let mut counted = self.counted.lock().await;
        if let Some(Counted { stats, .. }) =
            counted.as_ref().filter(|counted| counted.at.elapsed() < counted.took * COUNT_KEPT)
        {
            return Ok(*stats);
        }
        let session = self.side.checked().await?;
        let began = Instant::now();
        let statement = self.side.statement(include_str!("sql/stats.sql"));
        let row = session.client.query_one(&statement, &[]).await.map_err(errors::of_question)?;
        let count = |at: usize| row.get::<_, i64>(at).unsigned_abs();
        let stats = Stats { running: count(0), held: count(1), done: count(2), released: count(3) };
        *counted = Some(Counted { stats, took: began.elapsed(), at: Instant::now() });
        Ok(stats)
    }
}

/// The id, if the query names the whole key: then there is nothing to search.
fn whole_key(query: &Query) -> Result<Option<Id>, StoreError> {
    let Query { realm: Some(realm), principal: Some(principal), value: Some(value), .. } = query else {
        return Ok(None);
    };
    let key = Scope::new(realm)
        .and_then(|scope| scope.with_principal(principal))
        .and_then(|scope| scope.key(value));
    key.map(|key| Some(Id::of(&key)))
        .map_err(|e| StoreError::refused("the query names no possible key").with_source(e))
}

/// A cursor is the last id of its page, in hexadecimal digits.
fn cursor(id: &[u8]) -> Cursor {
    Cursor::new(id.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn position(cursor: &Cursor) -> Result<Vec<u8>, StoreError> {
    let text = cursor.as_str().as_bytes();
    let digit = |byte: &u8| (*byte as char).to_digit(16);
    let byte = |pair: &[u8]| Some((digit(pair.first()?)? << 4 | digit(pair.get(1)?)?) as u8);
    let bytes: Option<Vec<u8>> = text.chunks(2).map(byte).collect();
    bytes
        .filter(|bytes| bytes.len() == 32)
        .ok_or_else(|| StoreError::refused("the cursor is not from this store"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_place() {
        let id: Vec<u8> = (100..132).collect();
        assert_eq!(position(&cursor(&id)).unwrap(), id);
        for bad in ["", "0", "zz", "00ff", "é"] {
            assert!(position(&Cursor::new(bad)).is_err(), "{bad}");
        }
    }
}
