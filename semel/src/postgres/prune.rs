//! Sweeping expired records out, page by page.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::time::{Instant, sleep};
use tokio_postgres::Statement;

use super::errors;
use super::options::PostgresOptions;
use super::session::Session;
use super::side::Side;
use super::values::Moment;
use crate::error::StoreError;
use crate::store::Prune;

/// How many pages of the table one statement looks at: 2 MiB.
const PAGES: i64 = 256;

/// A table with records, and its pages, counted on from those of the tables before it.
struct Part {
    table: String,
    first: i64,
    end: i64,
}

/// Goes round the table, or its partitions, a few pages at a time. The next sweep begins where the last one ended, so that the
/// beginning of the table is not read again for each call.
pub(super) struct Sweeper {
    side: Side,
    next_page: AtomicI64,
}

impl Sweeper {
    pub(super) fn new(options: Arc<PostgresOptions>) -> Self {
        Self { side: Side::new(options), next_page: AtomicI64::new(0) }
    }

    /// Removes as many as asked for, or all there are in one round.
    pub(super) async fn prune(&self, prune: &Prune) -> Result<u64, StoreError> {
        let session = self.side.checked().await?;
        let parts = self.parts(&session).await?;
        let pages = parts.last().map_or(0, |part| part.end);
        let limit = u64::from(prune.limit);
        let (mut removed, mut seen) = (0, 0);
        let mut page = self.next_page.load(Ordering::Relaxed) % pages.max(1);
        let mut prepared: Option<(i64, Statement)> = None;
        while removed < limit && seen < pages {
            let Some(part) = parts.iter().find(|part| page < part.end) else { break };
            let sweep = match prepared.take().filter(|(first, _)| *first == part.first) {
                Some((_, sweep)) => sweep,
                None => self.prepare(&session, part).await?,
            };
            let end = (page + PAGES).min(part.end);
            let left = i64::from(prune.limit).saturating_sub_unsigned(removed);
            let began = Instant::now();
            let [from, to] = [page, end].map(|page| format!("({},0)", page - part.first));
            let swept = async {
                session
                    .client
                    .execute(&sweep, &[&from, &to, &prune.realm, &left, &prune.before.map(Moment)])
                    .await
                    .map_err(errors::of_question)
            };
            let gone = self.side.in_long_time(swept).await?;
            prepared = Some((part.first, sweep));
            removed += gone;
            if removed < limit {
                seen += end - page;
                page = if end == pages { 0 } else { end };
                self.next_page.store(page, Ordering::Relaxed);
            }
            if gone > 0 {
                // Others want the disk, too.
                sleep(began.elapsed()).await;
            }
        }
        Ok(removed)
    }

    async fn parts(&self, session: &Session) -> Result<Vec<Part>, StoreError> {
        let question = self.side.statement(include_str!("sql/pages.sql"));
        let rows = session.client.query(&question, &[]).await.map_err(errors::of_question)?;
        let mut end = 0;
        let parts = rows.iter().map(|row| {
            let first = end;
            end += row.get::<_, i64>(1);
            Part { table: row.get(0), first, end }
        });
        Ok(parts.collect())
    }

    async fn prepare(&self, session: &Session, part: &Part) -> Result<Statement, StoreError> {
        let sweep = self.side.statement(include_str!("sql/prune.sql"));
        let sweep = sweep.replace(&self.side.statement("semel.records"), &part.table);
        session.client.prepare(&sweep).await.map_err(errors::of_question)
    }
}
