//! What operators look at.

use std::sync::Arc;

use super::errors;
use super::options::PostgresOptions;
use super::row;
use super::side::Side;
use super::values::Span;
use crate::counted::Counted;
use crate::error::StoreError;
use crate::id::{self, Id};
use crate::inspect::{Page, Query, Stats};
use crate::time::Timestamp;

pub(super) struct Operator {
    side: Side,
    counted: Counted,
}

impl Operator {
    pub(super) fn new(options: Arc<PostgresOptions>) -> Self {
        Self { side: Side::new(options), counted: Counted::default() }
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
        self.side.in_time(&session, told).await.and_then(|row| row::clock(&row))
    }

    pub(super) async fn wal_position(&self) -> Result<u64, StoreError> {
        let session = self.side.session().await?;
        let question = "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint";
        let told = async { session.client.query_one(question, &[]).await.map_err(errors::of_question) };
        Ok(self.side.in_time(&session, told).await?.get::<_, i64>(0).unsigned_abs())
    }

    pub(super) async fn scan(&self, query: &Query) -> Result<Page, StoreError> {
        self.side.in_long_time(self.page(query)).await
    }

    async fn page(&self, query: &Query) -> Result<Page, StoreError> {
        let after = query.after.as_ref().map(id::position).transpose()?;
        let only = query.whole_key()?.map(|key| Id::of(&key));
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
                    &query.unheard_for.map(Span),
                    &query.stale,
                    &after,
                    &only.as_ref().map(Id::as_bytes),
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
        let next = shown.last().filter(|_| more).and_then(|row| row::id(row)).map(id::cursor);
        let records =
            shown.into_iter().map(|row| row::record(row, row::key(row)?, None)).collect::<Result<_, _>>()?;
        Ok(Page { now, records, next })
    }

    pub(super) async fn stats(&self) -> Result<Stats, StoreError> {
        let count = async {
            let session = self.side.checked().await?;
            let statement = self.side.statement(include_str!("sql/stats.sql"));
            let row = session.client.query_one(&statement, &[]).await.map_err(errors::of_question)?;
            let count = |at: usize| row.get::<_, i64>(at).unsigned_abs();
            let [running, held, lost, done, released] = std::array::from_fn(count);
            Ok(Stats { running, held, lost, done, released })
        };
        self.counted.or_count(self.side.in_long_time(count)).await
    }
}
