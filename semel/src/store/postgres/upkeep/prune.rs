//! The sweeper, which removes expired records page by page.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;

use super::pages::{self, Part};
use super::watermark;
use crate::store::Prune;
use crate::store::postgres::errors;
use crate::store::postgres::options::PostgresOptions;
use crate::store::postgres::session::Session;
use crate::store::postgres::side::Side;
use crate::store::postgres::values::Moment;
use crate::words::error::StoreError;

/// The number of pages of the table that one statement reads: 2 MiB.
const PAGES: i64 = 256;

/// The part of the table's pages that a turn reads when it finds little: a round then takes about
/// four hours.
const TURNS: i64 = 256;
/// The least and the most pages of such a turn: 512 KiB and 128 MiB.
const TURN: [i64; 2] = [64, 16_384];

/// The largest number of pages per expired record at which it is worth going on.
const WORTHWHILE: i64 = 4;

/// The time after which the watermark is not moved again in a turn. Each move passes up to 160,000
/// records.
const MOVING: Duration = Duration::from_secs(60);

/// The interval at which a long turn records its position: well within the time after which another
/// process would take it.
const NOTED_EVERY: Duration = Duration::from_secs(10);

/// The sweeper of a table, or of its partitions, a few pages at a time.
pub(crate) struct Sweeper {
    side: Side,
    /// The page at which the next sweep of this process begins, so that the beginning of the table
    /// is not read again for each call. Paced sweeps keep their position in the database.
    next_page: AtomicI64,
}

/// The range of a sweep, and its result.
struct Swept {
    removed: u64,
    next_page: i64,
}

impl Sweeper {
    pub(crate) fn new(options: Arc<PostgresOptions>) -> Self {
        Self { side: Side::new(options), next_page: AtomicI64::new(0) }
    }

    /// Removes as many records as requested, or all there are in one round. A paced call reads only
    /// a small part of a large table, and goes on where there is much to remove; of several
    /// processes, one does the upkeep at a time.
    pub(crate) async fn prune(&self, prune: &Prune) -> Result<u64, StoreError> {
        let session = self.side.checked().await?;
        let turn = if prune.paced { self.take_turn(&session).await? } else { None };
        if let Some(first_page) = turn {
            self.move_watermark(&session, first_page).await?;
        }
        let parts = self.side.in_time(&session, pages::parts(&self.side, &session)).await?;
        if !prune.paced || pages::are_few(&parts) {
            let start = self.next_page.load(Ordering::Relaxed);
            let swept = self.sweep(&session, &parts, prune, start, i64::MAX).await?;
            self.next_page.store(swept.next_page, Ordering::Relaxed);
            return Ok(swept.removed);
        }
        let Some(first_page) = turn else { return Ok(0) };
        let [least, most] = TURN;
        let patience = (pages::count(&parts) / TURNS).clamp(least, most);
        let swept = self.sweep(&session, &parts, prune, first_page, patience).await?;
        let goes_on = swept.removed >= u64::from(prune.limit);
        self.note(&session, swept.next_page, goes_on).await?;
        Ok(swept.removed)
    }

    /// Takes the next turn, and returns its first page; `None` if it is not due, or another process
    /// has it.
    async fn take_turn(&self, session: &Arc<Session>) -> Result<Option<i64>, StoreError> {
        let turn = self.side.statement(include_str!("sql/sweep_turn.sql"));
        let turn = async { session.client.query_opt(&turn, &[]).await.map_err(errors::of_question) };
        Ok(self.side.in_time(session, turn).await?.map(|turn| turn.get(0)))
    }

    /// Moves the watermark as far as it goes.
    async fn move_watermark(&self, session: &Arc<Session>, first_page: i64) -> Result<(), StoreError> {
        let began = Instant::now();
        while began.elapsed() < MOVING {
            if !self.side.in_long_time(watermark::keep_up(&self.side, session)).await? {
                break;
            }
            self.note(session, first_page, false).await?;
        }
        Ok(())
    }

    /// Sweeps from a page on, until enough records are removed, or so many pages had little to
    /// remove, or the round is over.
    async fn sweep(
        &self,
        session: &Arc<Session>,
        parts: &[Part],
        prune: &Prune,
        start: i64,
        patience: i64,
    ) -> Result<Swept, StoreError> {
        let pages = pages::count(parts);
        let limit = u64::from(prune.limit);
        let (mut seen, mut in_vain, mut noted) = (0, 0, Instant::now());
        let mut swept = Swept { removed: 0, next_page: start % pages.max(1) };
        let mut prepared: Option<(i64, Statement)> = None;
        // The number of pages at a time is smaller around a damaged page.
        let (mut window, mut warned) = (PAGES, false);
        while swept.removed < limit && seen < pages && in_vain < patience {
            let page = swept.next_page;
            let Some(part) = parts.iter().find(|part| page < part.end) else { break };
            let statement = match prepared.take().filter(|(first, _)| *first == part.first) {
                Some((_, statement)) => statement,
                None => self.prepare(session, part).await?,
            };
            let end = (page + window.min(patience - in_vain)).min(part.end);
            let left = i64::from(prune.limit).saturating_sub_unsigned(swept.removed);
            let began = Instant::now();
            let [from, to] = [page, end].map(|page| format!("({},0)", page - part.first));
            let gone = async {
                let asked: [&(dyn ToSql + Sync); 5] =
                    [&from, &to, &prune.realm, &left, &prune.before.map(Moment)];
                Ok(session.client.execute(&statement, &asked).await)
            };
            let gone = self.side.in_long_time(gone).await?;
            prepared = Some((part.first, statement));
            let gone = match gone {
                Ok(gone) => {
                    window = (window * 2).min(PAGES);
                    gone
                }
                Err(error) if !error.code().is_some_and(errors::is_about_a_row) => {
                    return Err(errors::of_question(error));
                }
                Err(_) if end - page > 1 => {
                    window = (end - page) / 2;
                    continue;
                }
                Err(error) => {
                    if !warned {
                        tracing::warn!(%error, table = part.table, page = page - part.first, "damaged pages are not pruned");
                    }
                    warned = true;
                    0
                }
            };
            swept.removed += gone;
            if swept.removed < limit {
                seen += end - page;
                swept.next_page = if end == pages { 0 } else { end };
            }
            if gone.saturating_mul(WORTHWHILE.unsigned_abs()) < (end - page).unsigned_abs() {
                in_vain += end - page;
            }
            if prune.paced && noted.elapsed() > NOTED_EVERY {
                self.note(session, swept.next_page, false).await?;
                noted = Instant::now();
            }
            if gone > 0 {
                // The pause leaves the disk to other users.
                sleep(began.elapsed()).await;
            }
        }
        Ok(swept)
    }

    /// Records that this process keeps the turn, and its position for the process that continues if
    /// this one ends.
    async fn note(&self, session: &Arc<Session>, page: i64, goes_on: bool) -> Result<(), StoreError> {
        let note = self.side.statement(include_str!("sql/sweep_reached.sql"));
        let noted =
            async { session.client.execute(&note, &[&page, &goes_on]).await.map_err(errors::of_question) };
        self.side.in_time(session, noted).await.map(drop)
    }

    async fn prepare(&self, session: &Arc<Session>, part: &Part) -> Result<Statement, StoreError> {
        let sweep = self.side.statement_on(include_str!("sql/prune.sql"), &part.table);
        let prepared = async { session.client.prepare(&sweep).await.map_err(errors::of_question) };
        self.side.in_time(session, prepared).await
    }
}
