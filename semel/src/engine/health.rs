//! Whether the store takes what is written.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How the writes of an engine have fared lately; see [`Once::store_health`](super::Once::store_health).
///
/// A store with a full disk goes on answering what it can read, so replays say nothing about it: only writes count here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreHealth {
    /// How many claims and ends of attempts could not be written since a write last succeeded.
    pub failed_writes: u32,
    /// How long ago that was; since the engine was made, if none has succeeded yet.
    pub since_write: Duration,
}

/// What an engine has heard of its writes.
pub(super) struct Health {
    began: Instant,
    failed: AtomicU32,
    /// In milliseconds after the beginning.
    written: AtomicU64,
}

impl Default for Health {
    fn default() -> Self {
        Self { began: Instant::now(), failed: AtomicU32::new(0), written: AtomicU64::new(0) }
    }
}

impl Health {
    /// A write was applied.
    pub(super) fn written(&self) {
        let now = self.began.elapsed().as_millis() as u64;
        // Every attempt comes along here, on all threads: most have nothing to change.
        if self.written.load(Ordering::Relaxed) / 100 != now / 100 {
            self.written.store(now, Ordering::Relaxed);
        }
        if self.failed.load(Ordering::Relaxed) != 0 {
            self.failed.store(0, Ordering::Relaxed);
        }
    }

    /// A write was given up.
    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> StoreHealth {
        let written = Duration::from_millis(self.written.load(Ordering::Relaxed));
        StoreHealth {
            failed_writes: self.failed.load(Ordering::Relaxed),
            since_write: self.began.elapsed().saturating_sub(written),
        }
    }
}
