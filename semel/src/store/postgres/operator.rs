//! The verbs of the operator, and the secret beside the records.

use std::sync::Arc;

use tokio_postgres::{Error, Row, SimpleQueryMessage};

use super::errors;
use super::listing::Place;
use super::options::PostgresOptions;
use super::row::{self, Column};
use super::session::Session;
use super::side::Side;
use super::upkeep::{pages, watermark};
use super::values::{Moment, Span};
use crate::store::inspect::{ListQuery, Page, Stats};
use crate::store::shared::cached_stats::Counted;
use crate::store::shared::record_id::Id;
use crate::words::error::StoreError;
use crate::words::record::Phase;
use crate::words::size::StoreSize;
use crate::words::time::Timestamp;

/// The number of times that the secret is looked for: another process may write one in between.
const SECRET_TRIES: u32 = 4;

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
        // A claim waits for this, so it has a time limit.
        self.side.in_time(&session, told).await.and_then(|row| row::clock(&row))
    }

    pub(super) async fn size(&self) -> Result<StoreSize, StoreError> {
        let session = self.side.session().await?;
        let statement = self.side.statement(include_str!("sql/size.sql"));
        let told = async { session.client.query_one(&statement, &[]).await.map_err(errors::of_question) };
        let told = self.side.in_time(&session, told).await?;
        let number = |at: usize| Some(told.get::<_, i64>(at).unsigned_abs());
        Ok(StoreSize { bytes: number(0), records: number(1) })
    }

    pub(super) async fn scan(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.side.in_long_time(self.page(query)).await
    }

    async fn page(&self, query: &ListQuery) -> Result<Page, StoreError> {
        let after = query.after.as_ref().map(Place::of).transpose()?;
        let only = query.whole_key()?.map(|key| Id::of(&key));
        let is_unsettled = |phase| matches!(phase, Phase::Running | Phase::Held | Phase::Lost);
        let unsettled = query.stale || query.phase.is_some_and(is_unsettled);
        let session = self.side.checked().await?;
        let mut watermark = None;
        if unsettled && only.is_none() {
            if after.is_none() {
                watermark::keep_up(&self.side, &session).await?;
            }
            watermark = Some(watermark::watermark(&self.side, &session).await?);
        }
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
                    &after.as_ref().map(|place| Moment(place.created_at)),
                    &after.as_ref().map(|place| &*place.id),
                    &after.as_ref().map(|place| Moment(place.until)),
                    &only.as_ref().map(Id::as_bytes),
                    &(i64::from(query.limit) + 1),
                    &watermark.map(|_| entries(query.limit)),
                    &watermark,
                ],
            )
            .await
            .map_err(errors::of_question)?;
        page(&rows, query.limit as usize, after.map(|place| place.until))
    }

    pub(super) async fn stats(&self) -> Result<Stats, StoreError> {
        let count = async {
            let session = self.side.checked().await?;
            watermark::keep_up(&self.side, &session).await?;
            let parts = pages::parts(&self.side, &session).await?;
            if pages::are_few(&parts) {
                match self.count_all(&session).await {
                    // The alternative reads no page that has only settled records.
                    Err(error) if error.code().is_some_and(errors::is_about_a_row) => {
                        tracing::warn!(%error, "records on damaged pages are not counted, but estimated");
                        watermark::read_by_index(&session).await.map_err(errors::of_question)?;
                    }
                    counted => return counted.map_err(errors::of_question),
                }
            }
            self.count_unsettled(&session).await
        };
        self.counted.or_count(self.side.in_long_time(count)).await
    }

    async fn count_all(&self, session: &Session) -> Result<Stats, Error> {
        let statement = self.side.statement(include_str!("sql/stats.sql"));
        let row = session.client.query_one(&statement, &[]).await?;
        let [running, held, lost, done, released] = counts(&row);
        Ok(Stats { running, held, lost, done, released, estimated: false })
    }

    async fn count_unsettled(&self, session: &Session) -> Result<Stats, StoreError> {
        let statement = self.side.statement(include_str!("sql/count_unsettled.sql"));
        let watermark = watermark::watermark(&self.side, session).await?;
        let row = session.client.query_one(&statement, &[&watermark]).await.map_err(errors::of_question)?;
        let [running, held, lost] = counts(&row);
        let [done, released] =
            [self.estimate(session, "done").await?, self.estimate(session, "released").await?];
        Ok(Stats { running, held, lost, done, released, estimated: true })
    }

    /// The number of records in a state, as the planner estimates it: from the size of the table
    /// and the result of the last `analyze`.
    async fn estimate(&self, session: &Session, state: &str) -> Result<u64, StoreError> {
        let question = format!("explain (format json) select from semel.records where state = '{state}'");
        let question = self.side.statement(&question);
        let plan = session.client.simple_query(&question).await.map_err(errors::of_question)?;
        let text = plan.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        let plan: serde_json::Value =
            text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        plan.pointer("/0/Plan/Plan Rows")
            .and_then(serde_json::Value::as_u64)
            .ok_or_else(|| StoreError::corrupt("Postgres did not explain how many records it expects"))
    }

    pub(super) async fn keep_secret(
        &self,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let session = self.side.checked().await?;
        let read = self.side.statement(include_str!("sql/secret.sql"));
        let keep = self.side.statement(include_str!("sql/keep_secret.sql"));
        let kept = async {
            for _ in 0..SECRET_TRIES {
                // The secret usually exists, and is only read.
                let rows = session.client.query(&read, &[]).await.map_err(errors::of_question)?;
                let found = rows.first().map(|row| row.get::<_, Vec<u8>>(0));
                if let Some(kept) = found.filter(|kept| expected != Some(kept)) {
                    return Ok(kept);
                }
                let written =
                    session.client.execute(&keep, &[&expected, &value]).await.map_err(errors::of_question)?;
                if written == 1 {
                    return Ok(value.to_vec());
                }
            }
            Err(StoreError::unavailable("the secret of the principals changed while it was read"))
        };
        self.side.in_time(&session, kept).await
    }
}

