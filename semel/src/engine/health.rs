//! Whether the store takes what is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How the writes of an engine have fared lately; see
/// [`Once::store_health`](super::Once::store_health).
///
/// A store with a full disk goes on answering what it can read, so replays say nothing about it:
/// only writes count here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreHealth {
    /// How many claims could not be written since a write last succeeded, and how many ends of
    /// attempts since an end last succeeded: a store without room for an outcome may have room for
    /// a claim.
    pub failed_writes: u32,
    /// How many of them were ends of attempts; none if no end waits to be written any more.
    pub failed_ends: u32,
    /// How long ago that was; since the engine was made, if none has succeeded yet.
    pub since_write: Duration,
}

/// What an engine has heard of its writes.
pub(super) struct Health {
    began: Instant,
    failed_claims: AtomicU32,
    ends: Arc<Ends>,
    /// In milliseconds after the beginning.
    written: AtomicU64,
}

/// The ends of attempts that were not written.
#[derive(Default)]
struct Ends {
    /// How many since an end last succeeded.
    failed: AtomicU32,
    /// How many are tried again in the background.
    tried_again: AtomicU32,
}

/// An end of an attempt that is tried again, until this is dropped.
pub(super) struct TriedAgain(Arc<Ends>);

impl Drop for TriedAgain {
    fn drop(&mut self) {
        if self.0.tried_again.fetch_sub(1, Ordering::Relaxed) == 1 {
            // Written or refused for good: nothing is left that could succeed.
            clear(&self.0.failed);
        }
    }
}

impl Default for Health {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            failed_claims: AtomicU32::new(0),
            ends: Arc::default(),
            written: AtomicU64::new(0),
        }
    }
}

/// Every attempt comes along here, on all threads: most have nothing to change.
fn clear(failed: &AtomicU32) {
    if failed.load(Ordering::Relaxed) != 0 {
        failed.store(0, Ordering::Relaxed);
    }
}

impl Health {
    /// A claim was applied.
    pub(super) fn claimed(&self) {
        let now = self.began.elapsed().as_millis() as u64;
        if self.written.load(Ordering::Relaxed) / 100 != now / 100 {
            self.written.store(now, Ordering::Relaxed);
        }
        clear(&self.failed_claims);
    }

    /// The end of an attempt was written.
    pub(super) fn ended(&self) {
        self.claimed();
        clear(&self.ends.failed);
    }

    /// A claim was given up.
    pub(super) fn claim_failed(&self) {
        self.failed_claims.fetch_add(1, Ordering::Relaxed);
    }

    /// The end of an attempt was not written, and is tried again in the background.
    pub(super) fn end_failed(&self) {
        self.ends.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn tried_again(&self) -> TriedAgain {
        self.ends.tried_again.fetch_add(1, Ordering::Relaxed);
        TriedAgain(Arc::clone(&self.ends))
    }

    pub(super) fn now(&self) -> StoreHealth {
        let written = Duration::from_millis(self.written.load(Ordering::Relaxed));
        let failed_ends = self.ends.failed.load(Ordering::Relaxed);
        StoreHealth {
            failed_writes: self.failed_claims.load(Ordering::Relaxed).saturating_add(failed_ends),
            failed_ends,
            since_write: self.began.elapsed().saturating_sub(written),
        }
    }
}
