//! The health of the store, judged by the writes of the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The recent failures and successes of an engine's writes; see
/// [`Once::store_health`](super::Once::store_health).
///
/// Only writes count. A store with a full disk still answers reads, so successful replays say
/// nothing about its health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreHealth {
    /// The number of claims that have failed since the last successful write, plus
    /// [`failed_settlements`](Self::failed_settlements).
    pub failed_writes: u32,
    /// The number of settlements of attempts that have failed since one last succeeded; 0 when none
    /// is left to be retried. They are counted apart from claims, because a store without room for
    /// an outcome may have room for a claim.
    pub failed_settlements: u32,
    /// The time since the last successful write, or since the creation of the engine.
    pub since_write: Duration,
}

/// The counters behind [`StoreHealth`].
pub(super) struct Health {
    began: Instant,
    failed_claims: AtomicU32,
    settlements: Arc<Settlements>,
    /// The moment of the last successful write, in milliseconds since `began`.
    written_ms: AtomicU64,
}

/// The settlements that were not written.
#[derive(Default)]
struct Settlements {
    /// The failures since a settlement last succeeded.
    failed: AtomicU32,
    /// The settlements that are being retried in the background.
    retried: AtomicU32,
}

/// A guard that counts a settlement as being retried until it is dropped.
pub(super) struct RetriedSettlement(Arc<Settlements>);

impl Drop for RetriedSettlement {
    fn drop(&mut self) {
        if self.0.retried.fetch_sub(1, Ordering::Relaxed) == 1 {
            // Every settlement has been written, or refused for good: no retry is left whose success could
            // reset the count.
            clear(&self.0.failed);
        }
    }
}

impl Default for Health {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            failed_claims: AtomicU32::new(0),
            settlements: Arc::default(),
            written_ms: AtomicU64::new(0),
        }
    }
}

/// Sets the count to 0. The write is skipped if possible, because every attempt on every thread
/// calls this.
fn clear(failed: &AtomicU32) {
    if failed.load(Ordering::Relaxed) != 0 {
        failed.store(0, Ordering::Relaxed);
    }
}

impl Health {
    /// Records that a claim was applied.
    pub(super) fn claimed(&self) {
        let now = self.began.elapsed().as_millis() as u64;
        if self.written_ms.load(Ordering::Relaxed) / 100 != now / 100 {
            self.written_ms.store(now, Ordering::Relaxed);
        }
        clear(&self.failed_claims);
    }

    /// Records that a settlement was written.
    pub(super) fn settled(&self) {
        self.claimed();
        clear(&self.settlements.failed);
    }

    /// Records that a claim was given up.
    pub(super) fn claim_failed(&self) {
        self.failed_claims.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a settlement was not written at once.
    pub(super) fn settlement_failed(&self) {
        self.settlements.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn retried_settlement(&self) -> RetriedSettlement {
        self.settlements.retried.fetch_add(1, Ordering::Relaxed);
        RetriedSettlement(Arc::clone(&self.settlements))
    }

    pub(super) fn now(&self) -> StoreHealth {
        let written = Duration::from_millis(self.written_ms.load(Ordering::Relaxed));
        let failed_settlements = self.settlements.failed.load(Ordering::Relaxed);
        StoreHealth {
            failed_writes: self.failed_claims.load(Ordering::Relaxed).saturating_add(failed_settlements),
            failed_settlements,
            since_write: self.began.elapsed().saturating_sub(written),
        }
    }
}