/// The number of entries of the unsettled records that are read for a page: somewhat more than fit,
/// because some are settled, or do not match.
fn entries(limit: u32) -> i64 {
    i64::from(limit).saturating_mul(4).clamp(200, 1_000)
}

/// The page in the rows of `scan.sql`, of a listing that began at this moment, or begins now.
fn page(rows: &[Row], limit: usize, until: Option<Timestamp>) -> Result<Page, StoreError> {
    let first = rows.first().ok_or_else(|| StoreError::unavailable("Postgres did not report its time"))?;
    let now = row::clock(first)?;
    let found = rows.iter().filter(|row| row::id(row).is_some());
    let shown: Vec<_> = found.clone().take(limit).collect();
    // A page ends at its last record if more records match, otherwise where the search has stopped.
    let end = match shown.last() {
        Some(last) if found.count() > shown.len() => Some((*last, Column::CreatedAt, Column::Id)),
        None if limit == 0 => None,
        _ => row::get::<Option<bool>>(first, Column::IsMore)?.unwrap_or_default().then_some((
            first,
            Column::ReachedAt,
            Column::ReachedId,
        )),
    };
    let place = |(row, created_at, id): (&Row, Column, Column)| {
        let Moment(created_at) = row::get(row, created_at)?;
        Ok(Place { created_at, id: row::get(row, id)?, until: until.unwrap_or(now) })
    };
    let next = end.map(place).transpose()?.map(|place| place.cursor());
    let records =
        shown.into_iter().map(|row| row::record(row, row::key(row)?, None)).collect::<Result<_, _>>()?;
    Ok(Page { now, records, next })
}

fn counts<const N: usize>(row: &Row) -> [u64; N] {
    std::array::from_fn(|at| row.get::<_, i64>(at).unsigned_abs())
}
