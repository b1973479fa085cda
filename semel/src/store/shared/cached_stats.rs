//! Counts of records that are reused for a while.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::store::inspect::Stats;
use crate::words::error::StoreError;

/// The factor by which a count is kept longer than counting took, so that counting takes at most a
/// twentieth of one connection's time, however many records there are.
const KEPT: u32 = 20;

/// The last count of a store.
#[derive(Default)]
pub(crate) struct Counted(Mutex<Option<Count>>);

struct Count {
    stats: Stats,
    took: Duration,
    at: Instant,
}

impl Counted {
    /// The last count, or a new one if that is too old. Concurrent callers wait for the new one.
    pub(crate) async fn or_count(
        &self,
        count: impl Future<Output = Result<Stats, StoreError>>,
    ) -> Result<Stats, StoreError> {
        let mut counted = self.0.lock().await;
        if let Some(Count { stats, .. }) =
            counted.as_ref().filter(|count| count.at.elapsed() < count.took * KEPT)
        {
            return Ok(*stats);
        }
        let began = Instant::now();
        let stats = count.await?;
        *counted = Some(Count { stats, took: began.elapsed(), at: Instant::now() });
        Ok(stats)
    }
}
