//! Sweeping expired records out, page by page.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::time::{Instant, sleep};

use super::errors;
use super::options::PostgresOptions;
use super::side::Side;
use crate::error::StoreError;
use crate::store::Prune;

/// How many pages of the table one statement looks at: 2 MiB.
const PAGES: i64 = 256;

/// Goes round the table, a few pages at a time. The next sweep begins where the last one ended, so that the
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
        let pages = self.side.statement(include_str!("sql/pages.sql"));
        let pages: i64 = session.client.query_one(&pages, &[]).await.map_err(errors::of_question)?.get(0);
        let sweep = session.client.prepare(&self.side.statement(include_str!("sql/prune.sql"))).await;
        let sweep = sweep.map_err(errors::of_question)?;
        let limit = u64::from(prune.limit);
        let (mut removed, mut seen) = (0, 0);
        let mut page = self.next_page.load(Ordering::Relaxed) % pages.max(1);
        while removed < limit && seen < pages {
            let end = (page + PAGES).min(pages);
            let left = i64::from(prune.limit).saturating_sub_unsigned(removed);
            let began = Instant::now();
            let (from, to) = (format!("({page},0)"), format!("({end},0)"));
            let gone = session.client.execute(&sweep, &[&from, &to, &prune.realm, &left]).await;
            let gone = gone.map_err(errors::of_question)?;
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
}
